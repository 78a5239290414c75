"""The rows of a CSV file, one at a time, each with the line on which it begins.

Memory does not grow with the file: a line and a row have a greatest length.
"""

import csv
import re
from collections.abc import Iterator
from typing import BinaryIO, Final

from cardledger.ledger.network_files.records import Code, RefusedError

MAX_LINE_BYTES: Final = 65_536
"""The greatest length of a line of a file."""

_MAX_ROW_LINES: Final = 100
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_BOM: Final = b"\xef\xbb\xbf"


def rows(
    file: BinaryIO, *, delimiter: str = ",", quote: str = '"', encoding: str = "utf-8"
) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of `file` that are not empty, each after the number of its first line.

    `encoding`: one in which a line ends with the byte of LF. Raises: RefusedError when the file is
    not text, or ends within quotes.
    """
    lines = _Lines(file, encoding)
    reader = csv.reader(lines, delimiter=delimiter, quotechar=quote, strict=True)
    try:
        for row in reader:
            if row:
                yield lines.row_begins, row
            lines.row_begins = reader.line_num + 1
    except csv.Error as error:
        raise _not_csv(error, lines.row_begins) from None


class _Lines:
    """The lines of a file as `csv.reader` takes them; `row_begins` is set by the reader of rows."""

    def __init__(self, file: BinaryIO, encoding: str) -> None:
        self._file = file
        self._encoding = encoding
        self._count = 0
        self.row_begins = 1

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self._file.readline(MAX_LINE_BYTES + 1)
        if not line:
            raise StopIteration
        self._count += 1
        if len(line) > MAX_LINE_BYTES:
            raise RefusedError(
                Code.TRUNCATED,
                f"a line has more than {MAX_LINE_BYTES} bytes: a line break is missing",
                line=self._count,
            )
        if self._count - self.row_begins >= _MAX_ROW_LINES:
            raise RefusedError(
                Code.TRUNCATED,
                f"a row has more than {_MAX_ROW_LINES} lines: a quote is not closed",
                line=self.row_begins,
            )
        if self._count == 1:
            line = line.removeprefix(_BOM)
        try:
            text = line.decode(self._encoding)
        except UnicodeDecodeError:
            raise RefusedError(
                Code.NOT_UTF8, f"the line is not {self._encoding} text", line=self._count
            ) from None
        if _CONTROLS.search(text):
            raise RefusedError(
                Code.NOT_UTF8, "the line has a control character: it is not text", line=self._count
            )
        return text


def _not_csv(error: csv.Error, line: int) -> RefusedError:
    if "unexpected end" in str(error):
        return RefusedError(
            Code.TRUNCATED, "the file ends within quotes: it is not complete", line=line
        )
    if "field larger" in str(error):
        return RefusedError(Code.TRUNCATED, "a field is too long: a quote is not closed", line=line)
    return RefusedError(
        Code.TRUNCATED,
        "the row is not CSV: double the quotes in a field, and end lines with LF or CRLF",
        line=line,
    )
