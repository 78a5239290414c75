"""Every page, in light and dark, on a telephone and on a desk: readable, and from here alone."""

import re
from collections.abc import Mapping
from typing import Final

import psycopg
import pytest
from fastapi.routing import APIRoute
from playwright.sync_api import Request, Route, expect

from cardledger.api.console.application import PAGES as OF_ALL
from cardledger.api.console.application import SANDBOX_PAGES
from cardledger.api.console.pages import login
from cardledger.embedded.servers import DatabaseUrl
from tests.api.support import Api, ok
from tests.console.browser import test_books as books
from tests.console.browser import test_simulator as simulator
from tests.console.browser import test_webhooks as webhooks
from tests.console.browser.conftest import Visiting
from tests.console.stories import Stories
from tests.waiting import limit_s

PAGES: Final = (
    "",
    "/card-transactions",
    "/card-transactions?status=EXCEPTION",
    "/card-transactions/{tip}",
    "/card-transactions/{refund}?asOf=4",
    "/card-transactions/{exception}",
    "/card-transactions/{declined}",
    "/card-transactions/{hostile}",
    "/card-transactions/{long}",
    "/search?q={deposit}",
    "/search?q=nothing",
    "/search?q=Quote:019542f5-b3e7-7d02-0000-00000000a1b4",
    "/system",
    "/login",
)
"""The addresses below the console; names in braces are those of `names`."""

WITHOUT_PAGE: Final = {"/console/live", "/console/simulator/card"}
"""A part of the overview, and what leads to the page of a card."""

WIDTHS: Final = (380, 1320)

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def names(api: Api, stories: Stories, database_url: DatabaseUrl) -> Mapping[str, str]:
    """Purchases by what happened, one with a name of 4 KiB, and what the search finds."""
    card = api.active_card()
    long = str(api.authorize(card["id"], 1_250)["id"])
    with psycopg.connect(database_url) as owner:
        owner.execute(
            "UPDATE card_transactions SET descriptor = %s WHERE id = %s",
            ["W" * 4_096, long.partition(":")[2]],
        )
    [deposit] = ok(api.get("/transactions", customerId=card["cardholderId"], type="INCOMING"))[
        "data"
    ]
    return {name: getattr(stories, name) for name in Stories.__slots__} | {
        "long": long,
        "deposit": deposit["id"],
    }


@pytest.mark.parametrize("width", WIDTHS)
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


def test_a_failure_can_be_read_by_everyone(visit: Visiting) -> None:
    person = visit()
    found: dict[tuple[str, str], list[str]] = {}
    for path in ("/no-such-page", "/cards/Card:1", f"/search?q={'x' * 301}"):
        person.open(f"/console{path}")
        assert person.page.locator(".failure").is_visible()
        found |= {(path, name): person.faults() for name in person.appearances()}

    assert not any(found.values()), found
    # The browser notes the status, and nothing else.
    assert all("the server responded with a status of 40" in each for each in person.noted())


def test_a_refused_form_can_be_read_by_everyone(visit: Visiting, api: Api) -> None:
    person = visit()
    person.expect_failures()
    page = person.page
    found: dict[tuple[str, str], list[str]] = {}

    person.open("/console/card-transactions?minAmount=12,50 USD&since=soon&status=SOLD")
    page.get_by_role("alert").get_by_role("link", name="At least").click()
    expect(page.get_by_label("At least")).to_be_focused()
    expect(page.get_by_label("At least")).to_have_accessible_description(re.compile("Must be an"))
    expect(page.get_by_label("From (UTC)")).to_have_value("soon")
    found |= {("list", name): person.faults() for name in person.appearances()}
    person.open(f"/console/simulator/cards/{api.active_card()['id']}")
    page.get_by_label("Amount").first.fill("12,50 USD")
    page.get_by_role("button", name="Authorization", exact=True).click()
    expect(page.get_by_label("Amount").first).to_have_value("12,50 USD")
    found |= {("form", name): person.faults() for name in person.appearances()}

    assert not any(found.values()), found


def test_a_credit_can_be_read_by_everyone(visit: Visiting, api: Api) -> None:
    card = api.active_card()["id"]
    body = {"amount": 5_000, "currency": {"code": "USD"}, "merchant": {"descriptor": "PUSHED"}}
    credit = ok(api.simulate(card, "financial_credit_authorization", body))["id"]
    person = visit()
    found: dict[tuple[str, str], list[str]] = {}

    for path in (f"/card-transactions?cardId={card}", f"/card-transactions/{credit}"):
        person.open(f"/console{path}")
        expect(person.page.get_by_role("main").get_by_text("credit", exact=True)).to_be_visible()
        found |= {(path, name): person.faults() for name in person.appearances()}

    assert not any(found.values()), found


def test_no_page_is_forgotten_here() -> None:
    shown = {
        path.partition("?")[0]
        for each in (PAGES, books.PAGES, simulator.PAGES, webhooks.PAGES)
        for path in each
    }
    routers = (login.router, *OF_ALL, *SANDBOX_PAGES)
    routes = [
        route
        for router in routers
        for route in router.routes
        if isinstance(route, APIRoute) and "GET" in (route.methods or ())
    ]

    unseen = {
        route.path
        for route in routes
        if not any(route.path_regex.match(f"/console{path}") for path in shown)
    }

    assert routes
    assert unseen == WITHOUT_PAGE


def test_every_page_works_without_scripts(visit: Visiting, names: Mapping[str, str]) -> None:
    person = visit(with_scripts=False)
    found = {}
    for path in PAGES:
        person.open(f"/console{path}".format(**names))
        found[path] = person.faults_without_scripts()

    assert found == {path: [] for path in PAGES}


def test_a_hidden_tab_asks_for_nothing(visit: Visiting) -> None:
    page = visit().page
    asked: list[str] = []

    def note(request: Request) -> None:
        if request.resource_type in {"fetch", "xhr"}:  # Icons are asked for by the browser.
            asked.append(request.url)

    page.on("request", note)
    # What a browser says of a tab behind another one, which a window without a screen never is.
    page.clock.install()
    page.add_init_script(_HIDDEN)
    page.reload()
    asked.clear()

    page.clock.run_for(20_000)
    in_hidden_tab = list(asked)
    with page.expect_request("**/console/live"):
        page.evaluate("window.isHidden = false")
        page.clock.run_for(2_000)

    assert in_hidden_tab == []


@pytest.mark.parametrize("problem", ["fails", "cannot be connected to", "does not answer"])
def test_figures_that_are_not_refreshed_say_so_until_they_are(
    visit: Visiting, problem: str
) -> None:
    person = visit()
    page = person.page
    notice = page.get_by_role("alert")
    expect(notice).to_have_count(0)
    person.expect_failures()

    def refuse(route: Route) -> None:
        if problem == "fails":
            route.fulfill(status=503, body="<p>The console is busy</p>")
        elif problem == "cannot be connected to":
            route.abort("connectionrefused")  # Else it is left without an answer.

    page.route("**/console/live", refuse)
    expect(notice).to_contain_text("Not refreshed since", timeout=limit_s(30) * 1000)
    shown_at = page.locator("#live > p time").inner_text()
    said = notice.inner_text()
    page.unroute("**/console/live")
    if problem == "does not answer":
        page.reload()  # The request that waits would end after a minute.

    assert said == f"Not refreshed since {shown_at[11:]} UTC."
    expect(notice).to_have_count(0)
    expect(page.locator("#live > p time")).not_to_have_text(shown_at)
    expect(page.locator("#live > p time")).not_to_have_attribute("title", re.compile(r"\dT\d"))


def test_a_tab_that_was_hidden_has_missed_nothing(visit: Visiting) -> None:
    person = visit()
    page = person.page
    page.clock.install()
    page.add_init_script(_HIDDEN)
    page.reload()
    page.clock.run_for(600_000)
    notice = page.locator("#stale")

    in_hidden_tab = notice.is_visible()
    # The refresh of a tab that is shown again has not been answered yet.
    page.route("**/console/live", lambda _: None)
    page.evaluate("window.isHidden = false")
    page.clock.run_for(2_000)
    when_shown = notice.is_visible()
    page.clock.run_for(6_000)

    assert (in_hidden_tab, when_shown) == (False, False)
    expect(notice).to_be_visible()


_HIDDEN: Final = """
    window.isHidden = true;
    Object.defineProperty(Document.prototype, "hidden", { get: () => window.isHidden });
"""
