"""How values are written: amounts, times, durations, names that others chose."""

import json
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from markupsafe import Markup, escape

from cardledger.schema.wire.common import CURRENCIES, CurrencyAmount

MINUS: Final = "\N{MINUS SIGN}"

_NAME_CHARACTERS: Final = 120
_WORDS: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|\.|_")
# Unicode's categories Cc, Cf, Cs, Co, Zl and Zp, as ranges: a category for each character is slow.
_INVISIBLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f"
    "\u2028-\u202e\u2060-\u2064\u2066-\u206f\ud800-\uf8ff\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0001\U000e0020-\U000e007f\U000f0000-\U0010ffff]"
)
_INVISIBLE_IN_JSON: Final = re.compile(
    _INVISIBLE.pattern.replace("\x00-\x1f", "\x00-\x09\x0b-\x1f")
)
"""All but the ends of lines."""
_ESCAPES: Final = 1_024  # Characters whose escape is kept: there are 140,000 invisible ones.


def decimal(minor_units: int, currency: str, *, signed: bool = False) -> str:
    """Return an amount of minor units without its currency: `1,234.50`, with a minus sign."""
    decimals = CURRENCIES[currency].decimals
    whole, part = divmod(abs(minor_units), 10**decimals)
    fraction = f".{part:0{decimals}}" if decimals else ""
    sign = MINUS if minor_units < 0 else "+" if signed and minor_units > 0 else ""
    return f"{sign}{whole:,}{fraction}"


def money(amount: CurrencyAmount | None, *, signed: bool = False) -> str:
    """Return an amount with its currency: `12.50 USD`; nothing for None."""
    if amount is None:
        return ""
    code = amount.currency.code
    return f"{decimal(amount.amount, code, signed=signed)} {code}"


def visible(text: str | None, limit: int = _NAME_CHARACTERS) -> str:
    """Return a text that others chose on one line, short, with every character visible.

    Control and format characters, which could reorder or hide what stands beside them, are shown as
    their code points.
    """
    if not text:
        return ""
    shown = _INVISIBLE.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text[:limit])
    return shown if len(text) <= limit else f"{shown}…"


def attribute(text: str) -> Markup:
    """Return `text` as the value of an attribute that a script reads: every character of it.

    Invisible ones are references, since a browser would read U+000D as U+000A. Those from U+0080 to
    U+009F are not: their references are read as other characters.
    """
    return Markup(  # noqa: S704 - escaped
        _INVISIBLE.sub(
            lambda found: found[0] if "\x7f" <= found[0] <= "\x9f" else f"&#{ord(found[0])};",
            str(escape(text)),
        )
    )


def visible_json(text: str) -> str:
    """Return JSON with the characters that `visible` shows escaped, which are in strings only."""
    return _INVISIBLE_IN_JSON.sub(lambda found: _escaped(found[0]), text)


@lru_cache(_ESCAPES)
def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1]


def words(name: str) -> str:
    """Return a name of the interface as words: `heldAmount` as `held amount`."""
    return _WORDS.sub(" ", name).lower()


def iso(at: datetime) -> str:
    """Return a time for machines: RFC 3339 in UTC, with milliseconds."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clock(at: datetime) -> str:
    """Return a time in UTC for people: `2026-01-31 12:00:00`."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def duration(seconds: float | None) -> str:
    """Return a duration in its two largest units: `3 d 4 h`, `12 s`; nothing for None."""
    if seconds is None:
        return ""
    left = int(max(seconds, 0))
    parts = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"


def short_id(public_id: Any) -> str:  # noqa: ANN401 - an id of any form
    """Return the end of an id, by which people tell ids apart: UUIDv7s begin alike."""
    return str(public_id).rpartition(":")[2][-12:]
