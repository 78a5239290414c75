"""The ledger's end of the relay: one connection, which holds the lock of the source."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

import psycopg
from psycopg import Connection, errors

from cardledger.commands.relay.source import Row
from cardledger.config.errors import CommandError
from cardledger.schema import connections

LEDGER_ERRORS: Final = (psycopg.Error,)
"""What is raised while the ledger's database does not accept events."""

# Of an event: its content, and how deep it is nested.
_REFUSALS: Final = (psycopg.DataError, errors.StatementTooComplex)

_MISSING: Final = "SELECT to_regprocedure('enqueue(jsonb, text)') IS NULL"
_ENQUEUE: Final = "SELECT enqueue(%s::jsonb, %s)"


class Ledger:
    """Enqueues events by the function of the ledger's database; a login that submits is enough."""

    def __init__(self, url: str, source: str, lane: str) -> None:
        """Enqueue in `lane`, for the `source` of that name alone."""
        self._url: Final = url
        self._lane: Final = lane
        digest = blake2b(f"cardledger relay {source}".encode(), digest_size=8).digest()
        self._lock: Final = int.from_bytes(digest, signed=True)
        self._connection: Connection[Any] | None = None

    def connect(self) -> bool:
        """Be connected and hold the lock of the source; False while another relay holds it.

        Raises: LEDGER_ERRORS; CommandError when the database has no function `enqueue` for us.
        """
        if self._connection is not None and not self._connection.closed:
            return True
        connection = connections.connect(
            self._url, autocommit=True, application_name="cardledger relay"
        )
        row = connection.execute("SELECT pg_try_advisory_lock(%s)", [self._lock]).fetchone()
        if row != (True,):
            connection.close()
            return False
        if connection.execute(_MISSING).fetchone() == (True,):
            connection.close()
            raise CommandError("the database has no function enqueue; run `cardledger migrate`")
        self._connection = connection
        return True

    def close(self) -> None:
        """Close the connection, if there is one; PostgreSQL frees the lock."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def enqueue(self, rows: Sequence[Row]) -> dict[int, str]:
        """Enqueue `rows` in their order; return why some were refused, by id.

        Raises: LEDGER_ERRORS; some may have been enqueued.
        """
        if not rows:
            return {}
        assert self._connection is not None, "`connect` comes first"
        events = f"[{','.join(row.event for row in rows)}]"
        try:
            self._connection.execute(_ENQUEUE, [events, self._lane])
        except _REFUSALS as error:
            if len(rows) == 1:
                return {rows[0].id: _first_line(error)}
            half = len(rows) // 2
            return self.enqueue(rows[:half]) | self.enqueue(rows[half:])
        except errors.InsufficientPrivilege as error:
            message = f"the login may not enqueue events: {_first_line(error)}"
            raise CommandError(message) from None
        return {}


def _first_line(error: psycopg.Error) -> str:
    return error.diag.message_primary or str(error).strip().partition("\n")[0]
