"""Webhooks in a browser: an endpoint that fails, and is sent its webhook again from the page."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from cardledger.webhooks.receiver import Reply
from tests.api.support import Api, made, ok
from tests.console.browser.conftest import Visiting
from tests.console.stories import Stories
from tests.receiver import Receiver
from tests.waiting import eventually

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


@pytest.mark.parametrize("width", [380, 1320])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pages_of_webhooks_can_be_read_by_everyone(
    failed: tuple[str, str], visit: Visiting, scheme: str, width: int
) -> None:
    endpoint, delivery = failed
    person = visit("/webhooks", scheme=scheme, width=width)
    found = {}
    for path in ("", "/deliveries", f"/endpoints/{endpoint}", f"/deliveries/{delivery}"):
        person.open(f"/console/webhooks{path}")
        found[path] = [*person.violations(), person.overflow()]

    assert set(map(str, found.values())) == {"[0]"}, found


def test_a_failing_endpoint_that_is_retried_from_the_page_delivers(
    failed: tuple[str, str], visit: Visiting, receiver: Receiver
) -> None:
    page = visit(f"/webhooks/deliveries/{failed[1]}").page
    expect(page.get_by_text("<script>alert(1)</script>").first).to_be_visible()
    receiver.reply_always(Reply())

    page.get_by_role("button", name="Send again").click()

    expect(page.locator(".heading .badge")).to_have_text("delivered", timeout=30_000)
    expect(page.locator("b.fine")).to_have_text("200")
