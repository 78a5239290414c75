"""A Redis that hangs or is dead costs a caller some milliseconds, and is used again later."""

import asyncio
import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import pytest
from redis import Redis
from redis.client import Pipeline

from cardledger.embedded.redis_server import OwnRedis
from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.messaging.inbox import SHARDS, Lane
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import Outcome, OutcomeType
from cardledger.workers.client import Client, outcome_lookup, redis_gateway
from cardledger.workers.client.redis_gateway import RedisGateway
from cardledger.workers.signals.best_effort_redis import BestEffort
from cardledger.workers.signals.doorbell import CARDS, drain
from cardledger.workers.signals.outage_log import REDIS
from cardledger.workers.signals.redis_connections import connect
from cardledger.workers.signals.roles import WorkerRole
from tests.integration.workers import config_of, dead_redis, outcome_types, with_client, working
from tests.waiting import Deadline, eventually, limit_s, slowness
from tests.worker_process import worker_process
from tests.world import Cardholder, World, open_world

__all__ = ["dead_redis"]  # A fixture.

_ROUNDS = 10

_ALLOWANCE_S = 0.05
"""What two medians may differ by, whatever their ratio, on a machine that is busy."""

_SELDOM_S = 3600.0
"""An interval of sweeps at which only a worker that polls without Redis finds anything."""


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


@pytest.fixture
def silent_redis() -> Iterator[str]:
    """The URL of a port that accepts connections and never responds."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        yield f"redis://127.0.0.1:{silent.getsockname()[1]}/0"


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop the process `pid` without ending it."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.fixture
def own_redis() -> Iterator[OwnRedis]:
    """A Redis that a test may stop."""
    with tempfile.TemporaryDirectory(prefix="cardledger-tests-") as directory:
        server = OwnRedis(Path(directory))
        server.start()
        yield server
        server.stop()


async def one_after_the_other(world: World, cardholder: Cardholder, client: Client) -> float:
    """Submit authorizations one by one; return how long they took, in seconds."""
    began = perf_counter()
    outcomes: list[Outcome] = []
    for number in range(_ROUNDS):
        outcomes += await client.submit([world.authorization(cardholder, f"T{number}", 10)])
    took_s = perf_counter() - began
    assert outcome_types(outcomes) == ["APPLIED"] * _ROUNDS
    assert world.balance(cardholder) == 1000 - 10 * _ROUNDS
    return took_s


async def usual_s(
    world: World, cardholder: Cardholder, client: Client, *, has_redis: bool
) -> float:
    """Return how long a call takes, the median of several, once it is known whether Redis answers.

    In seconds.
    """

    async def call_s() -> float:
        began = perf_counter()
        [outcome] = await client.submit([world.authorization(cardholder, str(new_id()), 10)])
        assert outcome.outcome is OutcomeType.APPLIED
        return perf_counter() - began

    deadline = Deadline()
    while REDIS.is_out is has_redis or client._redis.is_available is not has_redis:
        assert not deadline.has_passed, "the loss of Redis, or its return, was not noticed"
        await call_s()
    return median([await call_s() for _ in range(_ROUNDS)])


def test_a_redis_that_is_away_or_never_answers_costs_a_few_milliseconds_a_call(
    world: World, platform: Id, redis_url: str, dead_redis: str, silent_redis: str
) -> None:
    took_s = {}
    for url in (redis_url, dead_redis, silent_redis):
        has_redis = url == redis_url
        cardholder = world.cardholder(platform, 1_000_000)
        use = partial(usual_s, world, cardholder, has_redis=has_redis)
        with working(world, url):
            took_s[url] = with_client(world, url, use)

    # Two to four times as long, because of the polls. A wait for a sweep would take half a second,
    # one for Redis a quarter or a whole one.
    limit = 5 * took_s[redis_url] + _ALLOWANCE_S
    assert took_s[dead_redis] < limit
    assert took_s[silent_redis] < limit


@pytest.fixture
def stopped_redis(own_redis: OwnRedis) -> Iterator[str]:
    """The URL of a Redis that has answered before and does not any more."""
    with Redis.from_url(own_redis.url) as client:
        client.ping()
    assert own_redis.pid is not None
    with stopped(own_redis.pid):
        yield own_redis.url


@pytest.mark.parametrize("redis", ["dead_redis", "silent_redis", "stopped_redis"])
def test_without_redis_a_worker_finds_messages_long_before_its_next_sweep(
    world: World, platform: Id, redis: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(redis)
    config = config_of(world, url, role=WorkerRole.EVENTS, sweep_interval_s=_SELDOM_S)

    # In a process of its own: what the client finds out about Redis is nothing that it knows.
    with worker_process(config):
        cardholder = world.cardholder(platform, 1000)
        with_client(world, url, partial(one_after_the_other, world, cardholder))


def test_a_redis_that_stops_answering_delays_no_caller_and_is_used_again_when_it_goes_on(
    world: World, platform: Id, own_redis: OwnRedis
) -> None:
    pid = own_redis.pid
    assert pid is not None

    first, second, third = (world.cardholder(platform, 1000) for _ in range(3))

    async def three_times(client: Client) -> float:
        await one_after_the_other(world, first, client)
        with stopped(pid):
            stopped_s = await one_after_the_other(world, second, client)
            assert not await client.is_redis_available()
        await asyncio.to_thread(eventually, lambda: client._redis._can_listen)
        assert await client.is_redis_available()
        await one_after_the_other(world, third, client)
        return stopped_s

    with working(world, own_redis.url, sweep_interval_s=0.05):
        stopped_s = with_client(world, own_redis.url, three_times)

    # The first submission waits until the missing reply is looked up, the others do not.
    assert stopped_s < (_ROUNDS / 2 + 1) * slowness()


@pytest.mark.parametrize("redis", ["dead_redis", "silent_redis"])
def test_outcomes_are_looked_up_at_once_when_no_reply_can_arrive(
    world: World,
    platform: Id,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    redis: str,
) -> None:
    url = request.getfixturevalue(redis)
    # A reply that is only late has longer than this test.
    monkeypatch.setattr(outcome_lookup, "_PATIENCE_S", limit_s())
    cardholder = world.cardholder(platform, 1000)

    with working(world, url, sweep_interval_s=0.05):
        with_client(
            world,
            url,
            partial(one_after_the_other, world, cardholder),
            reply_timeout_s=limit_s(10),
        )


def test_events_are_accepted_while_redis_hangs(
    world: World, platform: Id, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A caller that waits for Redis waits for longer than this test has.
    monkeypatch.setattr(redis_gateway, "_SEND_TIMEOUT_S", limit_s())
    cardholder = world.cardholder(platform, 1000)
    events = [world.authorization(cardholder, f"T{number}", 10) for number in range(_ROUNDS)]

    async def accept_one_after_the_other(client: Client) -> list[tuple[int]]:
        try:
            async with asyncio.timeout(limit_s(10)):
                for event in events:
                    await client.enqueue([event])
        finally:
            silent.close()  # What the client still sends fails now, so that it stops at once.
        return world.rows(waiting, cardholder.owner.customer_id)

    waiting = "SELECT count(*) FROM inbox WHERE customer_id = %s"
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        accepted = with_client(world, url, accept_one_after_the_other)

    assert accepted == [(_ROUNDS,)]
    world.drain(world.engine())


def test_no_caller_waits_for_a_doorbell(silent_redis: str) -> None:
    async def notify_many() -> tuple[float, int]:
        gateway = RedisGateway(silent_redis)
        sending = asyncio.create_task(gateway.send_next())
        began = perf_counter()
        for number in range(10_000):
            gateway.notify([drain(Lane.LIVE, number % SHARDS), CARDS])
        took_s = perf_counter() - began
        waiting = len(gateway._doorbells)
        await sending
        assert not gateway.is_available
        await gateway.close()
        return took_s, waiting

    took_s, waiting = asyncio.run(notify_many())

    assert waiting == 2, "doorbells merge"
    assert took_s < 5 * slowness(), "of a second for each, if they were sent one by one"


def test_concurrent_health_checks_share_one_ping(silent_redis: str) -> None:
    async def ping_many() -> tuple[set[bool], float]:
        gateway = RedisGateway(silent_redis)
        began = perf_counter()
        answers = await asyncio.gather(*(gateway.ping() for _ in range(100)))
        took_s = perf_counter() - began
        pool = gateway._sending.connection_pool
        connections = len(pool._available_connections) + len(pool._in_use_connections)
        await gateway.close()
        assert connections <= 1
        return set(answers), took_s

    answers, _ = asyncio.run(ping_many())

    assert answers == {False}


def test_commands_that_wait_are_bounded_and_dropped_when_redis_hangs(silent_redis: str) -> None:
    filled: list[int] = []

    def ping(number: int, pipeline: Pipeline) -> None:
        filled.append(number)
        pipeline.ping()

    client = connect(silent_redis, timeout_s=0.2)
    best_effort = BestEffort(client)
    for number in range(5_000):
        best_effort.send(partial(ping, number))
    best_effort.start()
    eventually(lambda: best_effort._unavailable_until)
    best_effort.send(partial(ping, -1))
    best_effort.stop()
    client.close()

    assert filled == list(range(4_000, 5_000)), "the newest of them, in one round trip"
