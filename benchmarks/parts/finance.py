"""How long the reports of finance take, and how much memory, for a million rows of the journal."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psycopg

from benchmarks import workbench
from benchmarks.parts import stored_events
from benchmarks.parts.engine import Progress
from benchmarks.results.figures import Figure
from benchmarks.workbench import Bench, Ran

_PART: Final = "finance"
_MILLION: Final = 1_000_000
_CARDHOLDERS: Final = 4_000
_EVENTS_PER_ENTRY: Final = 1.4  # Of the purchases that `stored_events` writes.

# The format, the seconds and the memory in MB that a million rows may take.
_EXPORTS: Final = (("csv", 20, 100), ("parquet", 20, 300), ("xlsx", 180, 100))


def measure(
    bench: Bench, *, rounds: int, progress: Progress, entries: int = _MILLION
) -> Iterator[Figure]:
    """Yield how long a trial balance and exports of the journal take, and their memory."""
    progress(f"finance: writing {entries:,} entries")
    events = int(entries * _EVENTS_PER_ENTRY)
    stored_events.write(bench, bench.cardholders(_CARDHOLDERS), events, lambda _events: None)
    progress("finance: trial balance")
    balances = [_trial_balance(bench) for _ in range(rounds)]
    yield Figure(
        part=_PART,
        name="trial balance",
        unit="s",
        values=[ran.seconds for ran in balances],
        lower=True,
    )
    stored = _entries(bench)
    for name, seconds, memory_mb in _EXPORTS:
        progress(f"finance: the journal as {name}")
        ran = [_export(bench, name) for _ in range(rounds)]
        yield Figure(
            part=_PART,
            name=f"the journal as {name}, a million rows",
            unit="s",
            values=[one.seconds * _MILLION / stored for one in ran],
            least=seconds,
            lower=True,
        )
        yield Figure(
            part=_PART,
            name=f"memory of the journal as {name} at most",
            unit="MB",
            values=[one.memory_mb for one in ran],
            least=memory_mb,
            lower=True,
        )


def _trial_balance(bench: Bench) -> Ran:
    return workbench.run_command(bench.app_url, "report", "trial-balance", "--format", "json")


def _export(bench: Bench, name: str) -> Ran:
    with tempfile.TemporaryDirectory(prefix="cardledger-bench-") as directory:
        file = Path(directory) / f"journal.{name}"
        return workbench.run_command(bench.app_url, "report", "journal", "--output", str(file))


def _entries(bench: Bench) -> int:
    with psycopg.connect(bench.owner_url) as connection:
        row = connection.execute("SELECT count(*) FROM entries").fetchone()
    assert row is not None
    return int(row[0])
