"""Workers that only decide events, or only send webhooks."""

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import OutcomeType
from cardledger.workers.client import submit
from cardledger.workers.signals.best_effort_redis import BestEffort
from cardledger.workers.signals.redis_connections import connect
from cardledger.workers.signals.roles import WorkerRole
from cardledger.workers.signals.webhook_signals import WebhookWakeup, WebhookWakeupListener
from tests.integration.workers import dead_redis, working
from tests.waiting import eventually
from tests.world import SECRET_KEY, World, open_world

__all__ = ["dead_redis"]  # A fixture.


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


def is_dispatched(world: World) -> bool:
    return world.count("outbox") == 0


def test_a_worker_that_decides_events_wakes_a_worker_that_sends_webhooks(
    world: World, platform: Id, redis_url: str
) -> None:
    cardholder = world.cardholder(platform, 10_000)
    # Without wake-ups they would poll only at their start.
    never: dict[str, Any] = {"sweep_interval_s": 3600.0}
    with (
        working(world, redis_url, role=WorkerRole.WEBHOOKS, **never),
        working(world, redis_url, role=WorkerRole.EVENTS, **never),
    ):
        for number in range(3):
            event = world.authorization(cardholder, f"wake-up-{number}", 10)
            [outcome] = submit(
                [event],
                database_url=world.app_url,
                redis_url=redis_url,
                secret_key=SECRET_KEY,
            )
            assert outcome.outcome is OutcomeType.APPLIED
            eventually(partial(is_dispatched, world))


def test_a_lost_wake_up_costs_one_polling_interval(
    world: World, platform: Id, dead_redis: str
) -> None:
    cardholder = world.cardholder(platform, 10_000)
    with (
        working(world, dead_redis, role=WorkerRole.WEBHOOKS, sweep_interval_s=0.05),
        working(world, dead_redis, role=WorkerRole.EVENTS, sweep_interval_s=0.05),
    ):
        world.accept([(cardholder, world.authorization(cardholder, "lost-wake-up", 10))])
        eventually(lambda: world.count("inbox") == 0)
        eventually(partial(is_dispatched, world))


def test_a_worker_does_only_the_work_of_its_role(
    world: World, platform: Id, redis_url: str
) -> None:
    cardholder = world.cardholder(platform, 10_000)
    with working(world, redis_url, role=WorkerRole.EVENTS, sweep_interval_s=0.05):
        world.accept([(cardholder, world.authorization(cardholder, "undispatched", 10))])
        eventually(lambda: world.count("inbox") == 0)
        assert not is_dispatched(world)

    with working(world, redis_url, role=WorkerRole.WEBHOOKS, sweep_interval_s=0.05):
        world.accept([(cardholder, world.authorization(cardholder, "undecided", 10))])
        eventually(partial(is_dispatched, world))
        assert world.count_waiting() == 1

    world.drain(world.engine())


class RecordingSender:
    """Records the wake-ups that it receives."""

    def __init__(self) -> None:
        self.received: list[str] = []

    def wake(self) -> None:
        self.received.append("wake")

    def wake_dispatch(self) -> None:
        self.received.append("wake_dispatch")


def test_unread_wake_ups_do_not_accumulate(redis_url: str) -> None:
    sender = RecordingSender()
    with closing(connect(redis_url)) as client:
        best_effort = BestEffort(client)
        best_effort.start()
        wakeup = WebhookWakeup(best_effort)
        for _ in range(5):
            wakeup.wake_dispatch()
            wakeup.wake()
        eventually(lambda: not best_effort._waiting)

        listener = WebhookWakeupListener(client, sender, every_s=0.01)
        listener.start()
        try:
            eventually(lambda: len(sender.received) == 2)
            wakeup.wake_dispatch()
            eventually(lambda: len(sender.received) == 3)
        finally:
            listener.stop()
            best_effort.stop()

    assert sorted(sender.received[:2]) == ["wake", "wake_dispatch"], "one of each"
