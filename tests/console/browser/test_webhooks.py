"""Webhooks in a browser: an endpoint that fails, and is sent its webhook again from the page."""

from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import expect

from cardledger.webhooks.receiver import Reply
from tests.api.support import Api, made, ok
from tests.console.browser.conftest import Visiting
from tests.console.stories import Stories
from tests.receiver import Receiver
from tests.waiting import eventually

PAGES: Final = (
    "/webhooks",
    "/webhooks/deliveries",
    "/webhooks/endpoints/{endpoint}",
    "/webhooks/deliveries/{delivery}",
)
"""The addresses below the console; names in braces are those of the fixture `failed`."""

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def receiver(stories: Stories) -> Iterator[Receiver]:
    """A receiver that answers as tests want."""
    del stories
    with Receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def failed(api: Api, receiver: Receiver) -> tuple[str, str]:
    """An endpoint that answers 500 with markup, and a delivery to it that has failed twice."""
    receiver.reply_always(Reply(status=500, body=b"<script>alert(1)</script>"))
    endpoint = made(api.post("/webhooks/endpoints", {"url": receiver.url}))["id"]
    purchase = api.authorize(api.active_card()["id"], 1_250)["id"]

    def look() -> str | None:
        listed = api.get("/webhooks/deliveries", endpointId=endpoint, subjectId=purchase)
        return next((str(one["id"]) for one in ok(listed)["data"] if one["attempts"] > 1), None)

    return str(endpoint), eventually(look)


def test_the_pages_of_webhooks_can_be_read_by_everyone(
    failed: tuple[str, str], visit: Visiting
) -> None:
    endpoint, delivery = failed
    person = visit()
    found: dict[tuple[str, str], list[str]] = {}
    for path in PAGES:
        person.open(f"/console{path}".format(endpoint=endpoint, delivery=delivery))
        found |= {(path, name): person.faults() for name in person.appearances()}

    assert not any(found.values()), found


def test_the_pages_of_webhooks_work_without_scripts(
    failed: tuple[str, str], visit: Visiting
) -> None:
    endpoint, delivery = failed
    person = visit(with_scripts=False)
    found = {}
    for path in PAGES:
        person.open(f"/console{path}".format(endpoint=endpoint, delivery=delivery))
        found[path] = person.faults_without_scripts()

    assert found == {path: [] for path in PAGES}


def test_a_test_is_sent_without_scripts(failed: tuple[str, str], visit: Visiting) -> None:
    page = visit(f"/webhooks/endpoints/{failed[0]}", with_scripts=False).page

    page.get_by_role("button", name="Send TEST").click()

    expect(page.get_by_role("heading", level=1)).to_contain_text("TEST")


def test_a_secret_is_rotated_with_keys_alone_and_its_page_can_be_read_by_everyone(
    failed: tuple[str, str], visit: Visiting
) -> None:
    person = visit(f"/webhooks/endpoints/{failed[0]}")
    page = person.page

    person.tab_to(page.get_by_label("Replace the secret of this endpoint"))
    page.keyboard.press("Space")
    person.tab_to(page.get_by_role("button", name="Rotate"))
    page.keyboard.press("Enter")
    expect(page.get_by_text("It is shown once")).to_be_visible()
    found = {name: person.faults() for name in person.appearances()}

    assert "whsec_" in page.get_by_role("alert").inner_text()
    assert not any(found.values()), found


def test_a_failing_endpoint_that_is_retried_from_the_page_delivers(
    failed: tuple[str, str], visit: Visiting, receiver: Receiver
) -> None:
    page = visit(f"/webhooks/deliveries/{failed[1]}").page
    expect(page.get_by_text("<script>alert(1)</script>").first).to_be_visible()
    receiver.reply_always(Reply())

    page.get_by_role("button", name="Send again").click()

    expect(page.locator("#live .badge")).to_have_text("delivered", timeout=30_000)
    expect(page.locator("b.fine")).to_have_text("200")
