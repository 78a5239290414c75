"""People: logins of PostgreSQL that read the books for finance, and prepare or approve.

A person is a role with the rights of `<database>_finance` and of one or two of the roles of
`roles.Right`. So PostgreSQL knows who does something (`session_user`), and no argument can say
otherwise.
Source: docs/decisions/0064-people-are-roles.md
"""

import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg import errors, sql

from cardledger.config.errors import USAGE, CommandError
from cardledger.embedded.servers import DatabaseUrl
from cardledger.install import databases
from cardledger.schema import connections, finance, roles
from cardledger.schema.roles import Right, Role

_NAME: Final = re.compile(r"[a-z][a-z0-9._-]{0,62}", re.ASCII)
_SYSTEM: Final = re.compile(rf".*_(?:{'|'.join([*Role, *Right])})", re.ASCII)
_RESERVED: Final = ("pg_", "postgres", "public", "none")
_END_OF_SESSION_MS: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A person; the last two are None when the role became a person without `add`."""

    name: str
    may: Sequence[Right]
    added_at: datetime | None
    added_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """How a new person logs in; `is_asked`: the server asks for the password."""

    database_url: DatabaseUrl
    is_asked: bool


def add(owner: DatabaseUrl, name: str, may: Sequence[Right]) -> Added:
    """Create the login `name`, which may do what `may` says; its password is in the URL alone.

    Raises: CommandError when the name cannot be used, or `owner` may not create roles.
    """
    _check(name)
    rights = [right for right in Right if right in may]
    if not rights:
        raise CommandError("say what the person may do: --may prepare, --may approve", code=USAGE)
    password = secrets.token_urlsafe(24)
    with _owner(owner) as connection, connection.transaction():
        if _exists(connection, name):
            raise CommandError(
                f"there is a role {name} on this PostgreSQL server; choose another name, or remove"
                " the person first"
            )
        _create(connection, owner, name, rights, password)
        _record(connection, name, "ADDED", rights)
    url = owner.with_user(name, password)
    problem = databases.login_problem(url)
    if problem is not None:
        remove(owner, name)
        raise CommandError(
            f"role {name} cannot log in ({problem}), and was removed again; let the people of"
            " finance log in with a password (pg_hba.conf: scram-sha-256)"
        )
    wrong = owner.with_user(name, secrets.token_urlsafe(24))
    return Added(database_url=url, is_asked=not databases.logs_in(wrong))


def listed(url: DatabaseUrl) -> list[Person]:
    """Return the people of the database at `url`, by name.

    Raises: CommandError.
    """
    with _owner(url) as connection:
        return _people(connection, url)


def remove(owner: DatabaseUrl, name: str) -> None:
    """End the sessions of the person `name` and drop the login; what it did stays recorded.

    Raises: CommandError when there is no such person, or `owner` may not end the sessions: then
    the person cannot log in any more, and `remove` can be repeated.
    """
    with _owner(owner) as connection:
        found = next((one for one in _people(connection, owner) if one.name == name), None)
        if found is None:
            raise CommandError(f"there is no person {_quoted(name)} in {owner.redacted}")
        role = sql.Identifier(name)
        connection.execute(sql.SQL("ALTER ROLE {} NOLOGIN PASSWORD NULL").format(role))
        _end_sessions(connection, name)
        with connection.transaction():
            try:
                with connection.transaction():
                    connection.execute(sql.SQL("DROP ROLE {}").format(role))
            except errors.DependentObjectsStillExist:
                # Rights that an administrator gave it, perhaps in another database: it keeps its
                # name, and neither a login nor a right here.
                for group in _groups(owner, found.may):
                    connection.execute(
                        sql.SQL("REVOKE {} FROM {}").format(sql.Identifier(group), role)
                    )
            _record(connection, name, "REMOVED", found.may)


# --- statements -----------------------------------------------------------------------------------


def _create(
    connection: psycopg.Connection[Any],
    owner: DatabaseUrl,
    name: str,
    rights: Sequence[Right],
    password: str,
) -> None:
    verifier = connection.pgconn.encrypt_password(
        password.encode(), name.encode(), b"scram-sha-256"
    )
    groups = sql.SQL(", ").join(map(sql.Identifier, _groups(owner, rights)))
    connection.execute(
        sql.SQL("CREATE ROLE {} LOGIN INHERIT PASSWORD {} IN ROLE {}").format(
            sql.Identifier(name), sql.Literal(verifier.decode()), groups
        )
    )


def _groups(owner: DatabaseUrl, rights: Sequence[Right]) -> list[str]:
    own = [roles.name_in(owner, right) for right in rights]
    return [roles.name_in(owner, Role.FINANCE), *own]


def _exists(connection: psycopg.Connection[Any], name: str) -> bool:
    found = connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [name]).fetchone()
    return found is not None


def _record(
    connection: psycopg.Connection[Any], name: str, change: str, rights: Sequence[Right]
) -> None:
    connection.execute(
        "INSERT INTO person_changes (name, change, may) VALUES (%s, %s, %s)",
        [name, change, [*map(str, rights)]],
    )


_PEOPLE: Final = """
    SELECT p.rolname, array_agg(g.rolname), a.recorded_at, a.person
    FROM pg_auth_members m
    JOIN pg_roles p ON p.oid = m.member JOIN pg_roles g ON g.oid = m.roleid
    LEFT JOIN LATERAL (
        SELECT recorded_at, person FROM {}.audit
        WHERE subject = p.rolname AND action = 'PERSON_ADDED'
        ORDER BY recorded_at DESC LIMIT 1
    ) a ON true
    WHERE g.rolname = ANY(%s) AND NOT p.rolsuper AND NOT p.rolcreaterole
    GROUP BY p.rolname, a.recorded_at, a.person ORDER BY p.rolname
"""


def _people(connection: psycopg.Connection[Any], url: DatabaseUrl) -> list[Person]:
    # An owner that may create roles is a member of those that it has created, and is not a person.
    rights = {roles.name_in(url, right): right for right in Right}
    schema = connection.execute(f"SELECT {finance.find(url.schema)}".encode()).fetchone()
    assert schema is not None
    query = sql.SQL(_PEOPLE).format(sql.Identifier(schema[0]))
    return [
        Person(
            name=name,
            may=[right for group, right in rights.items() if group in groups],
            added_at=added_at,
            added_by=added_by,
        )
        for name, groups, added_at, added_by in connection.execute(query, [list(rights)])
    ]


def _end_sessions(connection: psycopg.Connection[Any], name: str) -> None:
    """End the sessions of the role `name` in all databases, which cannot begin another.

    Raises: CommandError.
    """
    found = "FROM pg_stat_activity WHERE usename = %s"
    with suppress(errors.InsufficientPrivilege):
        connection.execute(
            f"SELECT pg_terminate_backend(pid, {_END_OF_SESSION_MS}) {found}".encode(), [name]
        )
    row = connection.execute(f"SELECT count(*) {found}".encode(), [name]).fetchone()
    if row is not None and row[0]:
        raise CommandError(
            f"{name} cannot log in any more, and {row[0]} of its sessions are still open: let a"
            f" superuser end them (SELECT pg_terminate_backend(pid) {found % repr(name)}), then"
            " remove the person again"
        )


# --- errors ---------------------------------------------------------------------------------------


def _check(name: str) -> None:
    """Raise CommandError when `name` cannot be the name of a person."""
    if not _NAME.fullmatch(name) or name.startswith(_RESERVED[0]) or name in _RESERVED:
        raise CommandError(
            f"{_quoted(name)} cannot be the name of a person: write 1 to 63 of a-z, 0-9, '.', '_'"
            " and '-', a letter first, no word that PostgreSQL reserves",
            code=USAGE,
        )
    if _SYSTEM.fullmatch(name):
        raise CommandError(
            f"{name} cannot be the name of a person: the roles of the system end like that",
            code=USAGE,
        )


def _quoted(name: str) -> str:
    return ascii(name if len(name) <= 80 else f"{name[:77]}...")  # noqa: PLR2004 - a line


@contextmanager
def _owner(url: DatabaseUrl) -> Iterator[psycopg.Connection[Any]]:
    """Yield a connection, outside of a database transaction.

    Raises: CommandError when PostgreSQL refuses what is done with it.
    """
    try:
        with connections.connect(url, autocommit=True) as connection:
            yield connection
    except (errors.DuplicateObject, errors.UniqueViolation):  # Added meanwhile.
        raise CommandError("there is a role of this name already; choose another one") from None
    except errors.InsufficientPrivilege as error:
        raise CommandError(
            f"role {url.role} may not: {error.diag.message_primary}; use the login of the owner of"
            " the tables, with CREATEROLE"
        ) from None
    except (errors.UndefinedObject, errors.UndefinedTable, errors.InvalidSchemaName) as error:
        raise CommandError(
            f"{error.diag.message_primary}: run `cardledger migrate`; a copied database has the"
            " roles of the name that it had (docs/postgresql.md#roles)"
        ) from None
    except psycopg.Error as error:
        raise CommandError(f"PostgreSQL at {url.redacted}: {error}") from None
