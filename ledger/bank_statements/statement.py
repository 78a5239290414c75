"""A statement of the bank, read one row at a time and checked whole: opening + lines = closing.

Nothing may be done with the lines unless the iteration ends: only the end proves them.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO, Final

from cardledger.ledger.bank_statements.records import (
    COLUMNS,
    DEFAULT_ACCOUNT,
    OPTIONAL,
    PLACE,
    REQUIRED,
    Line,
    Summary,
)
from cardledger.ledger.network_files import card_numbers, csv_rows, fields
from cardledger.ledger.network_files.records import Code, RefusedError
from cardledger.schema.wire.iso4217 import CODES

Rows = Iterator[tuple[int, Sequence[str]]]
"""Rows of a statement, each after the number of its first line; fields are as of `COLUMNS`.

A row without an amount has balances only.
"""

_BOOKING_DATE: Final = PLACE["booking_date"]
_VALUE_DATE: Final = PLACE["value_date"]
_AMOUNT: Final = PLACE["amount"]
_REFERENCE: Final = PLACE["bank_reference"]
_DESCRIPTION: Final = PLACE["description"]
_OPENING: Final = PLACE["opening"]
_CLOSING: Final = PLACE["closing"]

_SIGNED: Final = re.compile(r"[+-]?[0-9]{1,30}", re.ASCII)
_MAX_CHARS: Final = {
    "bank_reference": 200,
    "description": 2048,
    "account": 100,
    "statement_id": 200,
}
# Balances are sums, which no card pays; references and accounts may be numbers of any length.
_SEARCHED: Final = ("booking_date", "value_date", "currency", "description", "statement_id")
MAX_LINES: Final = 200_000
"""Lines of a statement: each is compared with the days of networks in one database transaction."""

_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Statement:
    """A statement that is read by iterating it, once; `summary` is there when that has ended."""

    def __init__(
        self, rows: Rows, *, account: str | None = None, statement_id: str | None = None
    ) -> None:
        """Read `rows`; what is said here counts in place of what they say.

        Raises: ValueError when it is too long.
        """
        for name, text in (("account", account), ("statement_id", statement_id)):
            if text is not None and not 0 < len(text) <= _MAX_CHARS[name]:
                raise ValueError(f"{name} must have 1 to {_MAX_CHARS[name]} characters")
        self._rows: Final = rows
        self._account: Final = account
        self._statement_id: Final = statement_id
        self._whole: Final[dict[str, str]] = {}  # Fields that are the same in all rows.
        self._balances: Final[dict[str, int]] = {}
        self.summary: Summary | None = None

    def __iter__(self) -> Iterator[Line]:
        """Yield the lines in order. Raises: RefusedError, also at the end."""
        digest = hashlib.sha256()
        total = count = number = 0
        days: list[str] = []
        for number, row in self._rows:
            self._check_row(row, number)
            if not row[_AMOUNT] and not row[_BOOKING_DATE]:
                continue  # Balances only.
            line = _line(row, number)
            # First and last in order of days, not of lines.
            days = [min([*days[:1], line.booking_date]), max([*days[-1:], line.booking_date])]
            total += line.amount
            count += 1
            if count > MAX_LINES:
                raise RefusedError(
                    Code.TOO_LARGE,
                    f"a statement must have at most {MAX_LINES} lines: export fewer days",
                    line=number,
                )
            digest.update((_ENCODE(line[1:]) + "\n").encode())
            yield line
        self.summary = self._checked(total, count, days, digest, number)

    def _check_row(self, row: Sequence[str], number: int) -> None:
        _refuse_card_numbers(row, number)
        for name, most in _MAX_CHARS.items():
            if len(row[PLACE[name]]) > most:
                raise RefusedError(
                    Code.BAD_TYPE,
                    f"must have at most {most} characters",
                    line=number,
                    column=name,
                )
        for name in ("currency", *OPTIONAL):
            text = row[PLACE[name]]
            if text and self._whole.setdefault(name, text) != text:
                raise RefusedError(
                    Code.MIXED_ACCOUNTS,
                    f"{fields.shown(text)}: the rows before are of"
                    f" {fields.shown(self._whole[name])}; a statement is of one account",
                    line=number,
                    column=name,
                )
        if row[PLACE["currency"]] and row[PLACE["currency"]] not in CODES:
            raise RefusedError(
                Code.UNKNOWN_CURRENCY,
                f"{fields.shown(row[PLACE['currency']])}: must be a currency code of ISO 4217,"
                " such as USD",
                line=number,
                column="currency",
            )
        for name in ("opening", "closing"):
            if row[PLACE[name]]:
                balance = _signed(row[PLACE[name]], number, name)
                if self._balances.setdefault(name, balance) != balance:
                    raise RefusedError(
                        Code.CONTROL_TOTAL,
                        f"a row before says {self._balances[name]}: a statement has one {name}"
                        " balance",
                        line=number,
                        column=name,
                    )

    def _checked(
        self, total: int, count: int, days: list[str], digest: "hashlib._Hash", last_line: int
    ) -> Summary:
        if not days:
            raise RefusedError(Code.EMPTY_FILE, "the statement has no line")
        for name, found in (("currency", self._whole), ("opening", self._balances),
                            ("closing", self._balances)):  # fmt: skip
            if name not in found:
                raise RefusedError(
                    Code.NO_TRAILER if name != "currency" else Code.UNKNOWN_CURRENCY,
                    f"no row has a {name}: the statement needs it",
                    line=last_line,
                    column=name,
                )
        opening, closing = self._balances["opening"], self._balances["closing"]
        if opening + total != closing:
            raise RefusedError(
                Code.CONTROL_TOTAL,
                f"opening {opening} and the lines, {total}, give {opening + total}; the closing"
                f" balance is {closing}",
                line=last_line,
                column="closing",
            )
        first, last = days[0], days[-1]
        account = self._account or self._whole.get("account", DEFAULT_ACCOUNT)
        by_days = f"{first}..{last} {self._whole['currency']}"
        statement_id = self._statement_id or self._whole.get("statement_id", by_days)
        whole = [self._whole["currency"], opening, closing]
        digest.update((_ENCODE(whole) + "\n").encode())
        return Summary(
            account,
            statement_id,
            self._whole["currency"],
            first,
            last,
            opening,
            closing,
            count,
            digest.hexdigest(),
        )


def canonical_rows(file: BinaryIO) -> Rows:
    """Yield the rows of a file of the canonical form after the row that names its columns.

    Raises: RefusedError.
    """
    rows = csv_rows.rows(file)
    first = next(rows, None)
    if first is None:
        raise RefusedError(Code.EMPTY_FILE, "the file is empty")
    number, names = first
    _check_names(names, number)
    places = [names.index(name) if name in names else None for name in COLUMNS]
    for number, row in rows:
        if len(row) != len(names):
            raise RefusedError(
                Code.TRUNCATED, f"the row has {len(row)} of {len(names)} columns", line=number
            )
        yield number, ["" if place is None else row[place] for place in places]


def _check_names(names: Sequence[str], number: int) -> None:
    counts = {name: names.count(name) for name in names}
    problems = (
        [f"{name} is missing" for name in REQUIRED if name not in counts]
        + [f"{name} is there {n} times" for name, n in counts.items() if n > 1 and name in PLACE]
        + ["others are unknown" for name in counts if name not in PLACE][:1]
    )
    if problems:
        raise RefusedError(
            Code.BAD_HEADER,
            f"the first row must name the columns {', '.join(REQUIRED)}, and may name"
            f" {' and '.join(OPTIONAL)}: {problems[0]}",
            line=number,
        )


def _line(row: Sequence[str], number: int) -> Line:
    for name in ("booking_date", "value_date"):
        day = row[PLACE[name]]
        if (day or name == "booking_date") and not fields.is_date(day):
            raise RefusedError(
                Code.BAD_DATE,
                f"{fields.shown(day)}: must be a date, YYYY-MM-DD",
                line=number,
                column=name,
            )
    amount = _signed(row[_AMOUNT], number, "amount")
    if amount == 0:
        raise RefusedError(
            Code.BAD_AMOUNT, "'0': a line must move something", line=number, column="amount"
        )
    return Line(
        number,
        row[_BOOKING_DATE],
        row[_VALUE_DATE] or None,
        amount,
        row[_REFERENCE] or None,
        row[_DESCRIPTION] or None,
    )


def _signed(text: str, number: int, column: str) -> int:
    if _SIGNED.fullmatch(text) and abs(value := int(text)) <= fields.MAX_AMOUNT:
        return value
    raise RefusedError(
        Code.BAD_AMOUNT,
        "must be digits, minor units, with a sign when it left the account, to"
        f" {fields.MAX_AMOUNT}",
        line=number,
        column=column,
    )


def _refuse_card_numbers(row: Sequence[str], number: int) -> None:
    for name in _SEARCHED:
        if card_numbers.found_in(row[PLACE[name]]):
            raise _card_number(name, number)
    amount = row[_AMOUNT]
    if not _SIGNED.fullmatch(amount) and card_numbers.found_in(amount):
        raise _card_number("amount", number)


def _card_number(column: str, number: int) -> RefusedError:
    return RefusedError(
        Code.PAN_FOUND,
        "the field has a card number: files with card numbers are not kept",
        line=number,
        column=column,
    )
