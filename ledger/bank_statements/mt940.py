"""Statements in the format MT940 of SWIFT as rows of the canonical form, by the library mt-940.

A file may have several messages, one for each day or page: they are one statement when each begins
with the balance with which the one before has ended.
"""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, BinaryIO, Final

from cardledger.ledger.bank_statements.records import COLUMNS, PLACE
from cardledger.ledger.bank_statements.statement import Rows
from cardledger.ledger.network_files import card_numbers, fields
from cardledger.ledger.network_files.records import Code, RefusedError
from cardledger.schema.wire.common import CURRENCIES

MAX_BYTES: Final = 16 * 1024 * 1024
"""The library needs a message as a whole, and several times its size: a greater file is refused."""

_BEGIN: Final = re.compile(r"^:20:", re.MULTILINE)
_LINE: Final = re.compile(r"^:61:", re.MULTILINE)
_ENVELOPE: Final = re.compile(r"^-\}?.*|\{1:.*", re.MULTILINE | re.DOTALL)
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
# An account, balances and the amount with the references of a line are numbers of any length.
_UNSEARCHED: Final = re.compile(r"^:(?:20|21|25|28C?|6[0-5][FM]?):.*$", re.MULTILINE)


class NotInstalledError(Exception):
    """The library that reads MT940 is not installed: the extra `bank`."""


def is_mt940(start: bytes) -> bool:
    """Return whether a file that begins with `start` is of this format."""
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    return text.startswith((b":20:", b"{1:"))


def rows(file: BinaryIO) -> Rows:
    """Yield the lines of `file` as a statement of the canonical form has them.

    Raises: RefusedError; NotInstalledError.
    """
    data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise RefusedError(
            Code.TOO_LARGE, f"a file of MT940 must have at most {MAX_BYTES} bytes: split it"
        )
    text = _text(data)
    begins = [match.start() for match in _BEGIN.finditer(text)]
    if not begins:
        raise RefusedError(Code.BAD_HEADER, "the file has no field :20:: a message begins with it")
    first = before = None
    for begin, end in zip(begins, [*begins[1:], len(text)], strict=True):
        message = _Message(text[begin:end], text.count("\n", 0, begin) + 1)
        if before is not None and message.opening != before.closing:
            raise RefusedError(
                Code.CONTROL_TOTAL,
                "the message does not begin with the account and the balance with which the one"
                " before has ended: it is of another statement",
                line=message.line,
                column="opening",
            )
        yield from message.rows()
        first, before = first or message, message
    assert first is not None
    assert before is not None
    account, currency, opening = first.opening
    numbers = dict.fromkeys([first.number, before.number])
    yield (
        before.line,
        _row(
            account=account,
            statement_id=f"{'..'.join(numbers)} {before.day}",
            currency=currency,
            opening=str(opening),
            closing=str(before.closing[2]),
        ),
    )


class _Message:
    """One message: its balances, and its lines as rows."""

    def __init__(self, text: str, number: int) -> None:
        """Read the message in `text`, which begins on line `number` of the file."""
        self.line: Final = number
        found = _parsed(text, number)
        data = found.data
        opening = data.get("final_opening_balance", data.get("intermediate_opening_balance"))
        closing = data.get("final_closing_balance", data.get("intermediate_closing_balance"))
        if opening is None or closing is None:
            raise RefusedError(
                Code.NO_TRAILER,
                "the message has no opening or no closing balance (:60F:, :62F:)",
                line=number,
                column="opening" if opening is None else "closing",
            )
        self._account: Final = str(data.get("account_identification") or "")
        self._currency: Final = str(opening.amount.currency)
        self.day: Final = str(closing.date)
        self.number: Final = "/".join(
            str(data[name]) for name in ("statement_number", "sequence_number") if data.get(name)
        )
        self.opening: Final = self._account, self._currency, self._minor(opening.amount, "opening")
        self.closing: Final = self._account, self._currency, self._minor(closing.amount, "closing")
        if str(closing.amount.currency) != self._currency:
            raise RefusedError(
                Code.MIXED_ACCOUNTS,
                "the balances are of two currencies",
                line=number,
                column="currency",
            )
        places = [number + text.count("\n", 0, match.start()) for match in _LINE.finditer(text)]
        if len(found.transactions) != len(places):
            raise RefusedError(
                Code.TRUNCATED, "the message has a line :61: that is not understood", line=number
            )
        self._lines: Final = list(zip(places, found.transactions, strict=True))

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the lines of the message."""
        for number, each in self._lines:
            data = each.data
            reference = data.get("bank_reference") or data.get("customer_reference")
            words = (data.get("extra_details"), data.get("transaction_details"))
            yield (
                number,
                _row(
                    account=self._account,
                    booking_date=str(data.get("entry_date") or data["date"]),
                    value_date=str(data["date"]),
                    amount=str(self._minor(data["amount"], "amount")),
                    currency=self._currency,
                    bank_reference=str(reference or "").strip(),
                    description=" ".join(" ".join(str(each) for each in words if each).split()),
                ),
            )

    def _minor(self, amount: Any, column: str) -> int:  # noqa: ANN401 - of the library
        """Return `amount` in minor units. Raises: RefusedError."""
        if self._currency not in CURRENCIES:
            raise RefusedError(
                Code.UNKNOWN_CURRENCY,
                f"{fields.shown(self._currency)}: must be a currency whose decimals are known",
                line=self.line,
                column="currency",
            )
        minor = Decimal(amount.amount).scaleb(CURRENCIES[self._currency].decimals)
        if minor != int(minor):
            raise RefusedError(
                Code.BAD_AMOUNT,
                f"the amount has more decimals than {self._currency}",
                line=self.line,
                column=column,
            )
        return int(minor)


def _text(data: bytes) -> str:
    """Return what `data` says. Raises: RefusedError when it is not text."""
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode()
    except UnicodeDecodeError:
        text = data.decode("iso-8859-1")
    if _CONTROLS.search(text):
        raise RefusedError(Code.NOT_UTF8, "the file has a control character: it is not text")
    text = text.replace("\r\n", "\n")
    if card_numbers.found_in(_UNSEARCHED.sub("", text)):
        raise RefusedError(
            Code.PAN_FOUND,
            "the file has a card number: files with card numbers are not kept",
            column="description",
        )
    return text


def _parsed(text: str, number: int) -> Any:  # noqa: ANN401 - of the library
    try:
        import mt940  # noqa: PLC0415 - of the extra `bank`
    except ImportError:
        raise NotInstalledError from None
    found = mt940.models.Transactions(options=mt940.Options(reversal_sign=True))
    try:
        found.parse(_ENVELOPE.sub("", text))
    except Exception:  # noqa: BLE001 - whatever the library raises, it did not understand the text
        # Its message may quote a line.
        raise RefusedError(
            Code.TRUNCATED, "the message is not understood as MT940", line=number
        ) from None
    return found


def _row(**values: str) -> list[str]:
    found = [""] * len(COLUMNS)
    for name, value in values.items():
        found[PLACE[name]] = value
    return found
