"""One visit of a person with a browser."""

from collections.abc import Iterator
from typing import Any, Final, Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, Request

from cardledger.api.console import ROOT
from tests.api.support import TIMEOUT_S, Tenant

SCHEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")
WIDTHS: Final = (380, 1320)

_HEIGHT: Final = 900
_TABS: Final = 150
_IS_FOCUSED: Final = "element => element === document.activeElement"
_OVERFLOW: Final = (
    "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
)
_FAILED_REQUEST: Final = ("Failed to load resource:", "htmx: htmx:error:")  # In the console.

# What axe cannot see by itself is said by a person who looks at the pictures; it finds the rest.
_AXE: Final = Axe()


class Visit:
    """A window of the browser, with a session of its own, and what was wrong in it."""

    def __init__(
        self,
        browser: Browser,
        root: str,
        *,
        scheme: str,
        width: int,
        with_scripts: bool,
    ) -> None:
        self._root: Final = root
        self._wrong: Final[list[str]] = []
        self._may_fail = False
        self._context: Final = browser.new_context(
            color_scheme="dark" if scheme == "dark" else "light",
            java_script_enabled=with_scripts,
            viewport={"width": width, "height": _HEIGHT},
            reduced_motion="reduce",
        )
        self._context.set_default_timeout(TIMEOUT_S * 1000)
        self.page: Final[Page] = self._context.new_page()
        self.page.on("console", lambda message: self._hear(message.text))
        self.page.on("pageerror", lambda error: self._note(f"error: {error}"))
        self.page.on("request", self._look_at)

    def expect_failures(self) -> None:
        """Do not count it as wrong when requests of a page fail, from now on."""
        self._may_fail = True

    def close(self) -> None:
        """Close the window."""
        self._context.close()

    def check(self) -> None:
        """Check that no page of the visit has done what pages must not do."""
        assert not self._wrong, "\n".join(self._wrong)

    def noted(self) -> list[str]:
        """Return what was wrong so far, and forget it."""
        noted, self._wrong[:] = list(self._wrong), []
        return noted

    def log_in(self, tenant: Tenant) -> None:
        """Log in as a person does."""
        self.open(f"{ROOT}/login")
        self.page.get_by_label("Client id").fill(tenant.client_id)
        self.page.get_by_label("Secret").fill(tenant.client_secret)
        self.page.get_by_role("button", name="Log in").click()
        self.page.get_by_role("heading", name="Overview").wait_for()

    def open(self, path: str) -> None:
        """Open an address of the server."""
        self.page.goto(f"{self._root}{path}")

    def tab_to(self, target: Locator) -> None:
        """Press Tab until `target` has the focus, as people without a mouse do."""
        for _ in range(_TABS):
            self.page.keyboard.press("Tab")
            if target.evaluate(_IS_FOCUSED):
                return
        raise AssertionError(f"{_TABS} times Tab do not lead to {target}")

    def appearances(self) -> Iterator[str]:
        """Show the same page in light and dark, on a telephone and on a desk; yield each name."""
        for scheme in SCHEMES:
            for width in WIDTHS:
                self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
                self.page.set_viewport_size({"width": width, "height": _HEIGHT})
                yield f"{scheme}, {width}"

    def faults(self) -> list[str]:
        """Return what is wrong with the page as it is now: rules of axe, and its width."""
        return [*self.violations(), *(["too wide"] if self.overflow() > 0 else [])]

    def faults_without_scripts(self) -> list[str]:
        """Return what is wrong with the page where scripts are off."""
        has_title = self.page.get_by_role("heading", level=1).is_visible()
        has_copies = self.page.locator(".copy:visible").count() > 0  # They would do nothing.
        return [
            *([] if has_title else ["no heading"]),
            *(["buttons that copy"] if has_copies else []),
        ]

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        return int(self.page.evaluate(_OVERFLOW))

    def violations(self) -> list[str]:
        """Return what the page does wrong by the rules of axe, each with its first place."""
        found: list[dict[str, Any]] = _AXE.run(self.page).response["violations"]
        return [f"{each['id']}: {each['help']}: {each['nodes'][0]['target']}" for each in found]

    def _hear(self, message: str) -> None:
        if not (self._may_fail and message.startswith(_FAILED_REQUEST)):
            self._note(f"console: {message}")

    def _look_at(self, request: Request) -> None:
        if not request.url.startswith((f"{self._root}/", "data:")):
            self._note(f"request: {request.url}")

    def _note(self, wrong: str) -> None:
        self._wrong.append(f"{self.page.url}: {wrong}")
