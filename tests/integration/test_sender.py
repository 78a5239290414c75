"""The sender when something is wrong: with PostgreSQL, with one attempt, with who dispatches."""

import threading
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy.exc import OperationalError

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.webhooks.dispatch import DISPATCH_LOCK
from cardledger.ledger.webhooks.ordering import lock_queues
from cardledger.webhooks.receiver import Receiver, Reply
from tests.integration.test_webhook_endpoints import own_secret, told_in_order
from tests.integration.test_webhooks import (  # noqa: F401 - a fixture
    World,
    at_least,
    connected,
    logs,
    until,
    world_in,
)

TEAPOT = 418


@pytest.fixture
def world(app_database_url: DatabaseUrl) -> Iterator[World]:
    with world_in(app_database_url) as world:
        yield world


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@contextmanager
def no_record_of_teapots(owner: psycopg.Connection[tuple[object, ...]]) -> Iterator[None]:
    """Have PostgreSQL refuse to keep attempts that were answered with 418."""
    owner.execute(
        "ALTER TABLE webhook_attempts ADD CONSTRAINT no_teapots CHECK (status <> 418) NOT VALID"
    )
    yield
    owner.execute("ALTER TABLE webhook_attempts DROP CONSTRAINT no_teapots")


def test_an_attempt_that_cannot_be_recorded_stops_only_itself(
    world: World,
    receiver: Receiver,
    database_url: DatabaseUrl,
    logs: Sequence[MutableMapping[str, Any]],  # noqa: F811 - the fixture
) -> None:
    with (
        Receiver() as teapot,
        psycopg.connect(database_url, autocommit=True) as owner,
        no_record_of_teapots(owner),
    ):
        teapot.reply_always(Reply(status=TEAPOT))
        poisoned = world.emit(connected(world, teapot))
        platform = connected(world, receiver)
        fine = [world.emit(platform) for _ in range(5)]

        world.sender().run_once()

        until(lambda: all(world.delivery(key).state == "DELIVERED" for key in fine))
        until(lambda: "webhook attempt not recorded" in [log["event"] for log in logs])
        after = world.emit(platform)
        world.sender().run_once()
        assert world.attempted(after).state == "DELIVERED"
    assert world.attempts(poisoned) == []
    assert world.delivery(poisoned).state == "PENDING", "its lease ends, and it is sent again"


def test_what_cannot_be_recorded_while_postgresql_is_away_is_recorded_when_it_is_back(
    world: World,
    receiver: Receiver,
    postgres_url: DatabaseUrl,
    database_url: DatabaseUrl,
    logs: Sequence[MutableMapping[str, Any]],  # noqa: F811 - the fixture
) -> None:
    receiver.reply(Reply(delay_s=0.5))
    key = world.emit(connected(world, receiver))
    sender = world.sender()
    sender.run_once()
    receiver.wait_for(at_least(1))

    with away(postgres_url, database_url):
        until(lambda: "periodic task failed" in [log["event"] for log in logs])
        with pytest.raises(OperationalError):
            sender.deliver()

    sender.deliver()
    assert world.delivery(key).state == "DELIVERED"
    assert len(receiver.received) == 1, "nothing is sent twice"


def test_what_is_not_recorded_in_time_is_recorded_later(
    world: World,
    receiver: Receiver,
    database_url: DatabaseUrl,
    logs: Sequence[MutableMapping[str, Any]],  # noqa: F811 - the fixture
) -> None:
    receiver.reply(Reply(delay_s=0.5))
    key = world.emit(connected(world, receiver))
    sender = world.sender()
    sender.run_once()
    receiver.wait_for(at_least(1))

    with (
        psycopg.connect(database_url) as somebody,
        psycopg.connect(database_url, autocommit=True) as owner,
    ):
        somebody.execute("LOCK TABLE webhook_deliveries IN SHARE MODE")
        until(
            lambda: out_of_time(owner) and "periodic task failed" in [log["event"] for log in logs]
        )
        somebody.rollback()

    sender.deliver()
    assert world.delivery(key).state == "DELIVERED"


def out_of_time(owner: psycopg.Connection[tuple[object, ...]]) -> bool:
    """End every statement that waits for a lock, as its time limit would."""
    owner.execute(
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity"
        " WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    return True


def test_what_a_standby_cannot_record_is_recorded_when_it_may_write(
    world: World,
    receiver: Receiver,
    postgres_url: DatabaseUrl,
    database_url: DatabaseUrl,
    logs: Sequence[MutableMapping[str, Any]],  # noqa: F811 - the fixture
) -> None:
    receiver.reply(Reply(delay_s=0.5))
    key = world.emit(connected(world, receiver))
    sender = world.sender()
    sender.run_once()
    receiver.wait_for(at_least(1))

    with read_only(postgres_url, database_url):
        until(lambda: "periodic task failed" in [log["event"] for log in logs])

    sender.deliver()
    assert world.delivery(key).state == "DELIVERED"


@contextmanager
def read_only(server: DatabaseUrl, database: DatabaseUrl) -> Iterator[None]:
    """Have a database refuse every change, as one that is copied from another does."""
    alter = sql.SQL("ALTER DATABASE {} {} default_transaction_read_only")
    name = sql.Identifier(database.database)
    with psycopg.connect(server, autocommit=True) as postgres:
        postgres.execute(alter.format(name, sql.SQL("SET")) + sql.SQL(" = on"))
        end_connections(postgres, database)
        try:
            yield
        finally:
            postgres.execute(alter.format(name, sql.SQL("RESET")))
            end_connections(postgres, database)


def end_connections(
    postgres: psycopg.Connection[tuple[object, ...]], database: DatabaseUrl
) -> None:
    postgres.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s",
        [database.database],
    )


@contextmanager
def away(server: DatabaseUrl, database: DatabaseUrl) -> Iterator[None]:
    """End all connections to a database and let nobody in."""
    allow = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
    name = sql.Identifier(database.database)
    with psycopg.connect(server, autocommit=True) as postgres:
        postgres.execute(allow.format(name, sql.SQL("false")))
        end_connections(postgres, database)
        yield
        postgres.execute(allow.format(name, sql.SQL("true")))


def test_what_is_due_again_leaves_at_once_when_somebody_says_so(
    world: World, receiver: Receiver
) -> None:
    key = world.emit(connected(world, receiver))
    world.dispatch()
    sender = world.sender()

    sender.wake()

    [arrival] = receiver.wait_for(at_least(1))
    assert arrival.webhook_id == f"Webhook:{key}"


def test_deliveries_leave_while_dispatching_waits_for_somebody(
    world: World, receiver: Receiver, database_url: DatabaseUrl
) -> None:
    platform = connected(world, receiver)
    dispatched = world.emit(platform)
    world.dispatch()
    with psycopg.connect(database_url) as somebody:
        somebody.execute("SELECT pg_advisory_xact_lock(%s)", [DISPATCH_LOCK])
        world.emit(platform)
        sender = world.sender(every_s=0.05)

        [arrival] = receiver.wait_for(at_least(1))

        assert arrival.webhook_id == f"Webhook:{dispatched}"
        assert world.waiting() == 1
        somebody.rollback()
    sender.wake()
    receiver.wait_for(at_least(2))


def test_what_was_sent_is_not_sent_again_because_its_record_outlasts_its_lease(
    world: World,
    receiver: Receiver,
    database_url: DatabaseUrl,
    logs: Sequence[MutableMapping[str, Any]],  # noqa: F811 - the fixture
) -> None:
    platform = world.platform()
    endpoint = own_secret(world, platform, receiver, mode="FIFO")
    [key] = told_in_order(world, platform, subject := new_id(), 1)
    receiver.reply(Reply(delay_s=0.3))
    sender = world.sender()
    sender.run_once()
    with psycopg.connect(database_url) as somebody:
        lock_queues(somebody, [(endpoint, subject)])
        until(lambda: "webhook delivered" in [log["event"] for log in logs])
        sender.deliver()

        world.clock.advance(minutes=1)
        sender.deliver()

        somebody.rollback()
    sender.close()
    assert world.delivery(key).state == "DELIVERED"
    assert len(receiver.received) == 1


def test_a_sender_that_ends_records_an_attempt_whose_queue_somebody_holds_for_a_moment(
    world: World, receiver: Receiver, database_url: DatabaseUrl
) -> None:
    platform = world.platform()
    endpoint = own_secret(world, platform, receiver, mode="FIFO")
    [key] = told_in_order(world, platform, subject := new_id(), 1)
    receiver.reply(Reply(delay_s=0.3))
    sender = world.sender()
    sender.run_once()
    with psycopg.connect(database_url) as somebody:
        lock_queues(somebody, [(endpoint, subject)])
        closing = threading.Thread(target=sender.close)

        closing.start()

        until(lambda: not any(one.name.startswith("webhooks") for one in threading.enumerate()))
        closing.join(timeout=0.2)
        assert closing.is_alive(), "it has something to record"
        somebody.rollback()
    closing.join(timeout=10)
    assert world.delivery(key).state == "DELIVERED"
