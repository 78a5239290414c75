"""Keep a worker waiting until its release can use the schema of the database."""

from typing import Final, Protocol

import structlog
from sqlalchemy import Engine, NullPool, text
from sqlalchemy.exc import DBAPIError

from cardledger.ledger.storage.engines import message_of, sync_engine
from cardledger.schema import compatibility

_RETRY_S: Final = 1.0
_UNDEFINED_TABLE: Final = "42P01"

_log = structlog.get_logger()


class Stop(Protocol):
    """A request to stop; `threading.Event` is one."""

    def wait(self, timeout: float, /) -> bool:
        """Return True once the stop is requested, or False after `timeout` seconds."""
        ...


class SchemaGate:
    """Waits at the start of a worker."""

    def __init__(self, database_url: str) -> None:
        """Read the schema of the database at `database_url`."""
        self.problem = "starting: the schema of the database is not read yet"
        """What it waits for."""
        self._engine: Final = sync_engine(database_url, poolclass=NullPool)

    def wait(self, stop: Stop) -> bool:
        """Return True once the schema can be used, or False when `stop` is requested before.

        What it waits for is logged when it changes.
        """
        head = compatibility.head()
        pause_s = 0.0
        while not stop.wait(pause_s):
            problem = _problem(self._engine, head)
            if problem is None:
                return True
            if problem != self.problem:
                _log.error("worker waits for the schema", problem=problem)
                self.problem = problem
            pause_s = _RETRY_S
        return False


def _problem(engine: Engine, head: str) -> str | None:
    """Return why a release of `head` cannot use the schema yet, or None when it can."""
    try:
        revision = _read(engine, "SELECT version_num FROM alembic_version")
        oldest_head = _read(engine, "SELECT oldest_head FROM schema_compatibility")
    except DBAPIError as error:
        return f"database unavailable: {message_of(error)}"
    return compatibility.problem(revision, head=head, oldest_head=oldest_head)


def _read(engine: Engine, query: str) -> str | None:
    """Return the only value of `query`; None when its table does not exist or is empty."""
    try:
        with engine.connect() as connection:
            value: str | None = connection.execute(text(query)).scalar()
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != _UNDEFINED_TABLE:
            raise
        return None
    return value
