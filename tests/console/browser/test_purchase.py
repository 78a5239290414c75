"""The picture of where every cent went, used with a mouse, with keys, and without scripts."""

import re

import pytest
from playwright.sync_api import Page, expect

from cardledger.api.console.html.formats import MINUS
from tests.api.support import Api
from tests.console.browser.conftest import Visiting
from tests.console.stories import Stories

pytestmark = pytest.mark.browser


def figure(page: Page, name: str) -> str:
    return str(page.locator(f'[data-figure="{name}"] dd').inner_text())


def test_the_tip_ends_with_fifteen_in_the_settlement_of_the_network(
    visit: Visiting, stories: Stories
) -> None:
    page = visit(f"/card-transactions/{stories.tip}").page

    assert figure(page, "settledAmount") == "15.00"
    totals = page.locator(".totals .lane").all_inner_texts()
    assert [text.split()[-1] for text in totals] == [f"{MINUS}15.00", "0.00", "+15.00", "0.00"]
    assert page.locator(".event").count() == 4
    assert page.locator(".arrow.forward").count() == 3
    assert page.locator(".arrow.back").count() == 0


def test_two_clicks_lead_from_the_first_page_to_the_picture(
    visit: Visiting, stories: Stories
) -> None:
    page = visit().page

    page.get_by_role("link", name="BISTRO AU COIN").click()

    expect(page.get_by_role("heading", name="Where every cent went")).to_be_visible()
    assert stories.tip in page.url


def test_the_slider_goes_back_in_time_without_another_page(
    visit: Visiting, stories: Stories
) -> None:
    page = visit(f"/card-transactions/{stories.tip}").page
    page.evaluate("window.isTheSamePage = true")
    slider = page.get_by_label("As of event", exact=True)

    slider.focus()
    page.keyboard.press("ArrowLeft")

    held = page.locator('[data-figure="heldAmount"] dd')
    expect(held).to_have_text("15.00")
    expect(page.locator(".event.later")).to_have_count(1)
    page.keyboard.press("ArrowLeft")
    expect(held).to_have_text("12.50")
    expect(page).to_have_url(re.compile(r"asOf=2$"))
    assert page.evaluate("window.isTheSamePage")
    assert page.evaluate("document.activeElement.id") == "asof"


def test_a_slider_that_fails_says_so_and_stands_at_the_event_that_is_shown(
    visit: Visiting, stories: Stories
) -> None:
    person = visit(f"/card-transactions/{stories.tip}")
    page = person.page
    person.expect_failures()
    slider, notice = page.get_by_label("As of event", exact=True), page.locator("#stale")

    page.route("**/card-transactions/*asOf=*", lambda route: route.fulfill(status=503, body="busy"))
    slider.focus()
    page.keyboard.press("ArrowLeft")
    expect(notice).to_have_text(re.compile(r"^Not updated: .* Reload the page\.$"))
    assert slider.input_value() == "4"
    expect(slider).to_have_attribute("aria-valuetext", "event 4 of 4")
    assert person.violations() == []

    page.unroute("**/card-transactions/*asOf=*")
    page.keyboard.press("ArrowLeft")

    expect(page.locator('[data-figure="heldAmount"] dd')).to_have_text("15.00")
    expect(notice).to_be_hidden()


def test_the_slider_says_its_event_before_that_is_shown(visit: Visiting, stories: Stories) -> None:
    page = visit(f"/card-transactions/{stories.tip}").page
    page.route("**/card-transactions/*asOf=*", lambda _: None)  # Left without an answer.
    slider = page.get_by_label("As of event", exact=True)

    slider.focus()
    page.keyboard.press("ArrowLeft")

    expect(slider).to_have_attribute("aria-valuetext", "event 3 of 4")


def test_the_slider_is_a_form_without_scripts(visit: Visiting, stories: Stories) -> None:
    page = visit(f"/card-transactions/{stories.tip}", with_scripts=False).page

    page.get_by_label("As of event", exact=True).fill("2")
    page.get_by_role("button", name="Show").click()

    expect(page.locator('[data-figure="heldAmount"] dd')).to_have_text("12.50")


def test_an_event_marks_the_figures_that_it_changed(visit: Visiting, stories: Stories) -> None:
    page = visit(f"/card-transactions/{stories.tip}").page
    held = page.locator('[data-figure="heldAmount"]')
    refunded = page.locator('[data-figure="refundedAmount"]')
    plain = held.evaluate("element => getComputedStyle(element).borderColor")

    page.locator("#event-4").hover()
    marked = held.evaluate("element => getComputedStyle(element).borderColor")
    other = refunded.evaluate("element => getComputedStyle(element).borderColor")
    page.mouse.move(0, 0)
    page.locator("#event-4 a").focus()
    focused = held.evaluate("element => getComputedStyle(element).borderColor")

    assert marked == focused != plain == other


def test_names_of_others_are_text(visit: Visiting, stories: Stories) -> None:
    person = visit(f"/card-transactions/{stories.hostile}")

    heading = person.page.get_by_role("heading", level=1)

    assert heading.inner_text() == "<script>alert(1)</script>⟨U+202E⟩evil"


def test_keys_reach_everything(visit: Visiting, stories: Stories) -> None:
    page = visit(f"/card-transactions/{stories.tip}").page

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_text("the parts, from left to right")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("Shift")  # Which some keyboards need for digits.
    page.keyboard.press("1")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()


def test_keys_work_while_the_slider_has_the_focus(visit: Visiting, stories: Stories) -> None:
    page = visit(f"/card-transactions/{stories.tip}").page
    slider = page.get_by_label("As of event", exact=True)

    slider.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    slider.focus()
    page.keyboard.press("?")

    expect(page.get_by_text("the parts, from left to right")).to_be_visible()


def test_an_id_is_copied_whole(visit: Visiting, stories: Stories) -> None:
    page = visit(f"/card-transactions/{stories.tip}").page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])

    page.get_by_role("button", name=f"Copy {stories.tip}").first.click()

    expect(page.locator(".copy.done")).to_have_count(1)
    assert page.evaluate("navigator.clipboard.readText()") == stories.tip


def test_the_json_is_as_of_the_event_of_the_slider(visit: Visiting, stories: Stories) -> None:
    page = visit(f"/card-transactions/{stories.tip}").page
    json = page.get_by_label("JSON of this page")
    page.locator("#api summary").click()
    expect(json).to_contain_text('"asOf": 4')
    expect(json).to_be_visible()

    page.get_by_label("As of event", exact=True).focus()
    page.keyboard.press("ArrowLeft")

    expect(json).to_contain_text('"asOf": 3')
    expect(json).to_be_visible()


def test_a_session_that_ends_leads_back_to_the_same_page(
    visit: Visiting, api: Api, stories: Stories
) -> None:
    person = visit(f"/card-transactions/{stories.tip}?asOf=3")
    page = person.page
    person.expect_failures()

    page.context.clear_cookies()
    page.get_by_label("As of event", exact=True).focus()
    page.keyboard.press("ArrowLeft")
    page.get_by_label("Client id").fill(api.tenant.client_id)
    page.get_by_label("Secret").fill(api.tenant.client_secret)
    page.get_by_role("button", name="Log in").click()

    expect(page.get_by_role("heading", name="Where every cent went")).to_be_visible()
    expect(page).to_have_url(re.compile(rf"{stories.tip}\?asOf="))


def test_times_are_those_of_the_reader_on_hover(visit: Visiting, stories: Stories) -> None:
    page = visit(f"/card-transactions/{stories.tip}").page
    time = page.locator("time").first

    expect(time).not_to_have_attribute("title", re.compile(r"\dT\d"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", time.inner_text())
