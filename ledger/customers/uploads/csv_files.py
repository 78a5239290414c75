"""Files of comma-separated values (RFC 4180) with one customer a row.

Encoding is UTF-8, with or without a byte order mark. A cell is text: what a spreadsheet would read
as a formula stays what it is. Nothing is guessed: another encoding or separator is an error.
"""

import csv
import io
import json
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from typing_extensions import override

from cardledger.schema.wire.errors import storable

ROW_LIMIT: Final = 100_000
"""Rows of a file, without the header."""

ROW_CHARACTERS: Final = 16_384
"""Characters of a row, with its separators: each part stays small enough to be read at once."""

LINE_LIMIT: Final = 10 * ROW_LIMIT
"""Lines of a file: those of a row with line breaks, and blank ones."""

PART_ROWS: Final = 50
"""Rows that are kept, and later processed, together."""

_PART_CHARACTERS: Final = 65_536  # From which on a part of long rows has no more of them.
_CELL_CHARACTERS: Final = 4  # Of JSON, beside those of a cell.

REQUIRED: Final = ("customerType", "platformCustomerId", "umaAddress")
"""Columns of every file; a cell of the last one may be empty."""

COLUMNS: Final = frozenset(
    {
        *REQUIRED,
        "fullName",
        "birthDate",
        "businessLegalName",
        "businessRegistrationNumber",
        "businessTaxId",
        "addressLine1",
        "addressLine2",
        "city",
        "state",
        "postalCode",
        "country",
        "email",
        "platformAccountId",
        "description",
    }
)
"""Columns that a file may have, in any order; the last two are read and not kept."""

_ADDRESS: Final[Mapping[str, str]] = {
    "addressLine1": "line1",
    "addressLine2": "line2",
    "city": "city",
    "state": "state",
    "postalCode": "postalCode",
    "country": "country",
}
_OF_EVERYBODY: Final = ("customerType", "platformCustomerId", "umaAddress", "email")
_OF_INDIVIDUALS: Final = ("fullName", "birthDate")
_OF_BUSINESSES: Final[Mapping[str, str]] = {
    "businessLegalName": "legalName",
    "businessRegistrationNumber": "registrationNumber",
    "businessTaxId": "taxId",
}


class UnreadableError(Exception):
    """The file cannot be read; the message says what to change. No row of it counts."""


class _Lines(Iterator[str]):
    """The lines of a file, whose rows are bounded before any of them is taken apart."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text: Final = text
        self._count = 0
        self._left = ROW_CHARACTERS

    @override
    def __next__(self) -> str:
        line = self._text.readline(self._left + 1)
        if not line:
            raise StopIteration
        self._count += 1
        if self._count > LINE_LIMIT:
            raise UnreadableError(
                f"The file has more than {LINE_LIMIT:,} lines; send the rest in another file."
            )
        self._left -= len(line)
        if self._left < 0:
            raise UnreadableError(
                f"The row of line {self._count} has more than {ROW_CHARACTERS:,} characters;"
                " shorten it, or end it with a line break."
            )
        return line

    def end_row(self) -> None:
        """Count the characters of the next row from its beginning."""
        self._left = ROW_CHARACTERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row: the line in which it ends, and its cells."""

    line: int
    cells: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedFile:
    """The columns of a file and its rows in `parts`, each a text for `rows_of`."""

    columns: Sequence[str]
    total: int
    parts: Sequence[str]


def parse(content: bytes) -> Generator[None, None, ParsedFile]:
    """Return the rows of a file, in steps of a row; blank ones are passed over.

    A large file takes a second or more, a step mostly much less than a millisecond, and ten for a
    row of thousands of lines.
    Raises: UnreadableError.
    """
    if content[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        raise UnreadableError("The file is UTF-16; save it as UTF-8 and send it again.")
    raw = io.BytesIO(content)
    lines = _Lines(io.TextIOWrapper(raw, encoding="utf-8-sig", newline=""))
    reader = csv.reader(lines, strict=True)
    try:
        header = _next(reader, lines)
        columns = _columns(header or [])
        total, parts = 0, _Parts()
        while (cells := _next(reader, lines)) is not None:
            yield
            if not any(map(str.strip, cells)):
                continue
            total += 1
            if total > ROW_LIMIT:
                raise UnreadableError(
                    f"The file has more than {ROW_LIMIT:,} rows; send the rest in another file."
                )
            # One cell too many is as wrong as thousands, and thousands take memory.
            parts.add(Row(line=reader.line_num, cells=cells[: len(columns) + 1]))
    except UnicodeDecodeError as error:
        place = raw.tell() - len(error.object) + error.start
        raise UnreadableError(_not_utf8(content, place)) from None
    except csv.Error as error:
        raise UnreadableError(
            f"Line {reader.line_num} cannot be read: {error}; put a cell with a comma, a quote or a"
            " line break into double quotes, and double the quotes in it."
        ) from None
    if not total:
        raise UnreadableError("The file has no rows; send one customer a row below the header.")
    return ParsedFile(columns=columns, total=total, parts=parts.end())


class _Parts:
    """Rows as the texts of parts, as many together as a part may have."""

    def __init__(self) -> None:
        self._whole: Final[list[str]] = []
        self._rows: list[Row] = []
        self._characters = 0

    def add(self, row: Row) -> None:
        self._rows.append(row)
        self._characters += sum(map(len, row.cells)) + _CELL_CHARACTERS * len(row.cells)
        if len(self._rows) == PART_ROWS or self._characters >= _PART_CHARACTERS:
            self.end()

    def end(self) -> list[str]:
        """End the last part; return all of them."""
        if self._rows:
            self._whole.append(_text_of(self._rows))
        self._rows, self._characters = [], 0
        return self._whole


def rows_of(part: str) -> list[Row]:
    """Return the rows of a part of a file."""
    return [Row(line=line, cells=cells) for line, cells in json.loads(part)]


def body_of(columns: Sequence[str], row: Row) -> dict[str, Any]:
    """Return a row in the form of the body of `POST /customers`; empty cells are left out.

    Raises: ValueError when it has other cells than the header has columns.
    """
    if len(row.cells) > len(columns):
        message = f"has more than {len(columns)} cells, one for each column of the header"
        raise ValueError(message)
    if len(row.cells) < len(columns):
        message = f"has {len(row.cells)} cells, and the header {len(columns)} columns"
        raise ValueError(message)
    cells = {
        name: text for name, cell in zip(columns, row.cells, strict=True) if (text := cell.strip())
    }
    body: dict[str, Any] = {name: cells[name] for name in _OF_EVERYBODY if name in cells}
    address = {field: cells[name] for name, field in _ADDRESS.items() if name in cells}
    if address:
        body["address"] = address
    if cells.get("customerType") == "BUSINESS":
        body["businessInfo"] = {
            field: cells[name] for name, field in _OF_BUSINESSES.items() if name in cells
        }
    else:
        body |= {name: cells[name] for name in _OF_INDIVIDUALS if name in cells}
    return body


def column_of(field: str) -> str:
    """Return the column of a field of `POST /customers`, by its path."""
    parent, _, name = field.rpartition(".")
    own = {"address": _ADDRESS, "businessInfo": _OF_BUSINESSES}.get(parent, {})
    return next((column for column, known in own.items() if known == name), field)


def correlation_of(columns: Sequence[str], row: Row) -> str:
    """Return what tells a row from others for its sender: its own identifier, or its line."""
    cells = dict(zip(columns, row.cells, strict=False))
    own = storable(cells.get("platformCustomerId", "").strip())
    return own[:255] or f"line {row.line}"


def _next(reader: Iterator[list[str]], lines: _Lines) -> list[str] | None:
    """Return the cells of the next row, which has its own limit; None at the end."""
    cells = next(reader, None)
    lines.end_row()
    return cells


def _columns(header: Sequence[str]) -> Sequence[str]:
    names = [name.strip() for name in header]
    if len(names) == 1 and any(separator in names[0] for separator in ";\t|"):
        raise UnreadableError("The header has one column; separate columns with commas.")
    if unknown := [name for name in names if name not in COLUMNS]:
        raise UnreadableError(
            f"The header has unknown columns: {_listed(unknown)}; known are"
            f" {', '.join(sorted(COLUMNS))}."
        )
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise UnreadableError(f"The header has a column twice: {_listed(twice)}.")
    if missing := [name for name in REQUIRED if name not in names]:
        raise UnreadableError(f"The header lacks the columns {_listed(missing)}.")
    return names


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name[:50]) for name in names[:5])
    return shown + (", …" if len(names) > 5 else "")  # noqa: PLR2004 - as above


def _text_of(rows: Sequence[Row]) -> str:
    return json.dumps([[row.line, row.cells] for row in rows], ensure_ascii=False)


def _not_utf8(content: bytes, place: int) -> str:
    line = content.count(b"\n", 0, place) + 1
    return (
        f"The file is not UTF-8: byte {place}, in line {line}, is not valid; save it as UTF-8 and"
        " send it again."
    )
