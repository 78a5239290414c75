"""Rows of a spreadsheet as XML, many times faster than a call of XlsxWriter for each cell.

A cell is written as XlsxWriter would write it in `constant_memory`: texts inline, numbers in
decimal. The caller chooses the kind of each cell; no text is looked at for what it could mean.
"""

import re
from functools import lru_cache
from typing import Any, Final

TEXT_LIMIT: Final = 32_767
"""The UTF-16 code units that a cell can have."""

_UNIT_BYTES: Final = 2
_ESCAPES: Final = re.compile(r"(_x[0-9a-fA-F]{4}_)")
_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\ufffe\uffff]")
_SPECIAL: Final = re.compile("[&<>\x00-\x08\x0b-\x1f\ufffe\uffff]|_x")


def worksheet_class(xlsxwriter: Any) -> Any:  # noqa: ANN401 - a module that may be absent
    """Return a class of worksheets that also take a whole row: `write_xml_row(row, cells)`."""

    class Worksheet(xlsxwriter.worksheet.Worksheet):  # type: ignore[misc] # may be absent
        def write_xml_row(self, row: int, last_column: int, cells: str) -> None:
            """Write the XML of the cells of `row`, of which the columns end at `last_column`."""
            self._check_dimensions(row, 0)
            self._check_dimensions(row, last_column)
            self._write_single_row(row)  # The rows before, which the other methods wrote.
            self.fh.write(f'<row r="{row + 1}">{cells}</row>')

    return Worksheet


def style_of(cell_format: Any) -> int:  # noqa: ANN401 - of XlsxWriter, which may be absent
    """Return the number of a format in the workbook."""
    number: int = cell_format._get_xf_index()  # noqa: SLF001 - nothing public says it
    return number


@lru_cache(maxsize=4096)
def text(value: str) -> str:
    """Return the XML of `value` as the text of a cell."""
    space = ' xml:space="preserve"' if value != value.strip() else ""
    return f"<is><t{space}>{escaped(value)}</t></is>"


def escaped(value: str) -> str:
    """Return `value` as XML; what XML cannot say is `_xHHHH_`, as spreadsheets read it."""
    if not _SPECIAL.search(value):
        return value
    value = _ESCAPES.sub(r"_x005F\1", value)
    value = _CONTROLS.sub(lambda found: f"_x{ord(found[0]):04X}_", value)
    return value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def fits(value: str) -> bool:
    """Return whether a cell can hold `value`."""
    return len(value) <= TEXT_LIMIT // 2 or len(_utf_16(value)) <= TEXT_LIMIT * _UNIT_BYTES


def cut(value: str) -> str:
    """Return the part of `value` that a cell can hold."""
    return _utf_16(value)[: TEXT_LIMIT * _UNIT_BYTES].decode("utf-16-le", errors="ignore")


def _utf_16(value: str) -> bytes:
    return value.encode("utf-16-le", errors="replace")
