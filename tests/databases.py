"""Databases for tests: created for a module or test, dropped with all their sessions."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from cardledger.embedded.servers import DatabaseUrl
from cardledger.schema import ids

# Tests read the database over connections of their own.
ids.register(psycopg.adapters)


@contextmanager
def fresh_database(postgres_url: str, template: str | None = None) -> Iterator[DatabaseUrl]:
    """Create a database and drop it afterwards; yields the superuser's URL of it.

    `template` names a database to copy, on the same server, without sessions. No test
    shares a database with another, so tests commit for real and need no roll-back tricks. The name
    is of a form that `<database>_app` stays below PostgreSQL's 63 bytes.
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


def _execute(server: DatabaseUrl, statement: sql.Composed) -> None:
    # CREATE and DROP DATABASE refuse to run inside a database transaction.
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(statement)
