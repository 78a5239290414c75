"""A database whose roles are named after it, with people who prepare and approve."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

import psycopg
from psycopg import sql

from cardledger.embedded.servers import DatabaseUrl
from cardledger.install import people
from cardledger.schema import migrate, roles
from cardledger.schema.roles import Right, Role
from tests.databases import PASSWORD, fresh_database


@dataclass(frozen=True, slots=True)
class Office:
    """The owner's URL, that of the application, and those of four people."""

    owner: DatabaseUrl
    app: DatabaseUrl
    anna: DatabaseUrl  # Prepares.
    ben: DatabaseUrl  # Approves.
    carl: DatabaseUrl  # Approves, too.
    dora: DatabaseUrl  # Does both.

    def as_role(self, role: Role) -> DatabaseUrl:
        """Return the URL of another role."""
        return self.owner.with_user(roles.name_in(self.owner, role), PASSWORD)


@contextmanager
def open_office(postgres_url: DatabaseUrl) -> Iterator[Office]:
    """Yield an office in a database of its own, which is dropped with its roles."""
    with fresh_database(postgres_url) as url:
        migrate.upgrade(url)
        with psycopg.connect(url, autocommit=True) as connection:
            for role in Role:
                login = sql.Identifier(roles.name_in(url, role))
                connection.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(login, PASSWORD))
        suffix = token_hex(4)  # Roles belong to the server.
        rights = {
            "anna": [Right.PREPARE],
            "ben": [Right.APPROVE],
            "carl": [Right.APPROVE],
            "dora": [*Right],
        }
        urls = {
            name: people.add(url, f"{name}-{suffix}", may).database_url
            for name, may in rights.items()
        }
        yield Office(owner=url, app=url.with_user(migrate.app_role(url), PASSWORD), **urls)
        for name in rights:
            people.remove(url, f"{name}-{suffix}")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for role_name in roles.names_in(url):
            connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(role_name)))


def call(url: str, statement: str, *values: object) -> Any:  # noqa: ANN401 - of any type
    """Return the one value of `statement`, executed as psql does with the login in `url`."""
    with psycopg.connect(url, autocommit=True) as connection:
        [(value,)] = connection.execute(statement.encode(), values or None)
    return value
