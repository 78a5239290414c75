"""The role that submits: each relation with each verb, and each function, is tried."""

from collections.abc import Iterator
from typing import Final

import psycopg
import pytest
from psycopg import errors

from cardledger.embedded.servers import DatabaseUrl
from cardledger.schema import roles
from cardledger.schema.platform_views import schema_beside
from cardledger.schema.roles import Role
from tests.databases import as_role

PROMISED: Final = {("SELECT", "cardledger.outcomes")}
"""What the role may do to relations. It needs no more: `enqueue` and `outcome` are functions."""

_RELATIONS: Final = """
    SELECT n.nspname || '.' || c.relname,
        array(SELECT attname::text FROM pg_attribute
              WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = ANY(%s) AND c.relkind IN ('r', 'v', 'm', 'p', 'f')
"""
_FUNCTIONS: Final = """
    SELECT p.proname || '(' || oidvectortypes(p.proargtypes) || ')',
        n.nspname || '.' || p.proname, p.pronargs
    FROM pg_proc p
    JOIN pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = ANY(%s) AND p.prorettype <> 'trigger'::regtype
"""


@pytest.fixture
def owner(database_url: DatabaseUrl) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_url) as connection:
        yield connection


@pytest.fixture
def program(app_database_url: DatabaseUrl) -> Iterator[psycopg.Connection]:
    with psycopg.connect(as_role(app_database_url, Role.SUBMIT)) as connection:
        yield connection


def is_allowed(connection: psycopg.Connection, statement: str) -> bool:
    """Return whether PostgreSQL has the right for `statement`; nothing is changed."""
    with connection.transaction(force_rollback=True):
        try:
            connection.execute(statement.encode())
        except errors.InsufficientPrivilege as error:
            return "permission denied" not in str(error)  # A trigger refuses with the same code.
        except (errors.WrongObjectType, errors.ObjectNotInPrerequisiteState):
            return False  # A view that no role can write.
        except psycopg.Error:
            pass
    return True


def attempts(relation: str, columns: list[str]) -> Iterator[tuple[str, str]]:
    for column in columns:
        yield "SELECT", f'SELECT "{column}" FROM {relation}'
        yield "INSERT", f'INSERT INTO {relation} ("{column}") VALUES (DEFAULT)'
        yield "UPDATE", f'UPDATE {relation} SET "{column}" = DEFAULT'
    yield "SELECT", f"SELECT count(*) FROM {relation}"
    yield "INSERT", f"INSERT INTO {relation} DEFAULT VALUES"
    yield "DELETE", f"DELETE FROM {relation}"
    yield "TRUNCATE", f"TRUNCATE {relation}"
    yield "LOCK", f"LOCK TABLE {relation} IN SHARE MODE"


def test_the_role_that_submits_may_do_what_is_promised_and_nothing_else(
    database_url: DatabaseUrl, owner: psycopg.Connection, program: psycopg.Connection
) -> None:
    schemas = [database_url.schema, schema_beside(database_url.schema)]
    relations = owner.execute(_RELATIONS, [schemas]).fetchall()
    functions = owner.execute(_FUNCTIONS, [schemas]).fetchall()

    allowed = {
        (verb, relation)
        for relation, columns in relations
        for verb, statement in attempts(relation, columns)
        if is_allowed(program, statement)
    }
    called = {
        signature
        for signature, name, count in functions
        if is_allowed(program, f"SELECT {name}({', '.join(['NULL'] * count)})")
    }

    assert len(relations) > 60
    assert allowed == PROMISED
    assert called == set(roles.CALLED_BY_SUBMIT)
