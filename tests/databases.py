"""Databases for tests: created for a module or test, dropped with all their sessions."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg import sql

from cardledger.embedded.servers import DatabaseUrl
from cardledger.schema import ids, platform_views
from cardledger.schema.ids import Id
from cardledger.schema.roles import Role

PASSWORD: Final = "app"
"""Of all roles in tests; a given server may ask for one."""

# Tests read the database over connections of their own.
ids.register(psycopg.adapters)


@contextmanager
def fresh_database(postgres_url: str, template: str | None = None) -> Iterator[DatabaseUrl]:
    """Create a database and drop it afterwards; yields the superuser's URL of it.

    `template` names a database to copy, on the same server, without sessions. No test
    shares a database with another, so tests commit for real and need no roll-back tricks. The name
    is of a form that `<database>_webhooks` stays below PostgreSQL's 63 bytes.
    """
    name = f"test_{uuid.uuid4().hex}"
    template_name = sql.Identifier(template or "template0")
    create = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), template_name)
    drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
    server = DatabaseUrl(postgres_url)

    _execute(server, create)
    try:
        yield server.with_database(name)
    finally:
        _execute(server, drop)


def as_role(url: str, role: Role) -> DatabaseUrl:
    """Return the same database for another of its roles; `url` has the login of one of them.

    The URL of the owner, or of a role of the server's, stays as it is.
    """
    given = DatabaseUrl(url)
    database, _, suffix = given.role.rpartition("_")
    if not database or suffix not in set(Role):
        return given
    return given.with_user(f"{database}_{role}", PASSWORD)


def as_platform(url: str, platform_id: Id | None = None) -> psycopg.Connection[Any]:
    """Return a connection of the API's role, as its requests use one: to the views first.

    Without a platform the views are empty.
    """
    path = platform_views.search_path(DatabaseUrl(url).schema)
    login = psycopg.connect(as_role(url, Role.API), options=f"-c search_path={path}")
    if platform_id is not None:
        login.execute(
            "SELECT set_config(%s, %s, false)", [platform_views.SETTING, str(platform_id)]
        )
        login.commit()
    return login


def _execute(server: DatabaseUrl, statement: sql.Composed) -> None:
    # CREATE and DROP DATABASE refuse to run inside a database transaction.
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(statement)
