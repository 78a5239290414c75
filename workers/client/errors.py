"""What a client raises, and which database errors mean that PostgreSQL is unavailable."""

from typing import Final

import psycopg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from cardledger.ledger.storage.engines import message_of

DATABASE_UNAVAILABLE: Final = (psycopg.Error, DBAPIError, PoolTimeoutError, OSError)
"""Whatever PostgreSQL has answered, the statements of a client are as good when they are repeated:
a right that is missing or a table that has changed is repaired by an operator."""

STOPPED: Final = "the client has stopped; submit the events again with the same references"


class UnavailableError(Exception):
    """PostgreSQL is unavailable, or the client has stopped; the events may have been accepted.

    Submit them again with the same references.
    """


class OverloadedError(UnavailableError):
    """More authorizations wait than can be decided before their deadlines; none was accepted.

    Submit them again in a second, or decline them.
    """


class ReplyTimeoutError(Exception):
    """No outcome arrived in time. The events are accepted and will be decided; ask again later."""


def as_unavailable(error: Exception) -> Exception:
    """Return `error`, or an UnavailableError that it is the cause of if PostgreSQL has failed."""
    if not isinstance(error, DATABASE_UNAVAILABLE):
        return error
    unavailable = UnavailableError(message_of(error))
    unavailable.__cause__ = error
    return unavailable
