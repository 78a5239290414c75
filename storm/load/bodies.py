"""How often each interface is used, and what is sent through them."""

from collections.abc import Mapping
from typing import Any, Final

from storm.load import batches, payers

MERCHANT: Final = {"descriptor": "CORNER BAKERY 0417", "mcc": "5812", "country": "US"}

SHARES: Final = {
    "live": 34,
    "bulk": 12,
    "http": 22,
    "credit": 4,
    "duplicate": 7,
    "reuse": 5,
    "deposit": 6,
    "transfer": 5,
    "funding source": 5,
    "card closure": 1,
    "follow-up": 8,
    **batches.SHARES,
    **payers.INTERFACES,
}
"""How often each interface is used, relative to the others."""


REQUIRED: Final = ("live", "bulk", "credit", "follow-up", "events over HTTP", "enqueue")
"""Interfaces that every storm uses, however short: each has a large part of the load."""


def without_deadline(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return `body` as its caller sends it once more."""
    return {name: value for name, value in body.items() if name != "decideBy"}


def follow_ups(amount: int) -> list[tuple[str, int, int]]:
    """Return what may follow an approved authorization of `amount` minor units.

    Shape: the type of the event, its amount, and the amount that stays authorized.
    """
    part = amount // 3 + 1
    return [
        ("AUTHORIZATION_INCREMENT", part, amount + part),
        ("AUTHORIZATION_ADVICE", amount + part, amount + part),
        ("AUTHORIZATION_ADVICE", part, part),
        ("AUTHORIZATION_REVERSAL", part, max(amount - part, 0)),
        ("AUTHORIZATION_REVERSAL", amount, 0),
    ]
