"""Locks of other sessions: batches wait briefly; only the locked cardholder waits for their end."""

import asyncio
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter
from typing import Any

import psycopg
import pytest
from sqlalchemy.exc import ProgrammingError

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.engine.commit import Engine
from cardledger.ledger.engine.records import Decided
from cardledger.ledger.messaging.inbox import SHARDS, Lane
from cardledger.ledger.storage import batch_connections
from cardledger.ledger.storage.engines import driver
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import OutcomeType
from cardledger.workers.client import Client
from cardledger.workers.process.config import WorkerConfig
from cardledger.workers.signals.roles import WorkerRole
from tests.integration.workers import captured, config_of, with_client, working
from tests.waiting import eventually, limit_s
from tests.worker_process import worker_process
from tests.world import Cardholder, World, open_world

SOON = timedelta(milliseconds=100)


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


@contextmanager
def locked(world: World, *cardholders: Cardholder) -> Iterator[psycopg.Connection]:
    """Lock the accounts of `cardholders` in another session, until the block or a roll-back."""
    with psycopg.connect(world.url) as outsider:
        outsider.execute(
            "SELECT FROM internal_accounts WHERE id = ANY(%s) FOR UPDATE",
            [[one.account_id for one in cardholders]],
        )
        yield outsider
        outsider.rollback()


def of_one_shard(world: World, platform: Id, count: int) -> list[Cardholder]:
    """Return cardholders, with money, whose messages are in one queue."""
    found: dict[int, list[Cardholder]] = {}
    while True:
        one = world.cardholder(platform)
        same = found.setdefault(one.shard, [])
        same.append(one)
        if len(same) == count:
            deposits = [(each, world.deposit(each, 10_000)) for each in same]
            world.process(world.engine(), deposits)
            return same


def authorized(world: World, cardholder: Cardholder) -> list[str]:
    """Return the references of the authorizations of `cardholder` in the order of decision."""
    rows = world.rows(
        "SELECT o.reference FROM card_transaction_events e"
        " JOIN outcomes o ON o.message_id = e.message_id AND o.customer_id = e.customer_id"
        " WHERE e.customer_id = %s AND e.kind = 'AUTHORIZED'"
        " ORDER BY e.recorded_at, e.message_id",
        cardholder.owner.customer_id,
    )
    return [reference for (reference,) in rows]


# --- one locked account -------------------------------------------------------------------------


def test_eight_locked_accounts_delay_no_other_cardholder(
    world: World, platform: Id, redis_url: str
) -> None:
    others = [world.cardholder(platform, 10_000) for _ in range(24)]
    held = [world.cardholder(platform, 10_000) for _ in range(8)]
    waiting = [(one, world.authorization(one, f"H{n}", 1)) for n in range(5) for one in held]

    async def submit_for_others(client: Client) -> list[float]:
        seconds: list[float] = []

        async def one_after_another(cardholder: Cardholder) -> None:
            for n in range(20):
                began = perf_counter()
                [outcome] = await client.submit([world.authorization(cardholder, f"O{n}", 1)])
                seconds.append(perf_counter() - began)
                assert outcome.outcome is OutcomeType.APPLIED

        await asyncio.gather(*map(one_after_another, others))
        return sorted(seconds)

    with locked(world, *held) as outsider, working(world, redis_url):
        world.accept(waiting)
        seconds = with_client(world, redis_url, submit_for_others)
        assert world.count_waiting() == len(waiting)
        outsider.rollback()
        eventually(lambda: world.count("inbox") == 0)

    # A second on an idle machine.
    assert seconds[len(seconds) * 99 // 100] < limit_s(0.5)
    for one in held:
        mine = [event["reference"] for cardholder, event in waiting if cardholder is one]
        assert authorized(world, one) == mine
        world.check_books(one)


def test_many_messages_of_a_locked_cardholder_do_not_hide_those_behind_them(
    world: World, platform: Id
) -> None:
    held, other = of_one_shard(world, platform, 2)
    engine = world.engine(batch_size=10)
    late = [(held, world.authorization(held, f"H{n}", 1)) for n in range(35)]
    world.accept([*late, *((other, world.authorization(other, f"O{n}", 1)) for n in range(15))])

    with locked(world, held):
        first = drained(engine, [held.shard])
        assert {decision.message.customer_id for decision in first} == {other.owner.customer_id}
        assert len(first) == 15
    eventually(lambda: drained(engine, [held.shard]) and world.count("inbox") == 0)

    assert authorized(world, held) == [event["reference"] for _, event in late]


def test_a_cardholder_is_locked_as_a_whole(world: World, platform: Id) -> None:
    cardholder = world.cardholder(platform, 1_000)
    second = world.another_account(cardholder)
    engine = world.engine()
    world.accept([(cardholder, world.authorization(cardholder, "T1", 1))])

    with locked(world, second):
        assert drained(engine, [cardholder.shard]) == []

    assert eventually(lambda: drained(engine, [cardholder.shard]))


def test_a_locked_transfer_delays_its_customer_alone(world: World, platform: Id) -> None:
    held, other = of_one_shard(world, platform, 2)
    savings = world.another_account(held)
    transfer = world.transfer(held, savings, 100)
    engine = world.engine()
    world.accept([(held, transfer), (other, world.authorization(other, "T1", 1))])

    with psycopg.connect(world.url) as outsider:
        outsider.execute(
            "SELECT FROM transfers WHERE id = %s FOR UPDATE", [Id.parse(transfer["transferId"])]
        )
        [decided] = drained(engine, [held.shard])
        assert decided.message.customer_id == other.owner.customer_id

    eventually(lambda: drained(engine, [held.shard]))
    assert world.balance(savings) == 100


def test_a_locked_card_transaction_delays_its_cardholder_alone(world: World, platform: Id) -> None:
    held, other = of_one_shard(world, platform, 2)
    engine = world.engine()
    world.process(engine, [(held, world.authorization(held, "T1", 10))])
    world.accept(
        [
            (held, world.clearing(held, "T1", 10)),
            (other, world.authorization(other, "T1", 1)),
            (held, world.authorization(held, "T2", 1)),
        ]
    )

    with psycopg.connect(world.url) as outsider:
        outsider.execute(
            "SELECT FROM card_transactions WHERE account_id = %s FOR UPDATE", [held.account_id]
        )
        [decided] = drained(engine, [held.shard])
        assert decided.message.customer_id == other.owner.customer_id

    eventually(lambda: drained(engine, [held.shard]) and world.count("inbox") == 0)
    assert world.balance(held) == 9_989
    world.check_books(held)


def test_a_locked_card_transaction_of_a_closed_card_delays_its_cardholder_alone(
    world: World, platform: Id
) -> None:
    held, other = of_one_shard(world, platform, 2)
    engine = world.engine()
    world.process(engine, [(held, world.authorization(held, f"T{n}", 10)) for n in range(3)])
    world.accept([(held, world.card_closed(held)), (other, world.authorization(other, "T1", 1))])

    with psycopg.connect(world.url) as outsider:
        outsider.execute(
            "SELECT FROM card_transactions WHERE account_id = %s"
            " AND issuer_transaction_token = 'T1' FOR UPDATE",
            [held.account_id],
        )
        [decided] = drained(engine, [held.shard])
        assert decided.message.customer_id == other.owner.customer_id

    eventually(lambda: drained(engine, [held.shard]) and world.count("inbox") == 0)
    assert world.balance(held) == 10_000
    world.check_books(held)


def test_a_lock_that_no_cardholder_can_be_blamed_for_rejects_nothing(
    world: World, platform: Id
) -> None:
    cardholder = world.cardholder(platform, 1_000)
    engine = world.engine()
    world.process(engine, [(cardholder, world.authorization(cardholder, "T1", 10))])
    world.accept([(cardholder, world.clearing(cardholder, "T1", 10))])

    with psycopg.connect(world.url) as outsider:
        outsider.execute("LOCK TABLE card_transactions IN SHARE MODE")
        assert drained(engine, [cardholder.shard]) == []
        assert world.count("rejections") == 0

    [decided] = eventually(lambda: drained(engine, [cardholder.shard]))
    assert decided.outcome is OutcomeType.APPLIED


def test_a_locked_parked_message_delays_its_cardholder_alone(world: World, platform: Id) -> None:
    held, other = of_one_shard(world, platform, 2)
    engine = world.engine()
    world.process(engine, [(held, world.event("AUTHORIZATION_REVERSAL", held, "T1", 10))])
    world.accept(
        [
            (held, world.authorization(held, "T1", 30)),
            (other, world.authorization(other, "T1", 1)),
            (held, world.authorization(held, "T2", 1)),
        ]
    )

    with psycopg.connect(world.url) as outsider:
        outsider.execute(
            "SELECT FROM parked WHERE customer_id = %s FOR UPDATE", [held.owner.customer_id]
        )
        [decided] = drained(engine, [held.shard])
        assert decided.message.customer_id == other.owner.customer_id
        world.accept([(other, world.authorization(other, f"U{n}", 1)) for n in range(3)])
        eventually(lambda: drained(engine, [held.shard]) and world.count("inbox") == 2)

    eventually(lambda: drained(engine, [held.shard]) and world.count("inbox") == 0)
    assert world.balance(held) == 9_979
    world.check_books(held)


def test_decisions_before_a_locked_row_are_answered_one_by_one(world: World, platform: Id) -> None:
    """They were answered after the last commit: hundreds of callers waited for the slowest."""
    cardholders = of_one_shard(world, platform, 6)
    held, engine = cardholders[-2], world.engine()
    world.process(engine, [(held, world.event("AUTHORIZATION_REVERSAL", held, "T1", 10))])
    before = world.count("outcomes")
    sent = [(one, world.authorization(one, f"U{n}", 1)) for n in range(10) for one in cardholders]
    ids = {
        one.id for one in world.accept([*sent[:50], (held, world.authorization(held, "T1", 30))])
    }
    answered: list[Decided] = []
    written: list[int] = []  # Outcomes, at each answer.

    def answer(decided: list[Decided]) -> None:
        answered.extend(decided)
        written.append(world.count("outcomes") - before)

    with psycopg.connect(world.url) as outsider:
        outsider.execute(
            "SELECT FROM parked WHERE customer_id = %s FOR UPDATE", [held.owner.customer_id]
        )
        engine.step(Lane.LIVE, [held.shard], answer)
        assert written == [*range(1, 51)]
    eventually(lambda: [engine.step(Lane.LIVE, [held.shard], answer)] and len(answered) == 51)

    assert {one.message.id for one in answered} == ids
    assert len(answered) == 51


def test_lanes_that_meet_at_one_cardholder_wait_for_each_other(world: World, platform: Id) -> None:
    cardholder = world.cardholder(platform, 100_000)
    lanes = {Lane.LIVE: world.engine(batch_size=5), Lane.BULK: world.engine(batch_size=5)}
    sent = {
        lane: [
            message.reference
            for message in world.accept(
                [
                    (cardholder, world.authorization(cardholder, f"{lane.name}{n}", 1))
                    for n in range(100)
                ],
                lane,
            )
        ]
        for lane in lanes
    }

    def drain(lane: Lane) -> None:
        eventually(lambda: not drained(lanes[lane], [cardholder.shard], lane) or None)

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(drain, lane) for lane in lanes]:
            done.result(limit_s())

    eventually(
        lambda: (
            [drained(lanes[lane], [cardholder.shard], lane) for lane in lanes]
            and world.count("inbox") == 0
        )
    )
    order = authorized(world, cardholder)
    for references in sent.values():
        assert [reference for reference in order if reference in set(references)] == references
    world.check_books(cardholder)


# --- queues that others hold ----------------------------------------------------------------------


def test_a_queue_that_another_drains_delays_no_other_queue(world: World, platform: Id) -> None:
    held, other = cardholders_of_two_shards(world, platform)
    engine = world.engine()
    world.accept([(one, world.authorization(one, "T1", 1)) for one in (held, other)])
    decided: list[Decided] = []

    with psycopg.connect(world.url) as outsider:
        outsider.execute(
            "SELECT FROM inbox_shards WHERE lane = 0 AND shard = %s FOR UPDATE", [held.shard]
        )
        unfinished = engine.step(Lane.LIVE, [held.shard, other.shard], decided.extend)
        assert list(unfinished) == [held.shard]
        assert [one.message.customer_id for one in decided] == [other.owner.customer_id]
        # Alone it is waited for, and then left to a later call.
        assert list(engine.step(Lane.LIVE, [held.shard], decided.extend)) == []

    assert len(drained(engine, [held.shard])) == 1


def cardholders_of_two_shards(world: World, platform: Id) -> tuple[Cardholder, Cardholder]:
    first = world.cardholder(platform, 1_000)
    while (second := world.cardholder(platform, 1_000)).shard == first.shard:
        pass
    return first, second


def drained(engine: Engine, shards: Sequence[int], lane: Lane = Lane.LIVE) -> list[Decided]:
    decided: list[Decided] = []
    engine.drain(lane, shards, decided.extend)
    return decided


# --- workers that are silent ------------------------------------------------------------------


def test_a_frozen_worker_is_replaced_and_does_nothing_when_it_wakes(
    world: World, platform: Id, redis_url: str
) -> None:
    cardholder = world.cardholder(platform, 1_000)
    first = world.authorization(cardholder, "T1", 1)
    config = config_of(world, redis_url, role=WorkerRole.EVENTS)

    with worker_process(config) as frozen:
        # Inside its database transaction: while it waits for a lock.
        with locked(world, cardholder) as outsider:
            eventually(lambda: is_watched(world))
            world.accept([(cardholder, first)])
            eventually(lambda: waits_for_lock(world), poll_s=0)
            os.kill(frozen, signal.SIGSTOP)
            began = perf_counter()
            outsider.rollback()
        try:
            with working(world, redis_url):
                eventually(lambda: authorized(world, cardholder) == [first["reference"]])
                seconds = perf_counter() - began
        finally:
            os.kill(frozen, signal.SIGCONT)
        later = world.authorization(cardholder, "T2", 1)
        world.accept([(cardholder, later)])
        eventually(lambda: len(authorized(world, cardholder)) == 2)

    # Five seconds on an idle machine.
    assert seconds < limit_s(2.5)
    assert world.balance(cardholder) == 998
    assert world.count("rejections") == 0
    world.check_books(cardholder)


LONG_AGO = datetime(2026, 1, 1, 12, tzinfo=UTC)  # What was authorized then has expired.


def test_a_worker_that_is_frozen_among_its_timers_holds_up_no_other_timers(
    world: World, platform: Id, redis_url: str
) -> None:
    cardholder = world.cardholder(platform, 1_000)
    engine = world.engine(clock=lambda: LONG_AGO)
    world.process(engine, [(cardholder, world.authorization(cardholder, "T1", 100))])
    config = config_of(world, redis_url, role=WorkerRole.EVENTS)

    with worker_frozen_inside(world, config, "INSERT INTO inbox", "inbox"):
        assert world.account(cardholder)["held"] == 100
        with captured() as lines, working(world, redis_url):
            eventually(lambda: not world.account(cardholder)["held"])

    assert "tasks" in ended_in(lines)
    world.check_books(cardholder)


def test_a_worker_that_is_frozen_among_its_webhooks_holds_up_no_other_webhooks(
    world: World, platform: Id, redis_url: str
) -> None:
    cardholder = world.cardholder(platform, 1_000)
    world.process(world.engine(), [(cardholder, world.authorization(cardholder, "T1", 100))])
    config = config_of(world, redis_url, role=WorkerRole.WEBHOOKS)

    statement = "INSERT INTO webhook_deliveries"
    with worker_frozen_inside(world, config, statement, "webhook_deliveries"):
        assert world.count("outbox")
        with captured() as lines, working(world, redis_url, role=WorkerRole.WEBHOOKS):
            eventually(lambda: not world.count("outbox"))

    assert "webhooks" in ended_in(lines)


def ended_in(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the work that was ended by a worker. PostgreSQL would end it after a minute."""
    event = "database transaction of a silent worker ended"
    return [line["work"] for line in lines if line["event"] == event]


@contextmanager
def worker_frozen_inside(
    world: World, config: WorkerConfig, statement: str, table: str
) -> Iterator[None]:
    """Run a worker that is frozen in the database transaction of `statement`, on `table`."""
    with psycopg.connect(world.url) as outsider:
        outsider.execute(f"LOCK TABLE {table} IN SHARE MODE".encode())
        with worker_process(config) as frozen:
            [(backend,)] = eventually(
                lambda: world.rows(
                    "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
                    " AND wait_event_type = 'Lock' AND ltrim(query, E' \\n') LIKE %s",
                    f"{statement} %",
                ),
                poll_s=0,
            )
            os.kill(frozen, signal.SIGSTOP)
            try:
                eventually(lambda: stands_still(frozen))
                outsider.rollback()
                eventually(
                    lambda: world.rows(
                        "SELECT FROM pg_stat_activity WHERE pid = %s AND xact_start IS NOT NULL"
                        " AND wait_event_type = 'Client'",
                        backend,
                    )
                )
                yield
            finally:
                os.kill(frozen, signal.SIGCONT)


def stands_still(pid: int) -> bool:
    """Return whether every thread of the process has stopped; where Linux does not say it, True."""
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(thread.read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)


def is_watched(world: World) -> bool:
    """Return whether a worker has its watch."""
    return bool(
        world.rows(
            "SELECT FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name LIKE 'cardledger watch%%'"
        )
    )


def waits_for_lock(world: World) -> bool:
    return bool(
        world.rows(
            "SELECT FROM pg_stat_activity WHERE datname = current_database()"
            " AND wait_event_type = 'Lock' AND application_name LIKE 'cardledger batch%%'"
        )
    )


def test_a_worker_that_is_silent_inside_a_copy_is_ended(
    world: World, platform: Id, redis_url: str
) -> None:
    cardholder = world.cardholder(platform, 1_000)
    event = world.authorization(cardholder, "T1", 1)
    silent = batch_connections.batch_engine(world.worker_url, "silent")

    with silent.connect() as connection, working(world, redis_url):
        raw = driver(connection)
        raw.execute(
            "SELECT FROM inbox_shards WHERE lane = 0 AND shard = %s FOR UPDATE", [cardholder.shard]
        )
        raw.pgconn.exec_(b"COPY outbox (id) FROM STDIN")
        world.accept([(cardholder, event)])
        eventually(lambda: authorized(world, cardholder) == [event["reference"]])
        connection.invalidate()
    silent.dispose()


def test_a_silent_batch_is_ended_only_when_its_worker_is_silent_too(world: World) -> None:
    batches = batch_connections.batch_engine(world.worker_url, "slow")
    own = batch_connections.watch_engine(world.worker_url, "slow")
    others = batch_connections.watch_engine(world.worker_url, "other")

    def look(watch: Any) -> list[str]:  # noqa: ANN401 - an engine
        with watch.begin() as connection:
            return [batch.worker for batch in batch_connections.end_stale(driver(connection), SOON)]

    with batches.connect() as connection:
        raw = driver(connection)
        raw.execute("SELECT 1")
        eventually(lambda: is_silent(world, "cardledger batch slow"))
        assert look(own) == [], "the worker is alive: it has just asked"
        eventually(lambda: is_silent(world, "cardledger watch slow"))
        assert look(others) == ["slow"]
        with pytest.raises(psycopg.OperationalError):
            raw.execute("SELECT 1")
        connection.invalidate()
    for engine in (batches, own, others):
        engine.dispose()


@pytest.mark.slow
def test_a_batch_that_is_silent_inside_a_copy_is_ended_although_its_worker_is_alive(
    world: World,
) -> None:
    batches = batch_connections.batch_engine(world.worker_url, "stuck")
    own = batch_connections.watch_engine(world.worker_url, "stuck")

    def look() -> list[batch_connections.EndedTransaction]:
        with own.begin() as connection:
            return batch_connections.end_stale(driver(connection))

    with batches.connect() as connection:
        raw = driver(connection)
        raw.execute("SELECT 1")
        raw.pgconn.exec_(b"COPY outbox (id) FROM STDIN")
        [ended] = eventually(look, poll_s=0.1)
        connection.invalidate()

    assert ended.worker == "stuck"
    assert ended.silence > timedelta(seconds=10)
    for engine in (batches, own):
        engine.dispose()


def is_silent(world: World, name: str) -> bool:
    return bool(
        world.rows(
            "SELECT FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = %s AND query_start < clock_timestamp() - %s",
            name,
            2 * SOON,
        )
    )


def test_a_batch_that_waits_for_a_lock_is_not_silent(world: World, platform: Id) -> None:
    cardholder = world.cardholder(platform, 1_000)
    batches = batch_connections.batch_engine(world.worker_url, "slow")
    watch = batch_connections.watch_engine(world.worker_url, "other")

    with ThreadPoolExecutor(1) as threads, batches.connect() as connection:
        raw = driver(connection)
        raw.execute("SET LOCAL lock_timeout = 0")
        with locked(world, cardholder) as outsider:
            waiting = threads.submit(
                raw.execute,
                "SELECT FROM internal_accounts WHERE id = %s FOR UPDATE",
                [cardholder.account_id],
            )
            eventually(lambda: is_silent(world, "cardledger batch slow"))
            with watch.begin() as looking:
                assert batch_connections.end_stale(driver(looking), SOON) == []
            outsider.rollback()
        waiting.result(limit_s())
        connection.rollback()
    for engine in (batches, watch):
        engine.dispose()


def test_a_worker_waits_for_locks_as_briefly_in_every_lane(world: World) -> None:
    with world.database.connect() as connection:
        raw = driver(connection)
        shown = [
            raw.execute(f"SHOW {name}").fetchone()
            for name in ("lock_timeout", "idle_in_transaction_session_timeout")
        ]

    assert shown == [("250ms",), ("10s",)]
    assert len(Lane) * SHARDS == world.count("inbox_shards")


def test_a_batch_has_a_limit_as_a_whole_where_postgresql_has_such_limits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    knows_limit = world.connection.info.server_version >= 17_00_00
    monkeypatch.setattr(batch_connections, "_TRANSACTION_TIMEOUT_VERSION", 0)
    batches = batch_connections.batch_engine(world.app_url)

    # An earlier PostgreSQL refuses what is asked for.
    refused = pytest.raises(ProgrammingError, match="transaction_timeout")
    with nullcontext() if knows_limit else refused, batches.connect() as connection:
        assert driver(connection).execute("SHOW transaction_timeout").fetchone() == ("1min",)

    batches.dispose()


def test_a_locked_item_of_suspense_delays_its_cardholder_alone(world: World, platform: Id) -> None:
    held, other = of_one_shard(world, platform, 2)
    engine = world.engine()
    clearing = world.clearing(held, "T1", 10)
    world.process(engine, [(held, clearing | {"currency": "EUR"})])
    assert world.rows("SELECT count(*) FROM suspense_items WHERE resolved_at IS NULL") == [(1,)]
    world.accept([(held, clearing), (other, world.authorization(other, "T1", 1))])

    with psycopg.connect(world.url) as outsider:
        outsider.execute("SELECT FROM suspense_items FOR UPDATE")
        [decided] = drained(engine, [held.shard])
        assert decided.message.customer_id == other.owner.customer_id

    eventually(lambda: drained(engine, [held.shard]) and world.count("inbox") == 0)
    assert world.rows("SELECT count(*) FROM suspense_items WHERE resolved_at IS NULL") == [(0,)]
    world.check_books(held)
