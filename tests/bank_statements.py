"""Statements of the bank for tests, written from lines that a test changes, without the reader."""

import csv
import io
from collections.abc import Sequence
from datetime import date
from typing import Any

COLUMNS = [
    "booking_date",
    "value_date",
    "amount",
    "currency",
    "bank_reference",
    "description",
    "opening",
    "closing",
]

Line = dict[str, Any]


def line(day: date, amount: int, description: str = "", **changes: str) -> Line:
    """Return a line of the bank: `amount` minor units of USD, positive when it arrived."""
    found = {
        "booking_date": str(day),
        "amount": str(amount),
        "currency": "USD",
        "description": description,
    }
    return found | changes


def statement_of(
    *lines: Line, opening: int = 0, columns: Sequence[str] = COLUMNS, end: str = "\r\n"
) -> bytes:
    """Return a statement with `lines` and right balances."""
    rows = [dict(each) for each in lines]
    rows[0].setdefault("opening", str(opening))
    rows[-1].setdefault("closing", str(opening + sum(int(each["amount"]) for each in lines)))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator=end)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()
