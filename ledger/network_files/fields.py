"""The fields of a row, each of exactly one form: nothing is guessed, rounded or cut off."""

import re
from collections.abc import Sequence
from datetime import date
from functools import lru_cache
from typing import Final

from cardledger.ledger.network_files import card_numbers
from cardledger.ledger.network_files.records import COLUMNS, PLACE, SIGNS, Code, Line, RefusedError
from cardledger.schema.wire.iso4217 import CODES
from cardledger.schema.wire.settlement import NETWORK_PATTERN, RESERVED_NETWORK

MAX_AMOUNT: Final = 2**63 - 1
INTERCHANGE_PLACES: Final = 6
"""Decimal places of an interchange: `Line.interchange` is in units of the last one."""

_AMOUNT: Final = re.compile(r"[0-9]{1,30}", re.ASCII)
_SIGNED: Final = re.compile(r"[+-]?[0-9]{1,30}", re.ASCII)
_INTERCHANGE: Final = re.compile(r"([+-]?)([0-9]{1,12})(?:\.([0-9]{1,6}))?", re.ASCII)
_TOTAL_INTERCHANGE: Final = re.compile(r"([+-]?)([0-9]{1,18})(?:\.([0-9]{1,6}))?", re.ASCII)
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_MCC: Final = re.compile(r"[0-9]{4}", re.ASCII)
_CARD: Final = re.compile(
    r"(?:Card:)?([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})", re.ASCII
)
_NETWORK: Final = re.compile(NETWORK_PATTERN, re.ASCII)
_DIGITS: Final = re.compile(r"\d[\d -]{11}")  # Without these there is no card number.

_MAX_CHARS: Final = {
    "file_id": 200,
    "cycle": 100,
    "reference": 2048,
    "network_reference": 100,
    "token": 2048,
    "merchant": 2048,
}
_MAX_CHARS_OF_LINE: Final = tuple(
    (name, PLACE[name], most) for name, most in _MAX_CHARS.items() if name != "file_id"
)
_SHOWN_CHARS: Final = 40

# A reference or a token may be a number of any length, and an id of a card may look like one. The
# totals of a trailer are sums, which no card pays.
_UNSEARCHED: Final = frozenset({"reference", "network_reference", "token"})
_SEARCHED: Final = tuple(name for name in COLUMNS if name not in _UNSEARCHED)
_SEARCHED_OF_LINE: Final = tuple(PLACE[name] for name in _SEARCHED)
_SUMS: Final = frozenset({"amount", "interchange", "count"})

(
    _TYPE,
    _REFERENCE,
    _NETWORK_REFERENCE,
    _TOKEN,
    _CARD_ID,
    _AMOUNT_AT,
    _CURRENCY,
    _MERCHANT_AMOUNT,
    _MERCHANT_CURRENCY,
    _INTERCHANGE_AT,
    _TRANSACTION_DATE,
    _MERCHANT,
    _MCC_AT,
) = (PLACE[name] for name in COLUMNS[PLACE["type"] : PLACE["count"]])


def refuse_card_numbers(row: Sequence[str], line: int, *, is_total: bool = False) -> None:
    """Raise RefusedError if a field of `row` has a card number, and may not have one."""
    if not _DIGITS.search("\n".join([row[place] for place in _SEARCHED_OF_LINE])):
        return
    for name in _SEARCHED:
        text = row[PLACE[name]]
        if (is_total and name in _SUMS and _is_sum(text)) or (
            name == "card_id" and _CARD.fullmatch(text)
        ):
            continue
        if card_numbers.found_in(text):
            raise RefusedError(
                Code.PAN_FOUND,
                "the field has a card number: files with card numbers are not kept",
                line=line,
                column=name,
            )


def parse_line(row: Sequence[str], line: int) -> Line:
    """Return the D record of `row`, the fields of which are in the order of `COLUMNS`.

    Raises: RefusedError, which names line and column.
    """
    kind = row[_TYPE]
    if kind not in SIGNS:
        raise RefusedError(
            Code.BAD_TYPE, f"{shown(kind)}: must be {_one_of(SIGNS)}", line=line, column="type"
        )
    for name, place, most in _MAX_CHARS_OF_LINE:
        if len(row[place]) > most:
            raise _too_long(name, line)
    currency = row[_CURRENCY]
    if currency not in CODES:
        raise _unknown_currency(currency, line, "currency")
    merchant_amount = row[_MERCHANT_AMOUNT]
    merchant_currency = row[_MERCHANT_CURRENCY]
    if merchant_amount or merchant_currency:
        if merchant_currency not in CODES:
            raise _unknown_currency(merchant_currency, line, "merchant_currency")
        in_currency_of_merchant = amount(merchant_amount, line, "merchant_amount")
    else:
        in_currency_of_merchant = None
    day = row[_TRANSACTION_DATE]
    if day and not is_date(day):
        raise _bad_date(day, line, "transaction_date")
    mcc = row[_MCC_AT]
    if mcc and not _MCC.fullmatch(mcc):
        raise RefusedError(
            Code.BAD_TYPE, f"{shown(mcc)}: must be 4 digits, or empty", line=line, column="mcc"
        )
    return Line(
        line,
        kind,
        row[_REFERENCE] or None,
        row[_NETWORK_REFERENCE] or None,
        row[_TOKEN] or None,
        _card(row[_CARD_ID], line),
        amount(row[_AMOUNT_AT], line, "amount"),
        currency,
        in_currency_of_merchant,
        merchant_currency or None,
        interchange(row[_INTERCHANGE_AT], line),
        day or None,
        row[_MERCHANT] or None,
        mcc or None,
    )


def amount(text: str, line: int, column: str) -> int:
    """Return the positive amount in `text`: digits of minor units, nothing else.

    Raises: RefusedError.
    """
    if _AMOUNT.fullmatch(text) and 0 < (value := int(text)) <= MAX_AMOUNT:
        return value
    raise RefusedError(
        Code.BAD_AMOUNT,
        f"{shown(text)}: must be digits, minor units from 1 to {MAX_AMOUNT}",
        line=line,
        column=column,
    )


def total(text: str, line: int) -> int:
    """Return the signed amount of a trailer in `text`, minor units. Raises: RefusedError."""
    if _SIGNED.fullmatch(text) and abs(value := int(text)) <= MAX_AMOUNT:
        return value
    raise RefusedError(
        Code.BAD_AMOUNT,
        f"{shown(text)}: must be digits, minor units, with a sign when it is due from the network",
        line=line,
        column="amount",
    )


def count(text: str, line: int) -> int:
    """Return the number of lines of a trailer in `text`. Raises: RefusedError."""
    if _AMOUNT.fullmatch(text) and (value := int(text)) <= MAX_AMOUNT:
        return value
    raise RefusedError(Code.BAD_AMOUNT, f"{shown(text)}: must be digits", line=line, column="count")


def interchange(text: str, line: int, *, is_total: bool = False) -> int | None:
    """Return the interchange in `text` in millionths of a unit of the currency; None: empty.

    Raises: RefusedError.
    """
    if not text:
        return None
    parts = (_TOTAL_INTERCHANGE if is_total else _INTERCHANGE).fullmatch(text)
    if parts is None:
        raise RefusedError(
            Code.BAD_AMOUNT,
            f"{shown(text)}: must be units of the currency with up to {INTERCHANGE_PLACES}"
            " decimals, such as -0.2315",
            line=line,
            column="interchange",
        )
    sign, whole, fraction = parts.groups()
    value = int(whole + (fraction or "").ljust(INTERCHANGE_PLACES, "0"))
    return -value if sign == "-" else value


@lru_cache(maxsize=4096)
def is_date(text: str) -> bool:
    """Return whether `text` is a date of the form YYYY-MM-DD."""
    if not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def settlement_date(text: str, line: int) -> str:
    """Return the date in `text`. Raises: RefusedError."""
    if not is_date(text):
        raise _bad_date(text, line, "settlement_date")
    return text


def network(text: str, line: int) -> str:
    """Return the network in `text`. Raises: RefusedError."""
    if text == RESERVED_NETWORK or not _NETWORK.fullmatch(text):
        raise RefusedError(
            Code.UNKNOWN_NETWORK,
            f"{shown(text)}: must be a network as its calendar is called, such as VISA",
            line=line,
            column="network",
        )
    return text


def text_of_header(name: str, text: str, line: int) -> str:
    """Return `text`, the field `name` of a header, if it is not too long. Raises: RefusedError."""
    if len(text) > _MAX_CHARS[name]:
        raise _too_long(name, line, Code.BAD_HEADER)
    return text


def currency_of_total(text: str, line: int) -> str:
    """Return the currency in `text`. Raises: RefusedError."""
    if text not in CODES:
        raise _unknown_currency(text, line, "currency")
    return text


def shown(text: str) -> str:
    """Return `text`, in which no card number was found, as a message quotes it."""
    return ascii(text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "...")


def _is_sum(text: str) -> bool:
    return bool(_SIGNED.fullmatch(text) or _TOTAL_INTERCHANGE.fullmatch(text))


def _card(text: str, line: int) -> str | None:
    if not text:
        return None
    parts = _CARD.fullmatch(text)
    if parts is None:
        raise RefusedError(
            Code.BAD_TYPE,
            f"{shown(text)}: must be Card:<uuid>, or empty",
            line=line,
            column="card_id",
        )
    return parts[1]


def _one_of(names: Sequence[str] | dict[str, int]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}"


def _too_long(name: str, line: int, code: Code = Code.BAD_TYPE) -> RefusedError:
    return RefusedError(
        code, f"must have at most {_MAX_CHARS[name]} characters", line=line, column=name
    )


def _unknown_currency(text: str, line: int, column: str) -> RefusedError:
    return RefusedError(
        Code.UNKNOWN_CURRENCY,
        f"{shown(text)}: must be a currency code of ISO 4217, such as USD",
        line=line,
        column=column,
    )


def _bad_date(text: str, line: int, column: str) -> RefusedError:
    return RefusedError(
        Code.BAD_DATE, f"{shown(text)}: must be a date, YYYY-MM-DD", line=line, column=column
    )
