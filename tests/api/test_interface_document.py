"""docs/interface.md covers every name of the interface, and every statement names its tests."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from cardledger.schema.wire.error_specs import ERROR_SPECS
from cardledger.schema.wire.errors import Code
from tests.api.test_error_codes import PROVOKE
from tests.interface import NAMES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "interface.md").read_text(encoding="utf-8")
STATES = ("built", "built, our choice: ", "not built: 501", "not raised: ")
HEAD = ("Statement", "State", "Proof")
PROOF = re.compile(r"`(tests/[a-z_/]+\.py)::(test_\w+)`")
REPRODUCED = "test_a_code_can_be_reproduced"


@dataclass(frozen=True)
class Row:
    """One statement of the interface, under the heading that it has there."""

    section: str
    statement: str
    state: str
    proof: str

    @property
    def proofs(self) -> list[tuple[str, str]]:
        """File and name of every test that is named."""
        return PROOF.findall(self.proof)

    def __str__(self) -> str:
        return f"{self.section}: {self.statement}"


def headings() -> list[str]:
    return re.findall(r"^###? (.*)$", PAGE, re.MULTILINE)


def rows() -> Iterator[Row]:
    """Yield the rows of the tables of statements; tables with other heads explain the page."""
    section, is_one = "", False
    for line in PAGE.splitlines():
        if line.startswith("#"):
            section, is_one = line.lstrip("# "), False
        elif not line.startswith("|"):
            is_one = False
        else:
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            if tuple(cells) == HEAD:
                is_one = True
            elif is_one and not set(line) <= set("|-"):
                statement, state, proof = cells
                yield Row(section, statement, state, proof)


ROWS = list(rows())


@cache
def names_in(path: str) -> frozenset[str]:
    """Return the names of the tests of a file, as pytest finds them."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    nodes = [*tree.body, *(node for place in classes for node in place.body)]
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef))


def says(row: Row, name: str) -> bool:
    """Return whether a statement is about a name, in code font, or begins with an area's."""
    return f"`{name}`" in row.statement or row.statement.startswith(f"{name}:")


def test_the_sections_are_those_of_the_interface_in_its_order() -> None:
    assert headings() == list(NAMES)
    assert len(NAMES) == 33


@pytest.mark.parametrize("section", NAMES)
def test_every_name_in_a_section_of_the_interface_is_in_a_statement(section: str) -> None:
    here = [row for row in ROWS if row.section == section]

    assert {name for name in NAMES[section] if not any(says(row, name) for row in here)} == set()


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_statement_has_a_state_and_tests_that_exist(row: Row) -> None:
    assert row.state == "built" or row.state.startswith(STATES[1:])
    assert row.proofs, "no row without a test"
    assert ", ".join(f"`{path}::{name}`" for path, name in row.proofs) == row.proof
    assert [name for path, name in row.proofs if name not in names_in(path)] == []


def test_no_statement_is_made_twice() -> None:
    assert len(set(map(str, ROWS))) == len(ROWS)


def codes() -> Iterator[tuple[Code, Row]]:
    """Yield every code with its row."""
    for row in ROWS:
        if row.section.endswith(" codes"):
            name = row.statement.split("`")[1]
            yield Code(name), row


def test_a_code_is_marked_as_built_where_the_table_of_codes_says_returned() -> None:
    for code, row in codes():
        assert row.section == f"{ERROR_SPECS[code].status} codes"
        assert row.state.startswith("built") == ERROR_SPECS[code].is_returned, row
        if REPRODUCED in row.proof:
            assert code in PROVOKE, f"nothing provokes {code}"
