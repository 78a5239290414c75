"""Workers that only decide events, or only send webhooks."""

import socket
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest
from redis.client import Pipeline

from cardledger.embedded.servers import DatabaseUrl
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import OutcomeType
from cardledger.workers.client import submit
from cardledger.workers.signals.best_effort_redis import BestEffort
from cardledger.workers.signals.broker import connect
from cardledger.workers.signals.roles import WorkerRole
from cardledger.workers.signals.webhook_signals import Nudges, WebhookWakeup
from tests.integration.test_workers import dead_redis, wait_until, working
from tests.world import World, world_of

__all__ = ["dead_redis"]  # A fixture.


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with world_of(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


def told(world: World) -> bool:
    return world.count("outbox") == 0


def test_whoever_decides_nudges_whoever_sends(world: World, platform: Id, redis_url: str) -> None:
    holder = world.holder(platform, 10_000)
    # Only at their start would they look by themselves.
    never: dict[str, Any] = {"sweep_interval_s": 3600.0}
    with (
        working(world, redis_url, only=WorkerRole.WEBHOOKS, **never),
        working(world, redis_url, only=WorkerRole.EVENTS, **never),
    ):
        for number in range(3):
            event = world.authorization(holder, f"nudge-{number}", 10)
            [outcome] = submit([event], database_url=world.app_url, redis_url=redis_url)
            assert outcome.outcome is OutcomeType.APPLIED
            wait_until(partial(told, world))


def test_a_nudge_that_is_lost_costs_a_sweep(world: World, platform: Id, dead_redis: str) -> None:
    holder = world.holder(platform, 10_000)
    with (
        working(world, dead_redis, only=WorkerRole.WEBHOOKS, sweep_interval_s=0.05),
        working(world, dead_redis, only=WorkerRole.EVENTS, sweep_interval_s=0.05),
    ):
        world.accept([(holder, world.authorization(holder, "lost-nudge", 10))])
        wait_until(lambda: world.count("inbox") == 0)
        wait_until(partial(told, world))


def test_whoever_only_decides_sends_nothing_and_the_other_way_round(
    world: World, platform: Id, redis_url: str
) -> None:
    holder = world.holder(platform, 10_000)
    with working(world, redis_url, only=WorkerRole.EVENTS, sweep_interval_s=0.05):
        world.accept([(holder, world.authorization(holder, "untold", 10))])
        wait_until(lambda: world.count("inbox") == 0)
        assert not told(world)

    with working(world, redis_url, only=WorkerRole.WEBHOOKS, sweep_interval_s=0.05):
        world.accept([(holder, world.authorization(holder, "undecided", 10))])
        wait_until(partial(told, world))
        assert world.count("inbox") == 1

    world.drain(world.engine())


class Sleeper:
    """Keeps what it is woken for."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def wake(self) -> None:
        self.heard.append("wake")

    def wake_dispatch(self) -> None:
        self.heard.append("wake_dispatch")


def test_nudges_that_nobody_hears_do_not_pile_up(redis_url: str) -> None:
    sleeper = Sleeper()
    with closing(connect(redis_url)) as client:
        nudge = WebhookWakeup(BestEffort(client))
        for _ in range(5):
            nudge.wake_dispatch()
            nudge.wake()

        nudges = Nudges(client, sleeper, every_s=0.01)
        nudges.start()
        try:
            wait_until(lambda: len(sleeper.heard) == 2)
            nudge.wake_dispatch()
            wait_until(lambda: len(sleeper.heard) == 3)
        finally:
            nudges.stop()

    assert sorted(sleeper.heard[:2]) == ["wake", "wake_dispatch"], "one of each"


def test_a_redis_that_hangs_is_waited_for_once() -> None:
    asked: list[Pipeline] = []

    def ask(pipeline: Pipeline) -> None:
        asked.append(pipeline)
        pipeline.ping()

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()  # It takes what is sent, and never answers.
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        with closing(connect(url, timeout_s=0.2)) as client:
            best_effort = BestEffort(client)
            best_effort.send(ask)
            best_effort.send(ask)

    assert len(asked) == 1, "the second was not even put together"
