"""Figures of tables, read only while metrics are scraped, over a connection of their own.

Each is a bounded statement on an index (`live_figures`) with a time limit; after two seconds those
that are left are missing. So scrapes cannot load PostgreSQL, whatever their number.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import Any, Final

import psycopg
import structlog
from psycopg import Connection
from sqlalchemy import NullPool
from sqlalchemy.exc import SQLAlchemyError

from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.queries import live_figures
from cardledger.ledger.queries.live_figures import DEPTHS, GROUPED
from cardledger.ledger.storage.engines import driver, message_of, sync_engine
from cardledger.workers.metrics import families
from cardledger.workers.metrics.counted import lane_label
from cardledger.workers.metrics.families import Family
from cardledger.workers.metrics.instruments import Labels, Reading, Sample

KEPT_S: Final = 5.0
"""For so long figures are handed out again, and PostgreSQL is not asked."""

_STATEMENT_LIMIT_MS: Final = 500
_TIME_LIMIT_S: Final = 2.0
_SETTINGS: Final = (
    f"-c default_transaction_read_only=on -c statement_timeout={_STATEMENT_LIMIT_MS}ms"
)

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class TableFigure:
    """What a statement counts: its first columns are labels, after `labels`; the others values.

    A value is of the family at its place; None: of no metric. NULL is 0.
    """

    name: str
    statement: str
    of: tuple[Family | None, ...]
    labels: Labels = ()

    def readings(self, rows: Sequence[Sequence[Any]]) -> Iterator[Reading]:
        """Yield the samples that `rows` stand for."""
        for column, family in enumerate(self.of, start=-len(self.of)):
            if family is not None:
                yield family, [self._sample(row, column) for row in rows]

    def _sample(self, row: Sequence[Any], column: int) -> Sample:
        labels = (*self.labels, *row[: -len(self.of)])
        return Sample(labels, max(float(row[column] or 0), 0.0))


def _depth(name: str, depth: Family, age: Family | None = None) -> TableFigure:
    return TableFigure(name, DEPTHS[name], (depth, age))


def _inbox(lane: Lane) -> TableFigure:
    label = lane_label(lane)
    name, of = f"inbox {label}", (families.INBOX_DEPTH, families.INBOX_AGE)
    return TableFigure(name, DEPTHS[name], of, (label,))


def _grouped(name: str, *of: Family) -> TableFigure:
    return TableFigure(name, GROUPED[name], of)


OF_EVENTS: Final[Sequence[TableFigure]] = (
    *map(_inbox, Lane),
    _depth("parked", families.PARKED),
    _depth("forged", families.FORGED),
    _depth("queues stalled", families.QUEUES_STALLED),
    _depth("cardholders stalled", families.CARDHOLDERS_STALLED),
    _grouped("rejections by reason", families.REJECTIONS),
    _grouped(
        "exceptions by currency",
        families.EXCEPTIONS,
        families.EXCEPTIONS_DUE,
        families.EXCEPTIONS_OWED,
        families.EXCEPTIONS_AGE,
    ),
)
"""What a worker reads that decides events; its role of the database may."""

OF_WEBHOOKS: Final[Sequence[TableFigure]] = (
    _depth("outbox", families.OUTBOX_DEPTH, families.OUTBOX_AGE),
    _depth("deliveries pending", families.DELIVERIES_PENDING),
    _grouped("oldest due delivery", families.DELIVERY_OVERDUE),
)
"""What a worker reads that sends webhooks; its role of the database may."""


class TableFigures:
    """Reads figures of tables at most every five seconds, in one thread at a time."""

    def __init__(self, database_url: str, figures: Sequence[TableFigure]) -> None:
        """Connect at each reading."""
        self._engine: Final = sync_engine(
            database_url,
            keyed=True,
            settings=_SETTINGS,
            reply_limit_s=_TIME_LIMIT_S,
            poolclass=NullPool,
        ).execution_options(isolation_level="AUTOCOMMIT")
        self._figures: Final = figures
        self._lock: Final = Lock()
        self._readings: Sequence[Reading] = ()
        self._read_at = float("-inf")
        self._problem: str | None = None  # Of the last reading.

    def read(self) -> Iterator[Reading]:
        """Yield the figures, at most five seconds old."""
        with self._lock:
            if monotonic() - self._read_at > KEPT_S:
                self._readings = self._merged(self._read())
                self._read_at = monotonic()
            yield from self._readings
            yield families.TABLES_READ, [Sample((), self._problem is None)]

    def _read(self) -> list[Reading]:
        readings: list[Reading] = []
        problem = None
        try:
            with self._engine.connect() as outer:
                problem = self._read_into(readings, driver(outer))
        except (SQLAlchemyError, psycopg.Error) as error:
            problem = message_of(error)
        if problem is not None and problem != self._problem:
            _log.warning("figures of tables could not be read", error=problem)
        self._problem = problem
        return readings

    def _read_into(self, readings: list[Reading], connection: Connection[Any]) -> str | None:
        """Add what can be read in time to `readings`; return what could not be read, if any."""
        row = connection.execute("SELECT clock_timestamp()").fetchone()
        assert row is not None, "a SELECT without FROM has a row"
        values, missing = live_figures.parameters(row[0]), []
        deadline = monotonic() + _TIME_LIMIT_S
        for figure in self._figures:
            if monotonic() > deadline:
                missing.append(figure.name)
                continue
            try:
                rows = connection.execute(figure.statement.encode(), values).fetchall()
            except psycopg.errors.QueryCanceled:
                missing.append(figure.name)
            else:
                readings.extend(figure.readings(rows))
        return f"too slow: {', '.join(missing)}" if missing else None

    @staticmethod
    def _merged(readings: Sequence[Reading]) -> list[Reading]:
        """Return `readings` with each family once: the lanes of the inbox are two statements."""
        merged: dict[Family, list[Sample]] = {}
        for family, samples in readings:
            merged.setdefault(family, []).extend(samples)
        return list(merged.items())
