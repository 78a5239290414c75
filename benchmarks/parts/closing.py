"""How long closing a period takes, with how much memory, and what its guard costs a batch."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Any, Final

import psycopg

from benchmarks import workbench
from benchmarks.parts.engine import Progress
from benchmarks.results.figures import Figure
from benchmarks.workbench import Bench, Ran
from cardledger.embedded.database_url import DatabaseUrl
from cardledger.install import people
from cardledger.ledger.storage.bulk_writes import BulkInsert
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import tables
from cardledger.schema.roles import Right

_PART: Final = "closing"
_MILLION: Final = 1_000_000
_ENTRIES: Final = BulkInsert(tables.entries)

_DAY_LIMIT_S: Final = 20  # Of a million entries.
_LIMIT_S: Final = 120  # Of ten million.
_MEMORY_MB: Final = 200
_BATCH: Final = 1_000  # Entries of a batch of 500 messages.
_TURNS: Final = 10
_BATCHES: Final = 20  # Of a turn.

# In the order of their subjects, as the engine writes them: a pull, then a clearing.
_WRITE: Final = """
    INSERT INTO entries (subject_id, sequence, line, customer_id, debit_account_id,
        credit_account_id, amount, account_id, account_version, balance_after, recorded_at,
        occurred_at, posted_on)
    SELECT (lpad(to_hex(n / 2), 12, '0') || '7000' || lpad(to_hex(n %% 4000 + 32768), 4, '0')
            || substr(md5(n::text), 1, 12))::uuid,
        2, 0, a.id, CASE n %% 2 WHEN 0 THEN a.id ELSE h.id END,
        CASE n %% 2 WHEN 0 THEN h.id ELSE s.id END, n %% 10000 + 1,
        CASE n %% 2 WHEN 0 THEN a.id END, CASE n %% 2 WHEN 0 THEN n / 8000 + 1 END,
        CASE n %% 2 WHEN 0 THEN n END, %(day)s::date + n * '1 ms'::interval,
        %(day)s::date + n * '1 ms'::interval, %(day)s
    FROM generate_series(1, %(entries)s) n
    CROSS JOIN LATERAL (SELECT md5((n %% 8000)::text)::uuid AS id) a
    JOIN system_accounts h ON (h.platform_id, h.currency, h.kind) = (%(p)s, 'USD', 'CARD_HOLDS')
    JOIN system_accounts s
        ON (s.platform_id, s.currency, s.kind) = (%(p)s, 'USD', 'NETWORK_SETTLEMENT')
    ORDER BY n
"""


def measure(bench: Bench, *, entries: int, rounds: int, progress: Progress) -> Iterator[Figure]:
    """Yield how long it takes to close a day of `entries`, its memory, and the guard's cost."""
    day = datetime.now(UTC).date() - timedelta(days=1)
    with psycopg.connect(bench.owner_url, autocommit=True) as connection:
        connection.execute("UPDATE books SET first_open_day = %s", [day])
        progress("closing: the guard of entries")
        yield from _guard(connection)
        progress(f"closing: writing {entries:,} entries")
        connection.execute(_WRITE, {"day": day, "entries": entries, "p": bench.platform_id})
        connection.execute("VACUUM ANALYZE entries")
    closed: list[Ran] = []
    with _people(bench.owner_url) as people_of:
        for number in range(rounds):
            if number:
                _reopen(people_of, closed[-1])
            progress("closing: the day")
            closed.append(_close(people_of, day.isoformat()))
    yield Figure(
        part=_PART,
        name=f"approving a period of {entries:,} entries",
        unit="s",
        values=[ran.seconds for ran in closed],
        least=_LIMIT_S if entries > _MILLION else _DAY_LIMIT_S,
        lower=True,
    )
    yield Figure(
        part=_PART,
        name="memory of closing at most",
        unit="MB",
        values=[ran.memory_mb for ran in closed],
        least=_MEMORY_MB,
        lower=True,
    )


@dataclass(frozen=True, slots=True)
class _People:
    anna: DatabaseUrl  # May prepare.
    ben: DatabaseUrl  # May approve.


@contextmanager
def _people(owner: DatabaseUrl) -> Iterator[_People]:
    names = {right: f"{right}-{owner.database[-12:]}" for right in Right}
    logins = {right: people.add(owner, name, [right]).database_url for right, name in names.items()}
    try:
        yield _People(logins[Right.PREPARE], logins[Right.APPROVE])
    finally:
        for name in names.values():
            people.remove(owner, name)


def _close(people_of: _People, day: str) -> Ran:
    allowed = ("--allow", "UNVERIFIED", "--reason", "benchmark")
    ran = workbench.run_command(
        people_of.anna, "close", "prepare", "--day", day, *allowed, "--json"
    )
    return _approve(people_of, ran)


def _reopen(people_of: _People, closed: Ran) -> None:
    key = json.loads(closed.output)["id"]
    ran = workbench.run_command(
        people_of.anna, "close", "reopen", key, "--reason", "benchmark", "--json"
    )
    _approve(people_of, ran)


def _approve(people_of: _People, prepared: Ran) -> Ran:
    key = json.loads(prepared.output)["id"]
    return workbench.run_command(people_of.ben, "close", "approve", key, "--json")


def _guard(connection: psycopg.Connection[Any]) -> Iterator[Figure]:
    """Yield how long COPY of a batch's entries takes without and with the trigger, in turn."""
    found: dict[str, list[float]] = {"DISABLE": [], "ENABLE ALWAYS": []}
    for _ in range(_TURNS):
        for state, times in found.items():
            connection.execute(f"ALTER TABLE entries {state} TRIGGER closed_day".encode())
            _copy_ms(connection)  # After ALTER the session plans again.
            times += [_copy_ms(connection) for _ in range(_BATCHES)]
    for state, name in (("DISABLE", "not guarded"), ("ENABLE ALWAYS", "guarded")):
        yield Figure(
            part=_PART,
            name=f"COPY of {_BATCH:,} entries, {name}",
            unit="ms",
            values=found[state],
            lower=True,
        )


def _copy_ms(connection: psycopg.Connection[Any]) -> float:
    """Copy a batch of entries of today, and roll it back; return how long COPY took."""
    now = datetime.now(UTC)
    dates = now, now, now.date(), None
    rows = [
        (new_id(), 0, 0, *(new_id() for _ in range(3)), 1, None, None, None, *dates)
        for _ in range(_BATCH)
    ]
    with connection.transaction(force_rollback=True):
        started = perf_counter()
        _ENTRIES.write(connection, rows)
        return 1_000 * (perf_counter() - started)
