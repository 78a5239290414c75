"""Which events are money that the network has moved, and how it stands in SUSPENSE.

The network does not wait for us: a clearing that is rejected, or a reversal that is parked, has
moved money all the same. It is booked as if it had been applied, with SUSPENSE in the place of the
card's accounts; so what is about a credit stands under the type that names its direction.
FINANCIAL_AUTHORIZATION is left out: it asks, and when it is rejected the network is told so, so
nothing has moved. So is what was rejected of a sender that has given `expectedSequence`: it accepts
a rejection, so that is the answer, as it is to a simulator. INTERNAL_ERROR is no answer about the
event: an error of the ledger keeps it from being applied.

What a bank returns of a payout whose customer was deleted meanwhile stands there, too: its account
is closed. People resolve it, once they have paid it outside the ledger.

Pure. Source: docs/decisions/0067-suspense.md
"""

from dataclasses import dataclass
from json import loads
from typing import Final

from cardledger.ledger.core.entries import ChartAccount, Entry
from cardledger.ledger.core.money import MAX_AMOUNT
from cardledger.schema.ids import Id
from cardledger.schema.wire.network_events import EventType
from cardledger.schema.wire.outcomes import RejectionReason

_DUE_TO_NETWORK: Final = frozenset({EventType.CLEARING.value, EventType.RETURN_REVERSAL.value})
_DUE_FROM_NETWORK: Final = frozenset(
    {
        EventType.CLEARING_REVERSAL.value,
        EventType.RETURN.value,
        EventType.FINANCIAL_CREDIT_AUTHORIZATION.value,
    }
)
_OF_CREDIT: Final = {
    EventType.CLEARING.value: EventType.RETURN.value,
    EventType.CLEARING_REVERSAL.value: EventType.RETURN_REVERSAL.value,
}

_INTERNAL: Final = RejectionReason.INTERNAL_ERROR.value

PAYOUT_RETURN: Final = "PAYOUT_RETURN"
"""What a bank has returned for an account that is closed; no event of the network."""

TEXT_LIMIT: Final = 100_000
"""Characters of a rejected text that is read; an event has some hundred."""


@dataclass(frozen=True, slots=True)
class NetworkMoney:
    """What an event has moved: `amount` > 0 minor units of the currency of a card."""

    type: str
    card_id: Id
    amount: int


def money_in(body: object) -> NetworkMoney | None:
    """Return the money that the event `body`, any JSON, has moved; None where it cannot be read."""
    if not isinstance(body, dict):
        return None
    kind, public, amount = body.get("type"), body.get("cardId"), body.get("amount")
    if not isinstance(kind, str) or kind not in _DUE_TO_NETWORK | _DUE_FROM_NETWORK:
        return None
    if not isinstance(public, str) or type(amount) is not int or not 1 <= amount <= MAX_AMOUNT:
        return None
    try:
        return NetworkMoney(kind, Id.parse(public.removeprefix("Card:")), amount)
    except ValueError:
        return None


def money_of_rejected(body: object, reason: str) -> NetworkMoney | None:
    """Return the money that the event `body`, any JSON rejected for `reason`, has moved.

    None where it cannot be read, or the sender accepts a rejection for `reason`.
    """
    if reason != _INTERNAL and isinstance(body, dict) and body.get("expectedSequence") is not None:
        return None
    return money_in(body)


def money_in_text(text: str, reason: str) -> NetworkMoney | None:
    """Return the money that the event in `text` has moved, as `money_of_rejected` does."""
    return money_of_rejected(event_in(text), reason)


def event_in(text: str) -> dict[str, object] | None:
    """Return the JSON object in `text`; None when there is none, or the text is too long."""
    if len(text) > TEXT_LIMIT:
        return None
    try:
        body = loads(text)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def type_of_credit(kind: str) -> str:
    """Return the type under which an event of type `kind` about a credit is booked.

    It names the direction that `kind` does not name; as `core.credit.meant`.
    """
    return _OF_CREDIT.get(kind, kind)


def suspense_entry(kind: str, amount: int) -> Entry:
    """Return the entry of `amount`, which an event of type `kind` has moved that is not applied."""
    if kind == PAYOUT_RETURN:
        return Entry(ChartAccount.OUTBOUND_CLEARING, ChartAccount.SUSPENSE, amount)
    suspense, network = ChartAccount.SUSPENSE, ChartAccount.NETWORK_SETTLEMENT
    if kind in _DUE_TO_NETWORK:
        return Entry(debit=suspense, credit=network, amount=amount)
    return Entry(debit=network, credit=suspense, amount=amount)


def resolving_entry(kind: str, amount: int) -> Entry:
    """Return the entry that takes an item of type `kind` out of SUSPENSE.

    It undoes the first one; but what was returned has left the ledger by then.
    """
    if kind == PAYOUT_RETURN:
        return Entry(ChartAccount.SUSPENSE, ChartAccount.SANDBOX_FUNDING, amount)
    return taken_back(suspense_entry(kind, amount))


def taken_back(entry: Entry) -> Entry:
    """Return what undoes `entry`."""
    return Entry(debit=entry.credit, credit=entry.debit, amount=entry.amount)
