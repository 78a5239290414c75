"""Which system a command is about: DATABASE_URL, else the one that runs in the data directory."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from cardledger.config.errors import CommandError
from cardledger.config.settings import Settings
from cardledger.embedded.database_url import DatabaseUrl
from cardledger.embedded.postgres import EmbeddedPostgres
from cardledger.install import ready_file

# Connecting to it fails at once. Outcomes are then looked up in the record instead of heard.
NO_REDIS: Final = "unix:///dev/null"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a system is."""

    database_url: DatabaseUrl
    redis_url: str | None
    is_given: bool  # By DATABASE_URL, so it is unknown here whether a system runs.


def system(settings: Settings) -> Place:
    """Return the system to talk to.

    Raises: CommandError when none runs and none was named.
    """
    found = ready_file.find(settings.data_dir)
    redis_url = settings.redis_url.get_secret_value() if settings.redis_url else None
    if settings.database_url is not None:
        url = DatabaseUrl(settings.database_url.get_secret_value())
        if redis_url is None and found and _is_same(url, DatabaseUrl(found.database_url)):
            redis_url = found.redis_url
        return Place(database_url=url, redis_url=redis_url, is_given=True)
    if found is None:
        raise CommandError(
            f"no system runs in {settings.data_dir}; start it with `cardledger up`, name its"
            " --data-dir, or set DATABASE_URL and REDIS_URL"
        )
    return Place(
        database_url=DatabaseUrl(found.database_url),
        redis_url=redis_url or found.redis_url,
        is_given=False,
    )


@contextmanager
def database(settings: Settings) -> Iterator[DatabaseUrl]:
    """Yield the database to work on: of the running system, otherwise an embedded one meanwhile.

    Raises: CommandError when there is none.
    """
    found = ready_file.find(settings.data_dir)
    if settings.database_url is not None or found is not None:
        yield system(settings).database_url
        return
    with owner(settings) as url:
        yield url


@contextmanager
def owner(settings: Settings) -> Iterator[DatabaseUrl]:
    """Yield the database with the login that may change its roles: of DATABASE_URL, or embedded.

    Raises: CommandError when there is none.
    """
    if settings.database_url is not None:
        yield DatabaseUrl(settings.database_url.get_secret_value())
        return
    # It needs migrations, a third of the memory of a command that only reads.
    from cardledger.install import databases  # noqa: PLC0415

    _check_embedded(settings)
    server = EmbeddedPostgres(settings.data_dir)  # One that runs there is joined, and left running.
    server.start()
    try:
        yield databases.create(server.url, schema=settings.database_schema)
    finally:
        server.stop()


def check_not_elsewhere(settings: Settings) -> None:
    """Check that a system which runs in the data directory has an embedded database.

    Raises: CommandError when `up` was given another by DATABASE_URL: its owner is not known here.
    """
    found = ready_file.find(settings.data_dir)
    if found is not None and not _has_database(settings):
        place = DatabaseUrl(found.database_url).redacted
        raise CommandError(
            f"the system in {settings.data_dir} works on {place};"
            " set DATABASE_URL to that database with the login of its owner"
        )


def _has_database(settings: Settings) -> bool:
    return (settings.data_dir / "postgres").is_dir()


def _check_embedded(settings: Settings) -> None:
    check_not_elsewhere(settings)
    if not _has_database(settings):
        raise CommandError(
            f"there is no database in {settings.data_dir}; name the --data-dir, set DATABASE_URL,"
            " or create one with `cardledger up`"
        )


def _is_same(one: DatabaseUrl, other: DatabaseUrl) -> bool:
    return one.with_user("any") == other.with_user("any")
