"""A server to measure on, and databases of their own for every part."""

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Final

import psycopg
from psycopg import sql

from benchmarks import workload
from benchmarks.workload import Cardholder
from cardledger.embedded import directories
from cardledger.embedded.servers import DatabaseUrl, find_postgres
from cardledger.install import credentials, databases
from cardledger.ledger.engine.commit import Engine
from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import Lane, Message
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.sandbox.funding_rail import SandboxFundingRail
from cardledger.ledger.storage.batch_connections import batch_engine
from cardledger.schema import roles
from cardledger.schema.ids import Id

# More than half of the embedded server's max_wal_size, so that a checkpoint has come by itself and
# made it keep as many files as it will ever need between two of them.
_WAL_MB: Final = 3_072
_LOOK_EVERY_S: Final = 0.05
SECRET_KEY: Final = secrets.token_hex(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A migrated database with one platform; `app_url` logs in as the application does."""

    owner_url: DatabaseUrl
    app_url: DatabaseUrl
    platform_id: Id
    secret_key: str = SECRET_KEY  # Processes of a pool have another `SECRET_KEY`.

    def cardholders(self, count: int) -> list[Cardholder]:
        """Return `count` new cardholders with money on their accounts."""
        cardholders = workload.new_cardholders(self.owner_url, self.platform_id, count)
        self.accept(workload.deposits(cardholders))
        self.drain()
        with psycopg.connect(self.owner_url, autocommit=True) as connection:
            connection.execute("ANALYZE")
        return cardholders

    def accept(self, messages: Sequence[Message]) -> float:
        """Put `messages` into the inbox as the client does; returns the seconds it took."""
        key = InboxKey(self.secret_key)
        started = perf_counter()
        for batch in workload.in_batches(messages, 2_000):
            with psycopg.connect(self.app_url) as connection:
                inbox.accept(connection, batch, key)
        return perf_counter() - started

    def drain(
        self, *, batch_size: int = 500, threads: int = 1, only: Collection[int] | None = None
    ) -> "Drained":
        """Decide all that waits, or all of `only` some shards, on `threads` of this process."""
        counted = _Counter()
        with self._engine(batch_size, threads) as engine, ThreadPoolExecutor(threads) as pool:
            waiting = [shard for _, shard in engine.waiting() if only is None or shard in only]
            # As a worker does: each thread takes many queues together.
            parts = [waiting[part::threads] for part in range(threads)]
            # The threads and their connections are there before the clock starts.
            list(pool.map(lambda _: engine.waiting(), range(threads)))
            started = perf_counter()
            for done in [pool.submit(engine.drain, Lane.LIVE, part, counted.add) for part in parts]:
                done.result()
            seconds = perf_counter() - started
        return Drained(messages=counted.messages, commits=counted.commits, seconds=seconds)

    def drain_here(self, call: Callable[..., object]) -> None:
        """Have `call` decide all that waits, in this thread: what a profiler sees."""
        with self._engine(500, 1) as engine:
            waiting = [shard for _, shard in engine.waiting()]
            call(engine.drain, Lane.LIVE, waiting, _Counter().add)

    @contextmanager
    def _engine(self, batch_size: int, threads: int) -> Iterator[Engine]:
        database = batch_engine(self.app_url, pool_size=threads, max_overflow=0)
        try:
            yield Engine(
                database,
                key=InboxKey(self.secret_key),
                batch_size=batch_size,
                rail=SandboxFundingRail(delay=timedelta(0)),
            )
        finally:
            database.dispose()


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """How much was decided, in how many commits and how long it took."""

    messages: int
    commits: int
    seconds: float

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds


class _Counter:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.messages = self.commits = 0

    def add(self, decided: Sequence[object]) -> None:
        with self._lock:
            self.messages += len(decided)
            self.commits += 1


@contextmanager
def server(url: str | None) -> Iterator[DatabaseUrl]:
    """Yield the URL of a PostgreSQL to measure on: `url`, else an embedded one of this run."""
    directory = directories.temporary("cardledger-bench-")
    postgres = find_postgres(url, directory)
    try:
        postgres.start()
        try:
            yield DatabaseUrl(postgres.url)
        finally:
            postgres.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def fill_wal(postgres: DatabaseUrl) -> None:
    """Leave a server that has just been made with the log files of one that has worked for a day.

    A new one has to make each of them, filled with zeros and flushed, before it can be written:
    every commit beside it waits. After a checkpoint it takes the old ones again, as it does from
    then on.
    """
    with psycopg.connect(postgres, autocommit=True) as connection:
        for _ in range(_WAL_MB):
            connection.execute("SELECT pg_logical_emit_message(false, '', repeat('-', 1048576))")
        connection.execute("CHECKPOINT")


@contextmanager
def bench(postgres: DatabaseUrl) -> Iterator[Bench]:
    """Yield a fresh database on `postgres`; it is dropped afterwards, with its role."""
    with database(postgres) as owner_url, bench_on(owner_url) as made:
        yield made


@contextmanager
def bench_on(owner_url: DatabaseUrl) -> Iterator[Bench]:
    """Yield the database at `owner_url`, migrated, with a platform."""
    directory = Path(tempfile.mkdtemp(prefix="cardledger-bench-"))
    try:
        migrated = databases.prepare(owner_url, credentials.load(directory))
        platform_id = workload.new_platform(migrated.app_url, SECRET_KEY)
        yield Bench(owner_url=owner_url, app_url=migrated.app_url, platform_id=platform_id)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def database(postgres: DatabaseUrl) -> Iterator[DatabaseUrl]:
    """Yield the URL of an empty database on `postgres`; it is dropped afterwards."""
    name = f"bench_{secrets.token_hex(8)}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        yield postgres.with_database(name)
    finally:
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute(
                sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
            )
            for role in roles.names_in(postgres.with_database(name)):
                own = sql.Identifier(role)
                connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(own))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A command that has ended well: what it printed, how long it took and its memory at most."""

    output: str
    seconds: float
    memory_mb: float


def run_command(url: DatabaseUrl, *arguments: str, code: int = 0) -> Ran:
    """Run the command `cardledger` on the database at `url`, in a process of its own.

    It must end with `code`.

    Its memory is polled: the maximum that the system reports includes the parent process.
    """
    started, memory_mb = perf_counter(), 0.0
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(
            [sys.executable, "-m", "cardledger", *arguments],
            stdout=printed,
            stderr=printed,
            env={**os.environ, "DATABASE_URL": url},
        )
        while process.poll() is None:
            memory_mb = max(memory_mb, memory_of(process.pid))
            time.sleep(_LOOK_EVERY_S)
        seconds = perf_counter() - started
        printed.seek(0)
        output = printed.read().decode()
    assert process.returncode == code, f"{' '.join(arguments)} failed: {output}"
    return Ran(output=output, seconds=seconds, memory_mb=memory_mb)


def memory_of(pid: int) -> float:
    """Return how much memory (RSS) process `pid` has now, in MB; 0 when it has ended."""
    printed = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(pid)],  # noqa: S607 - every system has it on its PATH
        check=False,
        capture_output=True,
        text=True,
    )
    return int(printed.stdout or 0) / 1024
