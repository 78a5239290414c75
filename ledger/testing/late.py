"""Late authorizations of the model: what is left of an approval that its caller did not receive.

A purchase keeps a list of what was applied to it, and each timeout reversal goes through it anew.
"""

from collections.abc import Callable
from typing import Any, Final

from cardledger.ledger.testing.purchases import Event, Purchase, close, is_credit

TIMEOUT_REVERSAL: Final = "TIMEOUT_REVERSAL"

_REFUNDS: Final = {"RETURN", "FINANCIAL_CREDIT_AUTHORIZATION"}
# After these nothing is left of an authorization: its total was stated, or its rest given up.
_ENDS: Final = {"AUTHORIZATION_EXPIRY", "CARD_CLOSED"}

Entry = dict[str, Any]

CLOSED_CARD: Final[Entry] = {
    "key": None,
    "type": "CARD_CLOSED",
    "amount": 0,
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
    purchase["applied"].append(
        {"key": key_of(event), "type": kind, "amount": amount, "isFinal": is_final, "isLate": False}
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
    since = applied[place + 1 :]
    applied[place]["isLate"] = True
    if applied[place]["type"] == "FINANCIAL_AUTHORIZATION":
        return _take_back_financial(
            purchase, applied[place], since, is_card_closed, reverse_clearing
        )
    kinds = {entry["type"] for entry in since}
    left = max(applied[place]["amount"] - _sum(since, {"AUTHORIZATION_REVERSAL"}), 0)
    if applied[place]["type"] == "CREDIT_AUTHORIZATION":
        advices = {"AUTHORIZATION_ADVICE", "CREDIT_AUTHORIZATION_ADVICE"}
        if not is_credit(purchase) or kinds & (_ENDS | advices):
            return False
        left = min(left, purchase["credit"] - purchase["refunded"])
    elif kinds & (_ENDS | {"AUTHORIZATION_ADVICE"}):
        return False
    else:
        left = min(left, purchase["authorized"] - purchase["settled"])
    if left <= 0 or purchase["closed"] not in {None, "CLEARED"}:
        return False
    purchase["credit" if is_credit(purchase) else "authorized"] -= left
    if total(purchase) <= purchase["refunded" if is_credit(purchase) else "settled"]:
        close(purchase, "REVERSED")
    return True


def _take_back_financial(
    purchase: Purchase,
    late: Entry,
    since: list[Entry],
    is_card_closed: bool,  # noqa: FBT001 - as `take_back` has it
    reverse_clearing: Callable[[Purchase, int], None],
) -> bool:
    """Take back authorization and clearing, and what the clearing had closed with it."""
    refunded = max(_sum(since, _REFUNDS) - _sum(since, {"RETURN_REVERSAL"}), 0)
    back = late["amount"] - refunded - _sum(since, {"CLEARING_REVERSAL"})
    back = min(max(back, 0), purchase["settled"])
    if back:
        reverse_clearing(purchase, back)
    less = max(late["amount"] - refunded, 0)
    if any(entry["type"] == "AUTHORIZATION_ADVICE" for entry in since):
        less = 0
    less = min(less, purchase["authorized"])
    purchase["authorized"] -= less
    if any(entry["isFinal"] and not entry["isLate"] for entry in purchase["applied"]):
        return bool(back or less)
    purchase["closed"] = None
    if purchase["authorized"] <= purchase["settled"]:
        purchase["closed"] = "REVERSED"
    elif is_card_closed:
        purchase["authorized"] = purchase["settled"]
        purchase["closed"] = "CARD_CLOSED"
    return True


def _sum(entries: list[Entry], kinds: set[str]) -> int:
    return sum(int(entry["amount"]) for entry in entries if entry["type"] in kinds)
