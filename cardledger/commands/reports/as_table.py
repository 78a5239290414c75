"""A table that fits the terminal; amounts in major units of their currency."""

import io
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import IO, Any, Final

from rich.console import Console
from rich.text import Text

from cardledger.commands.daily import tables
from cardledger.commands.reports.document import Document, Row, major
from cardledger.config import console as terminal
from cardledger.ledger.queries.report_definitions import AGES, Column, Kind

ROWS_SHOWN: Final = 1_000
"""More rows are not for people; the other formats have them."""

_ELSEWHERE: Final = "--format csv has them"
_AGE: Final = "age"
_AMOUNTS: Final = frozenset({Kind.MINOR, Kind.TOTAL, Kind.FRACTION})


def row_limit(columns: Sequence[Column]) -> int | None:
    """Return how many rows a table needs; None for all, of which it shows sums."""
    has_sums = any(column.name == _AGE for column in columns)
    return None if has_sums else ROWS_SHOWN + 1


def write(out: IO[bytes], document: Document) -> None:
    """Write `document` as text without colours."""
    text = io.TextIOWrapper(out, encoding="utf-8", newline="", write_through=True)
    try:
        show(terminal.console(text), document)
        text.flush()
    finally:
        text.detach()


def show(out: Console, document: Document) -> None:
    """Print the head, at most `ROWS_SHOWN` rows, and the sums of each class of ages."""
    out.print(Text(document.head.line(), style="dim"))
    columns, decimals_of = document.in_major_units(), document.decimals_of()
    first: list[Row] = []
    sums: Counter[tuple[str, str]] = Counter()
    for rows in document.batches:
        first += rows[: ROWS_SHOWN + 1 - len(first)]
        sums.update(_amounts_by_age(document, rows))
    if not first:
        out.print("none")
        return
    shown = [
        [_cell(row[place], column, decimals_of(row)) for place, column in columns]
        for row in first[:ROWS_SHOWN]
    ]
    layout = [_layout(column) for _, column in columns]
    tables.show(out, layout, shown, elsewhere=_ELSEWHERE)
    if len(first) > ROWS_SHOWN:
        out.print(Text(f"the first {ROWS_SHOWN:,} rows; --format csv has all", style="dim"))
    for line in _sum_lines(document, sums):
        out.print(line)


def _layout(column: Column) -> tables.Column:
    return tables.Column(
        name=column.name,
        keep=column.kind in {Kind.MINOR, Kind.TOTAL, Kind.DATE}
        or column.name in {"account", "currency"},
        is_number=column.kind in _AMOUNTS | {Kind.COUNT},
    )


def _cell(value: Any, column: Column, decimals: int | None) -> object:  # noqa: ANN401 - of any kind
    if column.kind not in _AMOUNTS or value is None:
        return value
    if decimals is not None and column.kind is Kind.FRACTION:
        return major(value, decimals)
    return f"{value} minor units" if decimals is None else terminal.decimal(value, decimals)


def _amounts_by_age(document: Document, rows: Sequence[Row]) -> Counter[tuple[str, str]]:
    """Return what is open in `rows`, by currency and age; empty for reports without ages."""
    age, currency = document.place(_AGE), document.place("currency")
    amounts = [at for at, column in enumerate(document.columns) if column.kind is Kind.MINOR]
    sums: Counter[tuple[str, str]] = Counter()
    if age is not None and currency is not None:
        for row in rows:
            sums[row[currency], row[age]] += row[amounts[0]]
    return sums


def _sum_lines(document: Document, sums: Counter[tuple[str, str]]) -> Iterator[str]:
    """Yield the sums of each currency: of each class of ages, then the total."""
    for currency in sorted({currency for currency, _ in sums}):
        decimals = document.decimals.get(currency, 0)
        yield ""
        for age in AGES:
            yield f"  {age + ' days':<12} {terminal.decimal(sums[currency, age], decimals):>20}"
        total = sum(sums[currency, age] for age in AGES)
        yield f"  {currency:<12} {terminal.decimal(total, decimals):>20}"
