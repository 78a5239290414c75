"""What an endpoint has missed while it was disabled: nothing is skipped, and it comes in order."""

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.ids import new_id, time_of_id
from cardledger.ledger.webhooks import endpoints, replays
from cardledger.ledger.webhooks.dispatch_lock import DISPATCH_LOCK
from cardledger.ledger.webhooks.ordering import LATER, lock_queues
from cardledger.ledger.webhooks.replays import RETRY_LIMIT
from cardledger.schema.ids import Id
from cardledger.webhooks.receiver import Reply
from tests.integration.test_webhook_endpoints import (
    OFF,
    emit_in_sequence,
    own_secret,
    replayed,
    rows_of,
    sequences,
)
from tests.integration.test_webhooks import Platform, World, at_least, connected, world_in
from tests.receiver import Receiver
from tests.waiting import eventually, limit_s

ON = {"state": "ENABLED", "disabled_reason": None, "collects_until": None}


@pytest.fixture
def world(app_database_url: DatabaseUrl) -> Iterator[World]:
    with world_in(app_database_url) as world:
        yield world


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def dispatch_that_waits(
    world: World, database_url: DatabaseUrl, meanwhile: threading.Event
) -> threading.Thread:
    """Start a dispatch that waits for another one, and take its turn once `meanwhile` is set."""
    other_session = psycopg.connect(database_url)
    other_session.execute("SELECT pg_advisory_xact_lock(%s)", [DISPATCH_LOCK])
    dispatching = threading.Thread(target=world.dispatch)
    dispatching.start()
    with psycopg.connect(database_url, autocommit=True) as connection:
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        eventually(lambda: connection.execute(waiting).fetchone() == (1,))

    def end() -> None:
        assert meanwhile.wait(limit_s())
        other_session.close()

    threading.Thread(target=end).start()
    return dispatching


@pytest.mark.parametrize("is_new", [False, True])
def test_a_replay_finds_what_was_dispatched_by_a_dispatch_that_had_waited(
    world: World, database_url: DatabaseUrl, app_database_url: DatabaseUrl, *, is_new: bool
) -> None:
    platform = world.platform()
    missing = world.endpoint(platform, "http://127.0.0.1:9/")
    world.emit(platform)
    meanwhile = threading.Event()
    dispatching = dispatch_that_waits(world, database_url, meanwhile)
    world.clock.advance(seconds=2)
    disabled_at = world.clock()
    if is_new:
        world.change(missing, deleted_at=disabled_at)
        missing = world.endpoint(platform, "http://127.0.0.1:9/", **OFF)
    else:
        world.change(missing, **OFF)
    meanwhile.set()
    dispatching.join()
    world.change(missing, **ON)

    since = disabled_at - timedelta(hours=1) if is_new else disabled_at
    assert replayed(world, app_database_url, platform, since=since) == 1
    assert replayed(world, app_database_url, platform, since=since) == 0


def test_what_a_dispatcher_with_a_fast_clock_has_stored_is_replayed(
    world: World, app_database_url: DatabaseUrl
) -> None:
    platform = world.platform()
    endpoint = world.endpoint(platform, "http://127.0.0.1:9/", **OFF)
    world.emit(platform)
    world.clock.advance(seconds=2)
    world.dispatch()
    world.clock.advance(seconds=-2)
    world.change(endpoint, **ON)

    assert replayed(world, app_database_url, platform) == 1


def collect(world: World, url: DatabaseUrl, platform: Platform, endpoint: Id) -> None:
    """Let webhooks wait for a disabled endpoint, as a replay that names it does."""

    async def begin() -> None:
        engine = async_engine(url)
        async with engine.begin() as connection:
            await endpoints.collect(
                connection, platform_id=platform.id, endpoint_id=endpoint, at=world.clock()
            )
        await engine.dispose()

    asyncio.run(begin())


def test_a_fifo_endpoint_that_is_replayed_before_it_is_enabled_receives_everything_in_order(
    world: World, app_database_url: DatabaseUrl, receiver: Receiver
) -> None:
    platform = world.platform()
    fifo = own_secret(world, platform, receiver, mode="FIFO")
    receiver.reply(Reply(status=500))
    subject = new_id()
    sender = world.sender()
    [first] = emit_in_sequence(world, platform, subject, 1)
    sender.run_once()
    world.attempted(first)
    world.change(fifo, **OFF)
    emit_in_sequence(world, platform, subject, 3, first=2)
    world.dispatch()

    collect(world, app_database_url, platform, fifo)
    emit_in_sequence(world, platform, subject, 2, first=5)
    world.dispatch()
    count = replayed(world, app_database_url, platform, endpoint_id=fifo)
    emit_in_sequence(world, platform, subject, 1, first=7)
    world.dispatch()
    world.clock.advance(seconds=10)
    assert sender.deliver() == 0, "nothing is sent to a disabled endpoint"

    world.change(fifo, **ON)
    emit_in_sequence(world, platform, subject, 1, first=8)
    sender.run_once()

    assert count == 4, "those that were missed, and the one that waited for its retry"
    assert sequences(receiver.wait_for(at_least(9))) == [1, *range(1, 9)]


@pytest.mark.parametrize("has_sequence", [True, False])
def test_what_was_missed_precedes_what_has_waited_since(
    world: World, app_database_url: DatabaseUrl, *, has_sequence: bool
) -> None:
    platform = world.platform()
    fifo = world.endpoint(platform, "http://127.0.0.1:9/", mode="FIFO", **OFF)
    subject = new_id()

    def emit(number: int) -> Id:
        now = time_of_id(new_id())
        eventually(lambda: time_of_id(new_id()) > now)  # Ids of a millisecond have one position.
        sequence = number if has_sequence else None
        return world.emit(platform, subject_id=subject, sequence=sequence)

    missed = emit(1)
    world.dispatch()
    collect(world, app_database_url, platform, fifo)
    emit(2)
    world.dispatch()
    replayed(world, app_database_url, platform, endpoint_id=fifo)
    world.change(fifo, **ON)

    assert [one.webhook for one in world.claim()] == [missed]


def test_a_test_is_not_kept_for_a_disabled_endpoint(
    world: World, app_database_url: DatabaseUrl
) -> None:
    platform = world.platform()
    endpoint = world.endpoint(platform, "http://127.0.0.1:9/", **OFF)
    collect(world, app_database_url, platform, endpoint)
    world.emit(platform, type="TEST", subject_id=endpoint, data={})

    world.dispatch()

    assert rows_of(world, platform) == []


def test_webhooks_wait_for_a_disabled_endpoint_for_a_day(
    world: World, app_database_url: DatabaseUrl
) -> None:
    platform = world.platform()
    endpoint = world.endpoint(platform, "http://127.0.0.1:9/", mode="FIFO", **OFF)
    collect(world, app_database_url, platform, endpoint)
    waits = world.emit(platform)
    world.dispatch()
    world.clock.advance(hours=24)
    missed = world.emit(platform)
    world.dispatch()

    assert world.delivery(waits).endpoint_id == endpoint
    assert world.delivery(missed).endpoint_id is None
    assert replayed(world, app_database_url, platform, endpoint_id=endpoint) == 1


def test_a_replay_that_does_not_name_a_disabled_endpoint_leaves_it_alone(
    world: World, app_database_url: DatabaseUrl
) -> None:
    platform = world.platform()
    endpoint = world.endpoint(platform, "http://127.0.0.1:9/", mode="FIFO", **OFF)
    emit_in_sequence(world, platform, new_id(), 2)
    world.dispatch()

    unnamed = replayed(world, app_database_url, platform)
    named = [replayed(world, app_database_url, platform, endpoint_id=endpoint) for _ in range(2)]

    assert (unnamed, named) == (0, [2, 0])
    waiting = [row for row in rows_of(world, platform) if row.endpoint_id == endpoint]
    assert sorted(row.next_attempt_at < LATER for row in waiting) == [False, True]
    assert world.claim() == []


def test_an_endpoint_that_is_enabled_while_a_retry_waits_keeps_what_is_under_way(
    world: World, database_url: DatabaseUrl, app_database_url: DatabaseUrl
) -> None:
    """Taken back, a delivery that is being sent would be overtaken by the one before it."""
    platform = world.platform()
    fifo = world.endpoint(platform, "http://127.0.0.1:9/", mode="FIFO")
    subject = new_id()
    [failed, under_way] = emit_in_sequence(world, platform, subject, 2)
    world.dispatch()
    set_delivery(database_url, failed, state="FAILED", next_attempt_at=None)
    set_delivery(database_url, under_way, state="PENDING", next_attempt_at=world.clock())
    [claimed] = world.claim()
    world.change(fifo, **OFF)
    delivery_id = world.delivery(failed).id
    queue = psycopg.connect(database_url)
    lock_queues(queue, [(fifo, subject)])
    retrying = threading.Thread(
        target=lambda: asyncio.run(retried(world, app_database_url, platform, delivery_id))
    )
    retrying.start()
    with psycopg.connect(database_url, autocommit=True) as connection:
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        eventually(lambda: connection.execute(waiting).fetchone() == (1,))

    world.change(fifo, **ON)
    queue.close()
    retrying.join(limit_s())

    assert world.delivery(failed).state == "PENDING"
    assert world.delivery(under_way).next_attempt_at == claimed.leased_until


def test_a_retry_that_is_due_within_a_minute_is_made_at_once(
    world: World, app_database_url: DatabaseUrl, receiver: Receiver
) -> None:
    receiver.reply(Reply(status=500))
    platform = connected(world, receiver)
    webhook = world.emit(platform)
    sender = world.sender()
    sender.run_once()
    waiting = world.attempted(webhook, 1)
    assert waiting.next_attempt_at > world.clock(), "the first pause is five seconds"

    asyncio.run(retried(world, app_database_url, platform, waiting.id))
    sender.run_once()

    assert world.attempted(webhook, 2).state == "DELIVERED"


def test_an_attempt_under_way_is_not_made_a_second_time(
    world: World, app_database_url: DatabaseUrl
) -> None:
    platform = world.platform()
    world.endpoint(platform, "http://127.0.0.1:9/")
    webhook = world.emit(platform)
    world.dispatch()
    [claimed] = world.claim()

    asyncio.run(retried(world, app_database_url, platform, claimed.id))

    assert replayed(world, app_database_url, platform) == 0
    assert world.claim() == []
    assert world.delivery(webhook).next_attempt_at == claimed.leased_until


def set_delivery(url: DatabaseUrl, webhook: Id, *, state: str, next_attempt_at: object) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(
            "UPDATE webhook_deliveries SET state = %s, next_attempt_at = %s WHERE webhook_id = %s",
            [state, next_attempt_at, webhook],
        )


async def retried(world: World, url: DatabaseUrl, platform: Platform, delivery_id: Id) -> None:
    engine = async_engine(url)
    async with engine.begin() as connection:
        await replays.retry(
            connection, platform_id=platform.id, delivery_id=delivery_id, at=world.clock()
        )
    await engine.dispose()


def test_endpoints_that_are_deleted_between_replays_leave_no_copies(
    world: World, app_database_url: DatabaseUrl
) -> None:
    platform = world.platform()
    missed = [world.emit(platform) for _ in range(3)]
    world.dispatch()

    for _ in range(2):
        endpoint = world.endpoint(platform, "http://127.0.0.1:9/", **OFF)
        assert replayed(world, app_database_url, platform, endpoint_id=endpoint) == 3
        world.change(endpoint, deleted_at=world.clock())
        with world.engine.begin() as connection:
            assert endpoints.discard_page(connection, limit=500, at=world.clock()) == 3

    rows = [(one.webhook_id, one.endpoint_id, one.state) for one in rows_of(world, platform)]
    assert sorted(rows) == [(key, None, "NO_ENDPOINT") for key in sorted(missed)]


def test_what_was_sent_of_a_copy_stays_when_its_endpoint_is_deleted(
    world: World, app_database_url: DatabaseUrl
) -> None:
    platform = world.platform()
    world.emit(platform)
    world.dispatch()
    endpoint = world.endpoint(platform, "http://127.0.0.1:9/")
    replayed(world, app_database_url, platform, endpoint_id=endpoint)
    world.sender().run_once()
    eventually(lambda: 1 in {one.attempts for one in rows_of(world, platform)})
    world.change(endpoint, deleted_at=world.clock())

    with world.engine.begin() as connection:
        endpoints.discard_page(connection, limit=500, at=world.clock())

    rows = {(one.endpoint_id, one.attempts, one.state) for one in rows_of(world, platform)}
    assert rows == {(None, 0, "NO_ENDPOINT"), (endpoint, 1, "NO_ENDPOINT")}


@pytest.mark.parametrize(
    ("state", "limit"), [("DELIVERED", RETRY_LIMIT), ("FAILED", replays.REPLAY_LIMIT)]
)
def test_what_has_had_many_attempts_is_not_replayed(
    world: World, app_database_url: DatabaseUrl, database_url: DatabaseUrl, state: str, limit: int
) -> None:
    platform = world.platform("http://127.0.0.1:9/")
    keys = [world.emit(platform) for _ in range(2)]
    world.dispatch()
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "UPDATE webhook_deliveries SET state = %s, next_attempt_at = NULL,"
            " attempts = %s - (webhook_id = %s)::int WHERE platform_id = %s",
            [state, limit, keys[0], platform.id],
        )

    assert replayed(world, app_database_url, platform, only_failed=False) == 1
    assert world.delivery(keys[0]).state == "PENDING"
