"""One card transaction of the model: its totals in a dict, what readers see, and its credit."""

from collections.abc import Mapping
from typing import Any, Final

Event = Mapping[str, Any]
Purchase = dict[str, Any]

OF_A_CREDIT: Final = {
    "AUTHORIZATION_ADVICE",
    "AUTHORIZATION_REVERSAL",
    "AUTHORIZATION_EXPIRY",
    "CLEARING",
    "CLEARING_REVERSAL",
    "RETURN",
    "FINANCIAL_CREDIT_AUTHORIZATION",
}
"""What these are about, their card transaction says: a purchase, or an authorized credit."""


def new(name: str, event: Event) -> Purchase:
    """Return a card transaction without events."""
    merchant = event.get("merchant") or {}
    return {
        "name": name,
        "descriptor": merchant.get("descriptor", ""),
        "isAuthorizationKnown": False,
        "wasApproved": False,
        "credit": None,
        "authorized": 0,
        "asked": 0,
        "reason": None,
        "closed": None,
        "settled": 0,
        "clearings": 0,
        "refunded": 0,
        "refunds": 0,
        "pulled": 0,
        "pulls": 0,
        "pending": 0,
        "pendingCount": 0,
        "released": 0,
        "open": 0,
        "unpaid": 0,
        "clearingsWrittenOff": 0,
        "debitsWrittenOff": 0,
        "applied": [],
    }


def close(purchase: Purchase, by: str) -> None:
    """Close it, unless it is closed."""
    if not purchase["closed"]:
        purchase["closed"] = by


def status(purchase: Purchase) -> str:
    """Return its status; the first rule that matches decides."""
    if purchase["reason"] and not purchase["clearings"] and not purchase["refunds"]:
        return "DECLINED"
    if purchase["open"] or purchase["unpaid"]:
        return "EXCEPTION"
    refunded, settled = purchase["refunded"], purchase["settled"]
    if has_credit(purchase) and refunded > 0:
        return "SETTLED" if purchase["closed"] else "PARTIALLY_SETTLED"
    if purchase["closed"] and refunded > 0 and refunded >= settled:
        return "REFUNDED"
    if purchase["closed"] and settled > 0:
        return "SETTLED"
    if settled > 0:
        return "PARTIALLY_SETTLED"
    return "VOIDED" if purchase["closed"] else "AUTHORIZED"


def required(purchase: Purchase) -> int:
    """Return what has to be funded: the money rule."""
    if purchase["closed"]:
        return int(purchase["settled"])
    return int(max(purchase["authorized"], purchase["settled"]))


def covered(purchase: Purchase) -> int:
    """Return what the customer has paid, and what is written off of clearings."""
    return int(purchase["pulled"] - purchase["released"] + purchase["clearingsWrittenOff"])


def overdrawn(purchase: Purchase) -> int:
    """Return what has cleared beyond what is covered."""
    return int(max(purchase["settled"] - covered(purchase), 0))


def missing(purchase: Purchase) -> int:
    """Return what of the required amount is not covered."""
    return max(required(purchase) - covered(purchase), 0)


def asked_for(purchase: Purchase, amount: int, *, clears: bool) -> int:
    """Return what an authorization of `amount` needs, besides what is owed.

    That is what it adds to what was promised, and the part of an open pull that is a hold.
    """
    total = purchase["authorized"] + amount
    if clears:
        total = max(total, purchase["settled"] + amount)
    added = max(total - max(purchase["authorized"], purchase["settled"]), 0)
    return int(added + max(purchase["open"] - overdrawn(purchase), 0))


def figures(purchase: Purchase) -> dict[str, Any]:
    """Return it with the field names of the published life cycles."""
    authorized = purchase["authorized"] or purchase["asked"]
    settled, refunded = purchase["settled"], purchase["refunded"]
    if has_credit(purchase):
        settled, refunded = refunded, 0
        if not authorized:
            authorized = settled if purchase["credit"] is None else purchase["credit"]
    return {
        "status": status(purchase),
        "authorized": authorized,
        "pullCount": purchase["pulls"],
        "pulled": purchase["pulled"],
        "released": purchase["released"],
        "settled": settled,
        "refunded": refunded,
    }


# --- credits -------------------------------------------------------------------------------------


def is_credit(purchase: Purchase) -> bool:
    """Return whether a credit was authorized or declined, and nothing else is known."""
    is_purchase = purchase["isAuthorizationKnown"] or purchase["clearings"]
    return purchase["credit"] is not None and not is_purchase


def has_credit(purchase: Purchase) -> bool:
    """Return whether what was given is a credit, not a refund."""
    return purchase["closed"] == "CREDITED" or is_credit(purchase)


def stays_credit(purchase: Purchase) -> bool:
    """Return whether a purchase that is declined now changes nothing: a credit stands."""
    return is_credit(purchase) and bool(purchase["credit"] or purchase["refunds"])


def expects_more(purchase: Purchase) -> bool:
    """Return whether it can expire or be cancelled while it is open."""
    if is_credit(purchase):
        return bool(purchase["credit"] or purchase["refunded"])
    return bool(purchase["authorized"] or purchase["settled"])


def ask_credit(purchase: Purchase, amount: int, reason: str | None) -> str:
    """Approve a credit of `amount` more, or decline it for `reason`; return the outcome."""
    total = purchase["credit"] or 0
    if reason is None:
        _expect(purchase, total + amount)
        return "APPLIED"
    purchase["credit"] = total
    others = purchase["authorized"] or purchase["clearings"] or purchase["refunds"]
    if not others and not total:
        purchase["asked"] = amount
        purchase["reason"] = reason
    return "DECLINED"


def advise_credit(purchase: Purchase, total: int) -> None:
    """Make `total` the authorized total of the credit."""
    _expect(purchase, total)
    if is_credit(purchase) and total <= purchase["refunded"]:
        close(purchase, "REVERSED")


def change_credit(purchase: Purchase, event: Event) -> bool:
    """Reverse, expire or advise an authorized credit; return whether anything has changed."""
    amount = event.get("amount")
    left = max(purchase["credit"] - purchase["refunded"], 0)
    if event["type"] == "AUTHORIZATION_ADVICE":
        advise_credit(purchase, event["amount"])
        return True
    if event["type"] == "AUTHORIZATION_EXPIRY":
        if purchase["closed"] or not expects_more(purchase):
            return False
        purchase["credit"] -= left
        close(purchase, "EXPIRED")
        return True
    if purchase["closed"] or left == 0:
        return False
    taken = left if amount is None else min(amount, left)
    purchase["credit"] -= taken
    if taken == left:
        close(purchase, "REVERSED")
    return True


def clear_credit(purchase: Purchase, event: Event) -> None:
    """Count what the network has moved of a credit; the model pays it."""
    final = event.get("final") if event["type"] == "CLEARING" else None
    if event["type"] == "FINANCIAL_CREDIT_AUTHORIZATION":
        final = True
    purchase["refunded"] += event["amount"]
    purchase["refunds"] += 1
    if final is None:
        final = purchase["refunded"] >= purchase["credit"]
    if final:
        purchase["closed"] = "CREDITED"


def _expect(purchase: Purchase, total: int) -> None:
    purchase["credit"] = total
    if purchase["reason"] and not purchase["wasApproved"] and not purchase["clearings"]:
        purchase["isAuthorizationKnown"] = False  # It was declined: only the credit stands.
    if not is_credit(purchase):
        return
    purchase["asked"] = 0
    purchase["reason"] = None
    if purchase["closed"] in {"REVERSED", "EXPIRED"}:
        purchase["closed"] = None
    if purchase["closed"] == "REFUNDED":
        purchase["closed"] = "CREDITED" if purchase["refunded"] >= total else None
