"""The names of the interface, by the section of docs/interface.md that lists them.

Tests compare the page and the code with them.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

_FIXTURE: Final = Path(__file__).parent / "fixtures" / "interface.txt"


def _sections() -> Iterator[tuple[str, frozenset[str]]]:
    for block in _FIXTURE.read_text(encoding="utf-8").strip().split("\n\n"):
        heading, *names = block.splitlines()
        yield heading.lstrip("# "), frozenset(names)


NAMES: Final[Mapping[str, frozenset[str]]] = dict(_sections())
"""The names of every section and subsection, by its heading, in the order of the interface."""
