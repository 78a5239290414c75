"""The client writes concurrent submissions together, and stops in good order."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import NullPool

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.storage.engines import async_engine
from cardledger.schema.wire.outcomes import Outcome, OutcomeType
from cardledger.workers.client import Client, ReplyTimeoutError, UnavailableError
from cardledger.workers.process.main import WorkerProcess
from tests.databases import fresh_database
from tests.integration.workers import client_of, outcome_types, with_client, working
from tests.waiting import limit_s
from tests.world import SECRET_KEY, World, open_world


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def worker(world: World, redis_url: str) -> Iterator[WorkerProcess]:
    with working(world, redis_url) as process:
        yield process


@pytest.fixture
def idle_world(
    postgres_url: DatabaseUrl, template_database: DatabaseUrl, app_database_url: DatabaseUrl
) -> Iterator[World]:
    """A database that no worker works on, so that rows stay where they were written."""
    with (
        fresh_database(postgres_url, template=template_database.database) as url,
        open_world(url, app_database_url.with_database(url.database)) as made,
    ):
        yield made


def test_concurrent_submissions_share_a_write(idle_world: World, redis_url: str) -> None:
    world = idle_world
    platform = world.platform()
    cardholders = [world.cardholder(platform) for _ in range(5)]

    async def concurrently(client: Client) -> list[object]:
        submissions = (
            client.submit([world.authorization(cardholders[n % 5], f"T{n}", 10)])
            for n in range(200)
        )
        return await asyncio.gather(*submissions, return_exceptions=True)

    results = with_client(world, redis_url, concurrently, reply_timeout_s=limit_s(0.75))

    assert {type(result) for result in results} == {ReplyTimeoutError}
    [(events, writes)] = world.rows(
        "SELECT count(*), count(DISTINCT xmin::text) FROM inbox WHERE platform_id = %s", platform
    )
    assert events == 200
    assert writes <= 3


def test_a_live_event_shares_no_write_with_a_file(idle_world: World, redis_url: str) -> None:
    world = idle_world
    platform = world.platform()
    cardholder = world.cardholder(platform)
    file = [world.authorization(cardholder, f"T{n}", 10) for n in range(100)]
    live = world.authorization(cardholder, "live", 10)

    async def together(client: Client) -> None:
        await asyncio.gather(
            client.enqueue(file), client.enqueue([live], lane=Lane.LIVE), client.enqueue(file[:1])
        )

    with_client(world, redis_url, together)

    writes = world.rows(
        "SELECT xmin::text, array_agg(DISTINCT lane) FROM inbox WHERE platform_id = %s GROUP BY 1",
        platform,
    )
    assert all(len(lanes) == 1 for _, lanes in writes)
    assert len(writes) >= 2


def test_a_write_has_few_events_at_a_time_and_each_caller_waits_for_its_own(
    idle_world: World, redis_url: str
) -> None:
    world = idle_world
    platform = world.platform()
    cardholder = world.cardholder(platform)

    async def together(client: Client) -> list[int]:
        async def enqueue(number: int) -> int:
            events = [world.authorization(cardholder, f"T{number}-{n}", 10) for n in range(10)]
            await client.enqueue(events)
            [(count,)] = world.rows(
                "SELECT count(*) FROM inbox WHERE platform_id = %s AND reference = ANY(%s)",
                platform,
                [event["reference"] for event in events],
            )
            return int(count)

        return await asyncio.gather(*(enqueue(number) for number in range(60)))

    assert with_client(world, redis_url, together) == [10] * 60

    sizes = world.rows(
        "SELECT count(*) FROM inbox WHERE platform_id = %s GROUP BY xmin::text", platform
    )
    assert max(size for (size,) in sizes) <= 130


def test_while_outcomes_are_pending_submissions_gather_until_the_next_reply(
    idle_world: World, redis_url: str
) -> None:
    world = idle_world
    platform = world.platform()
    first, *others = [
        world.authorization(world.cardholder(platform, 1000), f"T{n}", 10) for n in range(3)
    ]

    def waiting() -> int:
        query = "SELECT count(*) FROM inbox WHERE platform_id = %s"
        [(count,)] = world.rows(query, platform)
        return int(count)

    async def one_by_one(client: Client) -> tuple[int, list[list[Outcome]]]:
        [accepted] = await client.enqueue([first], lane=Lane.LIVE)
        submissions = []
        for event in others:
            submissions.append(asyncio.create_task(client.submit([event])))
            await client.is_redis_available()  # Longer than a write takes to begin.
        written = waiting()
        with working(world, redis_url):
            return written, [[await accepted], *await asyncio.gather(*submissions)]

    written, outcomes = with_client(world, redis_url, one_by_one, gather_s=limit_s())

    assert written == 1
    assert [outcome_types(submission) for submission in outcomes] == [["APPLIED"]] * 3


def test_after_a_reply_timeout_the_event_is_still_accepted_and_decided(
    idle_world: World, redis_url: str
) -> None:
    world = idle_world
    cardholder = world.cardholder(world.platform(), 1000)
    event = world.authorization(cardholder, "T1", 10)

    with pytest.raises(ReplyTimeoutError):
        with_client(world, redis_url, lambda c: c.submit([event]), reply_timeout_s=0.3)

    [decided] = world.drain(world.engine())
    assert decided.message.reference == event["reference"]
    assert world.account(cardholder)["balance"] == 990
    with working(world, redis_url):
        [again] = with_client(world, redis_url, lambda client: client.submit([event]))

    assert (again.outcome, again.first_outcome) == (OutcomeType.DUPLICATE, OutcomeType.APPLIED)


def test_a_client_that_stops_during_a_write_ends_the_write_in_good_order(
    idle_world: World,
    redis_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = idle_world
    event = world.authorization(world.cardholder(world.platform(), 1000), "T1", 10)
    cancel = psycopg.AsyncConnection.cancel_safe

    async def slowly(connection: psycopg.AsyncConnection[Any], **how: float) -> None:
        await asyncio.sleep(0.5)  # A busy server.
        await cancel(connection, **how)

    monkeypatch.setattr(psycopg.AsyncConnection, "cancel_safe", slowly)
    writing = (
        "SELECT FROM pg_stat_activity"
        " WHERE wait_event_type = 'Lock' AND query ~ '^INSERT INTO inbox'"
    )

    async def stopped() -> list[object]:
        async with client_of(world, redis_url) as client:
            during_write = asyncio.create_task(client.enqueue([event]))
            async with asyncio.timeout(limit_s()):
                while not world.rows(writing):
                    await client.is_redis_available()
            before_stop = asyncio.create_task(client.submit([event]))
            await client.is_redis_available()
        after_stop = client.submit([event])
        return [
            *await asyncio.gather(during_write, before_stop, after_stop, return_exceptions=True)
        ]

    with psycopg.connect(world.url) as blocking:
        blocking.execute("LOCK TABLE inbox IN EXCLUSIVE MODE")
        results = asyncio.run(stopped())

    assert [type(result) for result in results] == [UnavailableError] * 3
    assert caplog.messages == []


@pytest.mark.usefixtures("worker")
def test_a_client_that_has_just_received_an_outcome_stops_at_once(
    world: World, redis_url: str
) -> None:
    cardholder = world.cardholder(world.platform(), 1000)

    async def seconds_to_stop(number: int) -> float:
        async with client_of(world, redis_url) as client:
            await client.submit([world.authorization(cardholder, f"stop-{number}", 1)])
            received = time.monotonic()
        return time.monotonic() - received

    seconds = [asyncio.run(seconds_to_stop(number)) for number in range(5)]

    # A client that waited for the next reply would take a second each time.
    assert min(seconds) < 0.5


@pytest.mark.usefixtures("worker")
def test_submitting_does_not_change_the_connections_of_the_program(
    world: World, redis_url: str
) -> None:
    cardholder = world.cardholder(world.platform(), 1000)
    program = f"""
import uuid, psycopg
from cardledger.workers.client import submit

event = {world.authorization(cardholder, "embedded", 1)!r}
submit([event], database_url={world.app_url!r}, redis_url={redis_url!r},
    secret_key={SECRET_KEY!r}, platform_id=uuid.UUID({str(cardholder.owner.platform_id)!r}),
    reply_timeout_s={limit_s()})
with psycopg.connect({world.url!r}) as connection:
    [(key,)] = connection.execute(
        "SELECT customer_id FROM outcomes WHERE reference = %s", [event["reference"]])
print(repr(key))
"""
    printed = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )

    assert printed.stdout == f"UUID('{cardholder.owner.customer_id}')\n", printed.stderr


def test_without_postgresql_submitting_raises_unavailable(redis_url: str) -> None:
    async def submit_one() -> None:
        engine = async_engine("postgresql://absent@127.0.0.1:1/absent", poolclass=NullPool)
        async with Client(
            engine, redis_url, secret_key=SECRET_KEY, reply_timeout_s=limit_s()
        ) as client:
            await client.submit([{**EVENT, "cardId": f"Card:{uuid4()}"}])

    with pytest.raises(UnavailableError):
        asyncio.run(submit_one())


EVENT = {
    "type": "AUTHORIZATION",
    "source": "test",
    "reference": "r",
    "issuerTransactionToken": "T1",
    "amount": 10,
    "currency": "USD",
}
