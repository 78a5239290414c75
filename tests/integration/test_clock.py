"""One clock: PostgreSQL's. What a process takes for the time decides nothing."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import RFC_4122, UUID

import psycopg
import pytest
import structlog
from sqlalchemy import NullPool
from structlog.testing import capture_logs
from uuid_utils import uuid7

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.audit import acceptances
from cardledger.ledger.engine import timers
from cardledger.ledger.engine.commit import Engine
from cardledger.ledger.engine.records import Decided
from cardledger.ledger.messaging import outbox
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.storage import database_clock as postgresql_clock
from cardledger.ledger.storage import ids
from cardledger.ledger.storage.batch_connections import new_worker_id
from cardledger.ledger.storage.engines import sync_engine
from cardledger.ledger.webhooks.dispatch import dispatch
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import Outcome, OutcomeFlag, OutcomeType
from cardledger.workers.client import Client, database_clock
from cardledger.workers.process import health_file
from cardledger.workers.process.health import role_name
from cardledger.workers.process.watch import Watch
from cardledger.workers.signals.roles import WorkerRole
from tests.integration.workers import captured, engine_with, outcome_types, with_client, working
from tests.waiting import eventually, limit_s
from tests.world import INBOX_KEY, Cardholder, World, open_world, outcomes_of

WEEK_AND_A_DAY = timedelta(days=8)

# Shadows PostgreSQL's own function: its clock is a week ahead of the clock of this machine.
CLOCK_A_WEEK_AHEAD = """
    CREATE SCHEMA ahead;
    GRANT USAGE ON SCHEMA ahead TO PUBLIC;
    CREATE FUNCTION ahead.clock_timestamp() RETURNS timestamptz LANGUAGE sql
        RETURN pg_catalog.clock_timestamp() + interval '1 week';
"""
WAITS_FOR_A_LOCK = """
    SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


@pytest.fixture(scope="module")
def week_ahead(world: World) -> str:
    """A setting of connections with which PostgreSQL's clock is a week ahead of this machine's."""
    world.connection.execute(CLOCK_A_WEEK_AHEAD)
    return "search_path = ahead, cardledger, pg_catalog"


def status(world: World, cardholder: Cardholder, token: str) -> str:
    found: str = world.account(cardholder)["transactions"][token]["status"]
    return found


def make_due(world: World, cardholder: Cardholder, token: str) -> None:
    world.connection.execute(
        "UPDATE card_transactions SET expires_at = now() - interval '1 second'"
        " WHERE customer_id = %s AND issuer_transaction_token = %s",
        [cardholder.owner.customer_id, token],
    )


def watched_for_a_second(world: World) -> bool:
    """Return whether a worker has looked a second after the latest message was accepted."""
    return bool(
        world.rows(
            "SELECT FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name LIKE 'cardledger watch%%' AND query_start >"
            " (SELECT max(received_at) + interval '1 second' FROM inbox)"
        )
    )


class SetClock:
    """The clock of a process, which a test sets."""

    ahead = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


def test_a_worker_eight_days_ahead_decides_nothing_until_its_clock_is_right(
    world: World, platform: Id, redis_url: str
) -> None:
    cardholder = world.cardholder(platform, 1_000)
    for token in ("due", "open"):
        world.process(world.engine(), [(cardholder, world.authorization(cardholder, token, 1))])
    clock = SetClock()
    clock.ahead = timedelta(days=8)

    with working(world, redis_url, clock=clock):
        make_due(world, cardholder, "due")
        # The timers go by PostgreSQL's clock, and nothing is decided.
        eventually(lambda: world.count_waiting() == 1)
        world.accept([(cardholder, world.authorization(cardholder, "new", 1))])
        eventually(lambda: watched_for_a_second(world))
        assert world.count_waiting() == 2
        clock.ahead = timedelta(0)
        eventually(lambda: world.count("inbox") == 0)

    assert [status(world, cardholder, token) for token in ("due", "open", "new")] == [
        "VOIDED",
        "AUTHORIZED",
        "AUTHORIZED",
    ]
    world.check_books(cardholder)


def test_what_is_decided_is_recorded_with_the_time_of_postgresql(
    world: World, platform: Id, week_ahead: str
) -> None:
    cardholder = world.cardholder(platform, 1_000)

    with engine_with(world, week_ahead) as engine:
        world.process(engine, [(cardholder, world.authorization(cardholder, "T1", 1))])

    [(recorded_at,)] = world.rows(
        "SELECT max(recorded_at) FROM card_transaction_events WHERE customer_id = %s",
        cardholder.owner.customer_id,
    )
    assert recorded_at > datetime.now(UTC) + timedelta(days=6)


def test_what_is_accepted_was_received_by_the_clock_of_postgresql(
    world: World, platform: Id, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clearing without a time of its own was posted on the day of the sender's clock."""
    ahead = "SELECT clock_timestamp() + interval '1 week'"
    monkeypatch.setattr(database_clock, "_NOW", ahead)
    cardholder = world.cardholder(platform, 1_000)
    clearing = world.clearing(cardholder, "T1", 1)
    malformed = {**world.clearing(cardholder, "T1", 1), "x": 1}

    async def enqueue(client: Client) -> None:
        await client.enqueue([clearing, malformed])

    with_client(world, redis_url, enqueue)
    [(received_at, rejected_at)] = world.rows(
        "SELECT (SELECT max(received_at) FROM inbox), (SELECT max(recorded_at) FROM rejections)"
    )
    world.drain(world.engine())

    in_six_days = datetime.now(UTC) + timedelta(days=6)
    assert received_at > in_six_days
    assert rejected_at > in_six_days


def test_a_deadline_has_passed_when_it_has_by_the_clock_of_postgresql(
    world: World, platform: Id, week_ahead: str
) -> None:
    cardholder = world.cardholder(platform, 1_000)
    in_a_minute = (datetime.now(UTC) + timedelta(seconds=limit_s())).isoformat()

    with engine_with(world, week_ahead) as engine:
        [decided] = world.process(
            engine, [(cardholder, world.authorization(cardholder, "T1", 1, decideBy=in_a_minute))]
        )

    assert (decided.outcome, decided.reason) == (OutcomeType.DECLINED, "DECISION_TIMEOUT")


def test_a_batch_that_waits_for_a_lock_is_decided_by_the_time_after_it(
    world: World, platform: Id
) -> None:
    cardholder = world.cardholder(platform, 1_000)
    world.accept([(cardholder, world.authorization(cardholder, "T1", 1))])
    decided: list[Decided] = []

    with (
        engine_with(world, "lock_timeout = 0") as engine,
        ThreadPoolExecutor(1) as threads,
        psycopg.connect(world.url) as outsider,
    ):
        outsider.execute(
            "SELECT FROM internal_accounts WHERE id = %s FOR UPDATE", [cardholder.account_id]
        )
        drained = threads.submit(engine.drain, Lane.LIVE, [cardholder.shard], decided.extend)
        eventually(lambda: world.rows(WAITS_FOR_A_LOCK))
        [(until,)] = outsider.execute("SELECT clock_timestamp()")
        outsider.rollback()
        drained.result(limit_s())

    assert outcomes_of(decided) == ["APPLIED"]
    recorded = world.rows(
        "SELECT recorded_at FROM card_transaction_events WHERE customer_id = %s",
        cardholder.owner.customer_id,
    )
    assert all(at > until for (at,) in recorded)


def test_a_worker_twenty_seconds_ahead_declines_nothing(
    world: World, platform: Id, redis_url: str
) -> None:
    cardholder = world.cardholder(platform, 1_000)
    clock = SetClock()
    clock.ahead = timedelta(seconds=20)
    in_time = (datetime.now(UTC) + timedelta(seconds=limit_s())).isoformat()
    events = [world.authorization(cardholder, f"T{n}", 1, decideBy=in_time) for n in range(20)]

    async def submit(client: Client) -> list[Outcome]:
        waiting = asyncio.ensure_future(client.submit(events))
        while world.count("inbox") < len(events):
            await asyncio.wait([waiting], timeout=0.01)
        clock.ahead = timedelta(0)
        return await waiting

    with working(world, redis_url, clock=clock):
        outcomes = with_client(world, redis_url, submit)

    assert outcome_types(outcomes) == ["APPLIED"] * len(events)


def test_a_worker_whose_clock_is_off_says_so_until_it_is_right(
    world: World, redis_url: str, tmp_path: Path
) -> None:
    clock = SetClock()
    clock.ahead = timedelta(seconds=20)
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.stdlib.BoundLogger)
    try:
        with capture_logs() as logs, working(world, redis_url, clock=clock, health_dir=tmp_path):
            eventually(lambda: "the clock is +20" in problems(tmp_path), timeout_s=5)
            clock.ahead = timedelta(0)
            eventually(lambda: problems(tmp_path) == "")
    finally:
        structlog.configure(**before)

    logged = [line["event"].partition(";")[0] for line in logs if "clock" in line["event"]]
    assert logged == ["clock wrong", "clock correct again"]


@pytest.mark.parametrize("days", [-8, 8])
def test_who_sends_webhooks_goes_by_the_clock_of_postgresql_and_says_that_its_own_is_wrong(
    world: World, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    clock = SetClock()
    clock.ahead = timedelta(days=days)
    watch = Watch(world.webhooks_url, new_worker_id(), clock=clock, decides_events=False)
    margin = timedelta(seconds=limit_s())

    with captured() as lines:
        assert abs(watch.now() - datetime.now(UTC)) < margin
        # PostgreSQL's clock is set, or its host is another one.
        monkeypatch.setattr(
            postgresql_clock, "_NOW", "SELECT clock_timestamp() + interval '1 week'"
        )
        watch.start()
        try:
            eventually(lambda: watch.now() > datetime.now(UTC) + timedelta(days=6))
        finally:
            watch.stop(limit_s())

    [line] = lines
    assert line["event"] == "clock wrong; webhooks are sent by PostgreSQL's clock"


def ids_by_a_clock(ahead_ms: int) -> Callable[[], UUID]:
    """Return what makes ids in a process whose clock is ahead, or behind."""

    def made() -> UUID:
        key = uuid7().bytes
        return UUID(bytes=(int.from_bytes(key[:6]) + ahead_ms).to_bytes(6) + key[6:])

    return made


def test_webhooks_of_a_resource_are_dispatched_in_sequence_whatever_the_clocks_of_workers(
    world: World, platform: Id, monkeypatch: pytest.MonkeyPatch
) -> None:
    cardholder = world.cardholder(platform, 1_000)
    first, second = (
        world.authorization(cardholder, "order", 100),
        world.clearing(cardholder, "order", 150),
    )
    senders = sync_engine(world.webhooks_url, poolclass=NullPool)

    def dispatch_up_to(limit: int) -> bool:
        with senders.begin() as connection:
            return bool(dispatch(connection, limit=limit, at=datetime.now(UTC)).rows)

    while dispatch_up_to(500):
        pass
    for ahead_ms, event in ((5_000, first), (-5_000, second)):
        with monkeypatch.context() as process:
            process.setattr(ids, "uuid7", ids_by_a_clock(ahead_ms))
            world.process(world.engine(), [(cardholder, event)])
    dispatched: list[tuple[str, int]] = []
    while dispatch_up_to(1):
        dispatched += [
            (kind.partition(".")[0], sequence)
            for kind, sequence in world.rows(
                "SELECT type, sequence FROM webhook_deliveries WHERE customer_id = %s",
                cardholder.owner.customer_id,
            )
        ]

    for resource in ("CARD_TRANSACTION", "INTERNAL_ACCOUNT"):
        sequences = list(dict.fromkeys(n for kind, n in dispatched if kind == resource))
        assert len(sequences) > 1
        assert sequences == sorted(sequences), resource


def problems(health_dir: Path) -> str:
    """Return what the check of the worker finds, line by line."""
    return "\n".join(health_file.problems(health_dir, role_name(WorkerRole.EVENTS)))


def test_ids_that_a_statement_makes_are_in_the_order_of_those_of_batches(world: World) -> None:
    statement = f"SELECT {outbox.NEW_ID}::text".encode()
    made = []
    for _ in range(200):
        made.append(ids.ids_from(postgresql_clock.read(world.connection))())
        [(key,)] = world.connection.execute(statement).fetchall()
        made.append(Id.parse(key))

    assert made == sorted(set(made))
    assert {UUID(bytes=key).version for key in made} == {7}
    assert {UUID(bytes=key).variant for key in made} == {RFC_4122}
    assert abs(ids.time_of_id(made[-1]) - postgresql_clock.read(world.connection)) < timedelta(
        minutes=1
    )
    assert not [key for key in made if str(key)[-3:] in {f"00{digit}" for digit in range(1, 7)}]


def test_an_expiry_before_its_time_is_ignored_and_decided_at_its_time(
    world: World, platform: Id
) -> None:
    cardholder = world.cardholder(platform, 1_000)
    now = datetime.now(UTC)
    engine = world.engine(clock=lambda: now)
    world.process(engine, [(cardholder, world.authorization(cardholder, "T1", 1))])

    # As a worker of an earlier release enqueues it, whose clock is ahead.
    [early] = expiries(world, engine, cardholder, now + WEEK_AND_A_DAY)
    assert (early.outcome, early.reason) == (OutcomeType.IGNORED, OutcomeFlag.NOT_DUE)
    assert status(world, cardholder, "T1") == "AUTHORIZED"

    now += WEEK_AND_A_DAY
    [expired] = expiries(world, engine, cardholder, now)

    assert expired.message.reference == early.message.reference
    assert expired.outcome is OutcomeType.APPLIED
    assert status(world, cardholder, "T1") == "VOIDED"
    with psycopg.connect(world.url) as connection:
        assert list(acceptances.differences(connection)) == []


def expiries(world: World, engine: Engine, cardholder: Cardholder, now: datetime) -> list[Decided]:
    """Enqueue and decide what is due at `now`; return the decisions about `cardholder`."""
    decided = world.run_timers(engine, now)
    return [one for one in decided if one.message.customer_id == cardholder.owner.customer_id]


def test_an_operator_may_expire_authorizations_before_their_time(
    world: World, platform: Id
) -> None:
    cardholder = world.cardholder(platform, 1_000)
    world.process(world.engine(), [(cardholder, world.authorization(cardholder, "T1", 1))])

    with psycopg.connect(world.app_url) as connection:
        list(timers.enqueue_all_due(connection, datetime.now(UTC) + WEEK_AND_A_DAY, INBOX_KEY))
    world.drain(world.engine(), Lane.BULK)

    assert status(world, cardholder, "T1") == "VOIDED"
