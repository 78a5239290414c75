"""Claims and records of attempts: who has what, and what becomes of it; real PostgreSQL."""

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.webhooks import deliveries as webhook_deliveries
from cardledger.ledger.webhooks import endpoints as webhook_endpoints
from cardledger.ledger.webhooks.deliveries import Window
from cardledger.ledger.webhooks.leases import AttemptResult, Capacity, Delivery
from cardledger.ledger.webhooks.ordering import lock_queues
from cardledger.ledger.webhooks.retry_policy import Attempt
from cardledger.schema.ids import Id
from tests.integration.test_webhook_endpoints import told_in_order
from tests.integration.test_webhooks import Platform, World, at_once, world_in


@pytest.fixture
def world(app_database_url: DatabaseUrl) -> Iterator[World]:
    with world_in(app_database_url) as world:
        yield world


@pytest.fixture
def somebody(database_url: DatabaseUrl) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A connection of somebody else, in a database transaction that lasts."""
    with psycopg.connect(database_url) as connection:
        yield connection
        connection.rollback()


def test_nobody_gets_what_somebody_has(world: World) -> None:
    platform = world.platform("http://127.0.0.1:9/")
    for _ in range(50):
        world.emit(platform)
    world.dispatch()
    start = threading.Barrier(8)
    claimed: list[Delivery] = []

    def claim() -> None:
        start.wait()
        for _ in range(10):
            claimed.extend(
                world.claim(Capacity(total=3, share=3, shares={}, others=3, failing=3, busy=()))
            )

    at_once(claim, threads=8)

    assert len(claimed) == 50
    assert len({delivery.id for delivery in claimed}) == 50


def test_an_attempt_that_fails_after_its_lease_changes_nothing(world: World) -> None:
    key = world.emit(world.platform("http://127.0.0.1:9/"))
    world.dispatch()
    [late] = world.claim()
    world.clock.advance(seconds=30)
    [now] = world.claim()

    world.record(late, failure(world), retry_at=world.clock() + timedelta(days=1))

    delivery = world.delivery(key)
    assert (delivery.state, delivery.next_attempt_at) == ("PENDING", now.leased_until)
    assert (delivery.attempts, delivery.last_status) == (1, None)
    assert len(world.attempts(key)) == 1


def test_an_attempt_that_delivers_after_its_lease_counts(world: World) -> None:
    key = world.emit(world.platform("http://127.0.0.1:9/"))
    world.dispatch()
    [late] = world.claim()
    world.clock.advance(seconds=30)
    [now] = world.claim()

    world.record(late, success(world), retry_at=None)
    world.record(now, failure(world), retry_at=None)

    delivery = world.delivery(key)
    assert (delivery.state, delivery.attempts, delivery.last_status) == ("DELIVERED", 2, 200)
    assert [attempt.number for attempt in world.attempts(key)] == [1, 2]


def failure(world: World) -> Attempt:
    return attempt(world, status=500)


def success(world: World) -> Attempt:
    return attempt(world, status=200)


def attempt(world: World, status: int) -> Attempt:
    now = world.clock()
    return Attempt(at=now, ended_at=now, duration_ms=1, status=status, error=None, response_head="")


# --- many at once ------------------------------------------------------------------------------


def in_order(world: World, resources: int, each: int = 2) -> tuple[Platform, list[Id]]:
    """Have a platform that wants its webhooks in order told of some resources."""
    platform = world.platform()
    world.endpoint(platform, "http://127.0.0.1:9/", mode="FIFO")
    keys = [key for _ in range(resources) for key in told_in_order(world, platform, new_id(), each)]
    world.dispatch()
    return platform, keys


def delivered(world: World, deliveries: list[Delivery]) -> list[AttemptResult]:
    return [
        AttemptResult(delivery=one, attempt=success(world), retry_at=None) for one in deliveries
    ]


def states(world: World, keys: list[Id]) -> list[str]:
    return [world.delivery(key).state for key in keys]


def test_what_many_attempts_let_pass_is_claimed_with_their_record(world: World) -> None:
    _, keys = in_order(world, resources=20)
    first = world.claim()

    found = world.round(delivered(world, first))

    assert {one.webhook for one in first} == set(keys[::2])
    assert states(world, keys[::2]) == ["DELIVERED"] * 20
    assert {one.webhook for one in found.claimed} == set(keys[1::2])
    assert found.passed_over == frozenset()


def test_every_attempt_of_many_has_its_own_end(world: World) -> None:
    platform = world.platform("http://127.0.0.1:9/")
    keys = [world.emit(platform) for _ in range(3)]
    world.dispatch()
    taken, failed, given_up = sorted(world.claim(), key=lambda one: keys.index(one.webhook))
    later = world.clock() + timedelta(minutes=5)

    world.round(
        [
            AttemptResult(delivery=taken, attempt=success(world), retry_at=None),
            AttemptResult(delivery=failed, attempt=failure(world), retry_at=later),
            AttemptResult(delivery=given_up, attempt=failure(world), retry_at=None),
        ],
        None,
    )

    assert states(world, keys) == ["DELIVERED", "PENDING", "FAILED"]
    assert [world.delivery(key).next_attempt_at for key in keys] == [None, later, None]
    assert [world.delivery(key).last_status for key in keys] == [200, 500, 500]
    assert [[one.status for one in world.attempts(key)] for key in keys] == [[200], [500], [500]]


def test_an_endpoint_that_delivered_one_of_many_does_not_do_nothing_but_fail(world: World) -> None:
    platform = world.platform("http://127.0.0.1:9/")
    long_ago = world.clock() - timedelta(days=4)
    world.change(platform.endpoint, failing_since=long_ago)
    for _ in range(2):
        world.emit(platform)
    world.dispatch()
    one, another = world.claim()
    later = world.clock() + timedelta(minutes=5)

    world.round(
        [
            *delivered(world, [one]),
            AttemptResult(delivery=another, attempt=failure(world), retry_at=later),
        ]
    )
    world.clock.advance(minutes=6)

    [again] = world.claim()
    assert again.failing_since is None


# --- again -------------------------------------------------------------------------------------


def test_nothing_is_sent_again_to_an_endpoint_that_is_being_deleted(
    world: World, app_database_url: DatabaseUrl
) -> None:
    platform = world.platform("http://127.0.0.1:9/")
    assert platform.endpoint is not None
    key = world.emit(platform)
    world.dispatch()
    [claimed] = world.claim()
    world.record(claimed, failure(world), retry_at=None)

    count = asyncio.run(replayed_while_deleted(world, app_database_url, platform))

    assert count == 0
    assert world.delivery(key).state == "FAILED"


async def replayed_while_deleted(world: World, url: DatabaseUrl, platform: Platform) -> int:
    """Ask for what failed again while the endpoint is deleted; return how much is due again."""
    assert platform.endpoint is not None
    an_hour_ago = world.clock() - timedelta(hours=1)
    window = Window(endpoint_id=None, since=an_hour_ago, until=None, only_failed=True)
    engine = async_engine(url)

    async def replayed() -> int:
        async with engine.begin() as connection:
            done = await webhook_deliveries.replay(
                connection, platform_id=platform.id, window=window, after=None, at=world.clock()
            )
        return done.count

    async with engine.begin() as connection:
        await webhook_endpoints.delete(
            connection, platform_id=platform.id, endpoint_id=platform.endpoint, at=world.clock()
        )
        replaying = asyncio.create_task(replayed())
        while not (replaying.done() or await somebody_waits(connection)):
            await asyncio.wait([replaying], timeout=0.01)
    count = await replaying
    await engine.dispose()
    return count


async def somebody_waits(connection: AsyncConnection) -> bool:
    waiting = text(
        "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
        " WHERE l.locktype = 'advisory' AND NOT l.granted AND d.datname = current_database()"
    )
    return bool(await connection.scalar(waiting))


# --- nobody is waited for ----------------------------------------------------------------------


def test_an_attempt_whose_queue_somebody_holds_is_recorded_later_and_the_others_now(
    world: World, somebody: psycopg.Connection[tuple[object, ...]]
) -> None:
    _, keys = in_order(world, resources=3)
    claimed = sorted(world.claim(), key=lambda one: keys.index(one.webhook))
    ended = delivered(world, claimed)
    lock_queues(somebody, [claimed[1].queue])

    found = world.round(ended)

    assert found.passed_over == {claimed[1].id}
    assert states(world, keys[::2]) == ["DELIVERED", "PENDING", "DELIVERED"]
    assert {one.webhook for one in found.claimed} == {keys[1], keys[5]}
    somebody.rollback()
    found = world.round([ended[1]])
    assert found.passed_over == frozenset()
    assert [one.webhook for one in found.claimed] == [keys[3]]


def test_an_attempt_whose_delivery_somebody_changes_is_recorded_later_and_the_others_now(
    world: World, somebody: psycopg.Connection[tuple[object, ...]]
) -> None:
    platform = world.platform("http://127.0.0.1:9/")
    keys = [world.emit(platform) for _ in range(2)]
    world.dispatch()
    claimed = sorted(world.claim(), key=lambda one: keys.index(one.webhook))
    somebody.execute(
        "UPDATE webhook_deliveries SET state = 'NO_ENDPOINT', next_attempt_at = NULL WHERE id = %s",
        [claimed[0].id],
    )

    found = world.round(delivered(world, claimed))

    assert found.passed_over == {claimed[0].id}
    assert states(world, keys) == ["PENDING", "DELIVERED"]


def test_a_success_is_recorded_when_it_can_end_the_days_of_nothing_but_failures(
    world: World, somebody: psycopg.Connection[tuple[object, ...]]
) -> None:
    platform = world.platform("http://127.0.0.1:9/")
    world.change(platform.endpoint, failing_since=world.clock() - timedelta(days=6))
    key = world.emit(platform)
    world.dispatch()
    claimed = world.claim()
    endpoints = "SELECT FROM webhook_endpoints WHERE id = %s FOR UPDATE"
    somebody.execute(endpoints, [platform.endpoint])

    assert world.round(delivered(world, claimed)).passed_over == {claimed[0].id}

    somebody.rollback()
    assert world.round(delivered(world, claimed)).passed_over == frozenset()
    assert world.delivery(key).state == "DELIVERED"
    world.emit(platform)
    world.dispatch()
    [next_one] = world.claim()
    assert next_one.failing_since is None


def test_nobody_waits_for_who_holds_what_an_attempt_lets_pass(
    world: World, somebody: psycopg.Connection[tuple[object, ...]]
) -> None:
    _, keys = in_order(world, resources=1)
    claimed = world.claim()
    somebody.execute("SELECT FROM webhook_deliveries WHERE webhook_id = %s FOR UPDATE", [keys[1]])

    with pytest.raises(psycopg.errors.LockNotAvailable):
        world.round(delivered(world, claimed))

    assert states(world, keys) == ["PENDING", "PENDING"], "all or nothing"


def test_an_attempt_at_what_is_not_there_any_more_is_not_kept_for_later(
    world: World, somebody: psycopg.Connection[tuple[object, ...]]
) -> None:
    world.emit(world.platform("http://127.0.0.1:9/"))
    world.dispatch()
    [claimed] = world.claim()
    somebody.execute("DELETE FROM webhook_deliveries WHERE id = %s", [claimed.id])
    somebody.commit()

    found = world.round(delivered(world, [claimed]))

    assert found.passed_over == frozenset()
