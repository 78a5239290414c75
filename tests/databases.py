"""Databases for tests: created for a module or test, dropped with all their sessions."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg import sql

from cardledger.embedded.servers import DatabaseUrl
from cardledger.schema import ids, location, migrate, platform_views, roles
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
    with _database(DatabaseUrl(postgres_url), _new_name(), template or "template0") as url:
        yield url


class OwnRoles:
    """Migrated, empty databases of a server, whose roles are named after them.

    The roles of a copy are those of its original. So each template is migrated under the name of
    its copies, then renamed: a copy takes a fiftieth of the time of the revisions. A name that is
    free again is used again.
    """

    def __init__(self, postgres_url: str) -> None:
        self._server: Final = DatabaseUrl(postgres_url)
        self._made: Final[list[str]] = []
        self._free: Final[list[str]] = []

    @contextmanager
    def fresh(self) -> Iterator[DatabaseUrl]:
        """Create a database and drop it afterwards; yields the superuser's URL of it.

        Its roles stay, with `PASSWORD` whenever a database is created. A test that makes other
        roles, such as people, removes them.
        """
        name = self._free.pop() if self._free else self._new_template()
        self._set_passwords(name)
        with _database(self._server, name, _template_of(name)) as url:
            yield url
        self._free.append(name)

    def close(self) -> None:
        """Drop the templates and the roles."""
        for name in self._made:
            _execute(self._server, _dropped(_template_of(name)))
            for role in roles.names_in(self._server.with_database(name)):
                _execute(
                    self._server, sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(role))
                )

    def _new_template(self) -> str:
        name = _new_name()
        _execute(self._server, _created(name, "template0"))
        self._made.append(name)
        migrate.upgrade(self._server.with_database(name))
        rename = sql.SQL("ALTER DATABASE {} RENAME TO {}")
        names = sql.Identifier(name), sql.Identifier(_template_of(name))
        _execute(self._server, rename.format(*names))
        return name

    def _set_passwords(self, name: str) -> None:
        with psycopg.connect(self._server, autocommit=True) as connection:
            for role in Role:
                login = sql.Identifier(roles.name_in(self._server.with_database(name), role))
                connection.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(login, PASSWORD))


@contextmanager
def _database(server: DatabaseUrl, name: str, template: str) -> Iterator[DatabaseUrl]:
    _execute(server, _created(name, template))
    try:
        yield server.with_database(name)
    finally:
        _execute(server, _dropped(name))


def _new_name() -> str:
    return f"test_{uuid.uuid4().hex}"


def _template_of(name: str) -> str:
    return f"{name}_template"


def _created(name: str, template: str) -> sql.Composed:
    # By files, without a log of every page: creating and dropping takes half the processor time.
    names = sql.Identifier(name), sql.Identifier(template)
    return sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY").format(*names)


def _dropped(name: str) -> sql.Composed:
    return sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))


def as_role(url: str, role: Role) -> DatabaseUrl:
    """Return the same database for another of its roles; `url` has the login of one of them.

    The URL of the owner, or of a role of the server's, stays as it is.
    """
    given = DatabaseUrl(url)
    database, _, suffix = given.role.rpartition("_")
    if not database or suffix not in set(Role):
        return given
    return given.with_user(f"{database}_{role}", PASSWORD)


def as_psql(url: str) -> psycopg.Connection[Any]:
    """Return a connection as `psql` opens it, which does not know the schema of the tables."""
    return psycopg.connect(location.without_options(url), autocommit=True)


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
