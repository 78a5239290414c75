"""`cardledger migrate`: the schema up or down, and the passwords of the roles."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from alembic.util import CommandError as AlembicError
from sqlalchemy.exc import DBAPIError

from cardledger.config import configuration
from cardledger.config.configuration import writable_directory
from cardledger.config.errors import USAGE, CommandError
from cardledger.config.settings import Settings
from cardledger.embedded.servers import DatabaseUrl, EmbeddedPostgres, GivenPostgres
from cardledger.install import databases, discovery
from cardledger.schema import earlier_releases, location, migrate, roles


def run(  # noqa: PLR0913 - one an option
    *,
    down: str | None,
    finish: bool,
    as_sql: bool,
    yes: bool,
    give_up_after_s: float,
    data_dir: Path | None,
) -> None:
    """Migrate the database that is at hand; `yes` answers what would be asked."""
    settings = configuration.load(data_dir=data_dir, log_level="warning")
    if as_sql:
        if down is not None or finish:
            other = "--finish" if down is None else "--down"
            raise CommandError(f"--sql prints the way up; leave out {other}", code=USAGE)
        migrate.sql(schema=settings.database_schema or location.DEFAULT)
        return
    if finish and down is not None:
        raise CommandError("--finish and --down contradict each other", code=USAGE)
    with _owner(settings) as url:
        if down is None:
            _up(url, settings, give_up_after_s)
            if finish:
                _finish(url)
        else:
            _down(url, down, give_up_after_s, yes=yes)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _finish(url: DatabaseUrl) -> None:
    try:
        migrate.finish(url)
    except earlier_releases.UndecidedError as error:
        raise CommandError(str(error)) from None
    print(
        "from now on messages, quotes and payments without a MAC, of earlier releases, are refused,"
        " the API's role reaches the rows of platforms by views only, and the role that submits"
        " enqueues events by functions only"
    )


def _up(url: DatabaseUrl, settings: Settings, give_up_after_s: float) -> None:
    was = databases.upgrade(url, give_up_after_s=give_up_after_s, progress=_say)
    now = databases.current(url)
    print(f"schema {now}, as it was" if was == now else f"schema {was or 'none'} -> {now}")
    for role, password in databases.passwords(settings).items():
        name = roles.name_in(url, role)
        # Checked first, because the role that migrates at every start may lack the right to set it.
        if not databases.logs_in(url.with_user(name, password)):
            databases.set_password(url, role, password)
        print(f"role {name} has the password in {databases.variable_of(role)}")


def _down(url: DatabaseUrl, revision: str, give_up_after_s: float, *, yes: bool) -> None:
    if not yes:
        _ask(f"removes from {url.redacted} what came after {revision}, data included")
    was = databases.current(url)
    try:
        migrate.downgrade(url, revision, give_up_after_s=give_up_after_s, progress=_say)
    except (migrate.BusyError, AlembicError, DBAPIError) as error:
        reason = str(getattr(error, "orig", error)).partition("\n")[0]
        raise CommandError(f"the schema is {databases.current(url)}: {reason}") from None
    print(f"schema {was or 'none'} -> {databases.current(url) or 'none'}")


def _ask(what: str) -> None:
    if not sys.stdin.isatty():
        raise CommandError(f"this {what}; say --yes if that is what you want", code=USAGE)
    if not typer.confirm(f"This {what}. Go on?"):
        raise CommandError("nothing was changed")


@contextmanager
def _owner(settings: Settings) -> Iterator[DatabaseUrl]:
    """Yield the database for a role that may change it."""
    if settings.database_url is not None:
        given = GivenPostgres(settings.database_url.get_secret_value())
        given.start()
        yield given.url
        return
    discovery.check_not_elsewhere(settings)
    # One that runs there already is joined, and left running.
    server = EmbeddedPostgres(writable_directory(settings.data_dir))
    server.start()
    try:
        yield databases.create(server.url, schema=settings.database_schema)
    finally:
        server.stop()
