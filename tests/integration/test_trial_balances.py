"""The trial balances that a worker keeps have every entry once, however far totals have come."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.books import trial_balances
from cardledger.ledger.storage.engines import driver
from cardledger.schema import migrate
from cardledger.workers.books.trial_balances import TrialBalances
from tests.databases import fresh_database
from tests.world import World, open_world

ENTRIES = """
    SELECT coalesce(d.platform_id, c.platform_id)::text, coalesce(d.currency, c.currency), s.kind,
        sum(s.debits)::numeric, sum(s.credits)::numeric
    FROM entries e
    LEFT JOIN system_accounts d ON d.id = e.debit_account_id
    LEFT JOIN system_accounts c ON c.id = e.credit_account_id
    CROSS JOIN LATERAL (VALUES
        (coalesce(d.kind, 'CUSTOMER'), e.amount, 0), (coalesce(c.kind, 'CUSTOMER'), 0, e.amount)
    ) AS s (kind, debits, credits)
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""
KEPT = """
    SELECT platform_id::text, currency, kind, debits + recent_debits, credits + recent_credits
    FROM trial_balances WHERE entries + recent_entries > 0 ORDER BY 1, 2, 3
"""


@pytest.fixture
def world(postgres_url: DatabaseUrl, template_database: DatabaseUrl) -> Iterator[World]:
    with fresh_database(postgres_url, template=template_database.database) as url:
        app_url = url.with_user(migrate.app_role(template_database), "app")
        with open_world(url, app_url) as made:
            yield made


def play(world: World, name: str) -> None:
    """Record some entries of two platforms."""
    for _ in range(2):
        holder = world.cardholder(world.platform(), 5_000)
        tip = [world.authorization(holder, name, 1_250), world.clearing(holder, name, 1_500)]
        world.process(world.engine(), [(holder, tip[0])])
        world.process(world.engine(), [(holder, tip[1])])


def step(world: World, **limits: int) -> bool:
    database = world.database.execution_options(isolation_level="REPEATABLE READ")
    with database.begin() as outer:
        return trial_balances.advance(driver(outer), **limits)


def progress(world: World) -> tuple[Any, ...]:
    [row] = world.rows(
        "SELECT greatest(totals_until, '1970-01-01'), as_of FROM trial_balance_progress"
    )
    return row


def test_entries_without_totals_are_counted(world: World) -> None:
    play(world, "T")

    assert not step(world)

    assert world.rows(KEPT) == world.rows(ENTRIES) != []


def test_totals_are_added_up_once_and_the_rest_anew(world: World) -> None:
    play(world, "A")
    step(world)
    for name in "BC":
        world.add_totals(page_entries=2, account_entries=2)
        play(world, name)
        while step(world, pages=1):
            [(debits, credited)] = world.rows(
                "SELECT sum(debits + recent_debits), sum(credits + recent_credits)"
                " FROM trial_balances"
            )
            assert debits == credited

        assert world.rows(KEPT) == world.rows(ENTRIES)
    step(world)

    assert world.rows(KEPT) == world.rows(ENTRIES)


def test_more_entries_than_are_added_up_wait_for_their_totals(world: World) -> None:
    play(world, "A")

    assert not step(world, recent_limit=3)

    assert progress(world)[1] is None
    assert world.rows(KEPT) == []
    world.add_totals(page_entries=2, account_entries=2)
    play(world, "B")
    while step(world, recent_limit=3):
        pass
    until, as_of = progress(world)
    assert until == as_of
    [(kept,)] = world.rows("SELECT sum(entries + recent_entries) / 2 FROM trial_balances")
    [(recorded,)] = world.rows("SELECT count(*) FROM entries WHERE recorded_at <= %s", until)
    assert kept == recorded


def test_one_worker_computes_at_a_time(world: World) -> None:
    play(world, "A")
    with psycopg.connect(world.worker_url) as first:
        first.execute("SELECT FROM trial_balance_progress FOR UPDATE")

        assert not TrialBalances(world.database).advance()
        assert world.rows(KEPT) == []

    assert not TrialBalances(world.database).advance()
    assert world.rows(KEPT) == world.rows(ENTRIES)


def test_what_another_worker_has_just_done_is_not_done_again(world: World) -> None:
    play(world, "A")
    database = world.database.execution_options(isolation_level="REPEATABLE READ")
    with database.begin() as outer:
        outer.exec_driver_sql("SELECT 1")  # Its snapshot is from now on.
        step(world)
        with pytest.raises(psycopg.errors.SerializationFailure):
            trial_balances.advance(driver(outer))
        outer.rollback()

    assert world.rows(KEPT) == world.rows(ENTRIES)
