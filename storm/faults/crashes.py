"""Faults of the crash kind: the target ends at once, visibly to its peers."""

import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import psycopg
from psycopg import sql

from storm.faults.arena import Arena, Fault, struck_if
from storm.proxy import Link, Trap
from storm.system import API, CLIENT, WEBHOOKS, wait_until

_BODY_OF_EVENT: Final = b'"reference":'  # In the parameters of the statement that accepts events.
_TRAP_S: Final = 6.0


def _kill(name_of: Callable[[Arena], str], number: signal.Signals) -> Callable[[Arena], str]:
    def strike(arena: Arena) -> str:
        process = arena.system.processes[name_of(arena)]
        starts, was_running = process.starts, process.is_running
        arena.struck()
        pid = process.signal(number)
        wait_until(lambda: process.starts > starts, f"{process.name} was started again")
        return struck_if(
            was_running and process.pid != pid,
            f"{process.name}: process {pid} ran and got {number.name}, process {process.pid}"
            " took its place",
        )

    return strike


def _crash_redis(arena: Arena) -> str:
    arena.struck()
    pid = arena.system.crash_redis()
    seconds = arena.pause(0.2, 2)
    arena.system.restore_servers()
    return f"process {pid} was killed; a new one {seconds:.1f} s later"


def _flush_redis(arena: Arena) -> str:
    with arena.system.redis_client() as redis:
        # Workers keep their heartbeats there, so that it is empty for a moment at most.
        arena.wait_for(redis.dbsize, 2)
        keys = redis.dbsize()
        arena.struck()
        redis.flushall()
    return struck_if(keys, f"{keys} keys were deleted")


def _crash_postgres(arena: Arena) -> str:
    arena.struck()
    pid = arena.system.crash_postgres()
    seconds = arena.pause(0.1, 1.5)
    arena.system.restore_servers()
    return f"process {pid} stopped at once; started again after {seconds:.1f} s, with recovery"


def _terminate_backends(arena: Arena) -> str:
    """End all sessions of ours at a moment at which a worker is in the middle of a batch."""
    ended = in_batch = 0
    with arena.system.connect() as connection:

        def terminate() -> int:
            nonlocal ended, in_batch
            arena.struck()
            ended, in_batch = terminated(connection)
            return in_batch

        arena.wait_for(terminate, _TRAP_S)
    return struck_if(
        in_batch, f"{ended} sessions ended, {in_batch} of them batches in database transactions"
    )


_TERMINATE: Final = """
    WITH ours AS MATERIALIZED (
        SELECT pid, application_name LIKE 'cardledger batch%' AND xact_start IS NOT NULL AS is_batch
        FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE 'cardledger%'
    )
    SELECT count(*) FILTER (WHERE is_ended), count(*) FILTER (WHERE is_ended AND is_batch)
    FROM (
        SELECT is_batch, pg_terminate_backend(pid) AS is_ended
        FROM ours WHERE (SELECT bool_or(is_batch) FROM ours)
    ) e
"""


def terminated(connection: psycopg.Connection[Any]) -> tuple[int, int]:
    """End the sessions of all our processes, unless no batch is in a database transaction.

    Returns how many have ended, and how many of them were batches in a database transaction.
    """
    row = connection.execute(_TERMINATE.encode()).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def _cut_at_random(link_of: Callable[[Arena], Link]) -> Callable[[Arena], str]:
    def strike(arena: Arena) -> str:
        link = link_of(arena)
        before = link.cut_connections
        size = arena.chance.randint(1, 20_000)
        link.cut_after(size)
        arena.wait_for(lambda: link.cut_connections > before, _TRAP_S)
        arena.struck()
        link.disarm()
        cut = link.cut_connections - before
        return struck_if(cut, f"{link.name}: {cut} connections cut after {size:,} more bytes")

    return strike


def _cut_at(
    link_of: Callable[[Arena], Link], marker: bytes, trap: Trap, what: str
) -> Callable[[Arena], str]:
    def strike(arena: Arena) -> str:
        link = link_of(arena)
        before = link.trapped
        for _ in range(arena.chance.randint(1, 4)):
            trapped = link.trapped
            link.cut_at(marker, trap)
            arena.wait_for(lambda trapped=trapped: link.trapped > trapped, _TRAP_S)  # type: ignore[misc]
        arena.struck()
        link.disarm()
        count = link.trapped - before
        lost = "it never arrived" if trap is Trap.BEFORE else "its answer was lost"
        return struck_if(count, f"{link.name}: {count} connections cut at {what}; {lost}")

    return strike


def _refuse_connections(arena: Arena) -> str:
    """Let the roles of all processes open no connection, and end those that they have."""
    roles = arena.system.roles

    def limit(connection: psycopg.Connection[Any], number: int) -> None:
        for role in roles:
            change = sql.SQL("ALTER ROLE {} CONNECTION LIMIT {}")
            connection.execute(change.format(sql.Identifier(role), number))

    with arena.system.connect() as connection:
        limit(connection, 0)
        arena.struck()
        try:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = ANY(%s)",
                [roles],
            )
            seconds = arena.pause(1, 3)
            connected = False
            with suppress(psycopg.OperationalError):
                psycopg.connect(arena.system.database_url(CLIENT), connect_timeout=3).close()
                connected = True
        finally:
            limit(connection, -1)
    return struck_if(not connected, f"for {seconds:.1f} s no process could connect")


def _postgres_of(name: str) -> Callable[[Arena], Link]:
    return lambda arena: arena.system.postgres_link(name)


def _postgres_of_a_worker(arena: Arena) -> Link:
    return arena.system.postgres_link(arena.worker())


CRASHES: Final = (
    Fault(
        kind="worker killed",
        strike=_kill(Arena.worker, signal.SIGKILL),
        is_crash=True,
    ),
    Fault(kind="worker restarted", strike=_kill(Arena.worker, signal.SIGTERM), is_crash=True),
    Fault(kind="API killed", strike=_kill(lambda _: API, signal.SIGKILL), is_crash=True),
    Fault(kind="API restarted", strike=_kill(lambda _: API, signal.SIGTERM), is_crash=True),
    Fault(
        kind="webhook sender killed",
        strike=_kill(lambda _: WEBHOOKS, signal.SIGKILL),
        is_crash=True,
    ),
    Fault(kind="Redis killed", strike=_crash_redis, is_crash=True),
    Fault(kind="Redis emptied", strike=_flush_redis, is_crash=True),
    Fault(kind="PostgreSQL crashed", strike=_crash_postgres, is_crash=True),
    Fault(kind="sessions terminated", strike=_terminate_backends, is_crash=True),
    Fault(kind="connections refused", strike=_refuse_connections),
    Fault(
        kind="worker cut from PostgreSQL",
        strike=_cut_at_random(_postgres_of_a_worker),
        is_crash=True,
    ),
    Fault(kind="API cut from PostgreSQL", strike=_cut_at_random(_postgres_of(API)), is_crash=True),
    Fault(
        kind="worker cut from Redis",
        strike=_cut_at_random(lambda arena: arena.system.redis_link(arena.worker())),
        is_crash=True,
    ),
    Fault(
        kind="client cut from Redis",
        strike=_cut_at_random(lambda arena: arena.system.redis_link(CLIENT)),
        is_crash=True,
    ),
    Fault(
        kind="cut before COMMIT",
        strike=_cut_at(_postgres_of_a_worker, b"COMMIT", Trap.BEFORE, "COMMIT"),
        is_crash=True,
    ),
    Fault(
        kind="cut after COMMIT",
        strike=_cut_at(_postgres_of_a_worker, b"COMMIT", Trap.AFTER, "COMMIT"),
        is_crash=True,
    ),
    Fault(
        kind="cut before the acceptance of events",
        strike=_cut_at(
            _postgres_of(CLIENT), _BODY_OF_EVENT, Trap.BEFORE, "the acceptance of events"
        ),
        is_crash=True,
    ),
    Fault(
        kind="cut after the acceptance of events",
        strike=_cut_at(
            _postgres_of(CLIENT), _BODY_OF_EVENT, Trap.AFTER, "the acceptance of events"
        ),
        is_crash=True,
    ),
)
"""The faults of this kind."""
