"""Exceptions, customers, accounts, cards, journal and trial balance in Chromium."""

import re
from collections.abc import Mapping
from typing import Final

import pytest
from playwright.sync_api import expect

from tests.api.support import Api, ok
from tests.console.browser.conftest import Visiting
from tests.console.stories import Stories

PAGES: Final = (
    "/exceptions",
    "/exceptions?currency=EUR",
    "/exceptions/{exception}/fund",
    "/customers",
    "/customers/{customer}",
    "/accounts",
    "/accounts/{account}",
    "/cards",
    "/cards/{card}",
    "/journal",
    "/journal?until=2020-01-01",
    "/trial-balance",
)
"""The addresses below the console; names in braces are those of `names`."""

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def names(api: Api, stories: Stories) -> Mapping[str, str]:
    """A purchase that owes money, and whose it is."""
    found = ok(api.get(f"/transactions/{stories.exception}"))
    return {
        "exception": stories.exception,
        "account": found["accountId"],
        "card": found["cardId"],
        "customer": found["customerId"],
    }


@pytest.mark.parametrize("width", [380, 1320])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_can_be_read_by_everyone(
    visit: Visiting, names: Mapping[str, str], scheme: str, width: int
) -> None:
    person = visit(scheme=scheme, width=width)
    found = {}
    for path in PAGES:
        person.open(f"/console{path}".format(**names))
        found[path] = person.faults()

    assert found == {path: [] for path in PAGES}


def test_every_page_works_without_scripts(visit: Visiting, names: Mapping[str, str]) -> None:
    person = visit(with_scripts=False)
    found = {}
    for path in PAGES:
        person.open(f"/console{path}".format(**names))
        found[path] = person.faults_without_scripts()

    assert found == {path: [] for path in PAGES}


def test_keys_lead_from_what_is_owed_to_its_payment(
    visit: Visiting, api: Api, names: Mapping[str, str]
) -> None:
    card = api.active_card(balance=1_000)["id"]
    purchase = api.authorize(card, 1_000, descriptor="PAID BY KEYS")["id"]
    api.clear(card, purchase, 1_700)
    person = visit()
    page = person.page

    page.keyboard.press("g")
    page.keyboard.press("3")
    link = page.get_by_role("link", name="Fund what is missing for PAID BY KEYS")
    person.tab_to(link)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Fund what is missing")
    person.tab_to(page.get_by_role("button", name="Deposit 7.00 USD"))
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", level=1)).to_have_text("PAID BY KEYS")
    expect(page.locator('[data-figure="owedAmount"] dd')).to_have_text("0.00")
    assert names


def test_the_statement_leads_to_the_purchase_and_back(
    visit: Visiting, names: Mapping[str, str]
) -> None:
    page = visit(f"/accounts/{names['account']}").page

    page.locator(".statement").get_by_role("link", name="TOOLS AND SONS").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("TOOLS AND SONS")
    page.get_by_role("link", name=names["account"]).click()
    expect(page.get_by_role("heading", name="Statement")).to_be_visible()


def test_times_with_seconds_are_sent(visit: Visiting) -> None:
    page = visit("/journal").page

    page.get_by_label("From (UTC)").fill("2026-01-31T12:00:30")
    page.get_by_label("To (UTC)").fill("2026-01-31T13:00:45")
    page.get_by_role("button", name="Filter").click()

    expect(page).to_have_url(re.compile(r"since=2026-01-31T12%3A00%3A30"))
    expect(page.get_by_label("To (UTC)")).to_have_value("2026-01-31T13:00:45")
