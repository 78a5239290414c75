"""Settlement files for tests, written from rows that a test changes, without the reader."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

HEADER = [
    "record",
    "file_id",
    "network",
    "settlement_date",
    "cycle",
    "type",
    "reference",
    "network_reference",
    "token",
    "card_id",
    "amount",
    "currency",
    "merchant_amount",
    "merchant_currency",
    "interchange",
    "transaction_date",
    "merchant",
    "mcc",
    "count",
]

Row = dict[str, str]

_DUE = {"PRESENTMENT", "CREDIT_REVERSAL", "FEE"}


def head(**changes: str) -> Row:
    """Return a header record."""
    found = {
        "record": "H",
        "file_id": "F-1",
        "network": "VISA",
        "settlement_date": "2026-10-26",
        "cycle": "1",
    }
    return found | changes


def line(reference: str = "r-1", **changes: str) -> Row:
    """Return a line: a presentment of 12.50 USD."""
    found = {
        "record": "D",
        "type": "PRESENTMENT",
        "reference": reference,
        "amount": "1250",
        "currency": "USD",
        "transaction_date": "2026-10-25",
        "merchant": "GREEN GROCER",
        "mcc": "5411",
    }
    return found | changes


def totals(lines: Iterable[Mapping[str, str]]) -> list[Row]:
    """Return the trailer records of `lines`, whose interchange is in whole units."""
    found: dict[str, list[int]] = {}
    for row in lines:
        sums = found.setdefault(row["currency"], [0, 0, 0])
        sums[0] += 1
        sums[1] += int(row["amount"]) * (1 if row["type"] in _DUE else -1)
        sums[2] += int(row.get("interchange") or 0)
    return [
        {
            "record": "T",
            "currency": currency,
            "count": str(count),
            "amount": str(amount),
            "interchange": str(interchange),
        }
        for currency, (count, amount, interchange) in found.items()
    ]


def text_of(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str] = HEADER, end: str = "\r\n"
) -> str:
    """Return `rows` as CSV."""
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator=end)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def file_of(*lines: Row, **changes: str) -> bytes:
    """Return a file with `lines` and right totals, its header changed by `changes`."""
    return text_of([head(**changes), *lines, *totals(lines)]).encode()
