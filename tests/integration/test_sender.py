"""The sender during failures of PostgreSQL, of one attempt and of dispatching."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy.exc import OperationalError

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.webhooks.dispatch_lock import DISPATCH_LOCK
from cardledger.ledger.webhooks.endpoint_tests import EndpointTest
from cardledger.ledger.webhooks.ordering import lock_queues
from cardledger.webhooks.receiver import Reply
from cardledger.workers.signals.outage_log import DATABASE
from tests.integration.test_webhook_endpoints import emit_in_sequence, own_secret
from tests.integration.test_webhook_leases import accepted_at_once
from tests.integration.test_webhooks import (  # noqa: F401 - a fixture
    World,
    at_least,
    connected,
    logs,
    world_in,
)
from tests.receiver import Receiver
from tests.waiting import eventually, limit_s

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
    """Make PostgreSQL reject attempts with status 418."""
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

        eventually(lambda: all(world.delivery(key).state == "DELIVERED" for key in fine))
        eventually(lambda: "webhook attempt not recorded" in [log["event"] for log in logs])
        after = world.emit(platform)
        world.sender().run_once()
        assert world.attempted(after).state == "DELIVERED"
    assert world.attempts(poisoned) == []
    assert world.delivery(poisoned).state == "PENDING", "its lease ends, and it is sent again"


def test_a_locked_row_of_one_queue_stops_the_webhooks_of_no_other(
    world: World,
    receiver: Receiver,
    database_url: DatabaseUrl,
    logs: Sequence[MutableMapping[str, Any]],  # noqa: F811 - the fixture
) -> None:
    platform = world.platform()
    own_secret(world, platform, receiver, mode="FIFO")
    first, second = emit_in_sequence(world, platform, new_id(), 2)
    receiver.reply(Reply(delay_s=0.3))
    sender = world.sender()
    sender.run_once()
    with psycopg.connect(database_url) as other_session, Receiver() as other:
        other_session.execute(
            "SELECT FROM webhook_deliveries WHERE webhook_id = %s FOR UPDATE", [second]
        )
        eventually(lambda: "webhook delivered" in [log["event"] for log in logs])
        fine = world.emit(connected(world, other))

        sender.run_once()

        eventually(lambda: world.delivery(fine).state == "DELIVERED")
        assert world.delivery(first).state == "PENDING", "its result is kept"
        other_session.rollback()
    eventually(lambda: sender.deliver() >= 0 and world.delivery(second).state == "DELIVERED")
    assert len(receiver.received) == 2


def test_a_result_that_could_not_be_recorded_is_recorded_when_postgresql_is_back(
    world: World,
    receiver: Receiver,
    postgres_url: DatabaseUrl,
    database_url: DatabaseUrl,
) -> None:
    receiver.reply(Reply(delay_s=0.5))
    key = world.emit(connected(world, receiver))
    sender = world.sender()
    sender.run_once()
    receiver.wait_for(at_least(1))

    with away(postgres_url, database_url):
        eventually(another_failure())
        with pytest.raises(OperationalError):
            sender.deliver()

    sender.deliver()
    assert world.delivery(key).state == "DELIVERED"
    assert len(receiver.received) == 1, "nothing is sent twice"


def test_a_result_whose_record_timed_out_is_recorded_later(
    world: World,
    receiver: Receiver,
    database_url: DatabaseUrl,
) -> None:
    receiver.reply(Reply(delay_s=0.5))
    key = world.emit(connected(world, receiver))
    sender = world.sender()
    sender.run_once()
    receiver.wait_for(at_least(1))

    with (
        psycopg.connect(database_url) as other_session,
        psycopg.connect(database_url, autocommit=True) as owner,
    ):
        other_session.execute("LOCK TABLE webhook_deliveries IN SHARE MODE")
        has_failed = another_failure()
        eventually(lambda: out_of_time(owner) and has_failed())
        other_session.rollback()

    sender.deliver()
    assert world.delivery(key).state == "DELIVERED"


def another_failure() -> Callable[[], bool]:
    """Return whether PostgreSQL has failed a task of this process since now."""
    before = DATABASE.failures
    return lambda: DATABASE.failures > before


def out_of_time(owner: psycopg.Connection[tuple[object, ...]]) -> bool:
    """Cancel every statement that waits for a lock, as its time limit would."""
    owner.execute(
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity"
        " WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    return True


def test_a_result_that_a_standby_refuses_is_recorded_when_it_accepts_writes(
    world: World,
    receiver: Receiver,
    postgres_url: DatabaseUrl,
    database_url: DatabaseUrl,
) -> None:
    receiver.reply(Reply(delay_s=0.5))
    key = world.emit(connected(world, receiver))
    sender = world.sender()
    sender.run_once()
    receiver.wait_for(at_least(1))

    with read_only(postgres_url, database_url):
        eventually(another_failure())

    sender.deliver()
    assert world.delivery(key).state == "DELIVERED"


@contextmanager
def read_only(server: DatabaseUrl, database: DatabaseUrl) -> Iterator[None]:
    """Make a database read-only, as a standby is."""
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
    """End all connections to a database and accept no new ones."""
    allow = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
    name = sql.Identifier(database.database)
    with psycopg.connect(server, autocommit=True) as postgres:
        postgres.execute(allow.format(name, sql.SQL("false")))
        end_connections(postgres, database)
        yield
        postgres.execute(allow.format(name, sql.SQL("true")))


def test_a_delivery_leaves_at_once_when_the_sender_is_woken(
    world: World, receiver: Receiver
) -> None:
    key = world.emit(connected(world, receiver))
    world.dispatch()
    sender = world.sender()

    sender.wake()

    [arrival] = receiver.wait_for(at_least(1))
    assert arrival.webhook_id == f"Webhook:{key}"


def test_deliveries_leave_while_dispatching_waits_for_a_lock(
    world: World, receiver: Receiver, database_url: DatabaseUrl
) -> None:
    platform = connected(world, receiver)
    dispatched = world.emit(platform)
    world.dispatch()
    with psycopg.connect(database_url) as other_session:
        other_session.execute("SELECT pg_advisory_xact_lock(%s)", [DISPATCH_LOCK])
        world.emit(platform)
        sender = world.sender(every_s=0.05)

        [arrival] = receiver.wait_for(at_least(1))

        assert arrival.webhook_id == f"Webhook:{dispatched}"
        assert world.waiting() == 1
        other_session.rollback()
    sender.wake()
    receiver.wait_for(at_least(2))


def test_a_sent_webhook_is_not_sent_again_when_its_record_outlasts_its_lease(
    world: World,
    receiver: Receiver,
    database_url: DatabaseUrl,
    logs: Sequence[MutableMapping[str, Any]],  # noqa: F811 - the fixture
) -> None:
    platform = world.platform()
    endpoint = own_secret(world, platform, receiver, mode="FIFO")
    [key] = emit_in_sequence(world, platform, subject := new_id(), 1)
    receiver.reply(Reply(delay_s=0.3))
    sender = world.sender()
    sender.run_once()
    with psycopg.connect(database_url) as other_session:
        lock_queues(other_session, [(endpoint, subject)])
        eventually(lambda: "webhook delivered" in [log["event"] for log in logs])
        sender.deliver()

        world.clock.advance(minutes=1)
        sender.deliver()

        other_session.rollback()
    sender.close()
    assert world.delivery(key).state == "DELIVERED"
    assert len(receiver.received) == 1


def test_a_request_for_approval_is_sent_while_another_attempt_hangs(
    world: World, receiver: Receiver
) -> None:
    """An endpoint that has not responded yet has one attempt at a time."""
    platform = connected(world, receiver)
    receiver.reply(Reply(delay_s=limit_s(4)))
    slow = world.emit(platform)
    world.dispatch()
    sender = world.sender(timeout_s=limit_s(10))
    sender.deliver()
    receiver.wait_for(at_least(1))
    key = world.emit(platform, type="INCOMING_PAYMENT.PENDING")

    sender.wake_dispatch()

    eventually(lambda: key in {row.webhook_id for row in world.deliveries(key)})
    eventually(lambda: world.delivery(key).state == "DELIVERED")
    assert world.delivery(slow).state == "PENDING"


def test_a_closing_sender_leaves_an_attempt_behind_that_does_not_end(
    world: World, receiver: Receiver
) -> None:
    platform = world.platform()
    own_secret(world, platform, receiver, mode="FIFO")
    [key] = emit_in_sequence(world, platform, new_id(), 1)
    receiver.reply(Reply(delay_s=4.0))
    sender = world.sender()
    sender.run_once()
    receiver.wait_for(at_least(1))

    sender.close(0.1)

    assert world.delivery(key).state != "DELIVERED", "it is sent again when its lease ends"


def test_a_closing_sender_records_a_result_whose_queue_is_briefly_locked(
    world: World, receiver: Receiver, database_url: DatabaseUrl
) -> None:
    platform = world.platform()
    endpoint = own_secret(world, platform, receiver, mode="FIFO")
    [key] = emit_in_sequence(world, platform, subject := new_id(), 1)
    receiver.reply(Reply(delay_s=0.3))
    sender = world.sender()
    sender.run_once()
    with psycopg.connect(database_url) as other_session:
        lock_queues(other_session, [(endpoint, subject)])
        closing = threading.Thread(target=sender.close)

        closing.start()

        eventually(
            lambda: not any(one.name.startswith("webhooks") for one in threading.enumerate())
        )
        closing.join(timeout=0.2)
        assert closing.is_alive(), "it has something to record"
        other_session.rollback()
    closing.join(limit_s())
    assert world.delivery(key).state == "DELIVERED"


def test_a_closing_sender_begins_nothing_while_dispatching_waits_for_a_lock(
    world: World, receiver: Receiver, database_url: DatabaseUrl
) -> None:
    platform = connected(world, receiver)
    key = world.emit(platform)
    world.dispatch()
    with psycopg.connect(database_url) as other_session:
        other_session.execute("SELECT pg_advisory_xact_lock(%s)", [DISPATCH_LOCK])
        sender = world.sender()
        with psycopg.connect(database_url, autocommit=True) as connection:

            def waits() -> bool:
                sender.wake_dispatch()
                waiting = (
                    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                )
                return connection.execute(waiting).fetchone() == (1,)

            eventually(waits)
        closing = threading.Thread(target=sender.close)
        closing.start()
        [dispatching, *_] = sender.tasks
        eventually(dispatching._stopping.is_set)

        sender.deliver()

        other_session.rollback()
    closing.join(limit_s())
    assert not closing.is_alive()
    assert (world.delivery(key).attempts, receiver.received) == (0, [])


def test_a_silent_receiver_takes_no_time_to_stop_from_the_other_lane(
    world: World, receiver: Receiver, app_database_url: DatabaseUrl
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        world.emit(world.platform(f"http://127.0.0.1:{silent.getsockname()[1]}/"))
        platform = connected(world, receiver)
        assert platform.endpoint is not None
        receiver.reply(Reply(delay_s=0.5))
        test = EndpointTest(id=new_id(), platform_id=platform.id, endpoint_id=platform.endpoint)
        asyncio.run(accepted_at_once(world, app_database_url, [test]))
        sender = world.sender(timeout_s=limit_s(60))
        sender.run_once()
        sender.deliver_tests()
        receiver.wait_for(at_least(1))

        closing = threading.Thread(target=sender.close, args=[limit_s(5)])
        closing.start()

        eventually(lambda: world.delivery(test.id).state == "DELIVERED")
    closing.join(limit_s())
    assert not closing.is_alive(), "the silent receiver has left"


@pytest.mark.parametrize("count", [1, 3], ids=["no thread", "few threads"])
def test_deliveries_for_which_no_thread_can_be_started_are_sent_later(
    world: World, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """As at the limit of processes of a container."""
    start = threading.Thread.start
    failures = iter([RuntimeError("can't start new thread")])

    def start_but_once(thread: threading.Thread) -> None:
        for error in failures if thread.name.startswith("webhooks_") else ():
            raise error
        start(thread)

    with ExitStack() as receivers:
        keys = [
            world.emit(connected(world, receivers.enter_context(Receiver()))) for _ in range(count)
        ]
        world.dispatch()
        sender = world.sender()
        monkeypatch.setattr(threading.Thread, "start", start_but_once)
        with pytest.raises(RuntimeError, match="new thread"):
            sender.deliver()

        world.clock.advance(minutes=1)  # The leases end.

        eventually(
            lambda: (
                sender.deliver() >= 0
                and all(world.delivery(key).state == "DELIVERED" for key in keys)
            )
        )


def test_an_approval_that_was_sent_and_is_not_recorded_yet_is_not_sent_again(
    world: World,
    receiver: Receiver,
    database_url: DatabaseUrl,
    logs: Sequence[MutableMapping[str, Any]],  # noqa: F811 - the fixture
) -> None:
    key = world.emit(connected(world, receiver), type="INCOMING_PAYMENT.PENDING")
    world.dispatch()
    sender = world.sender()
    with psycopg.connect(database_url) as other_session:
        receiver.reply(Reply(delay_s=0.3))
        sender.deliver_approvals()
        receiver.wait_for(at_least(1))
        other_session.execute(
            "SELECT FROM webhook_deliveries WHERE webhook_id = %s FOR NO KEY UPDATE", [key]
        )
        eventually(lambda: "webhook delivered" in [log["event"] for log in logs])
        sender.deliver_approvals()  # Its row is locked.
        other_session.rollback()
        world.clock.advance(minutes=1)  # Its lease has ended.

        assert sender.deliver() == 0

    eventually(lambda: sender.deliver_approvals() >= 0 and world.delivery(key).attempts == 1)
    assert len(receiver.received) == 1
