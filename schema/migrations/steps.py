"""Steps of a revision outside of a database transaction, in which they would block all sessions.

A revision that uses these functions does nothing else, and all of them can be repeated: what an
interrupted run has left is found and completed by the next one.
Source: docs/deploying.md, "What a revision may do"
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from alembic import context, op
from sqlalchemy import text

OLDEST_HEAD_AT_FIRST: Final = "0012"
"""What revision 0012, the first that says which releases can use the schema, wrote."""

_IS_VALID: Final = """
    SELECT i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE c.relname = :name AND c.relnamespace = current_schema()::regnamespace
"""


def create_index_concurrently(name: str, on: str, *, is_unique: bool = False) -> None:
    """Build the index `name` while its table is written to; an invalid one is built again.

    `on` says table and columns, and a condition if there is one: "outcomes (platform_id, id)".
    """
    kind = "UNIQUE INDEX" if is_unique else "INDEX"
    with _waiting_for_transactions():
        is_valid = _is_valid(name)
        if is_valid:
            return
        if is_valid is not None:
            op.execute(f"DROP INDEX CONCURRENTLY {name}")
        _say(f"building index {name}")
        op.execute(f"CREATE {kind} CONCURRENTLY {name} ON {on}")


def drop_index_concurrently(name: str) -> None:
    """Drop the index `name`, if there is one, while its table is written to."""
    with _waiting_for_transactions():
        op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")


def change_in_pages(statement: str) -> None:
    """Execute `statement`, a transaction each time, until it changes no row.

    It changes a page of rows (LIMIT) and does not find them again: "UPDATE cards SET brand = 'X'
    WHERE id IN (SELECT id FROM cards WHERE brand IS NULL LIMIT 1000)".
    """
    with op.get_context().autocommit_block():
        if context.is_offline_mode():
            op.execute(f"-- Repeat until it changes no row.\n{statement}")
            return
        changed = 0
        while count := op.get_bind().execute(text(statement)).rowcount:
            changed += count
            _say(f"{changed} rows changed")


def execute_alone(statement: str) -> None:
    """Execute `statement`, which locks a table for a moment, in a database transaction of its own.

    When it does not get the lock in time, the revision is run again from its beginning.
    """
    with op.get_context().autocommit_block():
        op.execute(statement)


def _is_valid(name: str) -> bool | None:
    """Return whether the index `name` is complete; None when there is none."""
    if context.is_offline_mode():
        return None
    is_valid: bool | None = op.get_bind().execute(text(_IS_VALID), {"name": name}).scalar()
    return is_valid


@contextmanager
def _waiting_for_transactions() -> Iterator[None]:
    """Leave the database transaction, and let statements wait until those of others have ended.

    No session queues behind such a wait: reading and writing a table is compatible with its lock.
    """
    with op.get_context().autocommit_block():
        if context.is_offline_mode():
            yield
            return
        shortly = op.get_bind().execute(text("SHOW lock_timeout")).scalar()
        limit_ms = round(1000 * context.config.attributes["give_up_after_s"])
        op.execute(f"SET lock_timeout = '{limit_ms}ms'")
        yield  # After an error the runner sets the time limit again.
        op.execute(f"SET lock_timeout = '{shortly}'")


def _say(line: str) -> None:
    if not context.is_offline_mode():
        context.config.attributes["progress"](line)
