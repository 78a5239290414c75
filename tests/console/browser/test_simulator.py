"""The simulator in a browser: stories that play by themselves, and step by step without scripts."""

import re

import pytest
from playwright.sync_api import expect

from tests.console.browser.conftest import Visiting

pytestmark = pytest.mark.browser

SCHEMES = ["light", "dark"]
WIDTHS = [380, 1320]


def test_the_tip_plays_with_one_click_to_the_picture_of_fifteen(visit: Visiting) -> None:
    person = visit("/simulator")
    page = person.page

    page.get_by_role("button", name="Play Restaurant tip").click()

    expect(page.get_by_text("The story has ended: settled.")).to_be_visible(timeout=30_000)
    expect(page.locator('[data-figure="settledAmount"] dd')).to_have_text("15.00")
    expect(page.locator(".event")).to_have_count(4)
    expect(page).to_have_url(re.compile(r"step=2"))
    assert "1500" in page.locator(".made code").inner_text()
    assert person.violations() == []


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


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_pages_of_the_simulator_can_be_read_by_everyone(
    visit: Visiting, scheme: str, width: int
) -> None:
    person = visit("/simulator", scheme=scheme, width=width)
    found = {"front": [*person.violations(), person.overflow()]}
    person.page.get_by_role("button", name="Step by step Restaurant tip").click()
    found["story"] = [*person.violations(), person.overflow()]
    person.page.locator(".facts.narrow a").last.click()
    expect(person.page.get_by_role("heading", name="This purchase")).to_be_visible()
    found["card"] = [*person.violations(), person.overflow()]

    assert found == {"front": [0], "story": [0], "card": [0]}
