"""xlsx: numbers are numbers in the format of their currency, everything else is text or a date.

No text becomes a formula, a link or a number, whatever a merchant is called. A spreadsheet has 15
digits: a longer amount is written as text, exactly, and the sheet `about` says so. Times are text,
because a spreadsheet has neither time zones nor microseconds. Rows go to temporary files: memory
does not grow with their number.
"""

import io
import tempfile
from collections.abc import Callable, Iterator
from datetime import date
from functools import cache
from typing import IO, Any, Final

from cardledger.commands.reports import extra, xlsx_rows
from cardledger.commands.reports.document import Document, Row, major, plain
from cardledger.ledger.queries.report_definitions import Column, Kind

ROWS_PER_SHEET: Final = 1_048_575
"""One less than a sheet can have; the names of the columns are the first."""

DIGITS: Final = 15
"""The decimal digits that a spreadsheet keeps of a number."""

_OPTIONS: Final = {
    "constant_memory": True,
    "strings_to_formulas": False,
    "strings_to_urls": False,
    "strings_to_numbers": False,
}
_TEXT: Final = "@"  # Stays text when the cell is edited, even a formula.
_FIRST_INEXACT: Final = 10**DIGITS
_WIDTHS: Final = {
    Kind.ID: 38,
    Kind.DATE: 11,
    Kind.TIME: 28,
    Kind.COUNT: 9,
    Kind.MINOR: 18,
    Kind.TOTAL: 18,
    Kind.FRACTION: 18,
    Kind.TEXT: 20,
}

_Cell = Callable[[Any, int | None], str]
"""Returns the XML of a value behind its place; the second argument: decimals of the currency."""


def write(out: IO[bytes], document: Document, *, rows_per_sheet: int = ROWS_PER_SHEET) -> None:
    """Write `document` as a workbook: its rows, then the sheet `about` with its head.

    Raises: CommandError when XlsxWriter is not installed.
    """
    xlsxwriter = package()
    with tempfile.TemporaryDirectory(prefix="cardledger-xlsx-") as directory:
        # Not closed by a `with`, which would also finish the workbook of a report that has failed.
        options = _OPTIONS | {"tmpdir": directory}
        workbook = xlsxwriter.Workbook(_UntilItFails(out), options)
        workbook.use_zip64()
        cells = _Cells(workbook)
        sheets = _Sheets(workbook, xlsx_rows.worksheet_class(xlsxwriter), document, cells)
        for rows in document.batches:
            for row in rows:
                if sheets.next_row >= rows_per_sheet:
                    sheets.start()
                sheets.add(row)
        sheets.add_about()
        try:
            workbook.close()
        except xlsxwriter.exceptions.FileCreateError as error:
            # It hides what the stream raised, such as BrokenPipeError.
            raise error.args[0] from None


def package() -> Any:  # noqa: ANN401 - a module that may be absent
    """Return XlsxWriter.

    Raises: CommandError when it is not installed.
    """
    return extra.package("xlsxwriter", needed_for="xlsx")


class _UntilItFails:
    """A stream in whose place there is memory after an error of it.

    The archive of a workbook is finished once more when it is collected; a full disk would be
    reported a second time then, as an exception that Python ignores.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def write(self, data: bytes) -> int:
        try:
            return self._stream.write(data)
        except OSError:
            self._stream = io.BytesIO()
            raise

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of the stream
        return getattr(self._stream, name)


def _serial(day: str) -> int:
    """Return the number by which spreadsheets know a day after February 1900."""
    return (date.fromisoformat(day) - date(1899, 12, 30)).days


class _Cells:
    """The XML of values by their kind, and how many of them are not as expected."""

    def __init__(self, workbook: Any) -> None:  # noqa: ANN401 - XlsxWriter may be absent
        def style(num_format: str, **more: str) -> int:
            return xlsx_rows.style_of(workbook.add_format({"num_format": num_format, **more}))

        self.amounts_as_text = 0
        self.cut_texts = 0
        self._text: Final = f'" s="{style(_TEXT)}" t="inlineStr">'
        self._long_amount: Final = f'" s="{style(_TEXT, align="right")}" t="inlineStr">'
        self._date: Final = f'" s="{style("yyyy-mm-dd")}"><v>'
        self._count: Final = f'" s="{style("0")}"><v>'
        self._fraction: Final = f'" s="{style("#,##0.00######")}"><v>'
        self._money: Final = cache(
            lambda decimals: f'" s="{style("#,##0" + f".{0:0{decimals}}" * (decimals > 0))}"><v>'
        )
        self._serial: Final = cache(_serial)
        self.of: Final[dict[Kind, _Cell]] = {
            Kind.TEXT: self.text,
            Kind.ID: self._plain_text,
            Kind.TIME: self._plain_text,
            Kind.DATE: self._day,
            Kind.COUNT: lambda value, _: f"{self._count}{value}</v></c>",
            Kind.MINOR: self._amount,
            Kind.TOTAL: self._amount,
            Kind.FRACTION: self._unrounded,
        }

    def text(self, value: str, _: int | None = None) -> str:
        """Return any text, cut to what a cell can hold."""
        if not xlsx_rows.fits(value):
            self.cut_texts += 1
            value = xlsx_rows.cut(value)
        return f"{self._text}{xlsx_rows.text(value)}</c>"

    def _plain_text(self, value: str, _: int | None) -> str:
        """Return an id or a time, which has nothing to escape."""
        return f"{self._text}<is><t>{value}</t></is></c>"

    def _day(self, value: str, _: int | None) -> str:
        return f"{self._date}{self._serial(value)}</v></c>"

    def _amount(self, minor: int, decimals: int | None) -> str:
        if decimals is None:
            return self._as_text(f"{minor} minor units")
        text = plain(minor, decimals)
        if not -_FIRST_INEXACT < minor < _FIRST_INEXACT:
            return self._as_text(text)
        return f"{self._money(decimals)}{text}</v></c>"

    def _unrounded(self, minor: str, decimals: int | None) -> str:
        if decimals is None:
            return self._as_text(f"{minor} minor units")
        text = major(minor, decimals)
        if sum(map(str.isdigit, text.lstrip("-0."))) > DIGITS:
            return self._as_text(text)
        return f"{self._fraction}{text}</v></c>"

    def _as_text(self, amount: str) -> str:
        self.amounts_as_text += 1
        return f"{self._long_amount}<is><t>{amount}</t></is></c>"


class _Sheets:
    """The sheets of a workbook, one after the other."""

    def __init__(self, workbook: Any, sheet_class: Any, document: Document, cells: _Cells) -> None:  # noqa: ANN401 - XlsxWriter may be absent
        self._workbook: Final = workbook
        self._sheet_class: Final = sheet_class
        self._document: Final = document
        self._cells: Final = cells
        self._columns: Final = document.in_major_units()
        self._decimals_of: Final = document.decimals_of()
        self._heading: Final = workbook.add_format({"bold": True})
        self._makers: Final = [
            (place, f'<c r="{_letters(target)}', cells.of[column.kind])
            for target, (place, column) in enumerate(self._columns)
        ]
        self._number = 0  # Of the sheet.
        self.start()

    def start(self) -> None:
        """Begin a sheet with the names of the columns."""
        self._number += 1
        name = self._document.head.report
        self._sheet = self._add_sheet(name if self._number == 1 else f"{name} {self._number}")
        self._sheet.freeze_panes(1, 0)
        for target, (_, column) in enumerate(self._columns):
            self._sheet.set_column(target, target, _width(column))
            self._sheet.write_string(0, target, column.name, self._heading)
        self.next_row = 1

    def add(self, row: Row) -> None:
        """Write `row` below the last one."""
        decimals, number = self._decimals_of(row), self.next_row + 1
        cells = [
            f"{start}{number}{make(row[place], decimals)}"
            for place, start, make in self._makers
            if row[place] is not None
        ]
        self._sheet.write_xml_row(self.next_row, len(self._makers) - 1, "".join(cells))
        self.next_row += 1

    def add_about(self) -> None:
        """Write the last sheet: what the figures are about, and what is not as expected."""
        sheet = self._add_sheet("about")
        sheet.set_column(0, 1, 28)
        for at, (name, value) in enumerate(self._about()):
            cells = (self._cells.text(name), self._cells.text(value))
            xml = "".join(f'<c r="{_letters(to)}{at + 1}{cell}' for to, cell in enumerate(cells))
            sheet.write_xml_row(at, 1, xml)

    def _about(self) -> Iterator[tuple[str, str]]:
        for name, value in self._document.head.wire().items():
            yield name, str(value)
        yield "amounts", "in major units of the currency in the same row"
        if self._cells.amounts_as_text:
            why = f"more digits than the {DIGITS} of a spreadsheet, or an unknown currency"
            yield "amounts as text", f"{self._cells.amounts_as_text:,}: {why}"
        if self._cells.cut_texts:
            why = f"a cell has at most {xlsx_rows.TEXT_LIMIT:,} characters"
            yield "texts cut", f"{self._cells.cut_texts:,}: {why}"

    def _add_sheet(self, name: str) -> Any:  # noqa: ANN401 - XlsxWriter may be absent
        return self._workbook.add_worksheet(name, worksheet_class=self._sheet_class)


def _width(column: Column) -> int:
    return max(_WIDTHS[column.kind], len(column.name) + 2)


def _letters(column: int) -> str:
    """Return the name of a column, from 0: A, B, ..., Z, AA, ..."""
    letters = ""
    while column >= 0:
        column, letter = divmod(column, 26)
        letters, column = chr(ord("A") + letter) + letters, column - 1
    return letters
