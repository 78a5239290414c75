"""From the URL of a database's owner to a migrated database and the application's own login.

The application runs as the role `<database>_app`, which can add facts and change none. The
migration makes that role without a password: enough where PostgreSQL trusts the connection (an
embedded server behind its private socket); elsewhere it gets one here.
"""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
from alembic.util import CommandError as AlembicError
from psycopg import sql
from sqlalchemy.exc import DBAPIError

from cardledger.config.errors import CommandError
from cardledger.embedded.servers import DatabaseUrl
from cardledger.schema import connections, ids, migrate

if TYPE_CHECKING:
    from cardledger.install.credentials import Credentials

EMBEDDED_DATABASE = "cardledger"

# All connections of this process are ours, also those that are no engine's.
ids.register(psycopg.adapters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Migrated:
    """A database whose schema this release can use."""

    app_url: DatabaseUrl
    revision: str
    was: str | None  # The revision that it had before.


def create(
    server: DatabaseUrl, name: str = EMBEDDED_DATABASE, *, schema: str | None = None
) -> DatabaseUrl:
    """Return the URL of the database `name` on an embedded server; creates a missing database.

    The URL is for tables in the PostgreSQL schema `schema`, or in the default one.
    """
    with connections.connect(server, reply_limit_s=None, autocommit=True) as connection:
        found = connection.execute("SELECT FROM pg_database WHERE datname = %s", [name]).fetchone()
        if found is None:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    url = server.with_database(name)
    return url.with_schema(schema) if schema else url


def prepare(
    owner: DatabaseUrl, credentials: "Credentials", *, app_password: str | None = None
) -> Migrated:
    """Bring the database up to this release, and return how the application logs in.

    Raises: CommandError saying who has to do what.
    """
    was = upgrade(owner)
    app_url = application_login(owner, credentials, app_password=app_password)
    return Migrated(app_url=app_url, revision=current(owner) or "none", was=was)


def upgrade(
    owner: DatabaseUrl,
    *,
    give_up_after_s: float = migrate.GIVE_UP_AFTER_S,
    progress: migrate.Progress = migrate.ignore,
) -> str | None:
    """Bring the database up to this release; return the revision it had before.

    A newer schema that this release can use stays as it is: a newer release runs beside it. A role
    that may not migrate is fine as long as there is nothing to do. `progress` gets a line for each
    step.
    Raises: CommandError.
    """
    if not owner.database:
        raise CommandError(
            f"DATABASE_URL names no database: write {owner.redacted.rstrip('/')}/cardledger"
        )
    was = current(owner)
    if schema_problem(owner) is None:
        return was
    try:
        migrate.upgrade(owner, give_up_after_s=give_up_after_s, progress=progress)
    except migrate.BusyError as error:
        raise CommandError(
            f"{error}; the schema is at {current(owner) or 'none'}: run it again"
        ) from None
    except AlembicError as error:
        raise CommandError(
            f"the database has schema {was}, which this release does not know ({error});"
            " use the release that created it, or a newer one"
        ) from None
    except DBAPIError as error:
        if isinstance(error.orig, psycopg.errors.InsufficientPrivilege):
            raise CommandError(
                f"the database has schema {was or 'none'}, this release needs {migrate.head()}, and"
                f" role {role_of(owner)} may not migrate it ({_first_line(error.orig)}); run"
                " `cardledger migrate` with a DATABASE_URL of a role that owns the database and"
                " may create roles"
            ) from None
        raise CommandError(f"the migration failed: {_first_line(error.orig)}") from None
    return was


def current(url: DatabaseUrl) -> str | None:
    """Return the revision of a database.

    Raises: CommandError when it does not answer.
    """
    try:
        return migrate.current(url)
    except DBAPIError as error:
        raise CommandError(
            f"PostgreSQL at {url.redacted} does not answer: {_first_line(error.orig)}"
        ) from None


def schema_problem(url: DatabaseUrl) -> str | None:
    """Return why this release cannot use the schema of a database; None when it can.

    Raises: CommandError when it does not answer.
    """
    try:
        return migrate.problem(url)
    except DBAPIError as error:
        raise CommandError(
            f"PostgreSQL at {url.redacted} does not answer: {_first_line(error.orig)}"
        ) from None


def check_schema(url: DatabaseUrl) -> None:
    """Raise CommandError when this release cannot use the schema of a database."""
    problem = schema_problem(url)
    if problem is not None:
        raise CommandError(problem)


def application_login(
    owner: DatabaseUrl, credentials: "Credentials", *, app_password: str | None = None
) -> DatabaseUrl:
    """Return a URL with which the application's role can log in.

    What works already stays; else the role gets `app_password`, or a new password that is kept.
    Raises: CommandError when `owner` may not set it.
    """
    role = migrate.app_role(owner)
    if role_of(owner) == role:
        return owner
    for password in _candidates(app_password, credentials):
        url = owner.with_user(role, password)
        if logs_in(url):
            return url
    if app_password is None and not migrate.owns_app_role(owner):
        raise CommandError(
            f"role {role} exists and was not created by cardledger: set CARDLEDGER_APP_PASSWORD to"
            " its password, or DATABASE_URL to a login of that role"
        )
    password = app_password or secrets.token_urlsafe(24)
    set_password(owner, password)
    url = owner.with_user(role, password)
    problem = _login_problem(url)
    if problem is not None:
        raise CommandError(
            f"role {role} cannot log in ({problem}); allow it in pg_hba.conf, or set DATABASE_URL"
            " to a login of that role"
        )
    if app_password is None:
        credentials.app_password = password
        credentials.save()
    return url


def set_password(owner: DatabaseUrl, password: str) -> None:
    """Give the application's role `password`; the server and its logs see only a hash.

    Raises: CommandError when `owner` may not.
    """
    role = migrate.app_role(owner)
    try:
        with connections.connect(owner, autocommit=True) as connection:
            verifier = connection.pgconn.encrypt_password(
                password.encode(), role.encode(), b"scram-sha-256"
            )
            connection.execute(
                sql.SQL("ALTER ROLE {} PASSWORD {}").format(
                    sql.Identifier(role), sql.Literal(verifier.decode())
                )
            )
    except psycopg.Error as error:
        raise CommandError(
            f"role {role_of(owner)} cannot set a password for {role} ({_first_line(error)}); set"
            f" CARDLEDGER_APP_PASSWORD to the one it has, or DATABASE_URL to a login of {role}"
        ) from None


def logs_in(url: DatabaseUrl) -> bool:
    """Return whether the login in `url` works."""
    return _login_problem(url) is None


def role_of(url: DatabaseUrl) -> str:
    """Return the role in `url`, empty when PostgreSQL chooses."""
    return url.role


def _candidates(app_password: str | None, credentials: "Credentials") -> Iterator[str | None]:
    if app_password is not None:
        yield app_password
        return
    if credentials.app_password is not None:
        yield credentials.app_password
    yield None


def _login_problem(url: DatabaseUrl) -> str | None:
    try:
        connections.connect(url).close()
    except psycopg.Error as error:
        return _first_line(error)
    return None


def _first_line(error: BaseException | None) -> str:
    return str(error).strip().partition("\n")[0]
