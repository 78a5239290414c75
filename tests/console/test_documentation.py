"""What docs/console.md says of the code of a page is true of it."""

import inspect
import re
from pathlib import Path
from typing import Final

import pytest

from cardledger.api.console import html
from cardledger.api.console.access.forms import Action
from cardledger.api.console.lists.filtered_list import FilteredList

TEXT: Final = (Path(__file__).parents[2] / "docs" / "console.md").read_text()


@pytest.mark.parametrize(
    ("call", "function"),
    [
        ("_LIST.page(", FilteredList.page),
        ("action.run(", Action.run),
    ],
)
def test_examples_await_what_is_a_coroutine(call: str, function: object) -> None:
    found = re.findall(rf"(?:return|=) (await )?{re.escape(call)}", TEXT)

    assert inspect.iscoroutinefunction(function)
    assert found
    assert all(found), f"an example does not await {call}"


def test_a_part_that_refreshes_itself_is_swapped_as_the_example_says() -> None:
    templates = Path(str(html.__file__)).parent / "templates"
    written = {
        swap
        for template in templates.glob("*.html")
        for part in re.findall(r"<[^>]*data-refreshed=[^>]*>", template.read_text())
        for swap in re.findall(r'hx-swap="(\w+)"', part)
    }

    example = re.search(r'data-refreshed=[^>]*hx-swap="(\w+)"', TEXT)
    assert example is not None
    assert written == {example[1]}
