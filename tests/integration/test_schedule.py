"""One statement says which tasks of a worker have something to do; only these run."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from typing_extensions import override

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.cards import issuing
from cardledger.ledger.storage.batch_connections import look_engine, task_engine
from cardledger.schema.ids import Id
from cardledger.workers.process import schedule
from cardledger.workers.process.schedule import Schedule, Scheduled, enqueueing
from cardledger.workers.signals.outage_log import DATABASE
from cardledger.workers.signals.periodic_task import PeriodicTask
from tests.integration.workers import captured, working
from tests.waiting import eventually
from tests.world import INBOX_KEY, World, open_world

OF_TIMES = {
    "card_transactions_expires_at_idx",
    "cards_activate_at_idx",
    "pending_pulls_due_at_idx",
    "quotes_due_idx",
    "transfers_due_idx",
}
INDEXES = OF_TIMES | {
    "adjustments_approved_idx",
    "settlement_bookings_due_idx",
    "transfers_approval_idx",
}

SELDOM_S = 3_600.0
OFTEN_S = 0.01
LONG_AGO = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made
        made.connection.execute("TRUNCATE inbox, card_transactions")


@pytest.fixture
def platform(world: World) -> Id:
    return world.platform()


class Counted:
    """A task that counts its runs, and never runs by itself."""

    def __init__(self, condition: str) -> None:
        self.runs = 0
        self.scheduled = Scheduled(condition, PeriodicTask(condition, self._run, every_s=SELDOM_S))

    def _run(self) -> bool:
        self.runs += 1
        return False


class Failing(Counted):
    """A task whose first runs fail."""

    FAILURES = 3

    @override
    def _run(self) -> bool:
        super()._run()
        if self.runs <= self.FAILURES:
            raise RuntimeError("not yet")
        return False


@contextmanager
def scheduled(world: World, *tasks: Counted) -> Iterator[None]:
    database = look_engine(world.worker_url, "schedule")
    made = Schedule(database, [task.scheduled for task in tasks], every_s=OFTEN_S)
    for task in made.tasks:
        task.start()
    try:
        yield
    finally:
        for task in made.tasks:
            task.stop(SELDOM_S)
        database.dispose()


def test_a_task_runs_while_its_condition_holds_and_no_other_does(world: World) -> None:
    idle, due, also_due = Counted("false"), Counted("true"), Counted("now() > '2020-01-01'")

    with scheduled(world, idle, due, also_due):
        eventually(lambda: due.runs >= 3 and also_due.runs >= 3)

    assert idle.runs == 0


def test_a_condition_that_cannot_be_evaluated_keeps_back_no_task(world: World) -> None:
    tasks = Counted("EXISTS (SELECT FROM no_such_table)"), Counted("false")

    with scheduled(world, *tasks):
        eventually(lambda: all(task.runs for task in tasks))


def test_a_locked_table_keeps_back_no_task_and_is_no_outage(
    world: World, database_url: DatabaseUrl
) -> None:
    tasks = Counted("EXISTS (SELECT FROM quotes)"), Counted("false")
    failures = DATABASE.failures  # Of an outage that another test has left behind.

    with psycopg.connect(database_url) as other, captured() as lines:
        other.execute("LOCK TABLE quotes")
        with scheduled(world, *tasks):
            eventually(lambda: all(task.runs for task in tasks))

    assert DATABASE.failures <= failures
    assert not [line for line in lines if "task" in line or "unavailable" in line["event"]]


def test_a_task_that_failed_is_tried_again_soon(world: World) -> None:
    task = Failing("false")

    with scheduled(world, task):
        task.scheduled.task.wake()
        eventually(lambda: task.runs > Failing.FAILURES)

    assert task.scheduled.task.trying_since is None


@pytest.mark.parametrize("rail_connected", [True, False], ids=["rail", "no rail"])
def test_every_condition_is_looked_up_in_an_index(world: World, *, rail_connected: bool) -> None:
    database = task_engine(world.worker_url, "schedule", reply_limit_s=5)
    sources = enqueueing(
        database,
        INBOX_KEY,
        lambda: None,
        rail_connected=rail_connected,
        quotes_kept=timedelta(days=1),
    )
    conditions = [each.is_due for each in sources] + [issuing.ANSWER_IS_DUE]
    looks = look_engine(world.worker_url, "schedule")

    with looks.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN SELECT {', '.join(conditions)}").scalars()
        text = "\n".join(plan)

    looks.dispose()
    database.dispose()
    expected = INDEXES if rail_connected else INDEXES - {"pending_pulls_due_at_idx"}
    assert {*re.findall(r"(?:using|Bitmap Index Scan on) (\w+)", text)} == expected
    assert text.count("Index Cond") == len(expected & OF_TIMES)


_HELD = "SELECT held FROM internal_accounts WHERE id = %s"
_EXPIRE = (
    "UPDATE card_transactions SET expires_at = now() - interval '1 s' WHERE account_id = %s"
    " RETURNING id"
)


def test_a_worker_does_what_becomes_due_at_its_next_look(
    world: World, platform: Id, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without its condition, the timers would run once, when the worker starts.
    monkeypatch.setattr(schedule, "RUNS_EVERY_S", SELDOM_S)
    # Decided before the worker runs, which would decide them itself.
    cardholders = [world.cardholder(platform, 1_000) for _ in range(2)]
    for cardholder in cardholders:
        world.process(world.engine(), [(cardholder, world.authorization(cardholder, "E", 10))])

    with captured() as lines, working(world, redis_url, sweep_interval_s=0.05):
        for cardholder in cardholders:
            world.rows(_EXPIRE, cardholder.account_id)
            eventually(lambda account=cardholder.account_id: world.rows(_HELD, account) == [(0,)])  # type: ignore[misc]

    # A look that fails would wake every task.
    assert not [line for line in lines if line.get("task") == "schedule"]
