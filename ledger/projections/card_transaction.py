"""The roll-up of one card transaction: its identity, and the fold of its events."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from cardledger.ledger.core import events
from cardledger.ledger.core.card_transaction import UNKNOWN, CardTransaction
from cardledger.ledger.core.expiry import window
from cardledger.schema.ids import Id
from cardledger.schema.wire.cards.card_transactions import CardTransactionResource
from cardledger.schema.wire.common import amount, public_id, rfc3339

_APPROVALS: Final = frozenset(
    {
        events.Authorized,
        events.AuthorizationAdjusted,
        events.CreditAuthorized,
        events.CreditAdjusted,
    }
)
_AT_AUTHORIZATION: Final = frozenset(
    {
        events.Authorized,
        events.Declined,
        events.Pulled,
        events.PullPending,
        events.CreditAuthorized,
        events.CreditDeclined,
    }
)


@dataclass(frozen=True, slots=True)
class Identity:
    """The columns of a card transaction that its first event sets and no later one changes."""

    id: Id
    customer_id: Id
    platform_id: Id
    platform_customer_id: str
    card_id: Id
    account_id: Id
    issuer_transaction_token: str
    currency: str
    descriptor: str | None
    mcc: str | None
    country: str | None
    created_at: datetime

    @property
    def key(self) -> tuple[Id, Id, str]:
        """The customer, the card and the token: what a network event names it by."""
        return self.customer_id, self.card_id, self.issuer_transaction_token


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """How the network converted an amount.

    Units: `merchant_amount` in minor units of `merchant_currency`, `billing_amount` in those of the
    card transaction; `rate` is units of its currency for one unit of the merchant's.
    """

    merchant_amount: int
    merchant_currency: str
    billing_amount: int
    rate: Decimal


@dataclass(frozen=True, slots=True)
class RollUp:
    """One row of `card_transactions`; (`debt_since`, `debt_id`) orders the queue of debts."""

    identity: Identity
    state: CardTransaction
    debt_since: datetime | None
    debt_id: Id | None
    expires_at: datetime | None
    last_event_at: datetime | None
    updated_at: datetime
    conversion: Conversion | None = None  # The last one.


def opened(identity: Identity) -> RollUp:
    """Return the roll-up before its first event."""
    return RollUp(identity, UNKNOWN, None, None, None, None, identity.created_at)


def advance(
    roll_up: RollUp,
    facts: Sequence[events.Event],
    state: CardTransaction,
    *,
    message_id: Id,
    recorded_at: datetime,
) -> RollUp:
    """Return `roll_up` after the events `facts` of one message, which lead to `state`."""
    kinds = set(map(type, facts))
    in_debt = state.in_debt
    return RollUp(
        roll_up.identity,
        state,
        (roll_up.debt_since or recorded_at) if in_debt else None,
        (roll_up.debt_id or message_id) if in_debt else None,
        _expires_at(roll_up, state, kinds, recorded_at),
        # The authorization and the pull that belongs to it do not count.
        roll_up.last_event_at if kinds <= _AT_AUTHORIZATION else recorded_at,
        recorded_at if kinds else roll_up.updated_at,
        roll_up.conversion,
    )


def render(roll_up: RollUp) -> CardTransactionResource:
    """Return `roll_up` as a resource."""
    return CardTransactionResource.model_validate(wire(roll_up))


def wire(roll_up: RollUp) -> dict[str, Any]:
    """Return the JSON of `roll_up`'s `CardTransactionResource`.

    Built without the model, which would cost more in every outcome and webhook.
    """
    identity, state = roll_up.identity, roll_up.state
    currency = identity.currency
    if state.has_credit:
        settled, settlements, refunded = state.refunded, state.refund_count, 0
    else:
        settled, settlements, refunded = state.settled, state.settlement_count, state.refunded
    fields = {
        "type": "CARD",
        "id": public_id("CardTransaction", identity.id),
        "cardId": public_id("Card", identity.card_id),
        "customerId": public_id("Customer", identity.customer_id),
        "platformCustomerId": identity.platform_customer_id,
        "accountId": public_id("InternalAccount", identity.account_id),
        "issuerTransactionToken": identity.issuer_transaction_token,
        "status": state.status,
        "statusReason": state.status_reason,
        "declineReason": state.decline_reason,
        "direction": "CREDIT" if state.pays_account else "DEBIT",
        "merchant": _merchant(identity),
        "authorizedAmount": amount(state.authorized_amount, currency),
        "settledAmount": amount(settled, currency) if settlements else None,
        "refundedAmount": amount(refunded, currency) if refunded else None,
        "conversion": _conversion(roll_up.conversion, currency) if roll_up.conversion else None,
        "heldAmount": amount(state.held, currency),
        "owedAmount": amount(state.owed, currency),
        "writtenOffAmount": amount(state.written_off, currency) if state.written_off else None,
        "pullSummary": {
            "count": state.pull_count,
            "totalAmount": state.pulled,
            "pendingCount": state.pending_count,
        },
        "settlementSummary": {"count": settlements, "totalAmount": settled},
        "refundSummary": {
            "count": state.refund_count if refunded else 0,
            "totalAmount": refunded,
        },
        "releaseSummary": {"count": state.release_count, "totalAmount": state.released},
        "sequence": state.sequence,
        "authorizedAt": rfc3339(identity.created_at),
        "expiresAt": rfc3339(roll_up.expires_at) if roll_up.expires_at else None,
        "lastEventAt": rfc3339(roll_up.last_event_at) if roll_up.last_event_at else None,
        "createdAt": rfc3339(identity.created_at),
        "updatedAt": rfc3339(roll_up.updated_at),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _conversion(conversion: Conversion, currency: str) -> dict[str, Any]:
    return {
        "merchantAmount": amount(conversion.merchant_amount, conversion.merchant_currency),
        "billingAmount": amount(conversion.billing_amount, currency),
        "rate": rate_text(conversion.rate),
    }


def rate_text(rate: Decimal) -> str:
    """Return `rate` as events have it: no exponent, no zeros that say nothing."""
    text = f"{rate:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _merchant(identity: Identity) -> dict[str, str]:
    fields = {
        "descriptor": identity.descriptor or "UNKNOWN",
        "mcc": identity.mcc,
        "country": identity.country,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _expires_at(
    roll_up: RollUp,
    state: CardTransaction,
    kinds: AbstractSet[type[events.Event]],
    recorded_at: datetime,
) -> datetime | None:
    """Return when the authorization expires; every approval starts the window again."""
    if not state.stands:
        return None
    if roll_up.expires_at is None or not kinds.isdisjoint(_APPROVALS):
        largest = max(state.authorized, state.settled) or state.authorized_amount
        return recorded_at + window(roll_up.identity.mcc, largest)
    return roll_up.expires_at
