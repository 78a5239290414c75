"""That the tests run the rules which they are said to run."""

import ast
import os
import sys
from pathlib import Path

import pytest

from hatch_build import CompileHook
from ledger.build import is_compiled

ROOT = Path(__file__).parents[2]


def test_the_rules_are_compiled_where_that_is_asked_for() -> None:
    assert is_compiled() == (os.environ.get("CARDLEDGER_COMPILED") == "1")


def test_the_image_is_built_with_the_hook() -> None:
    assert "!hatch_build.py" in (ROOT / ".dockerignore").read_text().splitlines()


def test_the_hook_needs_no_more_than_an_isolated_build_has() -> None:
    body = ast.parse((ROOT / "hatch_build.py").read_text()).body
    imported = {name.name for one in body if isinstance(one, ast.Import) for name in one.names}
    imported |= {one.module or "" for one in body if isinstance(one, ast.ImportFrom)}

    assert {name.partition(".")[0] for name in imported} - sys.stdlib_module_names == {"hatchling"}


@pytest.mark.parametrize("said", ["", "0"])
def test_nothing_is_compiled_unless_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setenv("CARDLEDGER_COMPILE", said)
    hook = CompileHook(str(ROOT), {}, None, None, "", "wheel")  # type: ignore[arg-type]
    build_data: dict[str, object] = {}

    hook.initialize("standard", build_data)

    assert build_data == {}
