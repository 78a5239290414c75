"""How long balances and reports of finance take, and how much memory.

The entries are recorded and posted over the last `DAYS`, so that a random day and time has as many
before it as after it. One account has a tenth of them, at most a million.
"""

import random
import tempfile
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from math import ceil
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import psycopg

from benchmarks import workbench
from benchmarks.parts import settlement_files, stored_events
from benchmarks.parts.engine import Progress
from benchmarks.results.figures import Figure, quantile
from benchmarks.workbench import Bench, Ran
from cardledger.ledger.books import totals
from cardledger.ledger.storage.engines import driver, sync_engine
from cardledger.schema.ids import Id

DAYS: Final = 90
_PART: Final = "finance"
_MILLION: Final = 1_000_000
_CARDHOLDERS: Final = 4_000
_EVENTS_PER_ENTRY: Final = 1.4  # Of the purchases that `stored_events` writes.
_EVENTS_PER_ENTRY_OF_ACCOUNT: Final = stored_events.EVENTS_PER_PURCHASE / 1.5
_BALANCES_ASKED: Final = 500
_TRIAL_BALANCES_ASKED: Final = 50

# The format, the seconds and the memory in MB that a million rows may take.
_EXPORTS: Final = (("csv", 20, 100), ("parquet", 20, 300), ("xlsx", 180, 100))


def measure(
    bench: Bench, *, rounds: int, progress: Progress, entries: int = _MILLION
) -> Iterator[Figure]:
    """Yield how long balances and exports of the journal take with so many entries, and memory."""
    progress(f"finance: writing {entries:,} entries")
    account_id = _write(bench, entries)
    progress("finance: adding totals")
    yield Figure(part=_PART, name="entries added to totals", unit="/s", values=[add_totals(bench)])
    yield from _balances(bench, account_id, rounds, progress)
    progress("finance: the command report trial-balance")
    ran = [_trial_balance(bench) for _ in range(rounds)]
    yield _least("trial balance", "s", [each.seconds for each in ran], None)
    memory = [each.memory_mb for each in ran]
    yield _least("memory of the trial balance at most", "MB", memory, None)
    yield from _exports(bench, entries, rounds, progress)
    yield from settlement_files.measure(bench, rounds=rounds, progress=progress)


def _least(name: str, unit: str, values: list[float], bar: float | None) -> Figure:
    return Figure(part=_PART, name=name, unit=unit, values=values, least=bar, lower=True)


def _write(bench: Bench, entries: int) -> Id:
    """Write so many entries; return the account that has a tenth of them, at most a million."""
    [busy] = bench.cardholders(1)
    of_account = min(entries // 10, _MILLION)
    events = int(of_account * _EVENTS_PER_ENTRY_OF_ACCOUNT)
    stored_events.write(bench, [busy], events, lambda _events: None, days=DAYS)
    others = int(entries * _EVENTS_PER_ENTRY) - events
    holders = bench.cardholders(_CARDHOLDERS)
    stored_events.write(bench, holders, others, lambda _events: None, days=DAYS)
    return busy.account_id


def add_totals(bench: Bench) -> float:
    """Add totals as a worker does; return of how many entries in a second."""
    database = sync_engine(bench.app_url, pool_size=1)
    started, has_more = perf_counter(), True
    while has_more:
        with database.begin() as outer:
            has_more = totals.advance(driver(outer))
    with database.begin() as outer:
        totals.summarize(driver(outer))
    seconds = perf_counter() - started
    database.dispose()
    with psycopg.connect(bench.owner_url, autocommit=True) as connection:
        connection.execute("ANALYZE posting_totals, account_totals")
    added = _one(bench, "SELECT coalesce(sum(entries), 0)::bigint / 2 FROM posting_totals")
    return float(added / seconds)


def _balances(bench: Bench, account_id: Id, rounds: int, progress: Progress) -> Iterator[Figure]:
    """Yield how long the functions take at random days and times."""
    progress("finance: balances at random days and times")
    holds = _one(
        bench,
        "SELECT id FROM system_accounts WHERE kind = 'CARD_HOLDS' ORDER BY platform_id LIMIT 1",
    )
    trial_balance = "SELECT * FROM finance.trial_balance(%s, %s)"
    now = [_timed(bench, trial_balance, [], knows_now=True) for _ in range(rounds)]
    worst = [max(seconds) for seconds in now]
    yield _least("trial balance at any day, known now, at most", "s", worst, 1)
    ever = [_timed(bench, trial_balance, []) for _ in range(rounds)]
    middle = [quantile(seconds, 0.5) for seconds in ever]
    yield _least("trial balance at any day and time, median", "s", middle, None)
    worst = [max(seconds) for seconds in ever]
    yield _least("trial balance at any day and time, at most", "s", worst, 5)
    for name, key in (("a customer's account", account_id), ("CARD_HOLDS", holds)):
        balance = "SELECT finance.balance(%s, %s, %s)"
        asked = [_timed(bench, balance, [key], count=_BALANCES_ASKED) for _ in range(rounds)]
        for share, bar in ((0.5, None), (0.99, 20)):
            values = [1000 * quantile(seconds, share) for seconds in asked]
            yield _least(f"balance of {name}, p{share * 100:.0f}", "ms", values, bar)


def _timed(
    bench: Bench,
    statement: str,
    values: list[object],
    *,
    count: int = _TRIAL_BALANCES_ASKED,
    knows_now: bool = False,
) -> list[float]:
    """Return the seconds that `statement` takes for random days and times, or as known now."""
    seconds: list[float] = []
    with psycopg.connect(bench.app_url, autocommit=True) as connection:
        for on, known in _moments(count):
            started = perf_counter()
            asked = [*values, on, None if knows_now else known]
            connection.execute(statement.encode(), asked).fetchall()
            seconds.append(perf_counter() - started)
    return seconds


def _moments(count: int) -> Iterator[tuple[date, datetime]]:
    numbers = random.Random(count)
    now = datetime.now(UTC)
    for _ in range(count):
        on = (now - timedelta(days=numbers.uniform(0, DAYS))).date()
        yield on, now - timedelta(days=numbers.uniform(0, DAYS))


def _exports(bench: Bench, entries: int, rounds: int, progress: Progress) -> Iterator[Figure]:
    """Yield how long the journal of so many days takes as have about a million entries."""
    days = ceil(DAYS * min(1, _MILLION / entries))
    first = datetime.now(UTC).date() - timedelta(days=days)
    rows = _one(bench, "SELECT count(*) FROM entries WHERE posted_on >= %s", first)
    for name, seconds, memory_mb in _EXPORTS:
        progress(f"finance: {rows:,} rows of the journal as {name}")
        ran = [_export(bench, name, first) for _ in range(rounds)]
        values = [each.seconds * _MILLION / rows for each in ran]
        yield _least(f"the journal as {name}, a million rows", "s", values, seconds)
        values = [each.memory_mb for each in ran]
        yield _least(f"memory of the journal as {name} at most", "MB", values, memory_mb)


def _trial_balance(bench: Bench) -> Ran:
    return workbench.run_command(bench.app_url, "report", "trial-balance", "--format", "json")


def _export(bench: Bench, name: str, first: date) -> Ran:
    with tempfile.TemporaryDirectory(prefix="cardledger-bench-") as directory:
        file = Path(directory) / f"journal.{name}"
        return workbench.run_command(
            bench.app_url, "report", "journal", "--from", str(first), "--output", str(file)
        )


def _one(bench: Bench, statement: str, *values: object) -> Any:  # noqa: ANN401 - of any type
    with psycopg.connect(bench.owner_url) as connection:
        row = connection.execute(statement.encode(), values).fetchone()
    assert row is not None
    return row[0]
