"""A database whose roles are named after it, with people who prepare and approve."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

import psycopg

from cardledger.embedded.servers import DatabaseUrl
from cardledger.install import people
from cardledger.schema import migrate, roles
from cardledger.schema.roles import Right, Role
from tests.databases import PASSWORD, OwnRoles


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
def open_office(own_roles: OwnRoles) -> Iterator[Office]:
    """Yield an office in a database of its own, which is dropped, and its people with it."""
    with own_roles.fresh() as url:
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
        for person in people.listed(url):
            people.remove(url, person.name)


def call(url: str, statement: str, *values: object) -> Any:  # noqa: ANN401 - of any type
    """Return the one value of `statement`, executed as psql does with the login in `url`."""
    with psycopg.connect(url, autocommit=True) as connection:
        [(value,)] = connection.execute(statement.encode(), values or None)
    return value
