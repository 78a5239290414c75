"""What is due is enqueued once, in bounded pages, whatever waits."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.engine import timers
from cardledger.ledger.engine.timers import PAGE_LIMIT, Timers
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.storage.ids import derived_id
from cardledger.schema.ids import Id
from tests.due import enqueue_due
from tests.integration.workers import working
from tests.waiting import eventually
from tests.world import INBOX_KEY, Cardholder, World, open_world, outcomes_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DUE = NOON + timedelta(days=7)


@pytest.fixture
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made
        made.connection.execute("TRUNCATE inbox, card_transactions, pending_pulls")


@pytest.fixture
def platform(world: World) -> Id:
    return world.platform()


def authorized(world: World, platform: Id, count: int, at: datetime = NOON) -> Cardholder:
    """Return a cardholder with `count` authorizations approved at `at`."""
    cardholder = world.cardholder(platform, 1_000_000)
    events = [world.authorization(cardholder, f"T{n}", 1) for n in range(count)]
    world.process(world.engine(clock=lambda: at), [(cardholder, event) for event in events])
    return cardholder


def tick(world: World, *workers: Timers, now: datetime = DUE) -> int:
    written = 0
    for worker in workers:
        with psycopg.connect(world.app_url) as connection:
            written += enqueue_due(connection, worker, now)
    return written


def test_an_expiry_that_waits_is_not_enqueued_again_by_any_worker(
    world: World, platform: Id
) -> None:
    authorized(world, platform, 30)
    workers = [Timers(INBOX_KEY), Timers(INBOX_KEY)]

    written = sum(tick(world, *workers) for _ in range(5))

    assert written == world.count("inbox") == 30


def test_expiries_that_cannot_be_decided_do_not_hold_up_others(world: World, platform: Id) -> None:
    worker = Timers(INBOX_KEY)
    authorized(world, platform, PAGE_LIMIT)
    tick(world, worker)  # From now on their queue does not move.

    other = authorized(world, platform, 1, NOON + timedelta(seconds=1))
    tick(world, worker, now=DUE + timedelta(seconds=1))

    customer = other.owner.customer_id
    assert world.rows("SELECT count(*) FROM inbox WHERE customer_id = %s", customer) == [(1,)]


def test_one_tick_writes_at_most_two_pages(world: World, platform: Id) -> None:
    authorized(world, platform, 3 * PAGE_LIMIT)
    worker = Timers(INBOX_KEY)

    written = [tick(world, worker) for _ in range(4)]

    assert max(written) <= 2 * PAGE_LIMIT
    assert sum(written) == world.count("inbox") == 3 * PAGE_LIMIT


def test_an_expiry_that_was_lost_is_enqueued_again(world: World, platform: Id) -> None:
    authorized(world, platform, 3)
    worker = Timers(INBOX_KEY)
    tick(world, worker)
    world.connection.execute("DELETE FROM inbox")

    assert tick(world, worker) == 3


def test_a_rejected_expiry_is_not_enqueued_again(world: World, platform: Id) -> None:
    cardholder = authorized(world, platform, 1)
    world.connection.execute(
        "UPDATE cards SET currency = 'EUR' WHERE id = %s", [cardholder.card_id]
    )
    worker, engine = Timers(INBOX_KEY), world.engine(clock=lambda: DUE)
    tick(world, worker)
    assert outcomes_of(world.drain(engine, Lane.BULK)) == ["REJECTED"]

    assert tick(world, worker, Timers(INBOX_KEY)) == 0


def test_an_expiry_does_not_wait_for_the_batch_that_decides_it(world: World, platform: Id) -> None:
    authorized(world, platform, 1)
    tick(world, Timers(INBOX_KEY))

    with psycopg.connect(world.app_url) as batch:
        batch.execute("DELETE FROM inbox")
        with psycopg.connect(world.app_url) as connection:
            connection.execute("SET lock_timeout = '1s'")
            assert Timers(INBOX_KEY).enqueue_due(connection, DUE) == 0
        batch.rollback()


def test_everything_due_is_enqueued_page_by_page(world: World, platform: Id) -> None:
    authorized(world, platform, PAGE_LIMIT + 1)

    with psycopg.connect(world.app_url) as connection:
        pages = list(timers.enqueue_all_due(connection, DUE, INBOX_KEY))

    assert pages == [PAGE_LIMIT, 1]


def test_a_derived_id_is_a_uuid_of_its_time_and_name() -> None:
    first = derived_id("one", at=DUE)

    assert first == derived_id("one", at=DUE)
    assert derived_id("two", at=DUE) != first
    assert first < derived_id("one", at=DUE + timedelta(milliseconds=1))
    assert str(first)[14] == "7"
    endings = {str(derived_id(str(n), at=DUE))[-3:] for n in range(60_000)}
    assert endings.isdisjoint({"001", "002", "003", "004", "005", "006"})


_PENDING = "SELECT pending FROM internal_accounts WHERE id = %s"


def pending_pull(world: World, platform: Id, at: datetime = NOON) -> Cardholder:
    """Return a cardholder whose only pull waits for its confirmation by the funding rail."""
    cardholder = world.cardholder(platform, 1000)
    event = world.authorization(cardholder, "T1", 100, merchant={"descriptor": "CAFE 005"})
    world.process(world.engine(clock=lambda: at), [(cardholder, event)])
    assert world.count("pending_pulls") == 1
    return cardholder


def test_without_a_funding_rail_a_pending_pull_stays_pending(world: World, platform: Id) -> None:
    cardholder = pending_pull(world, platform)
    later = NOON + timedelta(days=1)

    assert tick(world, Timers(INBOX_KEY, rail_connected=False), now=later) == 0
    with psycopg.connect(world.app_url) as connection:
        assert (
            list(timers.enqueue_all_due(connection, later, INBOX_KEY, rail_connected=False)) == []
        )

    assert world.count("pending_pulls") == 1
    assert world.rows(_PENDING, cardholder.account_id) == [(100,)]


def test_a_pull_that_is_overdue_is_confirmed_once_a_funding_rail_is_connected(
    world: World, platform: Id
) -> None:
    cardholder = pending_pull(world, platform)
    later = NOON + timedelta(days=1)
    tick(world, Timers(INBOX_KEY, rail_connected=False), now=later)

    world.run_timers(world.engine(clock=lambda: later), later)

    assert world.count("pending_pulls") == 0
    assert world.rows(_PENDING, cardholder.account_id) == [(0,)]


_HELD = "SELECT held FROM internal_accounts WHERE id = %s"


def test_a_worker_outside_the_sandbox_confirms_no_pull(
    world: World, platform: Id, redis_url: str
) -> None:
    # A worker goes by PostgreSQL's clock: the pull is overdue, its authorization has not expired.
    cardholder = pending_pull(world, platform, at=datetime.now(UTC) - timedelta(days=1))
    other = authorized(world, platform, 1)  # Its expiry shows that the timers have run.

    with working(world, redis_url, sandbox=False, sweep_interval_s=0.05):
        eventually(lambda: world.rows(_HELD, other.account_id) == [(0,)])

    assert world.count("pending_pulls") == 1
    assert world.rows(_PENDING, cardholder.account_id) == [(100,)]
