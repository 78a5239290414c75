"""What a client raises, and which database errors mean that PostgreSQL is unavailable."""

from typing import Final

from psycopg import OperationalError
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

DATABASE_UNAVAILABLE: Final = (OperationalError, DBAPIError, PoolTimeoutError, OSError)
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
    """Return `error`, as an UnavailableError if it means that PostgreSQL is unavailable."""
    return UnavailableError(str(error)) if isinstance(error, DATABASE_UNAVAILABLE) else error
