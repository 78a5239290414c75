"""What tests of workers and clients need."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import psycopg
import pytest
import structlog
from sqlalchemy import event
from structlog.testing import capture_logs

from cardledger.ledger.engine.commit import Engine
from cardledger.ledger.storage.batch_connections import batch_engine
from cardledger.ledger.storage.engines import async_engine
from cardledger.schema.wire.outcomes import Outcome
from cardledger.workers.client import Client
from cardledger.workers.process.config import WorkerConfig
from cardledger.workers.process.main import WorkerProcess
from cardledger.workers.signals.roles import WorkerRole
from tests.waiting import limit_s
from tests.world import SECRET_KEY, World

Result = TypeVar("Result")


def config_of(world: World, redis_url: str, **changes: Any) -> WorkerConfig:  # noqa: ANN401 - fields of WorkerConfig
    """Return the configuration of a worker, with the login of its role of the database.

    One that decides events and sends webhooks has the rights of both, as in earlier releases.
    """
    urls: dict[WorkerRole | None, str] = {
        None: world.app_url,
        WorkerRole.EVENTS: world.worker_url,
        WorkerRole.WEBHOOKS: world.webhooks_url,
    }
    fields: dict[str, Any] = {"database_url": urls[changes.get("role")], "threads": 4} | changes
    return WorkerConfig(redis_url=redis_url, secret_key=SECRET_KEY, **fields)


@contextmanager
def working(
    world: World,
    redis_url: str,
    *,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    **changes: Any,  # noqa: ANN401 - fields of WorkerConfig
) -> Iterator[WorkerProcess]:
    """Run a worker in this process; one that decides events, unless `changes` say otherwise."""
    changes = {"role": WorkerRole.EVENTS} | changes
    process = WorkerProcess(config_of(world, redis_url, **changes), clock)
    process.start()
    try:
        yield process
    finally:
        process.stop(limit_s())


@contextmanager
def engine_with(world: World, setting: str) -> Iterator[Engine]:
    """Yield an engine on whose connections `setting`, of the form "name = value", holds."""
    database = batch_engine(world.worker_url, pool_size=1)

    def prepare(connection: psycopg.Connection, _: object) -> None:
        connection.execute(f"SET {setting}".encode())
        connection.commit()

    event.listen(database, "connect", prepare)
    yield world.engine(database=database)
    database.dispose()


@contextmanager
def captured() -> Iterator[list[MutableMapping[str, Any]]]:
    """Yield the lines that are logged meanwhile."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.BoundLogger)
    with capture_logs() as lines:
        yield lines
    structlog.configure(**before)


@pytest.fixture(scope="module")
def dead_redis() -> Iterator[str]:
    """The URL of a port that no process listens on and no other process can take."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"redis://127.0.0.1:{taken.getsockname()[1]}/0"


@asynccontextmanager
async def client_of(
    world: World,
    redis_url: str,
    *,
    secret_key: str = SECRET_KEY,
    reply_timeout_s: float | None = None,
    **changes: Any,  # noqa: ANN401 - parameters of Client
) -> AsyncIterator[Client]:
    engine = async_engine(world.api_url, keyed=True)
    try:
        async with Client(
            engine,
            redis_url,
            secret_key=secret_key,
            reply_timeout_s=reply_timeout_s or limit_s(),
            **changes,
        ) as client:
            yield client
    finally:
        await engine.dispose()


def with_client(
    world: World,
    redis_url: str,
    use: Callable[[Client], Awaitable[Result]],
    **changes: Any,  # noqa: ANN401 - parameters of Client
) -> Result:
    async def run() -> Result:
        async with client_of(world, redis_url, **changes) as client:
            return await use(client)

    return asyncio.run(run())


def outcome_types(outcomes: list[Outcome]) -> list[str]:
    return [outcome.outcome.value for outcome in outcomes]


def references(outcomes: list[Outcome]) -> list[str | None]:
    return [outcome.reference for outcome in outcomes]
