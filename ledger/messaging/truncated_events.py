"""What a rejection keeps of a malformed event that is too large to be kept whole.

Rejections are permanent, and a sender chooses what a malformed event has in it. Of a large one, the
rejection keeps the fields by which the ledger finds the event and books what it has moved, as they
were sent, and beside them how large it was, its hash and its beginning. No type of event has a
field `truncated`, so this is not taken for the event: no retry accepts it.

Pure. Source: docs/decisions/0055-row-quotas.md
"""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from json import dumps
from typing import Final

WHOLE_LIMIT: Final = 4 * 1024
"""Bytes of a malformed event that is kept whole; an event has some hundred."""

TRUNCATED: Final = "truncated"
"""The field with the size, the hash and the beginning of an event that is not kept whole."""

_BEGINNING: Final = 1024  # Characters.

# Characters of each field. One more than is read of it: a text that was cut stays too long.
_TEXTS: Final[Mapping[str, int]] = {
    "type": 64,
    "source": 256,
    "reference": 256,
    "issuerTransactionToken": 256,
    "cardId": 64,
    "currency": 16,
    "occurredAt": 65,
}
_SETTLEMENT: Final[Mapping[str, int]] = {"network": 65, "settlementDate": 65}
_INTEGERS: Final = ("amount", "expectedSequence")
_INTEGER_BITS: Final = 64


def kept(text: str, event: Mapping[str, object]) -> str:
    """Return what is kept of the malformed `event`, whose JSON is `text`, in ASCII.

    Shape: `text`, or an object with fields of `event` and `truncated` (`bytes` and `sha256` of
    `text`, and its `beginning`).
    """
    if len(text) <= WHOLE_LIMIT:
        return text
    whole = {
        "bytes": len(text),
        "sha256": sha256(text.encode()).hexdigest(),
        "beginning": text[:_BEGINNING],
    }
    return dumps({**dict(_fields(event)), TRUNCATED: whole}, ensure_ascii=False)


def _fields(event: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    yield from _texts(event, _TEXTS)
    for name in _INTEGERS:
        number = event.get(name)
        if type(number) is int and number.bit_length() <= _INTEGER_BITS:
            yield name, number
    settlement = event.get("settlement")
    if isinstance(settlement, Mapping) and (dates := dict(_texts(settlement, _SETTLEMENT))):
        yield "settlement", dates


def _texts(event: Mapping[str, object], lengths: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    for name, length in lengths.items():
        value = event.get(name)
        if isinstance(value, str) and _is_storable(value[:length]):
            yield name, value[:length]


def _is_storable(text: str) -> bool:
    """Return whether a text column can hold `text`: without NUL and half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\x00" not in text
