"""The simulator in a browser: stories that play by themselves, and step by step without scripts."""

import json
import re
from collections.abc import Mapping
from typing import Final

import pytest
from playwright.sync_api import expect

from cardledger.api.console.access import forms
from tests.api.support import Api, ok
from tests.console.browser.conftest import Visiting
from tests.console.payments import Payments
from tests.console.person import Person, shown
from tests.console.stories import Stories

PAGES: Final = (
    "/simulator",
    "/simulator/stories/{story}",
    "/simulator/cards/{card}",
    "/simulator/cards/{card}?purchase={tip}",
    "/simulator/cards/{card}/fund?amount=12.50 USD",
    "/simulator/payments",
    "/simulator/payments/send?quote={quote}",
    "/simulator/payments/receive?sender=$a.usd@sandbox.uma.money&receiver={customer}&amount=9 USD",
)
"""The addresses below the console; names in braces are those of `names`."""

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def names(root: str, api: Api, stories: Stories) -> Mapping[str, str]:
    """A story that has begun, a card, and a purchase of it."""
    with Person(root) as person:
        person.log_in(api.tenant)
        page = shown(person.get("/simulator"))
        form = {"form_token": person.hidden(page, "form_token"), forms.KEY: forms.new_key()}
        begun = person.post("/simulator/stories/tip", form).headers["location"]
    payments = Payments.of(api)
    return {
        "customer": payments.customer,
        "quote": payments.quote,
        "story": begun.rpartition("/")[2],
        "card": ok(api.get(f"/transactions/{stories.tip}"))["cardId"],
        "tip": stories.tip,
    }


def test_the_tip_plays_with_one_click_to_the_picture_of_fifteen(visit: Visiting) -> None:
    person = visit("/simulator")
    page = person.page

    page.get_by_role("button", name="Play Restaurant tip").click()

    expect(page.get_by_text("The story has ended: settled.")).to_be_visible(timeout=30_000)
    expect(page.locator('[data-figure="settledAmount"] dd')).to_have_text("15.00")
    expect(page.locator(".event")).to_have_count(4)
    expect(page).to_have_url(re.compile(r"step=2"))
    assert "1500" in page.locator(".made code").inner_text()
    document = json.loads(page.get_by_label("JSON of this page").text_content() or "")
    assert document["cardTransaction"]["settledAmount"]["amount"] == 1_500, "that of the last step"
    assert person.violations() == []


def test_a_story_that_stops_says_so(visit: Visiting) -> None:
    person = visit("/simulator")
    page = person.page
    person.expect_failures()
    page.route("**/steps/2", lambda route: route.fulfill(status=403, body="ended"))

    page.get_by_role("button", name="Play Restaurant tip").click()

    expect(page.locator("#stale")).to_contain_text("Not updated:", timeout=30_000)
    expect(page.get_by_role("button", name="Next: clear 15.00")).to_be_visible()


def test_two_clicks_lead_from_the_first_page_to_the_picture(visit: Visiting) -> None:
    page = visit().page

    page.get_by_role("link", name="Simulator").click()
    page.get_by_role("button", name="Play Restaurant tip").click()

    expect(page.get_by_role("heading", name="Where every cent went")).to_be_visible()


def test_a_story_goes_step_by_step_without_scripts(visit: Visiting) -> None:
    page = visit("/simulator", with_scripts=False).page

    page.get_by_role("button", name="Step by step Restaurant tip").click()
    assert page.locator('[data-figure="heldAmount"] dd').inner_text() == "12.50"
    page.get_by_role("button", name="Next: clear 15.00").click()

    assert page.locator('[data-figure="settledAmount"] dd').inner_text() == "15.00"


def test_the_pages_of_the_simulator_can_be_read_by_everyone(
    visit: Visiting, names: Mapping[str, str]
) -> None:
    person = visit()
    found: dict[tuple[str, str], list[str]] = {}
    for path in PAGES:
        person.open(f"/console{path}".format(**names))
        found |= {(path, name): person.faults() for name in person.appearances()}

    assert not any(found.values()), found


def test_the_pages_of_the_simulator_work_without_scripts(
    visit: Visiting, names: Mapping[str, str]
) -> None:
    person = visit(with_scripts=False)
    found = {}
    for path in PAGES:
        person.open(f"/console{path}".format(**names))
        found[path] = person.faults_without_scripts()

    assert found == {path: [] for path in PAGES}


def test_an_operation_on_a_card_is_a_form_without_scripts(
    visit: Visiting, names: Mapping[str, str]
) -> None:
    page = visit(f"/simulator/cards/{names['card']}", with_scripts=False).page

    page.get_by_label("Amount").first.fill("7.25 USD")
    page.get_by_label("Merchant").first.fill("CORNER SHOP")
    page.get_by_role("button", name="Authorization", exact=True).click()

    assert page.locator('[data-figure="heldAmount"] dd').inner_text() == "7.25"
    assert "CORNER SHOP" in page.locator(".made code").inner_text()


def test_an_account_is_funded_after_amount_and_account_are_confirmed(
    visit: Visiting, names: Mapping[str, str]
) -> None:
    page = visit(f"/simulator/cards/{names['card']}", with_scripts=False).page

    page.get_by_text("Fund", exact=True).first.click()
    page.locator("#fund-amount").fill("7.25 USD")
    page.get_by_role("button", name="Fund", exact=True).click()
    assert "InternalAccount:" in page.locator(".confirm").inner_text()
    page.get_by_role("button", name="Deposit 7.25 USD").click()

    assert "/fund" in page.locator(".made code").inner_text()


def test_a_story_is_played_with_keys_alone(visit: Visiting) -> None:
    person = visit("/simulator")
    page = person.page

    person.tab_to(page.get_by_role("button", name="Step by step Restaurant tip"))
    page.keyboard.press("Enter")
    expect(page.locator('[data-figure="heldAmount"] dd')).to_have_text("12.50")
    person.tab_to(page.get_by_role("button", name="Next: clear 15.00"))
    page.keyboard.press("Enter")

    expect(page.locator('[data-figure="settledAmount"] dd')).to_have_text("15.00")
