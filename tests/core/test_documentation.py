"""The examples of docs/testing.md run unchanged."""

import re
import unittest
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs_unchanged(number: int) -> None:
    names: dict[str, Any] = {"__name__": f"example_{number}"}

    exec(compile(EXAMPLES[number], f"{PAGE.name}:{number}", "exec"), names)  # noqa: S102 - ours

    tests = [value for name, value in names.items() if name.lower().startswith("test")]
    assert tests
    for test in tests:
        if isinstance(test, type) and issubclass(test, unittest.TestCase):
            result = unittest.TextTestRunner().run(test("runTest"))
            assert result.wasSuccessful()
        else:
            test()


def test_there_is_an_example_for_each_tool() -> None:
    assert len(EXAMPLES) == 2
