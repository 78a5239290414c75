"""Totals have every entry once, whatever order batches are committed in; what breaks that is named.

Balances on totals are compared with a replay in `test_finance_balances.py`.
"""

import logging
import os
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Any, Final

import psycopg
import pytest
from psycopg import IsolationLevel

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.books import totals
from cardledger.ledger.engine import reads
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.storage.engines import driver
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import migrate
from cardledger.schema.roles import Role
from cardledger.workers.books.totals import Totals
from tests.databases import as_psql, as_role, fresh_database
from tests.integration.workers import dead_redis, engine_with, working
from tests.waiting import eventually
from tests.world import Cardholder, World, open_world

__all__ = ["dead_redis"]  # A fixture.

MOST: Final = 2**63 - 1
MOMENTS: Final = int(os.environ.get("TEST_TIE_MOMENTS", "15"))
"""Days and times that are asked while entries are recorded; 1,000 takes some minutes."""

EVENTS_PER_S: Final = 300
BATCH: Final = 30

_log: Final = logging.getLogger(__name__)


@pytest.fixture
def world(postgres_url: DatabaseUrl, template_database: DatabaseUrl) -> Iterator[World]:
    with fresh_database(postgres_url, template=template_database.database) as url:
        app_url = url.with_user(migrate.app_role(template_database), "app")
        with open_world(url, app_url) as made:
            yield made


def advance(world: World) -> bool:
    """Add a page of two entries or more; returns whether there may be another."""
    with world.database.begin() as outer:
        return totals.advance(driver(outer), page_entries=2, account_entries=2)


def add_all(world: World) -> None:
    world.add_totals(page_entries=2, account_entries=2)


def summed(world: World) -> tuple[int, int]:
    """Return the number of entries that the totals have, and the sum of their amounts."""
    [row] = world.rows(
        "SELECT coalesce(sum(entries), 0) / 2, coalesce(sum(debits), 0) FROM posting_totals"
    )
    return row[0], row[1]


def stored(world: World) -> tuple[int, int]:
    [row] = world.rows("SELECT count(*), sum(amount) FROM entries")
    return row[0], row[1]


def waiting_for_locks(world: World) -> bool:
    [(count,)] = world.rows(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    return bool(count)


# --- when a page may end ----------------------------------------------------------------------


def test_a_batch_that_read_the_clock_first_and_is_committed_last_is_in_the_totals(
    world: World,
) -> None:
    platform = world.platform()
    slow = world.cardholder(platform, 1_000)
    quick = world.cardholder(platform, 1_000)
    while quick.shard == slow.shard:
        quick = world.cardholder(platform, 1_000)
    add_all(world)
    held = world.authorization(slow, "T", 10)
    with (
        engine_with(world, "lock_timeout = '60s'") as engine,
        psycopg.connect(world.url) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        # Another row with the key of its outcome keeps the batch from its commit.
        other.execute(
            "INSERT INTO outcomes (customer_id, platform_id, source, reference, body_hash,"
            " message_id, outcome, recorded_at) VALUES (%s, %s, 'test', %s, '', %s, 'X', now())",
            [slow.owner.customer_id, platform, held["reference"], new_id()],
        )
        world.accept([(slow, held)])
        batch = pool.submit(engine.drain, Lane.LIVE, [slow.shard], lambda _: None)
        eventually(lambda: waiting_for_locks(world))
        before = summed(world)
        for number in range(5):
            world.accept([(quick, world.authorization(quick, f"Q{number}", 10))])
            world.engine().drain(Lane.LIVE, [quick.shard], lambda _: None)

        marked, *later = [advance(world) for _ in range(3)]

        assert (marked, later) == (True, [False, False])
        assert summed(world) == before
        other.rollback()
        batch.result()

    [(first, last)] = world.rows(
        "SELECT min(recorded_at) FILTER (WHERE customer_id = %s), max(recorded_at) FROM entries"
        " WHERE amount = 10",
        slow.owner.customer_id,
    )
    world.add_totals(page_entries=1, account_entries=2)  # No entry is left over for a next page.
    assert first < last
    assert summed(world) == stored(world)
    assert world.verify().holds


def test_a_batch_has_an_id_before_it_reads_the_clock(world: World) -> None:
    with world.database.begin() as outer:
        connection = driver(outer)
        with connection.pipeline():
            books_of = reads.state_of_books(connection)
            assigned = connection.execute("SELECT pg_current_xact_id_if_assigned()::text")
        books_of()

        [(number,)] = assigned.fetchall()

    assert number is not None


def test_the_lock_of_its_queue_gives_a_batch_its_id(world: World) -> None:
    # So it has been in releases before this one, which may run beside it.
    with psycopg.connect(world.worker_url) as worker:
        worker.execute("SELECT FROM inbox_shards WHERE lane = 0 AND shard = 3 FOR UPDATE")

        [(number,)] = worker.execute("SELECT pg_current_xact_id_if_assigned()::text").fetchall()

    assert number is not None


def test_a_database_transaction_with_a_later_id_does_not_hide_an_earlier_one(world: World) -> None:
    # The end of a snapshot is the last id that has ended: one that runs may be after it.
    holder = world.cardholder(world.platform(), 1_000)
    world.process(world.engine(), [(holder, world.authorization(holder, f"{n}", 1)) for n in "abc"])
    with psycopg.connect(world.worker_url) as early, psycopg.connect(world.worker_url) as late:
        early.execute("SELECT pg_current_xact_id(), clock_timestamp()")
        late.execute("SELECT pg_current_xact_id()")

        assert [advance(world) for _ in range(3)] == [True, False, False]

        late.rollback()
        assert not advance(world)

    eventually(lambda: advance(world))
    assert summed(world)[0] > 0


def test_a_mark_of_a_server_before_a_restore_is_not_waited_for(world: World) -> None:
    holder = world.cardholder(world.platform(), 1_000)
    world.process(world.engine(), [(holder, world.authorization(holder, f"{n}", 1)) for n in "abc"])
    world.connection.execute(
        "UPDATE posting_totals_progress SET settled_at = now(), settled_by = %s", [2**40]
    )

    add_all(world)

    assert summed(world)[0] > 0
    assert world.verify().holds


# --- who adds them ------------------------------------------------------------------------------


def test_workers_add_each_page_once(world: World) -> None:
    holder = world.cardholder(world.platform(), 10_000)
    for n in range(40):
        world.process(world.engine(), [(holder, world.authorization(holder, f"T{n}", 5))])
    begin = threading.Barrier(3)

    def work(_: int) -> None:
        begin.wait()
        while summed(world)[0] < 40:
            advance(world)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))

    add_all(world)
    assert abs(summed(world)[0] - stored(world)[0]) < 2
    assert world.verify().holds


def test_a_second_session_leaves_the_turn_to_the_first(world: World) -> None:
    with psycopg.connect(world.worker_url) as first:
        first.execute("SELECT FROM posting_totals_progress FOR UPDATE")

        assert not advance(world)


def test_a_worker_does_it_by_itself_and_rests_when_all_is_done(
    world: World, dead_redis: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(totals, "PAGE_ENTRIES", 2)
    monkeypatch.setitem(totals.advance.__kwdefaults__, "page_entries", 2)  # type: ignore[arg-type]
    holder = world.cardholder(world.platform(), 1_000)
    world.process(world.engine(), [(holder, world.authorization(holder, f"{n}", 1)) for n in "abc"])

    with working(world, dead_redis):
        eventually(lambda: summed(world)[0] > 0)

    assert world.verify().holds


def test_at_rest_nothing_is_written(world: World) -> None:
    holder = world.cardholder(world.platform(), 1_000)
    world.process(world.engine(), [(holder, world.authorization(holder, "T", 1))])
    task = Totals(world.database)
    [(before,)] = world.rows("SELECT xmin::text FROM posting_totals_progress")

    assert not task.advance()

    [(after,)] = world.rows("SELECT xmin::text FROM posting_totals_progress")
    assert after == before


def test_entries_from_before_the_totals_are_caught_up_a_page_at_a_time(world: World) -> None:
    holder = world.cardholder(world.platform(), 1_000)
    start = datetime(2026, 1, 5, tzinfo=UTC)
    for n in range(12):
        at = start + timedelta(days=9 * n, seconds=n)
        engine = world.engine(clock=lambda at=at: at)  # type: ignore[misc]
        world.process(engine, [(holder, world.authorization(holder, f"T{n}", 5))])

    add_all(world)

    pages = world.rows(
        "SELECT recorded_until, sum(entries) / 2 FROM posting_totals GROUP BY 1 ORDER BY 1"
    )
    assert [count for _, count in pages] == [2] * len(pages)
    assert len(pages) == 6
    report = world.verify()
    assert report.holds, report.differences


# --- what verify names -----------------------------------------------------------------------


def test_verify_names_an_entry_that_is_recorded_before_the_end_of_the_totals(world: World) -> None:
    holder = world.cardholder(world.platform(), 1_000)
    for n in range(4):
        world.process(world.engine(), [(holder, world.authorization(holder, f"T{n}", 5))])
    add_all(world)
    past = datetime(2026, 1, 5, tzinfo=UTC)

    engine = world.engine(clock=lambda: past)
    world.process(engine, [(holder, world.authorization(holder, "late", 7))])

    differences = world.verify().differences
    named = [line for line in differences if line.startswith("Totals recorded until")]
    assert len(named) == 2
    assert any("CARD_HOLDS" in line and "give 0, 7" in line for line in named)
    assert any("CUSTOMER" in line and "give 7, 0" in line for line in named)


def test_verify_names_totals_that_are_not_those_of_their_entries(world: World) -> None:
    holder = world.cardholder(world.platform(), 1_000)
    world.process(world.engine(), [(holder, world.authorization(holder, f"{n}", 5)) for n in "abc"])
    add_all(world)
    assert world.verify().holds
    world.connection.execute(
        "INSERT INTO account_totals SELECT account_id, 99, 98, '2026-01-05', now(), now(), 1, 0"
        " FROM account_totals LIMIT 1"
    )
    world.connection.execute(
        "INSERT INTO posting_totals SELECT recorded_until, recorded_after, platform_id, currency,"
        " 'SUSPENSE', posted_on, 3, 0, 1 FROM posting_totals LIMIT 1"
    )

    differences = world.verify().differences

    assert sum("SUSPENSE" in line and "debits 3" in line for line in differences) == 1
    assert sum("up to entry 99" in line for line in differences) == 2


def test_totals_can_be_made_again(world: World) -> None:
    holder = world.cardholder(world.platform(), 1_000)
    world.process(world.engine(), [(holder, world.authorization(holder, f"{n}", 5)) for n in "abc"])
    add_all(world)
    past = datetime(2026, 1, 5, tzinfo=UTC)
    world.process(world.engine(clock=lambda: past), [(holder, world.authorization(holder, "l", 7))])
    assert not world.verify().holds

    with as_psql(world.url) as owner:
        owner.execute(made_again().encode())
    assert summed(world) == (0, 0)
    add_all(world)

    assert summed(world)[0] > 0
    assert world.verify().differences == []


def made_again() -> str:
    """Return the statements of the page about finance that make totals again."""
    page = Path(__file__).parents[2] / "docs" / "finance.md"
    _, _, rest = page.read_text(encoding="utf-8").partition("<!-- totals again -->\n```\n")
    statements, end, _ = rest.partition("```")
    assert end
    return statements


# --- amounts ------------------------------------------------------------------------------------


def test_sums_of_the_highest_amounts_are_exact(world: World) -> None:
    platform = world.platform()
    holders = [world.cardholder(platform, MOST) for _ in range(2)]
    poor = [world.cardholder(platform) for _ in range(2)]
    world.process(world.engine(), [(one, world.clearing(one, "T", MOST)) for one in poor])
    add_all(world)
    finance = as_role(world.app_url, Role.FINANCE)
    with psycopg.connect(finance) as connection:

        def one(query: str, *values: object) -> tuple[Any, ...]:
            row = connection.execute(query.encode(), values).fetchone()
            assert row is not None
            return row

        trial_balance = (
            "SELECT max(net) FROM finance.trial_balance(NULL, %s) WHERE account = 'SANDBOX_FUNDING'"
        )
        assert one(trial_balance, None) == (2 * MOST,)
        assert one(trial_balance, datetime(2026, 1, 1, tzinfo=UTC)) == (None,)
        assert one("SELECT sum(open), max(net) FROM finance.network_days") == (2 * MOST, 2 * MOST)
        kinds = "SELECT account_id FROM finance.accounts WHERE kind = 'NETWORK_SETTLEMENT'"
        key = one(f"{kinds} AND currency = 'USD'")[0]
        assert one("SELECT finance.balance(%s, NULL, NULL)", key) == (2 * MOST,)
        lines = connection.execute(
            "SELECT balance FROM finance.statement(%s, '2026-01-01', NULL)", [key]
        ).fetchall()
        assert lines == [(0,), (MOST,), (2 * MOST,)]
        assert one("SELECT sum(held) FROM finance.open_holds(NULL, NULL)") == (None,)
        assert one("SELECT sum(owed) FROM finance.receivables(NULL, NULL)") == (2 * MOST,)
    assert [world.balance(holder) for holder in holders] == [MOST, MOST]
    assert world.verify().holds


# --- ties while entries are recorded --------------------------------------------------------------

_REPLAY: Final = """
    SELECT coalesce(d.kind, 'CUSTOMER'), coalesce(c.kind, 'CUSTOMER'), e.amount, e.posted_on,
        e.recorded_at
    FROM entries e
    LEFT JOIN system_accounts d ON d.id = e.debit_account_id
    LEFT JOIN system_accounts c ON c.id = e.credit_account_id
"""
_SUB_LEDGERS: Final = """
    SELECT (SELECT coalesce(sum(owed), 0) FROM finance.receivables(%(on)s, %(known)s)),
        (SELECT coalesce(-sum(held), 0) FROM finance.open_holds(%(on)s, %(known)s)),
        (SELECT -sum(finance.balance(account_id, %(on)s, %(known)s)) FROM finance.accounts
        WHERE kind = 'CUSTOMER')
"""


def test_sub_ledgers_tie_to_control_accounts_while_entries_are_recorded(
    world: World,
) -> None:
    platform = world.platform()
    holders = [world.cardholder(platform, 3_000) for _ in range(6)]
    numbers = random.Random(17)  # noqa: S311 - the same events each time
    done = threading.Event()

    def write() -> None:
        began, step = monotonic(), 0
        while not done.wait(began + step * BATCH / EVENTS_PER_S - monotonic()):
            some = [event_of(world, numbers.choice(holders), numbers, step) for _ in range(BATCH)]
            world.process(world.engine(), some)
            step += 1
        _log.info("%d events a second", step * BATCH / (monotonic() - began))

    def add() -> None:
        while not done.is_set():
            world.advance_totals(page_entries=20, account_entries=5)

    with ThreadPoolExecutor(2) as pool:
        others = [pool.submit(write), pool.submit(add)]
        try:
            eventually(lambda: world.count("posting_totals") > 5)
            asked = list(moments(world, numbers))
        finally:
            done.set()
        for other in others:
            other.result()

    assert len(asked) == MOMENTS
    for _, control, (sub_ledger, replayed) in asked:
        assert control == replayed
        assert sub_ledger == [
            control.get(kind, 0) for kind in ("RECEIVABLE", "CARD_HOLDS", "CUSTOMER")
        ]
    report = world.verify()
    assert report.holds, report.differences


def moments(
    world: World, numbers: random.Random
) -> Iterator[tuple[int, dict[str, int], tuple[list[int], dict[str, int]]]]:
    """Ask at MOMENTS times, each with entries that the last one did not have."""
    seen = 0
    for _ in range(MOMENTS):
        eventually(lambda: world.count("entries") > seen)  # noqa: B023 - called at once
        asked = ask(world, numbers)
        seen = asked[0]
        yield asked


def event_of(
    world: World, holder: Cardholder, numbers: random.Random, step: int
) -> tuple[Cardholder, dict[str, Any]]:
    kind = numbers.choice(["AUTHORIZATION", "CLEARING", "RETURN", "AUTHORIZATION_REVERSAL"])
    token = f"T{numbers.randint(max(0, step - 5), step)}"
    day = datetime.now(UTC) - timedelta(days=numbers.randint(0, 5))
    event = world.event(kind, holder, token, numbers.randint(1, 700), occurredAt=day.isoformat())
    return holder, event


def ask(
    world: World, numbers: random.Random
) -> tuple[int, dict[str, int], tuple[list[int], dict[str, int]]]:
    """Return, of one snapshot: how many entries it has, control accounts, sub-ledgers, a replay."""
    with psycopg.connect(world.url) as connection:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        entries = connection.execute(_REPLAY).fetchall()
        known = numbers.choice(entries)[4] + timedelta(microseconds=numbers.randint(-1, 1))
        on = (datetime.now(UTC) - timedelta(days=numbers.randint(-1, 6))).date()
        control: dict[str, int] = dict(
            connection.execute(
                "SELECT account, net FROM finance.trial_balance(%s, %s)", [on, known]
            ).fetchall()
        )
        sub_ledgers = connection.execute(_SUB_LEDGERS, {"on": on, "known": known}).fetchone()
    assert sub_ledgers is not None
    replayed: dict[str, int] = {}
    for debit, credit, amount, posted_on, recorded_at in entries:
        if posted_on <= on and recorded_at <= known:
            replayed[debit] = replayed.get(debit, 0) + amount
            replayed[credit] = replayed.get(credit, 0) - amount
    return len(entries), control, (list(sub_ledgers), replayed)
