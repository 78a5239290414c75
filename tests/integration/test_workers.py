"""Workers and clients without Redis: it only carries doorbells and replies."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
from redis import Redis

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.messaging.inbox import Lane
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import Outcome
from cardledger.workers.client import Client
from cardledger.workers.process.main import WorkerProcess
from tests.integration.workers import (
    dead_redis,
    outcome_types,
    references,
    with_client,
    working,
)
from tests.waiting import eventually
from tests.world import World, open_world

__all__ = ["dead_redis"]  # A fixture.


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


@pytest.fixture(scope="module")
def worker(world: World, redis_url: str) -> Iterator[WorkerProcess]:
    with working(world, redis_url) as process:
        yield process


@pytest.mark.usefixtures("worker")
def test_a_client_without_redis_reads_outcomes_from_postgresql(
    world: World, platform: Id, dead_redis: str
) -> None:
    cardholder = world.cardholder(platform, 1000)
    events = [world.authorization(cardholder, f"T{n}", 10) for n in range(50)]

    outcomes = with_client(world, dead_redis, lambda client: client.submit(events))

    assert outcome_types(outcomes) == ["APPLIED"] * 50
    assert references(outcomes) == [event["reference"] for event in events]


def test_workers_and_clients_work_without_any_redis(
    world: World, platform: Id, dead_redis: str
) -> None:
    cardholder = world.cardholder(platform, 1000)

    async def tip(client: Client) -> list[Outcome]:
        authorized = await client.submit([world.authorization(cardholder, "T1", 125)])
        return authorized + await client.submit([world.clearing(cardholder, "T1", 150)])

    with working(world, dead_redis, sweep_interval_s=0.05):
        outcomes = with_client(world, dead_redis, tip)

    assert outcome_types(outcomes) == ["APPLIED", "APPLIED"]
    assert world.account(cardholder)["balance"] == 850


def test_without_redis_a_waiting_file_does_not_delay_an_authorization(
    world: World, platform: Id, dead_redis: str
) -> None:
    cardholder = world.cardholder(platform, 1000)
    others = [world.cardholder(platform) for _ in range(8)]
    file = [(other, world.clearing(other, f"T{n}", 1)) for n in range(1500) for other in others]
    world.accept(file, Lane.BULK)

    async def authorize(client: Client) -> list[Outcome]:
        return await client.submit([world.authorization(cardholder, "T1", 125)])

    with working(world, dead_redis, sweep_interval_s=0.05):
        outcomes = with_client(world, dead_redis, authorize)
        left = world.connection.execute("SELECT count(*) FROM inbox WHERE lane = 1").fetchone()

    assert outcome_types(outcomes) == ["APPLIED"]
    assert left is not None
    assert left[0] > 0, "the file was done before the authorization"
    world.connection.execute(
        "DELETE FROM inbox"
    )  # The rest of the file would be decided by later tests.


def test_messages_whose_doorbells_redis_has_lost_are_found_by_the_sweeper(
    world: World, platform: Id, redis_url: str
) -> None:
    cardholders = [world.cardholder(platform, 1000) for _ in range(8)]
    for lane in Lane:
        for cardholder in cardholders:
            waiting = [world.authorization(cardholder, f"{lane}-{n}", 1) for n in range(20)]
            world.accept([(cardholder, event) for event in waiting], lane)
    with Redis.from_url(redis_url) as redis:
        redis.flushdb()

    with working(world, redis_url):
        eventually(lambda: world.count("inbox") == 0)

    assert {world.account(cardholder)["balance"] for cardholder in cardholders} == {960}


@pytest.mark.usefixtures("worker")
def test_redis_may_lose_everything_repeatedly_while_events_are_submitted(
    world: World, platform: Id, redis_url: str
) -> None:
    cardholders = [world.cardholder(platform, 10_000) for _ in range(8)]
    events = [world.authorization(cardholders[n % 8], f"T{n}", 1) for n in range(2000)]
    done = threading.Event()
    flushes = 0

    def flush() -> None:
        nonlocal flushes
        with Redis.from_url(redis_url) as redis:
            while not done.wait(0.01):
                redis.flushdb()
                flushes += 1

    async def in_parts(client: Client) -> list[Outcome]:
        parts = [client.submit(events[n : n + 100]) for n in range(0, len(events), 100)]
        return [outcome for part in await asyncio.gather(*parts) for outcome in part]

    flushing = threading.Thread(target=flush)
    flushing.start()
    try:
        outcomes = with_client(world, redis_url, in_parts)
    finally:
        done.set()
        flushing.join()

    assert outcome_types(outcomes) == ["APPLIED"] * 2000
    assert flushes
    for cardholder in cardholders:
        world.check_books(cardholder)


@pytest.mark.usefixtures("worker")
def test_a_worker_whose_database_connections_are_cut_finishes_its_work(
    world: World, platform: Id, redis_url: str
) -> None:
    cardholders = [world.cardholder(platform, 10_000) for _ in range(8)]
    events = [world.authorization(cardholders[n % 8], f"T{n}", 1) for n in range(3000)]
    accepted = [(cardholders[n % 8], event) for n, event in enumerate(events)]
    world.accept(accepted, Lane.BULK)
    cuts = 0

    def cut_and_look() -> bool:
        nonlocal cuts
        world.connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND datname = current_database() AND usename LIKE '%%_worker'"
        )
        cuts += 1
        return cuts >= 5

    eventually(cut_and_look)
    eventually(lambda: world.count("inbox") == 0)

    again = with_client(world, redis_url, lambda client: client.submit(events[:1]))
    assert outcome_types(again) == ["DUPLICATE"]
    for cardholder in cardholders:
        world.check_books(cardholder)
