"""Numbers of sandbox cards: derived from the card's id and the server key whenever shown.

Nothing is stored, so nothing can be stolen from the database. They are in a range that no issuer
uses, and end in the card's `last4`; two cards may have the same number.
"""

from itertools import cycle
from typing import Final

from cardledger.ledger.ports import CardNumber
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema.ids import Id

_RANGE: Final = "400000"
"""The first six digits of test cards; the first digit is VISA's."""

_FREE_DIGITS: Final = 5
_CVV_DIGITS: Final = 3


def number_of(keys: KeyRing, card_id: Id, last4: str) -> CardNumber:
    """Return the number of a card: 16 digits that pass Luhn's check and end in `last4`."""
    free = _digits(keys, b"pan", card_id, _FREE_DIGITS)
    # The last digits are given, so the digit before them makes the sum come out. Exactly one
    # digit of ten does: Luhn maps the digits of a place onto each other one to one.
    candidates = (f"{_RANGE}{free}{check}{last4}" for check in range(10))
    pan = next(candidate for candidate in candidates if passes_luhn(candidate))
    return CardNumber(pan=pan, cvv=_digits(keys, b"cvv", card_id, _CVV_DIGITS), is_test=True)


def passes_luhn(digits: str) -> bool:
    """Return whether the last of `digits` checks the others (ISO/IEC 7812-1)."""
    products = (int(digit) * factor for digit, factor in zip(digits[::-1], cycle((1, 2))))
    return sum(product // 10 + product % 10 for product in products) % 10 == 0


def _digits(keys: KeyRing, purpose: bytes, card_id: Id, count: int) -> str:
    number = int.from_bytes(keys.card_digest(purpose + b"/" + card_id))
    return f"{number % 10**count:0{count}}"
