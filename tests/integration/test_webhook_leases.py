"""Leases of deliveries and the results of attempts; real PostgreSQL."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest
from sqlalchemy import select, text

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.webhooks import deliveries, endpoint_tests, replays
from cardledger.ledger.webhooks import endpoints as webhook_endpoints
from cardledger.ledger.webhooks.claims import Approvals, Capacity, RequestedTests
from cardledger.ledger.webhooks.dispatch_lock import DISPATCH_LOCK
from cardledger.ledger.webhooks.endpoint_tests import EndpointTest, TooManyTestsError
from cardledger.ledger.webhooks.leases import AttemptResult, Delivery
from cardledger.ledger.webhooks.ordering import lock_queues
from cardledger.ledger.webhooks.replays import Window
from cardledger.ledger.webhooks.retry_policy import Attempt
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.webhooks.endpoints import WebhookDeliveryResource
from tests.integration.test_webhook_endpoints import emit_in_sequence
from tests.integration.test_webhooks import LEASE, ROOM, Platform, World, at_once, world_in


@pytest.fixture
def world(app_database_url: DatabaseUrl) -> Iterator[World]:
    with world_in(app_database_url) as world:
        yield world


@pytest.fixture
def other_session(database_url: DatabaseUrl) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A connection with an open database transaction, which holds locks."""
    with psycopg.connect(database_url) as connection:
        yield connection
        connection.rollback()


def test_a_delivery_is_leased_to_one_sender_at_a_time(world: World) -> None:
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


def test_a_failure_after_its_lease_changes_nothing(world: World) -> None:
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


def test_a_success_after_its_lease_counts(world: World) -> None:
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


# --- batches ------------------------------------------------------------------------------


def in_order(world: World, resources: int, each: int = 2) -> tuple[Platform, list[Id]]:
    """Create a platform with a FIFO endpoint, and webhooks of some resources."""
    platform = world.platform()
    world.endpoint(platform, "http://127.0.0.1:9/", mode="FIFO")
    keys = [
        key for _ in range(resources) for key in emit_in_sequence(world, platform, new_id(), each)
    ]
    world.dispatch()
    return platform, keys


def delivered(world: World, deliveries: list[Delivery]) -> list[AttemptResult]:
    return [
        AttemptResult(delivery=one, attempt=success(world), retry_at=None) for one in deliveries
    ]


def states(world: World, keys: list[Id]) -> list[str]:
    return [world.delivery(key).state for key in keys]


def test_the_next_deliveries_of_queues_are_claimed_with_the_results_before_them(
    world: World,
) -> None:
    _, keys = in_order(world, resources=20)
    first = world.claim()

    found = world.round(delivered(world, first))

    assert {one.webhook for one in first} == set(keys[::2])
    assert states(world, keys[::2]) == ["DELIVERED"] * 20
    assert {one.webhook for one in found.claimed} == set(keys[1::2])
    assert found.passed_over == frozenset()


def test_every_result_of_a_batch_is_recorded_by_itself(world: World) -> None:
    platform = world.platform("http://127.0.0.1:9/")
    keys = [world.emit(platform) for _ in range(3)]
    world.dispatch()
    taken, failed, exhausted = sorted(world.claim(), key=lambda one: keys.index(one.webhook))
    later = world.clock() + timedelta(minutes=5)

    world.round(
        [
            AttemptResult(delivery=taken, attempt=success(world), retry_at=None),
            AttemptResult(delivery=failed, attempt=failure(world), retry_at=later),
            AttemptResult(delivery=exhausted, attempt=failure(world), retry_at=None),
        ],
        None,
    )

    assert states(world, keys) == ["DELIVERED", "PENDING", "FAILED"]
    assert [world.delivery(key).next_attempt_at for key in keys] == [None, later, None]
    assert [world.delivery(key).last_status for key in keys] == [200, 500, 500]
    assert [[one.status for one in world.attempts(key)] for key in keys] == [[200], [500], [500]]


def test_one_success_in_a_batch_clears_failing_since(world: World) -> None:
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


# --- replay -------------------------------------------------------------------------------------


def test_nothing_is_sent_to_an_endpoint_that_is_deleted_during_a_replay(
    world: World, app_database_url: DatabaseUrl
) -> None:
    platform = world.platform("http://127.0.0.1:9/")
    key = world.emit(platform)
    world.dispatch()
    [claimed] = world.claim()
    world.record(claimed, failure(world), retry_at=None)

    count = asyncio.run(replayed_while_deleted(world, app_database_url, platform))

    assert count == 1, "no replay waits for a deletion"
    assert world.claim() == []
    assert discarded(world) == 1
    assert world.delivery(key).state == "NO_ENDPOINT"


async def replayed_while_deleted(world: World, url: DatabaseUrl, platform: Platform) -> int:
    """Replay failed deliveries while the endpoint is deleted; return how many are due again."""
    assert platform.endpoint is not None
    an_hour_ago = world.clock() - timedelta(hours=1)
    window = Window(endpoint_id=None, since=an_hour_ago, until=None, only_failed=True)
    engine = async_engine(url)
    async with engine.begin() as connection, engine.begin() as other:
        await webhook_endpoints.delete(
            connection, platform_id=platform.id, endpoint_id=platform.endpoint, at=world.clock()
        )
        done = await replays.replay(
            other, platform_id=platform.id, window=window, after=None, at=world.clock()
        )
    await engine.dispose()
    return done.count


def discarded(world: World, limit: int = 500) -> int:
    with world.engine.begin() as connection:
        return webhook_endpoints.discard_page(connection, limit=limit, at=world.clock())


def test_the_deliveries_of_a_deleted_endpoint_end_page_by_page_beside_those_of_others(
    world: World,
) -> None:
    deleted, other = (world.platform("http://127.0.0.1:9/") for _ in range(2))
    keys = [world.emit(deleted) for _ in range(5)]
    kept = world.emit(other)
    world.dispatch()
    [under_way, *_] = [one for one in world.claim() if one.endpoint_id == deleted.endpoint]
    world.change(deleted.endpoint, deleted_at=world.clock())

    pages = [discarded(world, limit=2) for _ in range(4)]

    assert pages == [2, 2, 1, 0]
    assert states(world, keys) == ["NO_ENDPOINT"] * 5
    assert world.delivery(kept).state == "PENDING"
    world.round(delivered(world, [under_way]), None)
    assert world.delivery(under_way.webhook).state == "DELIVERED", "what has arrived has arrived"


def is_marked(world: World, endpoint: Id | None) -> bool:
    columns = tables.webhook_endpoints.c
    with world.engine.connect() as connection:
        wanted = select(columns.discarded_at).where(columns.id == endpoint)
        return connection.scalar(wanted) is not None


def test_nothing_is_sent_to_a_deleted_endpoint_whatever_its_mark_says(world: World) -> None:
    """Releases before schema 0014 delete an endpoint again without taking away its mark."""
    platform = world.platform("http://127.0.0.1:9/")
    world.emit(platform)
    world.dispatch()

    world.change(
        platform.endpoint,
        deleted_at=world.clock(),
        discarded_at=world.clock() - timedelta(hours=1),
    )

    assert world.claim() == []
    assert discarded(world) == 0
    world.change(platform.endpoint, deleted_at=None, discarded_at=None)
    assert len(world.claim()) == 1


def test_a_deleted_endpoint_is_looked_at_until_its_deliveries_have_ended(
    world: World, other_session: psycopg.Connection[tuple[object, ...]]
) -> None:
    platform, idle = (world.platform("http://127.0.0.1:9/") for _ in range(2))
    world.emit(platform)
    world.dispatch()
    for endpoint in (platform.endpoint, idle.endpoint):
        world.change(endpoint, deleted_at=world.clock())
    other_session.execute(
        "SELECT FROM webhook_deliveries WHERE endpoint_id = %s FOR UPDATE", [platform.endpoint]
    )

    assert discarded(world) == 0, "its delivery is locked"
    before = (is_marked(world, platform.endpoint), is_marked(world, idle.endpoint))
    other_session.rollback()
    assert discarded(world) == 1

    assert before == (False, True)
    assert is_marked(world, platform.endpoint)
    with world.engine.connect() as connection:
        looked_at = connection.exec_driver_sql(
            "SELECT count(*) FROM webhook_endpoints"
            " WHERE deleted_at IS NOT NULL AND discarded_at IS NULL"
        )
        assert looked_at.scalar() == 0


def test_a_deleted_endpoint_is_not_marked_while_a_dispatch_may_still_add_deliveries(
    world: World, other_session: psycopg.Connection[tuple[object, ...]]
) -> None:
    platform = world.platform("http://127.0.0.1:9/")
    key = world.emit(platform)
    other_session.execute("SELECT pg_advisory_xact_lock(%s)", [DISPATCH_LOCK])
    other_session.execute(_ADD_DELIVERY, [new_id(), key, platform.endpoint])
    world.change(platform.endpoint, deleted_at=world.clock())

    early = discarded(world)
    other_session.commit()

    assert (early, discarded(world)) == (0, 1)
    assert world.delivery(key).state == "NO_ENDPOINT"


_ADD_DELIVERY = """
    INSERT INTO webhook_deliveries (id, customer_id, platform_id, type, subject_id, body, state,
        next_attempt_at, created_at, webhook_id, endpoint_id)
    SELECT %s, o.customer_id, o.platform_id, o.type, o.subject_id, '{}', 'PENDING', now(), now(),
        o.id, e.id
    FROM outbox o JOIN webhook_endpoints e ON e.platform_id = o.platform_id
    WHERE o.id = %s AND e.id = %s
"""


def test_a_deleted_endpoint_is_not_marked_while_a_replay_may_still_add_deliveries(
    world: World, app_database_url: DatabaseUrl
) -> None:
    platform = world.platform("http://127.0.0.1:9/")
    key = world.emit(platform)
    world.dispatch()
    [claimed] = world.claim()
    world.record(claimed, failure(world), retry_at=None)

    early = asyncio.run(discarded_during_a_replay(world, app_database_url, platform))

    assert (early, discarded(world)) == (0, 1)
    assert world.delivery(key).state == "NO_ENDPOINT"


async def discarded_during_a_replay(world: World, url: DatabaseUrl, platform: Platform) -> int:
    """Delete the endpoint and discard its deliveries before the replay is committed."""
    an_hour_ago = world.clock() - timedelta(hours=1)
    window = Window(endpoint_id=None, since=an_hour_ago, until=None, only_failed=True)
    engine = async_engine(url)
    async with engine.begin() as connection:
        await replays.replay(
            connection, platform_id=platform.id, window=window, after=None, at=world.clock()
        )
        world.change(platform.endpoint, deleted_at=world.clock())
        ended = discarded(world)
    await engine.dispose()
    return ended


def test_an_endpoint_that_is_set_again_keeps_its_pending_deliveries(world: World) -> None:
    platform = world.platform("http://127.0.0.1:9/")
    key = world.emit(platform)
    world.dispatch()
    world.change(platform.endpoint, deleted_at=world.clock())
    world.change(platform.endpoint, deleted_at=None)

    assert discarded(world) == 0
    assert world.delivery(key).state == "PENDING"


def test_a_requested_test_waits_for_no_other_delivery_and_a_platform_has_two(
    world: World, app_database_url: DatabaseUrl
) -> None:
    platform = world.platform("http://127.0.0.1:9/")
    assert platform.endpoint is not None
    for _ in range(3):
        world.emit(platform)
    world.dispatch()
    [under_way, *_] = world.claim(replace(ROOM, share=1))
    world.change(platform.endpoint, state="DISABLED", disabled_reason="PLATFORM")
    tests = [
        EndpointTest(id=new_id(), platform_id=platform.id, endpoint_id=platform.endpoint)
        for _ in range(3)
    ]

    accepted = asyncio.run(accepted_at_once(world, app_database_url, [*tests, *tests]))

    assert len(accepted) == 2
    world.change(platform.endpoint, state="ENABLED", disabled_reason=None)
    others = world.claim(replace(ROOM, busy=[under_way.queue]))
    assert not {one.id for one in others} & accepted
    claimed = world.round([], TESTS).claimed
    assert {one.id for one in claimed} == accepted
    assert world.round([], TESTS).claimed == []
    world.round(delivered(world, claimed), None)
    [last] = {one.id for one in tests} - accepted
    refused = [one for one in tests if one.id == last]
    assert asyncio.run(accepted_at_once(world, app_database_url, refused)) == {last}


TESTS = RequestedTests(total=100, share=2)


@pytest.mark.parametrize("mode", ["PARALLEL", "FIFO"])
def test_a_request_for_approval_waits_for_nothing_else_at_its_endpoint(
    world: World, mode: str
) -> None:
    platform = world.platform()
    endpoint = world.endpoint(platform, "http://127.0.0.1:9/", mode=mode)
    for _ in range(20):
        world.emit(platform)
    world.dispatch()
    [slow] = world.claim(replace(ROOM, total=1))
    key = world.emit(platform, type="INCOMING_PAYMENT.PENDING")
    world.dispatch()

    none_but_slow = world.claim(replace(ROOM, share=0, shares={endpoint: 0}))
    others = world.claim(replace(ROOM, busy={slow.queue}))
    [approval] = world.round([], APPROVALS).claimed

    assert none_but_slow == []
    assert (len(others), key in {one.webhook for one in others}) == (19, False)
    assert (approval.webhook, approval.url) == (key, "http://127.0.0.1:9/")
    world.round(delivered(world, [approval]), None)
    assert world.delivery(key).state == "DELIVERED"
    assert world.round([], APPROVALS).claimed == []


def test_the_approvals_of_one_platform_do_not_delay_those_of_another(world: World) -> None:
    crowd, other = (world.platform("http://127.0.0.1:9/") for _ in range(2))
    for _ in range(10):
        world.emit(crowd, type="INCOMING_PAYMENT.PENDING")
    world.dispatch()
    world.clock.advance(seconds=5)
    key = world.emit(other, type="INCOMING_PAYMENT.PENDING")
    world.dispatch()
    full = Approvals(total=1, share=8, shares={crowd.id: 7})

    [next_one] = world.round([], full).claimed
    others = world.round([], Approvals(total=100, share=8, shares={crowd.id: 7})).claimed

    assert next_one.webhook == key
    assert len(others) == 7


@pytest.mark.parametrize("with_default", [True, False], ids=["default", "oldest"])
def test_only_the_endpoint_that_decides_is_asked_before_others(
    world: World, *, with_default: bool
) -> None:
    platform = world.platform()
    first = world.endpoint(platform, "http://127.0.0.1:9/a")
    last = world.endpoint(platform, "http://127.0.0.1:9/b", is_default=with_default)
    key = world.emit(platform, type="INCOMING_PAYMENT.PENDING")
    world.dispatch()

    [asked], [told] = world.round([], APPROVALS).claimed, world.claim()

    assert (asked.webhook, told.webhook) == (key, key)
    assert [asked.endpoint_id, told.endpoint_id] == (
        [last, first] if with_default else [first, last]
    )


def test_a_request_for_approval_that_was_left_behind_is_sent_like_others(world: World) -> None:
    """Once the lease of a process that has ended is over."""
    key = world.emit(world.platform("http://127.0.0.1:9/"), type="INCOMING_PAYMENT.PENDING")
    world.dispatch()
    world.round([], APPROVALS)
    world.clock.advance(seconds=LEASE.total_seconds())

    assert world.round([], APPROVALS).claimed == []
    assert [one.webhook for one in world.claim()] == [key]


def test_a_request_for_approval_is_shown_with_the_time_from_which_it_is_due(
    world: World, app_database_url: DatabaseUrl
) -> None:
    platform = world.platform("http://127.0.0.1:9/")
    key = world.emit(platform, type="INCOMING_PAYMENT.PENDING")
    world.dispatch()

    async def shown() -> WebhookDeliveryResource | None:
        engine = async_engine(app_database_url)
        async with engine.connect() as connection:
            found = await deliveries.get(
                connection, platform_id=platform.id, delivery_id=world.delivery(key).id
            )
        await engine.dispose()
        return found

    found = asyncio.run(shown())

    assert found is not None
    assert found.next_attempt_at == world.clock()


def test_no_approval_is_asked_for_at_a_disabled_endpoint(world: World) -> None:
    platform = world.platform("http://127.0.0.1:9/")
    world.emit(platform, type="INCOMING_PAYMENT.PENDING")
    world.dispatch()
    world.change(platform.endpoint, state="DISABLED", disabled_reason="PLATFORM")

    assert world.round([], APPROVALS).claimed == []


APPROVALS = Approvals(total=100, share=2)


def test_deleting_endpoints_frees_no_place_of_a_platform_while_their_tests_are_under_way(
    world: World, app_database_url: DatabaseUrl
) -> None:
    platform = world.platform()

    def requested() -> EndpointTest:
        endpoint = world.endpoint(platform, "http://127.0.0.1:9/")
        test = EndpointTest(id=new_id(), platform_id=platform.id, endpoint_id=endpoint)
        accepted = asyncio.run(accepted_at_once(world, app_database_url, [test]))
        return test if accepted else refuse()

    def refuse() -> EndpointTest:
        raise TooManyTestsError

    tests = [requested() for _ in range(2)]
    under_way = world.round([], TESTS).claimed
    for test in tests:
        world.change(test.endpoint_id, deleted_at=world.clock())

    assert discarded(world) == 0
    with pytest.raises(TooManyTestsError):
        requested()
    world.round(delivered(world, under_way[:1]), None)
    requested()
    world.round(delivered(world, under_way[1:]), None)
    assert [world.delivery(test.id).state for test in tests] == ["DELIVERED"] * 2


def test_a_leased_test_of_a_deleted_endpoint_ends_with_its_lease(
    world: World, app_database_url: DatabaseUrl
) -> None:
    platform = world.platform("http://127.0.0.1:9/")
    assert platform.endpoint is not None
    test = EndpointTest(id=new_id(), platform_id=platform.id, endpoint_id=platform.endpoint)
    asyncio.run(accepted_at_once(world, app_database_url, [test]))
    world.round([], TESTS)
    world.change(platform.endpoint, deleted_at=world.clock())
    assert discarded(world) == 0

    world.clock.advance(minutes=1)

    assert discarded(world) == 1
    assert world.delivery(test.id).state == "NO_ENDPOINT"


def test_a_sender_takes_as_many_tests_of_a_platform_as_it_has_left(
    world: World, app_database_url: DatabaseUrl
) -> None:
    crowd, other = (world.platform() for _ in range(2))
    tests = [
        EndpointTest(
            id=new_id(),
            platform_id=one.id,
            endpoint_id=world.endpoint(one, "http://127.0.0.1:9/"),
        )
        for one in (crowd, crowd, other)
    ]
    asyncio.run(accepted_at_once(world, app_database_url, tests))

    first = world.round([], replace(TESTS, shares={crowd.id: 1})).claimed
    second = world.round([], replace(TESTS, shares={crowd.id: 0})).claimed

    assert sorted(one.platform_id for one in first) == sorted([crowd.id, other.id])
    assert second == []


async def accepted_at_once(world: World, url: DatabaseUrl, tests: list[EndpointTest]) -> set[Id]:
    """Request `tests` concurrently; return the ids of those that were accepted."""
    engine = async_engine(url)

    async def request(test: EndpointTest) -> Id | None:
        try:
            async with engine.begin() as connection:
                await endpoint_tests.request(connection, test, at=world.clock())
        except TooManyTestsError:
            return None
        return test.id

    answers = await asyncio.gather(*map(request, tests))
    await engine.dispose()
    return {key for key in answers if key is not None}


def test_a_repetition_follows_the_last_test_whatever_the_clocks_say(
    world: World, app_database_url: DatabaseUrl
) -> None:
    platform = world.platform()
    first = EndpointTest(
        id=new_id(),
        platform_id=platform.id,
        endpoint_id=world.endpoint(platform, "http://127.0.0.1:9/"),
    )

    async def repeated(behind: timedelta) -> Id:
        """Request the next repetition in a process whose clock is `behind`, without response."""
        engine = async_engine(app_database_url)
        async with engine.begin() as connection:
            test = await endpoint_tests.repetition(connection, first)
            await endpoint_tests.request(connection, test, at=world.clock() - behind)
            await connection.execute(
                text("UPDATE webhook_deliveries SET state = 'FAILED', next_attempt_at = NULL")
            )
        await engine.dispose()
        return test.id

    keys = [asyncio.run(repeated(timedelta(minutes=number))) for number in range(4)]

    assert keys[0] == first.id
    assert len(set(keys)) == len(keys), "each is a test of its own"


# --- locked rows are skipped ----------------------------------------------------------------------


def test_a_result_whose_queue_is_locked_is_recorded_later_and_the_others_now(
    world: World, other_session: psycopg.Connection[tuple[object, ...]]
) -> None:
    _, keys = in_order(world, resources=3)
    claimed = sorted(world.claim(), key=lambda one: keys.index(one.webhook))
    ended = delivered(world, claimed)
    lock_queues(other_session, [claimed[1].queue])

    found = world.round(ended)

    assert found.passed_over == {claimed[1].id}
    assert states(world, keys[::2]) == ["DELIVERED", "PENDING", "DELIVERED"]
    assert {one.webhook for one in found.claimed} == {keys[1], keys[5]}
    other_session.rollback()
    found = world.round([ended[1]])
    assert found.passed_over == frozenset()
    assert [one.webhook for one in found.claimed] == [keys[3]]


def test_a_result_whose_delivery_is_locked_is_recorded_later_and_the_others_now(
    world: World, other_session: psycopg.Connection[tuple[object, ...]]
) -> None:
    platform = world.platform("http://127.0.0.1:9/")
    keys = [world.emit(platform) for _ in range(2)]
    world.dispatch()
    claimed = sorted(world.claim(), key=lambda one: keys.index(one.webhook))
    other_session.execute(
        "UPDATE webhook_deliveries SET state = 'NO_ENDPOINT', next_attempt_at = NULL WHERE id = %s",
        [claimed[0].id],
    )

    found = world.round(delivered(world, claimed))

    assert found.passed_over == {claimed[0].id}
    assert states(world, keys) == ["PENDING", "DELIVERED"]


def test_a_success_is_recorded_once_it_can_clear_failing_since(
    world: World, other_session: psycopg.Connection[tuple[object, ...]]
) -> None:
    platform = world.platform("http://127.0.0.1:9/")
    world.change(platform.endpoint, failing_since=world.clock() - timedelta(days=6))
    key = world.emit(platform)
    world.dispatch()
    claimed = world.claim()
    endpoints = "SELECT FROM webhook_endpoints WHERE id = %s FOR UPDATE"
    other_session.execute(endpoints, [platform.endpoint])

    assert world.round(delivered(world, claimed)).passed_over == {claimed[0].id}

    other_session.rollback()
    assert world.round(delivered(world, claimed)).passed_over == frozenset()
    assert world.delivery(key).state == "DELIVERED"
    world.emit(platform)
    world.dispatch()
    [next_one] = world.claim()
    assert next_one.failing_since is None


@pytest.mark.parametrize("locked", [0, 1], ids=["its own row", "the next row"])
def test_a_result_whose_queue_has_a_locked_row_is_passed_over_alone(
    world: World, other_session: psycopg.Connection[tuple[object, ...]], locked: int
) -> None:
    _, keys = in_order(world, resources=2)
    claimed = sorted(world.claim(), key=lambda one: keys.index(one.webhook))
    other_session.execute(
        "SELECT FROM webhook_deliveries WHERE webhook_id = %s FOR UPDATE", [keys[locked]]
    )

    found = world.round(delivered(world, claimed))

    assert found.passed_over == {claimed[0].id}
    assert [delivery.webhook for delivery in found.claimed] == [keys[3]]
    other_session.rollback()
    found = world.round(delivered(world, claimed[:1]))
    assert [delivery.webhook for delivery in found.claimed] == [keys[1]]
    assert states(world, keys) == ["DELIVERED", "PENDING", "DELIVERED", "PENDING"]


def test_a_delivery_that_another_transaction_has_ended_releases_nothing(
    world: World, other_session: psycopg.Connection[tuple[object, ...]]
) -> None:
    """The endpoint is deleted, and the next page of its deliveries is being ended."""
    _, keys = in_order(world, resources=2)
    claimed = sorted(world.claim(), key=lambda one: keys.index(one.webhook))
    other_session.execute(
        "UPDATE webhook_deliveries SET state = 'NO_ENDPOINT', next_attempt_at = NULL"
        " WHERE webhook_id = %s",
        [keys[0]],
    )
    other_session.commit()
    other_session.execute(
        "SELECT FROM webhook_deliveries WHERE webhook_id = %s FOR UPDATE", [keys[1]]
    )

    found = world.round(delivered(world, claimed))

    assert found.passed_over == {claimed[0].id}
    assert [delivery.webhook for delivery in found.claimed] == [keys[3]]


def test_a_result_whose_queue_is_being_replayed_stops_no_other(
    world: World, other_session: psycopg.Connection[tuple[object, ...]]
) -> None:
    """A replay locks the queue, then the first delivery of it."""
    _, keys = in_order(world, resources=2)
    claimed = sorted(world.claim(), key=lambda one: keys.index(one.webhook))
    lock_queues(other_session, [claimed[0].queue])
    other_session.execute(
        "SELECT FROM webhook_deliveries WHERE webhook_id = %s FOR UPDATE", [keys[0]]
    )

    found = world.round(delivered(world, claimed))

    assert found.passed_over == {claimed[0].id}
    assert [delivery.webhook for delivery in found.claimed] == [keys[3]]


def test_the_result_of_a_deleted_delivery_is_dropped(
    world: World, other_session: psycopg.Connection[tuple[object, ...]]
) -> None:
    world.emit(world.platform("http://127.0.0.1:9/"))
    world.dispatch()
    [claimed] = world.claim()
    other_session.execute("DELETE FROM webhook_deliveries WHERE id = %s", [claimed.id])
    other_session.commit()

    found = world.round(delivered(world, [claimed]))

    assert found.passed_over == frozenset()
