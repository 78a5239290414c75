"""Every page, in light and dark, on a telephone and on a desk: readable, and from here alone."""

from typing import Final

import pytest

from tests.console.browser.conftest import Visiting
from tests.console.stories import Stories

PAGES: Final = (
    "",
    "/card-transactions",
    "/card-transactions?status=EXCEPTION",
    "/card-transactions/{tip}",
    "/card-transactions/{refund}?asOf=4",
    "/card-transactions/{exception}",
    "/card-transactions/{declined}",
    "/card-transactions/{hostile}",
    "/system",
    "/login",
)
"""The addresses below the console; names in braces are those of `Stories`."""

WIDTHS: Final = (380, 1320)

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_can_be_read_by_everyone(
    visit: Visiting, stories: Stories, scheme: str, width: int
) -> None:
    person = visit(scheme=scheme, width=width)
    found = {}
    for path in PAGES:
        person.open(f"/console{path}".format(**_names(stories)))
        found[path] = [*person.violations(), *(["too wide"] if person.overflow() > 0 else [])]

    assert found == {path: [] for path in PAGES}


@pytest.mark.parametrize("path", PAGES)
def test_every_page_works_without_scripts(visit: Visiting, stories: Stories, path: str) -> None:
    person = visit(path.format(**_names(stories)), with_scripts=False)

    assert person.page.get_by_role("heading", level=1).is_visible()
    assert person.page.locator(".copy:visible").count() == 0


def _names(stories: Stories) -> dict[str, str]:
    return {name: getattr(stories, name) for name in Stories.__slots__}
