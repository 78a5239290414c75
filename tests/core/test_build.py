"""The tests run the rules that the environment selects, compiled or interpreted."""

import ast
import inspect
import os
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cardledger.ledger.core import card_transaction, commands, events
from cardledger.ledger.engine import change_set
from cardledger.ledger.engine.build import is_compiled
from cardledger.ledger.projections.card_transaction import Identity
from hatch_build import CompileHook, with_constructors

ROOT = Path(__file__).parents[2]
CONFIGURED = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
COMPILED = [
    path
    for pattern in CONFIGURED["targets"]["wheel"]["hooks"]["custom"]["modules"]
    for path in sorted(ROOT.glob(pattern))
]


def test_the_rules_are_compiled_where_that_is_asked_for() -> None:
    assert is_compiled() == (os.environ.get("CARDLEDGER_COMPILED") == "1")


def test_the_image_is_built_with_the_hook() -> None:
    assert "!hatch_build.py" in (ROOT / ".dockerignore").read_text().splitlines()


def test_the_hook_needs_no_more_than_an_isolated_build_has() -> None:
    body = ast.parse((ROOT / "hatch_build.py").read_text()).body
    imported = {name.name for one in body if isinstance(one, ast.Import) for name in one.names}
    imported |= {one.module or "" for one in body if isinstance(one, ast.ImportFrom)}

    assert {name.partition(".")[0] for name in imported} - sys.stdlib_module_names == {"hatchling"}


@pytest.mark.parametrize("value", ["", "0"])
def test_nothing_is_compiled_unless_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("CARDLEDGER_COMPILE", value)
    hook = CompileHook(str(ROOT), {}, None, None, "", "wheel")  # type: ignore[arg-type]
    build_data: dict[str, object] = {}

    hook.initialize("standard", build_data)

    assert build_data == {}


@pytest.mark.parametrize("path", COMPILED, ids=lambda path: path.stem)
def test_a_module_keeps_its_lines_when_its_constructors_are_written_out(path: Path) -> None:
    source = path.read_text()

    before, after = source.splitlines(), with_constructors(source).splitlines()

    assert len(before) == len(after)
    for line, written in zip(before, after, strict=True):
        assert line == written or not line.strip() or line.startswith("@dataclass")


DECLARED = """
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    \"\"\"What has happened.\"\"\"

    amount: int
    final: bool = False  # Usually not.


@dataclass
class Place:
    row: int
    name: str = "nowhere"

    def __str__(self) -> str:
        return f"{self.row} {self.name}"
"""


def test_a_constructor_that_is_written_out_is_the_one_that_was_declared() -> None:
    written = with_constructors(DECLARED)
    before, after = namespace(DECLARED), namespace(written.replace("frozen=True, ", ""))

    assert written.count("def __init__") == 2
    for name, given in (("Fact", {"amount": 7}), ("Place", {"row": 3})):
        declared, made = before[name], after[name]
        assert inspect.signature(made.__init__) == inspect.signature(declared.__init__)
        assert repr(made(**given)) == repr(declared(**given))
    assert "@dataclass(frozen=True, slots=True, kw_only=True, init=False)" in written
    assert "@dataclass(init=False)" in written


def namespace(source: str) -> dict[str, Any]:
    made: dict[str, Any] = {"__name__": __name__}
    exec(source, made)  # noqa: S102 - ours
    return made


@pytest.mark.parametrize(
    "odd",
    [
        "@dataclass\nclass Odd:\n    a: int\n\n    def __post_init__(self): pass\n",
        "@dataclass\nclass Odd:\n    a: int\n\n    def __init__(self): pass\n",
        "@dataclass(init=False)\nclass Odd:\n    a: int\n\n",
        "@dataclass\nclass Odd:\n    a: ClassVar[int] = 1\n    b: int\n\n",
        "@dataclass\nclass Odd:\n    a: InitVar[int]\n\n",
        "@dataclass\nclass Odd:\n    _: KW_ONLY\n    a: int\n\n",
        "@dataclass(\n    frozen=True\n)\nclass Odd:\n    a: int\n\n",
        "@dataclass\nclass Odd:\n    a: int\n    def b(self): pass\n",
        "@dataclass\nclass Odd:\n    a: int",
    ],
)
def test_a_dataclass_that_is_more_than_fields_fails_the_build(odd: str) -> None:
    with pytest.raises(ValueError, match="cannot write a constructor for Odd"):
        with_constructors(odd)


@pytest.mark.skipif(not is_compiled(), reason="the constructors of interpreted classes are Python")
@pytest.mark.parametrize(
    "made",
    [
        change_set.CardTransactionContext,
        card_transaction.CardTransaction,
        commands.Authorize,
        events.Pulled,
        Identity,
    ],
)
def test_what_every_message_makes_is_made_by_compiled_code(made: Callable[..., object]) -> None:
    assert not inspect.isfunction(made.__init__)
