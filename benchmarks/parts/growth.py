"""What growth costs: the same rates on a large record, and the bytes that an authorization takes.

An empty record and a large one are measured in turn, round by round, so that what else the machine
does meanwhile meets both.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import psycopg

from benchmarks import workbench, workload
from benchmarks.parts import stored_events
from benchmarks.parts.engine import Progress
from benchmarks.results.figures import Figure
from benchmarks.workbench import Bench
from benchmarks.workload import Cardholder
from cardledger.embedded.servers import DatabaseUrl

_PART: Final = "growth"
_COUNT: Final = 4_000  # Purchases a round: short ones, and many, as a ratio wants.
_CARDHOLDERS: Final = 4_000
_THREADS: Final = 2
_MILLION: Final = 1_000_000

_SIZE: Final = """
    SELECT sum(pg_total_relation_size(c.oid))
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = current_schema() AND c.relkind = 'r'
"""


def measure(
    postgres: DatabaseUrl, *, millions: float, rounds: int, progress: Progress, count: int = _COUNT
) -> Iterator[Figure]:
    """Yield rates and bytes at 1 million stored events and at `millions`, and on an empty record.

    With less than 1 million only that is measured.
    """
    stored = 0
    with workbench.bench(postgres) as full:
        cardholders = full.cardholders(_CARDHOLDERS)
        for level in sorted({min(1.0, millions), millions}):
            named = f"{level:g} million"
            progress(f"growth: writing {named} events")
            missing = int(level * _MILLION) - stored
            stored += stored_events.write(
                full, cardholders, missing, _progress_of(progress, missing)
            )
            with workbench.bench(postgres) as empty:
                records = [
                    _Record(f"empty, beside {named}", empty, empty.cardholders(_CARDHOLDERS)),
                    _Record(f"{named} events", full, cardholders),
                ]
                for number in range(rounds + 1):
                    progress(f"growth: {named} events and none, round {number} of {rounds}")
                    # In turn the first: it would be a little faster or slower for it.
                    for record in records[:: -1 if number % 2 else 1]:
                        record.measure_round(
                            count, number, is_kept=number > 0
                        )  # The first warms up.
            yield from _figures(*records)


def _progress_of(progress: Progress, wanted: int) -> stored_events.OnWritten:
    """Return a callback that reports each million of `wanted` events."""
    written_events = 0

    def on_written(events: int) -> None:
        nonlocal written_events
        before, written_events = written_events, written_events + events
        if before // _MILLION != written_events // _MILLION:
            shares = f"{written_events / _MILLION:.1f} of {wanted / _MILLION:.1f}"
            progress(f"growth: {shares} million written")

    return on_written


@dataclass(frozen=True, slots=True)
class _Round:
    """Results of a round: rates a second, and bytes an authorization."""

    authorizations: float
    clearings: float
    stored_bytes: float
    log_bytes: float


class _Record:
    """A database and what was measured on it, round by round."""

    def __init__(self, name: str, bench: Bench, cardholders: list[Cardholder]) -> None:
        self.name: Final = name
        self.rounds: Final[list[_Round]] = []
        self._bench: Final = bench
        self._cardholders: Final = cardholders

    def measure_round(self, count: int, number: int, *, is_kept: bool) -> None:
        """Authorize and clear `count` purchases."""
        wanted = workload.purchases(self._cardholders, count, seed=number, run=self.name)
        with psycopg.connect(self._bench.owner_url, autocommit=True) as connection:
            size, log = _sizes(connection)
            self._bench.accept(workload.authorizations(wanted))
            first = self._bench.drain(threads=_THREADS)
            grown, written = _sizes(connection)
        self._bench.accept(workload.clearings(wanted))
        second = self._bench.drain(threads=_THREADS)
        if is_kept:
            self.rounds.append(
                _Round(
                    authorizations=first.rate,
                    clearings=second.rate,
                    stored_bytes=(grown - size) / count,
                    log_bytes=(written - log) / count,
                )
            )


def _figures(empty: _Record, full: _Record) -> Iterator[Figure]:
    for kind in ("authorizations", "clearings"):
        for record in (empty, full):
            yield Figure(
                part=_PART,
                name=f"{kind}, {record.name}",
                unit="/s",
                values=[getattr(r, kind) for r in record.rounds],
            )
        yield Figure(
            part=_PART,
            name=f"{kind}, {full.name} to empty",
            unit="ratio",
            values=[
                getattr(large, kind) / getattr(small, kind)
                for small, large in zip(empty.rounds, full.rounds, strict=True)
            ],
            least=0.85,
            aim=0.95,
        )
    for record in (empty, full):
        # Files grow by whole pages, and indexes in steps: the mean says it, not the median.
        mean = sum(r.stored_bytes for r in record.rounds) / len(record.rounds)
        log = [r.log_bytes for r in record.rounds]
        for name, values in (("stored", [mean]), ("of log (WAL)", log)):
            yield Figure(
                part=_PART, name=f"bytes {name} an authorization, {record.name}", unit="B",
                values=values, lower=True,
            )  # fmt: skip


def _sizes(connection: psycopg.Connection[tuple[int]]) -> tuple[int, int]:
    size = connection.execute(_SIZE).fetchone()
    log = connection.execute("SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::int8").fetchone()
    assert size is not None
    assert log is not None
    return int(size[0]), int(log[0])
