"""Opening a connection for a batch, so that an unavailable PostgreSQL is told from a failure."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import psycopg
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from cardledger.ledger.engine.failures import LockedError, UnavailableError, is_unavailable
from cardledger.ledger.storage import engines

DATABASE_ERRORS: Final = (psycopg.Error, DBAPIError, PoolTimeoutError)

_Opening = Callable[[], AbstractContextManager[Connection]]  # `connect` or `begin` of a database.


@contextmanager
def opened(opening: _Opening) -> Iterator[psycopg.Connection[Any]]:
    """Open a connection by `opening` and yield psycopg's connection below it.

    Raises: UnavailableError when PostgreSQL is unavailable or cancelled the work. Nothing was
    written, unless only the answer to the commit was lost: then the messages are decided.
    """
    try:
        with opening() as connection:
            yield engines.driver(connection)
    except DATABASE_ERRORS as error:
        if not is_unavailable(error):
            raise
        cause = getattr(error, "orig", None) or error
        is_locked = isinstance(cause, psycopg.errors.LockNotAvailable)
        raise (LockedError if is_locked else UnavailableError) from error
