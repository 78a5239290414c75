"""One endpoint or row never delays the others: many endpoints, unreachable ones, bad rows."""

import socket
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest
from sqlalchemy import insert

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.webhooks.claims import Capacity
from cardledger.ledger.webhooks.dispatch import dispatch
from cardledger.ledger.webhooks.outbox_claims import Turns
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.webhooks.receiver import Reply
from tests.integration.test_webhook_endpoints import own_secret, sequences, state_of
from tests.integration.test_webhooks import Platform, World, at_least, connected, world_in
from tests.receiver import Receiver
from tests.waiting import eventually, limit_s


@pytest.fixture
def world(app_database_url: DatabaseUrl) -> Iterator[World]:
    with world_in(app_database_url) as world:
        yield world


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def test_many_fifo_endpoints_do_not_exhaust_the_locks_of_postgresql(
    world: World,
) -> None:
    platform = world.platform()
    for number in range(100):
        world.endpoint(platform, f"https://hooks.example.com/{number}", mode="FIFO")
    with world.engine.begin() as connection:
        connection.execute(
            insert(tables.outbox),
            [
                {
                    "id": new_id(),
                    "customer_id": new_id(),
                    "platform_id": platform.id,
                    "type": "CARD.STATE_CHANGE",
                    "subject_id": new_id(),
                    "data": {},
                    "recorded_at": world.clock(),
                }
                for _ in range(500)
            ],
        )

    while world.dispatch():
        pass

    assert world.waiting() == 0


def test_a_new_sender_reaches_a_healthy_endpoint_behind_older_unreachable_endpoints(
    world: World, receiver: Receiver
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=100) as deaf:
        for _ in range(12):
            platform = world.platform(f"http://127.0.0.1:{deaf.getsockname()[1]}/")
            world.change(platform.endpoint, failing_since=world.clock() - timedelta(hours=1))
            for _ in range(20):
                world.emit(platform)
        world.dispatch()
        world.clock.advance(seconds=1)
        world.emit(connected(world, receiver))
        sender = world.sender(timeout_s=limit_s(0.75), concurrency=8)

        sender.run_once()

        receiver.wait_for(at_least(1))


def test_a_recovered_endpoint_soon_gets_a_turn_among_failing_endpoints(
    world: World, receiver: Receiver
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=100) as deaf:
        for _ in range(6):
            platform = world.platform(f"http://127.0.0.1:{deaf.getsockname()[1]}/")
            world.change(platform.endpoint, failing_since=world.clock() - timedelta(hours=1))
            for _ in range(20):
                world.emit(platform)
        world.dispatch()
        world.clock.advance(seconds=1)
        recovered = connected(world, receiver)
        world.change(recovered.endpoint, failing_since=world.clock() - timedelta(hours=1))
        world.emit(recovered)
        sender = world.sender(timeout_s=limit_s(0.25), concurrency=8)

        sender.run_once()

        receiver.wait_for(at_least(1))


def test_a_long_backlog_of_quick_endpoints_does_not_delay_others(
    world: World, receiver: Receiver
) -> None:
    with Receiver() as busy:
        platforms = [connected(world, busy) for _ in range(4)]
        sender = world.sender(concurrency=8)
        for platform in platforms:
            key = world.emit(platform)
            sender.run_once()
            world.attempted(key)
        for _ in range(150):
            for platform in platforms:
                world.emit(platform)
        while world.dispatch():
            pass
        world.clock.advance(seconds=1)
        world.emit(connected(world, receiver))

        sender.run_once()
        receiver.wait_for(at_least(1))

        assert len(busy.received) < 300, "half of the older deliveries"


def emit_many(world: World, platform: Platform, count: int, **other: object) -> list[Id]:
    """Emit that many webhooks, numbered from 1, in one statement; return their ids."""
    keys = [new_id() for _ in range(count)]
    rows = [
        {
            "id": key,
            "customer_id": new_id(),
            "platform_id": platform.id,
            "type": "CARD.STATE_CHANGE",
            "subject_id": new_id(),
            "sequence": number,
            "data": {"sequence": number},
            "recorded_at": world.clock(),
        }
        for number, key in enumerate(keys, 1)
    ]
    with world.engine.begin() as connection:
        connection.execute(insert(tables.outbox), [row | other for row in rows])
    return keys


def platform_with(world: World, endpoints: int, **other: object) -> Platform:
    platform = world.platform()
    for number in range(endpoints):
        world.endpoint(platform, f"https://hooks.example.com/{number}", **other)
    return platform


def test_a_platform_with_many_endpoints_does_not_delay_the_dispatch_of_another(
    world: World,
) -> None:
    busy = platform_with(world, 20)
    other = world.platform("https://hooks.example.com/")
    sender = world.sender()
    emit_many(world, busy, 600)  # More than a dispatch claims; it has 25 of them.
    sender.dispatch()
    key = world.emit(other)

    sender.dispatch()

    assert world.deliveries(key)


def test_webhooks_of_a_resource_stay_in_order_whatever_turns_are_taken(world: World) -> None:
    busy = platform_with(world, 20, mode="FIFO")
    other = platform_with(world, 3)
    subject = new_id()
    sender = world.sender()
    keys = emit_many(world, busy, 120, subject_id=subject)
    dispatched: list[Id] = []
    while world.waiting():
        emit_many(world, other, 40)
        sender.dispatch()
        found = [key for key in keys[len(dispatched) :] if world.deliveries(key)]
        dispatched += found

        assert dispatched == keys[: len(dispatched)]


def test_platforms_share_a_dispatch_by_their_deliveries(world: World) -> None:
    busy = platform_with(world, 50)
    other = world.platform("https://hooks.example.com/")
    keys = []
    for _ in range(40):
        world.emit(busy)
        keys.append(world.emit(other))

    world.dispatch(limit=100)

    assert all(world.deliveries(key) for key in keys)


def test_a_dispatch_begins_with_the_platform_whose_last_one_is_longest_ago(world: World) -> None:
    busy = [platform_with(world, 5) for _ in range(2)]
    other = world.platform("https://hooks.example.com/")
    for platform in busy:
        emit_many(world, platform, 10)
    key = world.emit(other)
    turns = Turns()

    for _ in range(2):  # Each has room for one webhook of both busy platforms, and no more.
        with world.engine.begin() as connection:
            dispatch(connection, limit=10, at=world.clock(), turns=turns)

    assert world.deliveries(key)


def test_a_platform_with_many_endpoints_gets_every_second_attempt_beside_one_with_one(
    world: World,
) -> None:
    busy = platform_with(world, 20)
    other = world.platform("https://hooks.example.com/")
    for _ in range(3):
        world.emit(busy)
    world.clock.advance(seconds=1)
    emit_many(world, other, 4)
    while world.dispatch():
        pass

    claimed = world.claim(Capacity(total=8, share=4, shares={}, others=8, failing=8, busy=()))

    assert Counter(delivery.platform_id for delivery in claimed) == {busy.id: 4, other.id: 4}


def test_the_platform_whose_turn_is_longest_ago_is_next(world: World) -> None:
    busy = platform_with(world, 5)
    other = world.platform("https://hooks.example.com/")
    assert other.endpoint is not None
    world.emit(busy)
    world.clock.advance(seconds=1)
    world.emit(other)
    world.dispatch()
    room = Capacity(
        total=1,
        share=1,
        shares={},
        others=1,
        failing=1,
        busy=(),
        turns={other.endpoint: 6},  # The endpoints of the busy platform never had one.
        platform_turns={busy.id: 7, other.id: 6},
    )

    [claimed] = world.claim(room)

    assert claimed.platform_id == other.id


def test_a_platform_has_three_quarters_of_the_threads_for_slow_endpoints(
    world: World, receiver: Receiver
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=100) as deaf:
        busy = world.platform()
        for _ in range(20):
            world.endpoint(busy, f"http://127.0.0.1:{deaf.getsockname()[1]}/")
        world.emit(busy)
        sender = world.sender(timeout_s=limit_s(20), concurrency=16)
        sender.run_once()
        world.clock.advance(seconds=1)
        key = world.emit(connected(world, receiver))

        sender.run_once()

        world.attempted(key)


def test_a_gone_endpoint_that_cannot_be_disabled_yet_does_not_delay_others(
    world: World, receiver: Receiver, database_url: DatabaseUrl
) -> None:
    with Receiver() as gone, psycopg.connect(database_url) as other_session:
        gone.reply_always(Reply(status=410))
        platform = connected(world, gone)
        for _ in range(40):
            world.emit(platform)
        endpoints = "SELECT FROM webhook_endpoints WHERE id = %s FOR UPDATE"
        other_session.execute(endpoints, [platform.endpoint])
        sender = world.sender(concurrency=8, every_s=0.05)
        sender.wake()
        gone.wait_for(at_least(8))

        world.emit(connected(world, receiver))
        sender.wake()

        receiver.wait_for(at_least(1))
        other_session.rollback()
    eventually(lambda: state_of(world, platform.endpoint) == ("DISABLED", "GONE"))


def test_rows_that_cannot_be_rendered_do_not_delay_later_rows(
    world: World,
) -> None:
    platform = world.platform()
    for _ in range(6):
        world.emit(platform, data={"name": "\ud800"})
    world.dispatch(limit=6)
    world.clock.advance(minutes=2)
    fine = world.emit(platform)

    moved = world.dispatch(limit=3)

    assert moved, "dispatching continues until the outbox is empty"
    assert world.deliveries(fine)


def test_a_row_with_data_of_an_unknown_shape_stops_only_itself(world: World) -> None:
    platform = world.platform()
    world.emit(platform, type="INTERNAL_ACCOUNT.BALANCE_UPDATED", data=["not", "an account"])
    fine = world.emit(platform)

    world.dispatch()

    assert world.deliveries(fine)
    assert world.waiting() == 1


def test_order_survives_a_clock_that_was_set_back_between_two_events(
    world: World, receiver: Receiver
) -> None:
    platform = world.platform()
    own_secret(world, platform, receiver, mode="FIFO")
    later, earlier, subject = new_id(), new_id(), new_id()
    world.emit(platform, id=earlier, subject_id=subject, sequence=1, data={"sequence": 1})
    world.emit(platform, id=later, subject_id=subject, sequence=2, data={"sequence": 2})

    world.dispatch()
    sender = world.sender()
    sender.run_once()
    eventually(lambda: len(receiver.received) >= 2)

    assert sequences(receiver.received) == [1, 2]
