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


def mt940_of(*lines: tuple[date, int, str], opening: int = 0) -> bytes:
    """Return a statement as MT940 of lines of day, minor units of USD and description."""

    def amount(minor: int) -> str:
        return f"{abs(minor) // 100},{abs(minor) % 100:02}"

    def balance(name: str, day: date, minor: int) -> str:
        return f":{name}:{'D' if minor < 0 else 'C'}{day:%y%m%d}USD{amount(minor)}"

    moved = [
        f":61:{day:%y%m%d%m%d}{'D' if minor < 0 else 'C'}{amount(minor)}NTRFNONREF//MT-{n}\n"
        f":86:{description}"
        for n, (day, minor, description) in enumerate(lines)
    ]
    closing = opening + sum(minor for _, minor, _ in lines)
    message = [
        ":20:START",
        ":25:12345678/0001234567",
        ":28C:00042/001",
        balance("60F", lines[0][0], opening),
        *moved,
        balance("62F", lines[-1][0], closing),
        "-",
    ]
    return "\n".join(message).encode() + b"\n"
