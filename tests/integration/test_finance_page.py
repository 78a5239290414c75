"""The queries of docs/finance.md, on books with the most frequent events, as finance runs them."""

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.core.entries import ChartAccount
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import roles
from cardledger.schema.ids import Id
from cardledger.schema.roles import Role
from tests.databases import PASSWORD
from tests.world import open_world

pytestmark = pytest.mark.usefixtures("platform")

PAGE = (Path(__file__).parents[2] / "docs" / "finance.md").read_text(encoding="utf-8")
TRIAL_BALANCE, EARLIER, DUE, CONTROL, SUSPENSE, UNAPPLIED, LATE, PERIODS = re.findall(
    r"```sql\n(.*?)```", PAGE, re.DOTALL
)


@pytest.fixture(scope="module")
def platform(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[Id]:
    """A platform with two customers: a tip that is paid, and a clearing without funds.

    A clearing reversal is parked; a clearing of an unknown card is rejected.
    """
    with open_world(database_url, app_database_url) as world:
        made = world.platform()
        ada, ben = world.cardholder(made, 50_000), world.cardholder(made, 400)
        events = [
            (ada, world.authorization(ada, "T1", 1_250)),
            (ada, world.clearing(ada, "T1", 1_500)),
            (ben, world.clearing(ben, "T2", 1_000)),
            (ben, world.event("CLEARING_REVERSAL", ben, "T4", 25)),
        ]
        unknown = world.clearing(ben, "T5", 30) | {"cardId": f"Card:{new_id()}"}
        world.process(world.engine(), [*events, (ben, unknown)])
        yield made


@pytest.fixture
def finance(
    database_url: DatabaseUrl, template_database: DatabaseUrl
) -> Iterator[psycopg.Connection[Any]]:
    """A connection of finance."""
    login = roles.name_in(template_database, Role.FINANCE)
    with psycopg.connect(database_url.with_user(login, PASSWORD)) as connection:
        yield connection


def test_the_trial_balance_balances(finance: psycopg.Connection[Any]) -> None:
    rows = finance.execute(TRIAL_BALANCE).fetchall()

    sums = {account: (debits, credits_) for _, account, _, debits, credits_, _ in rows}
    assert sum(row[5] for row in rows) == 0
    assert sums["NETWORK_SETTLEMENT"] == (25, 2_500)
    assert sums["SUSPENSE"] == (0, 25)
    assert sums["CARD_HOLDS"] == (1_500, 1_500)
    assert sums["RECEIVABLE"] == (1_000, 0)


def test_before_anything_was_known_there_was_nothing(finance: psycopg.Connection[Any]) -> None:
    now = EARLIER.replace("2026-11-01", "2031-01-01").replace("2026-10-31", "2030-01-01")
    assert now != EARLIER
    then = now.replace("2031-01-01", "2020-01-01")

    assert len(finance.execute(now.encode()).fetchall()) > 3
    assert finance.execute(then.encode()).fetchall() == []
    finance.execute(EARLIER)


def test_what_is_due_to_the_network_is_what_has_cleared(
    finance: psycopg.Connection[Any], platform: Id
) -> None:
    [(platform_id, day, _, _, currency, net, paid, open_)] = finance.execute(DUE).fetchall()

    assert (str(platform_id), currency, net, paid, open_) == (str(platform), "USD", 2_475, 0, 2_475)
    assert isinstance(day, date)


def test_sub_ledgers_are_equal_to_their_control_accounts(
    finance: psycopg.Connection[Any],
) -> None:
    rows = finance.execute(CONTROL).fetchall()

    assert rows == [("RECEIVABLE", "USD", 1_000, 1_000), ("SUSPENSE", "USD", 25, 25)]


def test_what_was_not_applied_is_counted(finance: psycopg.Connection[Any]) -> None:
    assert finance.execute(SUSPENSE).fetchall() == [
        ("PARKED", None, "CLEARING_REVERSAL", "USD", 1, 25, 0)
    ]
    assert finance.execute(UNAPPLIED).fetchall() == [("REJECTED", "CLEARING", "USD", 1, 30, 0)]


def test_the_page_has_every_account_of_the_chart() -> None:
    table = PAGE.partition("## Accounts\n")[2].strip().partition("\n\n")[0]

    assert {*re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)} == {*ChartAccount}


@pytest.mark.parametrize("query", [LATE, PERIODS])
def test_while_nothing_is_closed_nothing_is_late(
    finance: psycopg.Connection[Any], query: str
) -> None:
    """`test_closing` has what is closed."""
    assert finance.execute(query.encode()).fetchall() == []
