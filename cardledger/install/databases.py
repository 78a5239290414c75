"""From the URL of a database's owner to a migrated database and the logins of its processes.

Each process runs as a role of its own (`schema.roles`). The migration makes the roles without
passwords: enough where PostgreSQL trusts the connection (an embedded server behind its private
socket); elsewhere they get them here.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
from alembic.util import CommandError as AlembicError
from psycopg import sql
from sqlalchemy.exc import DBAPIError

from cardledger.config.errors import CommandError
from cardledger.config.settings import PREFIX, Settings
from cardledger.embedded.servers import DatabaseUrl
from cardledger.schema import connections, ids, migrate, roles
from cardledger.schema.roles import Role

if TYPE_CHECKING:
    from cardledger.install.credentials import Credentials

EMBEDDED_DATABASE = "cardledger"

# All connections of this process are ours, also those that are no engine's.
ids.register(psycopg.adapters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Migrated:
    """A database whose schema this release can use."""

    app_url: DatabaseUrl  # Of the operator's commands, and of a process without a role of its own.
    logins: Mapping[Role, DatabaseUrl]  # Of the API, the workers and the senders of webhooks.
    finance_url: DatabaseUrl | None  # None: `owner` may not set its password, and none is known.
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
    owner: DatabaseUrl, credentials: "Credentials", *, passwords: Mapping[Role, str] | None = None
) -> Migrated:
    """Bring the database up to this release, and return how its processes log in.

    `passwords` are those that the settings name.
    Raises: CommandError saying who has to do what.
    """
    given = passwords or {}
    was = upgrade(owner)
    app_url = application_login(owner, credentials, app_password=given.get(Role.APP))
    logins = process_logins(owner, app_url, credentials, given)
    return Migrated(
        app_url=app_url,
        logins=logins,
        finance_url=_finance_login(owner, credentials, given.get(Role.FINANCE)),
        revision=current(owner) or "none",
        was=was,
    )


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

    Raises: CommandError when it does not answer, or may not be read.
    """
    try:
        return migrate.current(url)
    except DBAPIError as error:
        raise _unreadable(url, error.orig) from None


def schema_problem(url: DatabaseUrl) -> str | None:
    """Return why this release cannot use the schema of a database; None when it can.

    Raises: CommandError when it does not answer, or may not be read.
    """
    try:
        return migrate.problem(url)
    except DBAPIError as error:
        raise _unreadable(url, error.orig) from None


def _unreadable(url: DatabaseUrl, error: BaseException | None) -> CommandError:
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return CommandError(
            f"role {role_of(url)} may not read the tables of the ledger ({_first_line(error)}); set"
            " DATABASE_URL to the login of the operator or of a role that reads them"
        )
    return CommandError(f"PostgreSQL at {url.redacted} does not answer: {_first_line(error)}")


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
    return login(owner, Role.APP, credentials, password=app_password)


def process_logins(
    owner: DatabaseUrl,
    app_url: DatabaseUrl,
    credentials: "Credentials",
    passwords: Mapping[Role, str],
) -> dict[Role, DatabaseUrl]:
    """Return the URL with which each process logs in as its own role.

    All are `app_url` when that is all there is: `owner` is its login, which sets no passwords, and
    not every process has a password of its own.
    Raises: CommandError when `owner` may not set a password.
    """
    if role_of(owner) != roles.name_in(owner, Role.APP):
        return {
            role: login(owner, role, credentials, password=passwords.get(role))
            for role in roles.PROCESSES
        }
    found = {
        role: _working(owner, role, credentials, passwords.get(role)) for role in roles.PROCESSES
    }
    own = {role: url for role, url in found.items() if url is not None}
    return own if own.keys() == found.keys() else dict.fromkeys(roles.PROCESSES, app_url)


def _finance_login(
    owner: DatabaseUrl, credentials: "Credentials", password: str | None
) -> DatabaseUrl | None:
    """Return how finance logs in; no process needs it, so None when `owner` may not say."""
    try:
        return login(owner, Role.FINANCE, credentials, password=password)
    except CommandError:
        return None


def login(
    owner: DatabaseUrl, role: Role, credentials: "Credentials", *, password: str | None = None
) -> DatabaseUrl:
    """Return a URL with which `role` can log in.

    What works already stays; else the role gets `password`, or a new one that is kept.
    Raises: CommandError when `owner` may not set it.
    """
    name = roles.name_in(owner, role)
    if role_of(owner) == name:
        return owner
    found = _working(owner, role, credentials, password)
    if found is not None:
        return found
    if password is None and not migrate.owns_role(owner, role):
        raise CommandError(
            f"role {name} exists and was not created by cardledger: set {variable_of(role)} to"
            " its password, or DATABASE_URL to a login of that role"
        )
    new = password or secrets.token_urlsafe(24)
    set_password(owner, role, new)
    url = owner.with_user(name, new)
    problem = login_problem(url)
    if problem is not None:
        raise CommandError(
            f"role {name} cannot log in ({problem}); allow it in pg_hba.conf, or set DATABASE_URL"
            " to a login of that role"
        )
    if password is None:
        credentials.role_passwords[role] = new
        credentials.save()
    return url


def set_password(owner: DatabaseUrl, role: Role, password: str) -> None:
    """Give `role` the password `password`; the server and its logs see only a hash.

    Raises: CommandError when `owner` may not.
    """
    name = roles.name_in(owner, role)
    try:
        with connections.connect(owner, autocommit=True) as connection:
            verifier = connection.pgconn.encrypt_password(
                password.encode(), name.encode(), b"scram-sha-256"
            )
            connection.execute(
                sql.SQL("ALTER ROLE {} PASSWORD {}").format(
                    sql.Identifier(name), sql.Literal(verifier.decode())
                )
            )
    except psycopg.Error as error:
        raise CommandError(
            f"role {role_of(owner)} cannot set a password for {name} ({_first_line(error)}); set"
            f" {variable_of(role)} to the one it has, or DATABASE_URL to a login of {name}"
        ) from None


def passwords(settings: Settings) -> dict[Role, str]:
    """Return the passwords of roles that the settings name."""
    named = {role: getattr(settings, f"{role}_password") for role in Role}
    return {role: secret.get_secret_value() for role, secret in named.items() if secret is not None}


def variable_of(role: Role) -> str:
    """Return the name of the variable with the password of `role`."""
    return f"{PREFIX}{role.upper()}_PASSWORD"


def logs_in(url: DatabaseUrl) -> bool:
    """Return whether the login in `url` works."""
    return login_problem(url) is None


def role_of(url: DatabaseUrl) -> str:
    """Return the role in `url`, empty when PostgreSQL chooses."""
    return url.role


def _working(
    owner: DatabaseUrl, role: Role, credentials: "Credentials", password: str | None
) -> DatabaseUrl | None:
    """Return the URL of `role` with the first password that works already, or without one."""
    kept = credentials.role_passwords.get(role)
    candidates = [password] if password is not None else [kept, None] if kept else [None]
    name = roles.name_in(owner, role)
    urls = (owner.with_user(name, candidate) for candidate in candidates)
    return next((url for url in urls if logs_in(url)), None)


def login_problem(url: DatabaseUrl) -> str | None:
    """Return why the login in `url` does not work; None when it does."""
    try:
        connections.connect(url).close()
    except psycopg.Error as error:
        return _first_line(error)
    return None


def _first_line(error: BaseException | None) -> str:
    return str(error).strip().partition("\n")[0]
