"""CSV by RFC 4180: UTF-8, CRLF, a header line, amounts in minor units, exact.

NULL is an empty field and empty text is two quotes, as PostgreSQL reads them. Nothing is changed
for spreadsheets, which may take a merchant's name for a formula: they should open xlsx.
"""

from collections.abc import Iterable, Sequence
from typing import IO, Any, Final

from cardledger.commands.reports.document import Document, Row
from cardledger.ledger.queries.report_definitions import Column

_LINE_END: Final = "\r\n"
_QUOTED: Final = frozenset('",\r\n')


def write(out: IO[bytes], document: Document) -> None:
    """Write `document`; its head has no place in CSV."""
    _write_header(out, document.columns)
    for rows in document.batches:
        out.write("".join(map(line, rows)).encode())


def write_lines(
    out: IO[bytes], columns: Sequence[Column], batches: Iterable[Sequence[bytes]]
) -> None:
    """Write the same of lines that PostgreSQL has made, without their ends."""
    _write_header(out, columns)
    end = _LINE_END.encode()
    for lines in batches:
        out.write(end.join(lines) + end)


def _write_header(out: IO[bytes], columns: Sequence[Column]) -> None:
    out.write(line([column.name for column in columns]).encode())


def line(row: Row) -> str:
    """Return the line of `row`.

    Most rows have nothing to quote, which is seen in the whole line three times as fast as
    `csv.writer` looks at each character.
    """
    joined = ",".join(
        ["" if value is None else value if type(value) is str else str(value) for value in row]
    )
    is_plain = (
        joined.count(",") == len(row) - 1
        and '"' not in joined
        and "\n" not in joined
        and "\r" not in joined
        and "" not in row
    )
    return (joined if is_plain else ",".join(map(_field, row))) + _LINE_END


def _field(value: Any) -> str:  # noqa: ANN401 - text, a number or NULL
    if value is None:
        return ""
    text = str(value)
    if not text or not _QUOTED.isdisjoint(text):
        return '"' + text.replace('"', '""') + '"'
    return text
