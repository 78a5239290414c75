"""Faults of the silent kind: the target is silent, slow or frozen, and looks alive."""

import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psycopg
from redis import Redis

from cardledger.ledger.messaging.inbox import SHARDS, Lane
from cardledger.workers.signals.doorbell import QUEUES, drain, keys_of, notify
from storm.faults.arena import Arena, Fault, struck_if
from storm.proxy import Link
from storm.system import API, CLIENT, HOT_TABLES

_LOCKED_ACCOUNTS: Final = 8
_LOCKED_QUEUES: Final = 4
_DOORBELLS: Final = 4_000
_BURSTS: Final = 20
_FREEZE_ATTEMPTS: Final = 40
_WAITERS: Final = """
    SELECT count(*) FROM pg_stat_activity
    WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))
"""
_MESSAGES_OF_ACCOUNTS: Final = """
    SELECT count(*) FROM inbox i JOIN internal_accounts a USING (customer_id) WHERE a.id = ANY (%s)
"""
_MESSAGES_OF_QUEUES: Final = "SELECT count(*) FROM inbox WHERE shard = ANY (%s)"


def _lock(query: str, what: str, messages: str) -> Callable[[Arena], str]:
    """Have an outsider lock rows for a few seconds, while sessions or `messages` wait for them."""

    def strike(arena: Arena) -> str:
        seconds = arena.chance.uniform(2, 5)
        with arena.system.connect() as connection, connection.transaction():
            rows = connection.execute(query.encode()).fetchall()
            arena.struck()
            waiters = arena.watch(connection, _WAITERS, seconds / 2)
            keys = [key for (key,) in rows]
            waiting = arena.watch(connection, messages, seconds / 2, keys)
        return struck_if(
            rows and (waiters or waiting),
            f"{len(rows)} {what} locked for {seconds:.1f} s, {waiters} sessions and {waiting}"
            " messages waited at once",
        )

    return strike


def _lock_table(arena: Arena) -> str:
    """Lock a whole table, as a migration does."""
    table = arena.chance.choice(HOT_TABLES)
    seconds = arena.chance.uniform(1.5, 3)
    with arena.system.connect() as connection, connection.transaction():
        connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
        arena.struck()
        waiters = arena.watch(connection, _WAITERS, seconds)
    return struck_if(waiters, f"{table} locked for {seconds:.1f} s, {waiters} sessions waited")


def _freeze(
    links_of: Callable[[Arena], list[Link]], least_s: float, most_s: float
) -> Callable[[Arena], str]:
    def strike(arena: Arena) -> str:
        links = links_of(arena)
        before = sum(link.held_bytes for link in links)
        arena.struck()
        for link in links:
            link.freeze()
        seconds = arena.pause(least_s, most_s)
        for link in links:
            link.thaw()
        held = sum(link.held_bytes for link in links) - before
        return struck_if(
            held, f"{len(links)} links frozen for {seconds:.1f} s, {held:,} bytes waited"
        )

    return strike


def _silence_one(link_of: Callable[[Arena], Link]) -> Callable[[Arena], str]:
    """Let one connection fall silent for good; all others go on."""

    def strike(arena: Arena) -> str:
        link = link_of(arena)
        arena.struck()
        silent = link.freeze_one()
        seconds = arena.pause(4, 8)
        held = link.cut_frozen()
        return struck_if(
            silent and held,
            f"{link.name}: one connection silent for {seconds:.1f} s, {held:,} bytes waited",
        )

    return strike


def _lose_host(arena: Arena) -> str:
    """Let every connection to PostgreSQL fall silent, as after a failover; new ones pass."""
    links = arena.system.postgres_links
    arena.struck()
    silent = sum(link.freeze_present() for link in links)
    seconds = arena.pause(8, 12)
    held = sum(link.cut_frozen() for link in links)
    return struck_if(
        held, f"{silent} connections silent for {seconds:.1f} s, {held:,} bytes waited"
    )


def _delay(links_of: Callable[[Arena], list[Link]]) -> Callable[[Arena], str]:
    def strike(arena: Arena) -> str:
        links = links_of(arena)
        before = sum(link.delayed_bytes for link in links)
        delay_s = arena.chance.uniform(0.01, 0.05)
        arena.struck()
        for link in links:
            link.delay(delay_s)
        seconds = arena.pause(3, 5)
        for link in links:
            link.delay(0)
        delayed = sum(link.delayed_bytes for link in links) - before
        return struck_if(
            delayed,
            f"{delayed:,} bytes came {delay_s * 1000:.0f} ms late during {seconds:.1f} s",
        )

    return strike


def _stop_process(name_of: Callable[[Arena], str]) -> Callable[[Arena], str]:
    def strike(arena: Arena) -> str:
        process = arena.system.processes[name_of(arena)]
        arena.struck()
        pid = process.signal(signal.SIGSTOP)
        try:
            stopped = arena.wait_for(lambda: _state(pid) == "T", 2)
            seconds = arena.pause(3, 6)
        finally:
            process.signal(signal.SIGCONT)
        return struck_if(stopped, f"{process.name}: process {pid} stood still for {seconds:.1f} s")

    return strike


def _freeze_in_transaction(arena: Arena) -> str:
    """Stop a worker while it is in the middle of a batch: a stopped process holds its locks."""
    process = arena.system.processes[arena.worker()]
    link = arena.system.postgres_link(process.name)
    link.delay(0.005)  # A batch takes longer, so it is found in the middle.
    try:
        with arena.system.connect() as connection:
            for _ in range(_FREEZE_ATTEMPTS):
                pid = process.signal(signal.SIGSTOP)
                arena.struck()
                open_since = _idle_transactions(connection)
                arena.pause(0.15)
                stuck = open_since & _idle_transactions(connection)
                if stuck:
                    seconds = arena.pause(4, 7)
                    return (
                        f"{process.name}: process {pid} stopped for {seconds:.1f} s inside"
                        f" {len(stuck)} database transactions"
                    )
                process.signal(signal.SIGCONT)
                arena.pause(0.01, 0.05)
    finally:
        link.delay(0)
        with suppress(ProcessLookupError):
            process.signal(signal.SIGCONT)
    return struck_if(False, "no worker was found inside a database transaction")  # noqa: FBT003


def _idle_transactions(connection: psycopg.Connection[Any]) -> set[tuple[Any, ...]]:
    rows = connection.execute(
        "SELECT pid, state_change FROM pg_stat_activity"
        " WHERE application_name LIKE 'cardledger%' AND state = 'idle in transaction'"
    )
    return set(rows.fetchall())


def _stall_commits(arena: Arena) -> str:
    """Have every commit wait for a standby that does not exist."""
    with arena.system.connect() as connection:
        arena.struck()
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'missing_standby'")
        connection.execute("SELECT pg_reload_conf()")
        try:
            seconds = arena.chance.uniform(2.5, 4)
            waiting = arena.watch(
                connection,
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'",
                seconds,
            )
        finally:
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("SELECT pg_reload_conf()")
    return struck_if(
        waiting, f"commits stalled for {seconds:.1f} s, {waiting} sessions waited at once"
    )


def _flood_doorbells(arena: Arena) -> str:
    with arena.system.redis_client() as redis:
        put, before = 0, _waiting_doorbells(redis)
        arena.struck()
        for _ in range(_BURSTS):
            put += _ring(redis, _DOORBELLS // _BURSTS)
            arena.pause(0.05)
        arena.wait_for(lambda: not _waiting_doorbells(redis), 2)
        taken = before + put - _waiting_doorbells(redis)
    # One waits for each queue at most: so many could be put there without a worker.
    return struck_if(
        taken > len(Lane) * SHARDS,
        f"{_DOORBELLS:,} doorbells, {put:,} of them put on queues and {taken:,} taken by workers",
    )


def _ring(redis: Redis, count: int) -> int:
    """Ring for all queues in turn; return how many doorbells waited for no other one."""
    pipeline = redis.pipeline(transaction=False)
    for number in range(count):
        shard, lane = divmod(number, len(Lane))
        notify(pipeline, [drain(Lane(lane), shard % SHARDS)])
    return sum(pipeline.execute())


def _waiting_doorbells(redis: Redis) -> int:
    return sum(int(redis.llen(keys_of(queue)[2])) for queue in QUEUES.values())


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return ""


_ACCOUNTS: Final = f"""
    SELECT id FROM internal_accounts ORDER BY random() LIMIT {_LOCKED_ACCOUNTS} FOR UPDATE
"""
_QUEUES: Final = f"""
    SELECT shard FROM inbox_shards WHERE shard IN (
        SELECT (random() * {SHARDS - 1})::int FROM generate_series(1, {_LOCKED_QUEUES})
    ) FOR UPDATE
"""

SILENCES: Final = (
    Fault(
        kind="accounts locked by an outsider",
        strike=_lock(_ACCOUNTS, "accounts", _MESSAGES_OF_ACCOUNTS),
    ),
    Fault(
        kind="queues locked by an outsider", strike=_lock(_QUEUES, "queues", _MESSAGES_OF_QUEUES)
    ),
    Fault(kind="table locked by an outsider", strike=_lock_table),
    Fault(
        kind="PostgreSQL frozen",
        strike=_freeze(lambda arena: arena.system.postgres_links, 3, 10),
    ),
    Fault(kind="PostgreSQL's host lost", strike=_lose_host),
    Fault(
        kind="worker's connection silent",
        strike=_silence_one(lambda arena: arena.system.postgres_link(arena.worker())),
    ),
    Fault(
        kind="client's connection silent",
        strike=_silence_one(lambda arena: arena.system.postgres_link(CLIENT)),
    ),
    Fault(
        kind="API's connection silent",
        strike=_silence_one(lambda arena: arena.system.postgres_link(API)),
    ),
    Fault(kind="PostgreSQL slow", strike=_delay(lambda arena: arena.system.postgres_links)),
    Fault(kind="Redis hung", strike=_freeze(lambda arena: arena.system.redis_links, 3, 6)),
    Fault(kind="Redis slow", strike=_delay(lambda arena: arena.system.redis_links)),
    Fault(kind="worker frozen", strike=_stop_process(Arena.worker)),
    Fault(kind="worker frozen in a transaction", strike=_freeze_in_transaction),
    Fault(kind="API frozen", strike=_stop_process(lambda _: API)),
    Fault(kind="commits stalled", strike=_stall_commits),
    Fault(kind="doorbells flooded", strike=_flood_doorbells),
)
"""The faults of this kind."""
