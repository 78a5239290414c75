"""Purchases that pages are shown with: one of every kind."""

from dataclasses import dataclass
from typing import Final

from tests.api.support import Api, ok


@dataclass(frozen=True, slots=True, kw_only=True)
class Stories:
    """The card transactions by what happened to them."""

    tip: str
    refund: str
    hotel: str
    exception: str
    declined: str
    hostile: str


HOSTILE: Final = "<script>alert(1)</script>\u202eevil"
"""A merchant's name that is no text to a page that takes it for markup."""


def play(api: Api, *, last_merchant: str = HOSTILE) -> Stories:
    """Play every story on the cards of two new customers."""
    rich, poor = api.active_card()["id"], api.active_card(balance=3_000)["id"]
    return Stories(
        tip=tip(api, rich),
        refund=_refund(api, rich),
        hotel=_hotel(api, rich),
        exception=_exception(api, poor),
        declined=_declined(api, poor),
        hostile=str(api.authorize(rich, 700, descriptor=last_merchant)["id"]),
    )


def tip(api: Api, card: str, merchant: str = "BISTRO AU COIN") -> str:
    """Authorize 12.50 in a restaurant and clear 15.00; return the card transaction."""
    purchase = str(api.authorize(card, 1_250, descriptor=merchant)["id"])
    api.clear(card, purchase, 1_500)
    return purchase


def _refund(api: Api, card: str) -> str:
    purchase = tip(api, card, "BISTRO LUMIERE")
    for _ in range(2):
        ok(api.simulate(card, "return", {"cardTransactionId": purchase, "amount": 500}))
    return purchase


def _hotel(api: Api, card: str) -> str:
    purchase = str(api.authorize(card, 20_000, descriptor="GRAND HOTEL")["id"])
    body = {"cardTransactionId": purchase, "amount": 14_250, "final": True}
    ok(api.simulate(card, "clearing", body))
    return purchase


def _exception(api: Api, card: str) -> str:
    purchase = str(api.authorize(card, 2_000, descriptor="TOOLS AND SONS")["id"])
    api.clear(card, purchase, 4_500)
    return purchase


def _declined(api: Api, card: str) -> str:
    return str(api.authorize(card, 900_000, descriptor="JEWELLER")["id"])
