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
from cardledger.schema import roles
from cardledger.schema.ids import Id
from cardledger.schema.roles import Role
from tests.databases import PASSWORD
from tests.world import open_world

pytestmark = pytest.mark.usefixtures("platform")

PAGE = (Path(__file__).parents[2] / "docs" / "finance.md").read_text(encoding="utf-8")
TRIAL_BALANCE, DUE, LIABILITY, LIABILITY_THEN = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def platform(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[Id]:
    """A platform with two customers: a tip that is paid, and a clearing without funds."""
    with open_world(database_url, app_database_url) as world:
        made = world.platform()
        ada, ben = world.cardholder(made, 50_000), world.cardholder(made, 400)
        events = [
            (ada, world.authorization(ada, "T1", 1_250)),
            (ada, world.clearing(ada, "T1", 1_500)),
            (ben, world.clearing(ben, "T2", 1_000)),
        ]
        world.process(world.engine(), events)
        yield made


@pytest.fixture
def finance(
    database_url: DatabaseUrl, template_database: DatabaseUrl
) -> Iterator[psycopg.Connection[Any]]:
    """A connection of the role that reads."""
    login = roles.name_in(template_database, Role.READER)
    with psycopg.connect(database_url.with_user(login, PASSWORD)) as connection:
        yield connection


def test_the_trial_balance_balances(finance: psycopg.Connection[Any]) -> None:
    rows = finance.execute(TRIAL_BALANCE).fetchall()

    sums = {account: (debits, credits_) for _, account, debits, credits_ in rows}
    assert sum(debits - credits_ for debits, credits_ in sums.values()) == 0
    assert sums["NETWORK_SETTLEMENT"] == (0, 2_500)
    assert sums["CARD_HOLDS"] == (1_500, 1_500)
    assert sums["RECEIVABLE"] == (1_000, 0)


def test_what_is_due_to_the_network_is_what_has_cleared(
    finance: psycopg.Connection[Any], platform: Id
) -> None:
    [(platform_id, day, currency, due)] = finance.execute(DUE).fetchall()

    assert (str(platform_id), currency, due) == (str(platform), "USD", 2_500)
    assert isinstance(day, date)


def test_the_liability_of_today_is_that_of_the_entries(finance: psycopg.Connection[Any]) -> None:
    [(_, _, available, held, owed)] = finance.execute(LIABILITY).fetchall()
    [(currency, by_entries)] = finance.execute(LIABILITY_THEN).fetchall()

    assert (available, held, owed) == (48_900, 0, 1_000)
    assert (currency, by_entries) == ("USD", available)


def test_the_page_has_every_account_of_the_chart() -> None:
    table = PAGE.partition("## Accounts\n")[2].strip().partition("\n\n")[0]

    assert {*re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)} == {*ChartAccount}
