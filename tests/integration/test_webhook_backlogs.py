"""The waiting deliveries of a platform are bounded, and what is not delivered can be replayed."""

from collections.abc import Iterator

import psycopg
import pytest
from sqlalchemy import func, select, update

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.storage.engines import driver
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.webhooks import dispatch as webhook_dispatch
from cardledger.ledger.webhooks.backlogs import Backlogs
from cardledger.schema.ids import Id
from tests.integration.test_webhook_endpoints import replayed
from tests.integration.test_webhook_fairness import emit_many, platform_with
from tests.integration.test_webhooks import Platform, World, deliveries, world_in

LIMIT = 200  # A hundredth of it: two deliveries of an endpoint besides.


class Seconds:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def world(app_database_url: DatabaseUrl) -> Iterator[World]:
    with world_in(app_database_url) as world:
        yield world


def dispatch_all(world: World, backlogs: Backlogs) -> None:
    while world.waiting():
        with world.engine.begin() as connection:
            webhook_dispatch.dispatch(connection, limit=50, at=world.clock(), backlogs=backlogs)


def pending(world: World, platform: Platform) -> int:
    wanted = select(func.count()).where(
        deliveries.c.platform_id == platform.id, deliveries.c.state == "PENDING"
    )
    with world.engine.connect() as connection:
        return connection.execute(wanted).scalar_one()


def send(world: World, platform: Platform, endpoint: Id | None = None) -> None:
    """Deliver what waits, for one endpoint or all."""
    waiting = update(deliveries).where(
        deliveries.c.platform_id == platform.id, deliveries.c.state == "PENDING"
    )
    if endpoint is not None:
        waiting = waiting.where(deliveries.c.endpoint_id == endpoint)
    with world.engine.begin() as connection:
        connection.execute(waiting.values(state="DELIVERED", next_attempt_at=None))


def receivers(world: World, key: Id) -> set[Id | None]:
    """Return the endpoints that have a delivery of a webhook; None: it is stored for replays."""
    return {row.endpoint_id for row in world.deliveries(key)}


def test_the_waiting_deliveries_of_a_platform_are_bounded_and_no_webhook_is_lost(
    world: World,
) -> None:
    platform = platform_with(world, 10)
    keys = emit_many(world, platform, 100)

    dispatch_all(world, Backlogs(LIMIT))

    # What may wait, what is dispatched between two counts, and two for each of the endpoints.
    assert LIMIT <= pending(world, platform) <= LIMIT + LIMIT // 20 + 10 * 2 + 10
    assert all(receivers(world, key) for key in keys)
    assert receivers(world, keys[-1]) == {None}


def test_an_endpoint_that_does_not_respond_takes_no_webhooks_from_the_others(
    world: World,
) -> None:
    platform = world.platform()
    silent = world.endpoint(platform, "http://127.0.0.1:9/")
    responsive = world.endpoint(platform, "https://hooks.example.com/")
    seconds = Seconds()
    backlogs = Backlogs(LIMIT, clock=seconds)
    emit_many(world, platform, LIMIT)
    dispatch_all(world, Backlogs(10**6))
    send(world, platform, responsive)
    keys = []
    for _ in range(10):
        keys += [world.emit(platform)]
        dispatch_all(world, backlogs)
        send(world, platform, responsive)
        seconds.now += 0.5

    assert [receivers(world, key) for key in keys] == [{responsive, None}] * 10
    assert pending(world, platform) == LIMIT
    assert silent not in receivers(world, keys[-1])


def test_what_was_not_delivered_is_replayed(world: World, app_database_url: DatabaseUrl) -> None:
    platform = world.platform("https://hooks.example.com/")
    seconds = Seconds()
    backlogs = Backlogs(LIMIT, clock=seconds)
    emit_many(world, platform, LIMIT)
    dispatch_all(world, Backlogs(10**6))
    missed = emit_many(world, platform, 5)
    dispatch_all(world, backlogs)
    send(world, platform)

    count = replayed(world, app_database_url, platform)

    assert count == 5
    assert all(receivers(world, key) == {None, platform.endpoint} for key in missed)
    assert replayed(world, app_database_url, platform) == 0


def test_a_platform_has_deliveries_again_when_half_of_the_limit_waits(world: World) -> None:
    platform = world.platform("https://hooks.example.com/")
    seconds = Seconds()
    backlogs = Backlogs(LIMIT, clock=seconds)
    emit_many(world, platform, LIMIT)
    dispatch_all(world, Backlogs(10**6))
    found = []
    for sent in (0, LIMIT // 2, 1):
        seconds.now += 20
        with world.engine.begin() as connection:
            some = (
                select(deliveries.c.id)
                .where(deliveries.c.platform_id == platform.id, deliveries.c.state == "PENDING")
                .limit(sent)
            )
            connection.execute(
                update(deliveries)
                .where(deliveries.c.id.in_(some))
                .values(state="DELIVERED", next_attempt_at=None)
            )
        key = world.emit(platform)
        dispatch_all(world, backlogs)
        found.append(receivers(world, key))

    assert found == [{None}, {None}, {platform.endpoint}]


def test_the_test_of_a_new_endpoint_is_sent_whatever_waits(world: World) -> None:
    platform = world.platform("https://hooks.example.com/")
    emit_many(world, platform, LIMIT)
    dispatch_all(world, Backlogs(10**6))
    key = world.emit(platform, type="TEST", subject_id=platform.endpoint)

    dispatch_all(world, Backlogs(LIMIT))

    assert receivers(world, key) == {platform.endpoint}


def test_a_request_for_approval_is_sent_whatever_waits(world: World) -> None:
    platform = world.platform("https://hooks.example.com/")
    emit_many(world, platform, LIMIT)
    dispatch_all(world, Backlogs(10**6))
    backlogs = Backlogs(LIMIT)
    dispatch_all(world, backlogs)
    key = world.emit(platform, type="INCOMING_PAYMENT.PENDING")
    other = world.emit(platform)

    dispatch_all(world, backlogs)

    assert platform.endpoint in receivers(world, key)
    assert receivers(world, other) == {None}


def test_a_platform_is_counted_again_at_its_limit_and_once_a_minute_only(
    world: World, app_database_url: DatabaseUrl
) -> None:
    platform, endpoint = new_id(), new_id()
    endpoints = {platform: [endpoint]}
    seconds = Seconds()
    backlogs = Backlogs(LIMIT, clock=seconds)
    with psycopg.connect(app_database_url) as closed:
        pass  # So that every count fails.

    def counts() -> bool:
        try:
            backlogs.look(closed, endpoints)
        except psycopg.OperationalError:
            return True
        return False

    def count() -> None:
        with world.engine.begin() as connection:
            backlogs.look(driver(connection), endpoints)

    assert counts()
    count()
    for _ in range(LIMIT - 1):
        backlogs.add(platform, endpoint)
        assert not counts()
    backlogs.add(platform, endpoint)
    assert counts()
    count()
    seconds.now += 59
    assert not counts()
    seconds.now += 1
    assert counts()
