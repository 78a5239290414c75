"""Files of exchange rates: TOML with their source, a base currency, and one rate for each other.

    source = "Reference rates of our bank, 2026-11-25"
    base = "USD"

    [rates]
    EUR = 0.9213

A rate says how many units of the currency there are for one unit of the base. It is read as the
decimal that is written, never as a float.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

MAX_SIZE: Final = 256 * 1024
"""Bytes of a file; there are fewer than 200 currencies."""

MAX_DIGITS: Final = 18
"""Significant digits of a rate, so that its ratio fits two 64-bit integers."""

LEAST: Final = Decimal("1e-12")
LARGEST: Final = Decimal("1e12")

_CODE: Final = re.compile(r"[A-Z]{3,8}")
_SOURCE_LENGTH: Final = 500


class RateFileError(ValueError):
    """A file of rates cannot be used; its text names the line or the rate to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateFile:
    """The rates of a file: units of each currency for one unit of `base`, exactly."""

    source: str
    base: str
    rates: Mapping[str, Fraction]


def parse(content: bytes) -> RateFile:
    """Return the rates in `content`.

    Raises: RateFileError.
    """
    if len(content) > MAX_SIZE:
        raise RateFileError(f"the file has more than {MAX_SIZE:,} bytes")
    try:
        document = tomllib.loads(content.decode("utf-8-sig"), parse_float=Decimal)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise RateFileError(f"the file is not TOML in UTF-8: {error}") from None
    unknown = sorted(document.keys() - {"source", "base", "rates"})
    if unknown:
        raise RateFileError(f"{unknown[0]!r} is not a known name; write source, base and [rates]")
    base = _code(document.get("base"), "base")
    table = document.get("rates")
    if not isinstance(table, dict) or not table:
        raise RateFileError("[rates] must have a rate for at least one currency")
    if base in table:
        raise RateFileError(f"rates.{base} is a rate of the base itself; remove it")
    return RateFile(
        source=_source(document.get("source")),
        base=base,
        rates={
            _code(code, f"rates.{code}"): exact_rate(code, rate) for code, rate in table.items()
        },
    )


def exact_rate(code: str, value: Any) -> Fraction:  # noqa: ANN401 - TOML
    """Return the rate `value` of the currency `code`.

    Raises: RateFileError.
    """
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise RateFileError(f"rates.{code} must be a number, such as 0.9213")
    rate = Decimal(value)
    if not rate.is_finite() or not LEAST <= rate <= LARGEST:
        raise RateFileError(f"rates.{code} must be from {LEAST} to {LARGEST}")
    if len(rate.as_tuple().digits) > MAX_DIGITS:
        raise RateFileError(f"rates.{code} must have at most {MAX_DIGITS} digits")
    return Fraction(rate)


def _code(value: object, where: str) -> str:
    if not isinstance(value, str) or not _CODE.fullmatch(value):
        raise RateFileError(f"{where[:80]} must be a currency code, such as USD")
    return value


def _source(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > _SOURCE_LENGTH:
        raise RateFileError(
            f"source must say where the rates are from, in at most {_SOURCE_LENGTH} characters"
        )
    if "\x00" in value:
        raise RateFileError("source must not contain the character U+0000")
    return value
