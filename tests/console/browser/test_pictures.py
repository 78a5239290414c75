"""The pictures of README and docs, renewed by `make pictures`."""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import FloatRect, Locator

from cardledger.webhooks.receiver import Reply
from tests.api.support import Api, made
from tests.console.browser.conftest import Visiting
from tests.console.browser.visit import SCHEMES
from tests.console.stories import Stories, play
from tests.receiver import Receiver

_WIDE: Final = 1240
_MARGIN: Final = 20  # Pixels.
_MERCHANTS: Final = ("CORNER BAKERY", "CITY BOOKS", "METRO LINE 4", "HARBOUR CAFE", "GREEN GROCER")
_DAY_S: Final = 120 if os.environ.get("PICTURES") else 0
"""How long people pay before the pictures that are kept, so that the overview has a course."""

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def stories(api: Api) -> Iterator[Stories]:
    """A day without the names of attackers, which pictures are not about."""
    with Receiver() as receiver:
        receiver.reply_always(Reply())
        made(api.post("/webhooks/endpoints", {"url": receiver.url}))
        card, chance = api.active_card(10_000_000)["id"], random.Random(7)  # noqa: S311 - repeatable
        evening = time.monotonic() + _DAY_S
        while time.monotonic() < evening:
            for _ in range(chance.randrange(9)):
                api.authorize(
                    card, chance.randrange(300, 9_000), descriptor=chance.choice(_MERCHANTS)
                )
            time.sleep(chance.random())  # Traffic as people make it, for the bars of rates.
        played = play(api, last_merchant=_MERCHANTS[0])
        receiver.wait_for(lambda arrivals: len(arrivals) > 1)
        yield played


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the pictures go."""
    chosen = os.environ.get("PICTURES")
    return Path(chosen) if chosen else tmp_path_factory.mktemp("pictures")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_picture_of_the_tip_ends_at_fifteen(
    visit: Visiting, stories: Stories, scheme: str, folder: Path
) -> None:
    page = visit(f"/card-transactions/{stories.tip}", scheme=scheme, width=_WIDE).page
    file = folder / f"tip-{scheme}.png"

    page.screenshot(path=file, full_page=True, clip=_around(page.locator("#purchase")))

    assert page.locator('[data-figure="settledAmount"] dd').inner_text() == "15.00"
    assert page.locator('[data-figure="refundedAmount"] dd').inner_text() == "0.00"
    assert file.stat().st_size > 10_000


@pytest.mark.usefixtures("stories")
def test_the_picture_of_the_overview_is_that_of_a_plain_day(visit: Visiting, folder: Path) -> None:
    page = visit(width=_WIDE).page
    file = folder / "overview-light.png"

    page.screenshot(path=file)

    assert page.get_by_text(_MERCHANTS[0]).first.is_visible()
    assert "<script>" not in page.locator("main").inner_text()
    assert file.stat().st_size > 10_000


def _around(part: Locator) -> FloatRect:
    """Return the place of `part` on its page, with a margin."""
    box = part.bounding_box()
    assert box is not None
    return {
        "x": box["x"] - _MARGIN,
        "y": box["y"] - _MARGIN,
        "width": box["width"] + 2 * _MARGIN,
        "height": box["height"] + 2 * _MARGIN,
    }
