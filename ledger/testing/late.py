"""Late authorizations of the model: what is left of an approval that its caller did not receive.

A purchase keeps a list of what was applied to it, and each timeout reversal goes through it anew.
"""

from collections.abc import Callable
from typing import Any, Final

from cardledger.ledger.testing.purchases import Event, Purchase, close, is_credit

TIMEOUT_REVERSAL: Final = "TIMEOUT_REVERSAL"

_REFUNDS: Final = {"RETURN", "FINANCIAL_CREDIT_AUTHORIZATION"}
_ENDS: Final = {"AUTHORIZATION_EXPIRY", "CARD_CLOSED"}
_ADVICES: Final = {"AUTHORIZATION_ADVICE"}
_CREDIT_ADVICES: Final = {"AUTHORIZATION_ADVICE", "CREDIT_AUTHORIZATION_ADVICE"}

Entry = dict[str, Any]

CLOSED_CARD: Final[Entry] = {
    "key": None,
    "type": "CARD_CLOSED",
    "amount": 0,
    "unclaimed": 0,
    "isFinal": False,
    "isLate": False,
}
"""What a purchase keeps of the closing of its card."""


def key_of(event: Event) -> tuple[str, str]:
    """Return the idempotency key of `event`."""
    return event["source"], event["reference"]


def total(purchase: Purchase) -> int:
    """Return what is authorized, of the purchase or of its credit."""
    return int(purchase["credit"] or 0) if is_credit(purchase) else int(purchase["authorized"])


def note(purchase: Purchase, event: Event, total_before: int) -> None:
    """Note that `event` was applied; a reversal has lowered the total from `total_before`."""
    kind, amount = event["type"], event.get("amount") or 0
    if kind == "AUTHORIZATION_REVERSAL":
        amount = total_before - total(purchase)
    is_final = kind == "FINANCIAL_AUTHORIZATION"
    if kind == "CLEARING" and not is_credit(purchase):
        final = event.get("final")
        is_final = purchase["settled"] >= purchase["authorized"] if final is None else final
    if kind == "RETURN_REVERSAL":
        left = amount
        for entry in reversed(purchase["applied"]):
            if entry["type"] in _REFUNDS:
                left -= _claim(entry, left)
    purchase["applied"].append(
        {
            "key": key_of(event),
            "type": kind,
            "amount": amount,
            "isFinal": is_final,
            "unclaimed": amount,  # Of a reversal: what belongs to no late authorization yet.
            "isLate": False,  # Whether it has a timeout reversal.
        }
    )


def take_back(
    purchase: Purchase,
    authorization: Event,
    *,
    is_card_closed: bool,
    reverse_clearing: Callable[[Purchase, int], None],
) -> bool:
    """Take back an approved authorization; return whether anything has changed."""
    applied = purchase["applied"]
    places = [n for n, entry in enumerate(applied) if entry["key"] == key_of(authorization)]
    if not places:
        return False  # It was declined.
    [place] = places
    late, since = applied[place], applied[place + 1 :]
    late["isLate"] = True
    if late["type"] == "FINANCIAL_AUTHORIZATION":
        return _take_back_financial(purchase, place, is_card_closed, reverse_clearing)
    if late["type"] == "CREDIT_AUTHORIZATION":
        if not is_credit(purchase):
            return False
        uncleared = purchase["credit"] - purchase["refunded"]
    else:
        uncleared = purchase["authorized"] - purchase["settled"]
    if any(entry["type"] in _ends(late["type"]) for entry in since):
        return False
    left = late["amount"]
    for entry in since:
        if entry["type"] == "AUTHORIZATION_REVERSAL":
            left -= _claim(entry, left)
    left = min(left, uncleared)
    if left <= 0 or purchase["closed"] not in {None, "CLEARED"}:
        return False
    purchase["credit" if is_credit(purchase) else "authorized"] -= left
    if total(purchase) <= purchase["refunded" if is_credit(purchase) else "settled"]:
        close(purchase, "REVERSED")
    return True


def _take_back_financial(
    purchase: Purchase,
    place: int,
    is_card_closed: bool,  # noqa: FBT001 - as `take_back` has it
    reverse_clearing: Callable[[Purchase, int], None],
) -> bool:
    """Take back authorization and clearing, and what the clearing had closed with it."""
    applied = purchase["applied"]
    back = less = applied[place]["amount"]
    for entry in applied[place:]:
        if entry["type"] in _REFUNDS | {"CLEARING_REVERSAL"}:
            claimed = _claim(entry, back)
            back -= claimed
            less -= claimed if entry["type"] in _REFUNDS else 0
    back = min(back, purchase["settled"])
    if back:
        reverse_clearing(purchase, back)
    if any(entry["type"] == "AUTHORIZATION_ADVICE" for entry in applied[place:]):
        less = 0
    less = min(less, purchase["authorized"])
    purchase["authorized"] -= less
    if any(entry["isFinal"] and not entry["isLate"] for entry in applied):
        return bool(back or less)
    purchase["closed"] = None
    if purchase["authorized"] <= purchase["settled"]:
        purchase["closed"] = "REVERSED"
    elif is_card_closed:
        purchase["authorized"] = purchase["settled"]
        purchase["closed"] = "CARD_CLOSED"
    return True


def _ends(kind: str) -> set[str]:
    """Return what states the total of an authorization, or gives up its rest: nothing is left."""
    return _ENDS | (_CREDIT_ADVICES if kind == "CREDIT_AUTHORIZATION" else _ADVICES)


def _claim(entry: Entry, most: int) -> int:
    """Take up to `most` of a reversal; it belongs to one late authorization then, and no other."""
    claimed = min(int(entry["unclaimed"]), most)
    entry["unclaimed"] -= claimed
    return claimed
