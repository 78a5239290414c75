"""The whole service: HTTP in front, a worker behind, and a file of clearings."""

import asyncio
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Final, LiteralString
from urllib.parse import urlsplit

import psycopg
from psycopg import sql
from pydantic import SecretStr

from benchmarks import load, workload
from benchmarks.load import LoadResult
from benchmarks.parts.engine import Progress
from benchmarks.results.figures import Figure
from benchmarks.workbench import SECRET_KEY, Bench, memory_of
from benchmarks.workload import Cardholder
from cardledger.config.errors import CommandError
from cardledger.config.settings import Settings
from cardledger.embedded.servers import DatabaseUrl
from cardledger.install.ready_file import Running
from cardledger.schema.ids import Id
from cardledger.supervisor.plan import Plan
from cardledger.supervisor.system import System

_PART: Final = "service"
_CARDHOLDERS: Final = 1_000
_SECONDS: Final = 5.0
_WARM_UP_S: Final = 2.0
_CONNECTIONS: Final = 64
_RATES: Final = (100, 300, 600)
_FILE_LINES: Final = 100_000
_MILLION: Final = 1_000_000
_AT_A_TIME: Final = 20_000  # Purchases.
_POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A running system on a bench of its own, with cardholders."""

    bench: Bench
    data_dir: Path
    running: Running
    cardholders: list[Cardholder]


@contextmanager
def service(bench: Bench) -> Iterator[Service]:
    """Run API and worker on the database of `bench`, whose platform becomes theirs."""
    with tempfile.TemporaryDirectory(prefix="cardledger-bench-") as directory:
        settings = Settings(
            database_url=SecretStr(bench.owner_url),
            secret_key=SecretStr(SECRET_KEY),  # With which the platform of the bench was created.
            data_dir=Path(directory),
            port=0,
        )
        system = System(
            Plan(settings=settings, any_port=True),
            log=lambda _name, _line: None,
            on_step=lambda _: None,
        )
        try:
            running = system.start()
            own = Bench(
                owner_url=bench.owner_url,
                app_url=DatabaseUrl(running.database_url),
                platform_id=Id.parse(system.platform_id),
            )
            yield Service(
                bench=own,
                data_dir=settings.data_dir,
                running=running,
                cardholders=own.cardholders(_CARDHOLDERS),
            )
        finally:
            system.stop()


def measure(system: Service, *, rounds: int, progress: Progress) -> Iterator[Figure]:
    """Yield the rates and latencies of authorizations over HTTP, and the rate of `submit`."""
    authorizations = Authorizations(system)
    progress("service: warming up")
    authorizations.closed(seconds=_WARM_UP_S)
    progress("service: one at a time")
    yield from _idle(
        [authorizations.closed(connections=1, seconds=_SECONDS / 2) for _ in range(rounds)]
    )
    for rate in _RATES:
        progress(f"service: {rate} a second")
        yield from _at(rate, [authorizations.paced(rate) for _ in range(rounds)])
    progress(f"service: {_CONNECTIONS} connections")
    flat_out = [
        authorizations.closed(connections=_CONNECTIONS, seconds=_SECONDS) for _ in range(rounds)
    ]
    yield Figure(
        part=_PART,
        name=f"HTTP authorizations, {_CONNECTIONS} connections",
        unit="/s",
        values=[result.rate for result in flat_out],
        least=1_200,
        aim=2_500,
    )
    yield Figure(
        part=_PART,
        name="HTTP answers other than 200",
        unit="",
        values=[float(authorizations.failed)],
        least=0,
        lower=True,
    )
    yield from submit(system, progress)
    _decide_more(system, progress)
    yield Figure(
        part=_PART,
        name="memory of the worker after a million events",
        unit="MB",
        values=[memory_of(system.running.pids["worker-1"])],
        least=200,
        aim=120,
        lower=True,
    )


def _idle(results: list[LoadResult]) -> Iterator[Figure]:
    yield Figure(
        part=_PART,
        name="HTTP authorization, one at a time, p50",
        unit="ms",
        values=[result.quantile_ms(0.5) for result in results],
        least=8,
        aim=5,
        lower=True,
    )
    yield Figure(
        part=_PART,
        name="HTTP authorization, one at a time, p99",
        unit="ms",
        values=[result.quantile_ms(0.99) for result in results],
        lower=True,
    )


def _at(rate: int, results: list[LoadResult]) -> Iterator[Figure]:
    is_bar = rate == 300
    for share, name in ((0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")):
        has_bar = is_bar and name == "p99"
        yield Figure(
            part=_PART,
            name=f"HTTP authorization at {rate}/s, {name}",
            unit="ms",
            values=[result.quantile_ms(share) for result in results],
            least=40 if has_bar else None,
            aim=20 if has_bar else None,
            lower=True,
        )


class Authorizations:
    """Sends authorizations on all cards in turn; counts statuses other than 200."""

    def __init__(self, system: Service, *, secret: str | None = None) -> None:
        """With the credentials of `system`, unless another `secret` is given."""
        url = urlsplit(system.running.base_url)
        assert url.hostname is not None
        self._host: Final = url.hostname
        self._port: Final = url.port or 80
        self._path: Final = url.path
        self._authorization: Final = authorization_of(system, secret)
        self._cardholders: Final = itertools.cycle(system.cardholders)
        self._amounts: Final = itertools.cycle(range(100, 1_000))
        self.failed = 0

    def closed(self, *, connections: int = _CONNECTIONS, seconds: float) -> LoadResult:
        run = load.closed(
            self._host, self._port, self._next, connections=connections, seconds=seconds
        )
        return self._counted(asyncio.run(run))

    def paced(self, rate: float, *, seconds: float = _SECONDS) -> LoadResult:
        return asyncio.run(self.pacing(rate, seconds=seconds))

    async def pacing(self, rate: float, *, seconds: float) -> LoadResult:
        """Do as `paced`, in an event loop that does something else as well."""
        run = load.paced(self._host, self._port, self._next, rate=rate, seconds=seconds)
        return self._counted(await run)

    def _counted(self, result: LoadResult) -> LoadResult:
        self.failed += result.failed
        return result

    def _next(self) -> bytes:
        card_id = next(self._cardholders).card_id
        body = {
            "amount": next(self._amounts),
            "currency": {"code": "USD"},
            "merchant": workload.MERCHANT,
        }
        path = f"{self._path}/sandbox/cards/Card:{card_id}/simulate/authorization"
        return load.request(self._host, path, self._authorization, json.dumps(body).encode())


def submit(system: Service, progress: Progress, *, lines: int = _FILE_LINES) -> Iterator[Figure]:
    """Have a file of clearings, each of an authorization of its own, decided and printed."""
    progress(f"service: {lines:,} authorizations, decided by the worker")
    wanted = workload.purchases(system.cardholders, lines, seed=1, run="file")
    started = perf_counter()
    system.bench.accept(workload.authorizations(wanted))
    wait_until_decided(system)
    yield Figure(
        part=_PART,
        name="authorizations of a worker, from the inbox on",
        unit="/s",
        values=[lines / (perf_counter() - started)],
    )
    # Earlier webhooks have been dispatched, so that only the file is measured.
    wait_until_dispatched(system)
    progress(f"service: submit, a file of {lines:,} clearings")
    with tempfile.TemporaryDirectory(prefix="cardledger-bench-") as directory:
        file = Path(directory) / "clearings.jsonl"
        with file.open("w", encoding="utf-8") as opened:
            for message in workload.clearings(wanted):
                opened.write(json.dumps(message.body) + "\n")
        seconds = submitted(file, environment_of(system), lines=lines)
    yield Figure(
        part=_PART,
        name=f"submit of {lines:,} clearings, outcomes printed",
        unit="/s",
        values=[lines / seconds],
        least=6_000,
        aim=12_000,
    )


def _decide_more(system: Service, progress: Progress) -> None:
    """Have the worker decide purchases until there are a million events."""
    for number in itertools.count():
        with psycopg.connect(system.bench.owner_url) as connection:
            row = connection.execute("SELECT count(*) FROM card_transaction_events").fetchone()
        assert row is not None
        if row[0] >= _MILLION:
            return
        progress(f"service: worker, {row[0] / _MILLION:.2f} of 1 million events")
        wanted = workload.purchases(system.cardholders, _AT_A_TIME, seed=number, run="more")
        system.bench.accept(workload.authorizations(wanted))
        system.bench.accept(workload.clearings(wanted))
        wait_until_decided(system)


def environment_of(system: Service) -> dict[str, str]:
    """Return the settings with which a command finds `system`."""
    return {
        "DATABASE_URL": system.running.database_url,
        "REDIS_URL": system.running.redis_url,
        "CARDLEDGER_DATA_DIR": str(system.data_dir),
        "CARDLEDGER_SECRET_KEY": SECRET_KEY,
    }


def authorization_of(system: Service, secret: str | None = None) -> str:
    """Return the header Authorization of the token of `system`, or with another `secret`."""
    pair = f"{system.running.client_id}:{secret or system.running.client_secret}"
    return "Basic " + b64encode(pair.encode()).decode()


def wait_until_decided(system: Service) -> None:
    """Return when no message waits."""
    with psycopg.connect(system.bench.owner_url, autocommit=True) as connection:
        wait_until(lambda: not _exists(connection, "SELECT FROM inbox"), "an empty inbox")


def wait_until_dispatched(system: Service) -> None:
    """Return when every webhook has been dispatched."""
    with psycopg.connect(system.bench.owner_url, autocommit=True) as connection:
        wait_until(lambda: not _exists(connection, "SELECT FROM outbox"), "an empty outbox")


def _exists(connection: psycopg.Connection[Any], query: LiteralString) -> bool:
    row = connection.execute(sql.SQL("SELECT EXISTS ({})").format(sql.SQL(query))).fetchone()
    assert row is not None
    return bool(row[0])


def wait_until(condition: Callable[[], bool], expected: str, *, timeout_s: float = 300.0) -> None:
    """Return when `condition` is true.

    Raises: CommandError when it does not become true: the figures would be meaningless.
    """
    deadline = perf_counter() + timeout_s
    while not condition():
        if perf_counter() > deadline:
            raise CommandError(f"timed out after {timeout_s:g} s: {expected} was expected")
        time.sleep(_POLL_S)


def submitted(file: Path, environment: Mapping[str, str], *, lines: int) -> float:
    """Submit `file` to its end; return the seconds it took, the start of the command included."""
    started = perf_counter()
    with tempfile.TemporaryFile() as outcomes:
        done = subprocess.run(
            [sys.executable, "-m", "cardledger", "submit", str(file)],
            check=False,
            stdout=outcomes,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
        )
        seconds = perf_counter() - started
        outcomes.seek(0)
        printed = sum(1 for _ in outcomes)
    if done.returncode or printed != lines:
        errors = done.stderr.decode().strip()
        raise CommandError(f"{printed} of {lines} outcomes were printed: {errors}")
    return seconds
