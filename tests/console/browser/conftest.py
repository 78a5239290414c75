"""Chromium, and visits that note what a page must not do: messages, and requests elsewhere."""

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from cardledger.api.console import ROOT
from tests.api.support import Api
from tests.console.stories import Stories, play

try:
    from playwright.sync_api import Browser, sync_playwright

    from tests.console.browser.visit import Visit
except ModuleNotFoundError as error:
    raise pytest.UsageError(f"{error}: run `make test-console`, which installs it") from None

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
_MISSING: Final = (
    "no Chromium on PATH: install it (Debian: apt-get install chromium; Ubuntu: snap install"
    " chromium), or set CHROMIUM to its path"
)


def chromium_path() -> str:
    """Return the path of the browser, which the operating system provides."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.fail(_MISSING, pytrace=False)
    return found


@pytest.fixture(scope="module")
def stories(api: Api) -> Stories:
    """Purchases of every kind, played before the browser starts."""
    return play(api)


@pytest.fixture(scope="module")
def chromium(stories: Stories) -> Iterator[Browser]:  # noqa: ARG001 - its event loop ends first
    """A browser for the tests of a module; as root it has no sandbox."""
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=arguments)
        yield browser
        browser.close()


Visiting = Callable[..., Visit]


@pytest.fixture
def visit(chromium: Browser, root: str, api: Api) -> Iterator[Visiting]:
    """Return what opens a page of the console for a person who has logged in."""
    visits: list[Visit] = []

    def begin(
        path: str = "",
        *,
        scheme: str = "light",
        width: int = 1320,
        with_scripts: bool = True,
    ) -> Visit:
        made = Visit(chromium, root, scheme=scheme, width=width, with_scripts=with_scripts)
        visits.append(made)
        made.log_in(api.tenant)
        made.open(f"{ROOT}{path}")
        return made

    yield begin
    for each in visits:
        each.close()
        each.check()
