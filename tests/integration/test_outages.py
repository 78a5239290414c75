"""What a process logs while PostgreSQL and Redis are away: not a line for every attempt."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from cardledger.embedded.servers import DatabaseUrl
from cardledger.workers.client import Client, UnavailableError
from cardledger.workers.process.config import WorkerConfig
from cardledger.workers.process.main import WorkerProcess
from cardledger.workers.signals.outage_log import DATABASE, REDIS
from tests.api.support import SECRET_KEY, closed_port
from tests.integration.workers import captured, with_client
from tests.waiting import eventually
from tests.world import World, open_world

ENOUGH = 40  # Failed attempts: each used to be a traceback.


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


def test_a_worker_without_postgresql_and_redis_logs_a_handful_of_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = WorkerConfig(
        database_url=f"postgresql://ada@127.0.0.1:{closed_port()}/nothing",
        redis_url=f"redis://127.0.0.1:{closed_port()}",
        secret_key=SECRET_KEY,
        sweep_interval_s=0.1,
    )
    # Of an outage that an earlier test has begun there is no first line; it counts all the same.
    began = DATABASE.failures
    with captured() as lines, caplog.at_level(logging.WARNING):
        process = WorkerProcess(config)
        process.start()
        eventually(lambda: DATABASE.failures >= began + ENOUGH and REDIS.is_out)
        process.stop()

    assert len(lines) <= 6, lines
    assert len(caplog.records) <= 6, caplog.text
    assert not any("exc_info" in line for line in lines)


def test_an_outage_in_which_a_timeout_reversal_waits_is_two_lines(
    world: World, redis_url: str
) -> None:
    cardholder = world.cardholder(world.platform(), 1_000)

    async def submitting(client: Client) -> None:
        decide_by = (client.now() + timedelta(seconds=0.5)).isoformat()
        event = world.authorization(cardholder, "T1", 100, decideBy=decide_by)
        waiting = asyncio.create_task(client.submit([event]))
        await asyncio.to_thread(eventually, lambda: world.count("inbox") == 1)
        with no_connections(world, world.api_url):
            with pytest.raises(UnavailableError, match="reversal is not recorded yet"):
                await waiting
            began = DATABASE.failures
            await asyncio.to_thread(eventually, lambda: DATABASE.failures > began + 5)
        await asyncio.to_thread(eventually, lambda: world.count("inbox") == 2)
        await asyncio.to_thread(eventually, lambda: not DATABASE.is_out)

    eventually(is_over)
    with captured() as lines:
        with_client(world, redis_url, submitting)

    # Of Redis, the outage of an earlier test may end here.
    assert [line["event"] for line in lines if not line["event"].startswith("redis")] == [
        "database unavailable; everything that waits is retried",
        "database available again",
    ]


def test_a_right_that_is_missing_is_an_outage_for_callers_and_one_line_in_the_log(
    world: World, redis_url: str
) -> None:
    """Each attempt was a traceback, and a submission failed with an error of psycopg."""
    cardholder = world.cardholder(world.platform(), 1_000)
    role = sql.Identifier(str(conninfo_to_dict(world.api_url)["user"]))
    before = world.count("inbox")

    async def submitting(client: Client) -> None:
        decide_by = (client.now() + timedelta(seconds=0.5)).isoformat()
        event = world.authorization(cardholder, "T1", 100, decideBy=decide_by)
        waiting = asyncio.create_task(client.submit([event]))
        await asyncio.to_thread(eventually, lambda: world.count("inbox") == before + 1)
        world.connection.execute(sql.SQL("REVOKE INSERT ON inbox FROM {}").format(role))
        try:
            for number in range(ENOUGH):
                with pytest.raises(UnavailableError, match="permission denied for table inbox"):
                    await client.enqueue([world.authorization(cardholder, f"R{number}", 100)])
            with pytest.raises(UnavailableError, match="reversal is not recorded yet"):
                await waiting
        finally:
            world.connection.execute(sql.SQL("GRANT INSERT ON inbox TO {}").format(role))
        await asyncio.to_thread(eventually, lambda: world.count("inbox") == before + 2)
        await client.enqueue([world.authorization(cardholder, "T2", 100)])

    eventually(is_over)
    with captured() as lines:
        with_client(world, redis_url, submitting)

    [line] = [line for line in lines if not line["event"].startswith("redis")]
    assert line["event"] == "PostgreSQL refuses a statement; it is tried again"
    assert line["error"] == "permission denied for table inbox"


def is_over() -> bool:
    """Return whether no outage is left of an earlier test."""
    DATABASE.succeeded()
    return not DATABASE.is_out


@contextmanager
def no_connections(world: World, url: str) -> Iterator[None]:
    """End the connections of the role of `url`, and refuse new ones."""
    role = str(conninfo_to_dict(url)["user"])
    may_log_in = "ALTER ROLE {} {}"
    with psycopg.connect(world.url, autocommit=True) as owner:
        owner.execute(sql.SQL(may_log_in).format(sql.Identifier(role), sql.SQL("NOLOGIN")))
        try:
            owner.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", [role]
            )
            yield
        finally:
            owner.execute(sql.SQL(may_log_in).format(sql.Identifier(role), sql.SQL("LOGIN")))
