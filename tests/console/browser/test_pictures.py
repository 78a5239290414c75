"""The pictures of README and docs, renewed by `make pictures`."""

import os
from pathlib import Path
from typing import Final

import pytest

from tests.console.browser.conftest import Visiting
from tests.console.stories import Stories

_WIDE: Final = 1180

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_picture_of_the_tip_is_a_picture(
    visit: Visiting, stories: Stories, scheme: str, tmp_path: Path
) -> None:
    folder = Path(os.environ.get("PICTURES") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)

    pictures = {"tip": f"/card-transactions/{stories.refund}"}
    if scheme == "light":
        pictures["overview"] = ""
    for name, path in pictures.items():
        page = visit(path, scheme=scheme, width=_WIDE).page
        file = folder / f"{name}-{scheme}.png"
        if name == "tip":
            page.locator("#purchase").screenshot(path=file)
        else:
            page.screenshot(path=file)
        assert file.stat().st_size > 10_000
