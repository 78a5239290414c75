"""Faults that answer wrongly: a privilege, a table, a disk or a clock is wrong."""

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql

from cardledger.embedded.child_server import files_of_wheel
from storm.faults.arena import Arena, Fault, SkippedError, struck_if
from storm.system import HOT_TABLES, WORKERS

_PRIVILEGE: Final = "42501"
_CHECK: Final = "23514"
_DISK: Final = "53100"
"""SQLSTATEs of the errors that faults provoke."""

_WAITING: Final = "SELECT count(*) FROM inbox"
_BALLAST_BYTES: Final = 1 << 20
_LIBRARIES: Final = (
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
    "/usr/local/lib/faketime/libfaketimeMT.so.1",
)
"""Where packages of operating systems put libfaketime; LIBFAKETIME names another place."""

_Errors = list[int]
"""How many statements failed while a fault lasted: one number, once it is over."""


@contextmanager
def _counting_failures(arena: Arena, sqlstate: str) -> Iterator[_Errors]:
    """Count the statements of our processes that PostgreSQL refused with `sqlstate`."""
    log = arena.system.postgres.log
    before, counted = log.stat().st_size, _Errors()
    yield counted
    with log.open("rb") as file:
        file.seek(before)
        counted.append(failures_in(file.read(), sqlstate))


def failures_in(log: bytes, sqlstate: str) -> int:
    """Return how often a log of PostgreSQL says that a session of ours met `sqlstate`."""
    line = rb"^\S+ \S+ \S+ \[\d+\] %s cardledger[^\n]* (?:ERROR|FATAL):"
    return len(re.findall(line % sqlstate.encode(), log, re.MULTILINE))


def _revoke(arena: Arena) -> str:
    """Take a right away from the workers' role, and give it back."""
    table = arena.chance.choice(HOT_TABLES)
    with arena.system.connect() as connection, _counting_failures(arena, _PRIVILEGE) as failed:
        role = sql.Identifier(arena.system.role_of(WORKERS[0]))
        names = {"table": sql.Identifier(table), "role": role}
        connection.execute(sql.SQL("REVOKE INSERT ON {table} FROM {role}").format(**names))
        arena.struck()
        try:
            waiting = arena.watch(connection, _WAITING, arena.chance.uniform(2, 4))
        finally:
            connection.execute(sql.SQL("GRANT INSERT ON {table} TO {role}").format(**names))
    return struck_if(
        failed[0] and waiting,
        f"INSERT on {table} revoked: {failed[0]} statements failed, {waiting} messages waited",
    )


def _constrain(arena: Arena) -> str:
    """Add a constraint that no new row meets, as a migration with a mistake does."""
    table = sql.Identifier(arena.chance.choice(HOT_TABLES))
    add = sql.SQL("ALTER TABLE {} ADD CONSTRAINT storm CHECK (false) NOT VALID").format(table)
    drop = sql.SQL("ALTER TABLE {} DROP CONSTRAINT storm").format(table)
    with arena.system.connect() as connection, _counting_failures(arena, _CHECK) as failed:
        connection.execute(add)
        arena.struck()
        try:
            waiting = arena.watch(connection, _WAITING, arena.chance.uniform(2, 4))
        finally:
            connection.execute(drop)
    return struck_if(
        failed[0] and waiting,
        f"a constraint that nothing meets: {failed[0]} statements failed, {waiting} waited",
    )


def _fill_disk(arena: Arena) -> str:
    """Fill the small disk that holds the tables that grow fastest."""
    disk = arena.system.small_disk
    if disk is None:
        raise SkippedError("no file system of a limited size can be mounted here")
    ballast = disk / "ballast"
    with arena.system.connect() as connection, _counting_failures(arena, _DISK) as failed:
        arena.struck()
        try:
            size = _write_until_full(ballast)
            waiting = arena.watch(connection, _WAITING, arena.chance.uniform(2, 5))
            is_full = _has_no_room(connection)
        finally:
            ballast.unlink()
    return struck_if(
        is_full and failed[0],
        f"{size >> 20} MB written until the disk was full: {failed[0]} statements failed,"
        f" {waiting} messages waited",
    )


def _write_until_full(ballast: Path) -> int:
    size = 0
    piece = bytes(_BALLAST_BYTES)
    descriptor = os.open(ballast, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        while piece:
            try:
                size += os.write(descriptor, piece)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                piece = piece[: len(piece) // 2]  # To the last byte.
    finally:
        os.close(descriptor)
    return size


def _has_no_room(connection: psycopg.Connection[Any]) -> bool:
    """Return whether PostgreSQL refuses a row for lack of room."""
    try:
        connection.execute(
            "INSERT INTO storm.probe SELECT repeat('-', 7000) FROM generate_series(1, 50)"
        )
    except psycopg.errors.DiskFull:
        return True
    return False


def _set_clock(offset: str) -> Callable[[Arena], str]:
    """Run a worker, for some seconds, with a clock that is wrong by `offset`."""

    def strike(arena: Arena) -> str:
        library = _libfaketime()
        if library is None:
            raise SkippedError("libfaketime is not installed")
        process = arena.system.processes[arena.worker()]
        # Only the time of day: time-outs and pauses are as long as ever.
        wrong = {"LD_PRELOAD": library, "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        process.stop()
        arena.struck()
        process.start(wrong)
        pid = process.pid
        try:
            is_loaded = arena.wait_for(lambda: library in _maps(pid), 5)
            seconds = arena.pause(6, 9)
        finally:
            process.stop()
            process.start()
        return struck_if(is_loaded, f"{process.name}: {seconds:.1f} s with a clock {offset}")

    return strike


def _libfaketime() -> str | None:
    """Return where libfaketime is: named, of the system, or of its package for Python."""
    wheel = map(str, files_of_wheel("libfaketime", "libfaketime.so.1"))
    places = [os.environ.get("LIBFAKETIME", ""), *_LIBRARIES, *wheel]
    return next((place for place in places if place and Path(place).exists()), None)


def _maps(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")
    except OSError:
        return ""


ERRORS: Final = (
    Fault(kind="right revoked", strike=_revoke),
    Fault(kind="constraint wrong", strike=_constrain),
    Fault(kind="disk full", strike=_fill_disk),
    Fault(kind="clock 20 s ahead", strike=_set_clock("+20s")),
    Fault(kind="clock 8 days ahead", strike=_set_clock("+8d")),
    Fault(kind="clock 20 s behind", strike=_set_clock("-20s")),
)
"""The faults of this kind."""
