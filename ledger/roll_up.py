"""The roll-up of one purchase: who and what it concerns, and the fold of its events."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from ledger.core import events
from ledger.core.card_transaction import UNKNOWN, CardTransaction, fold
from ledger.expiry import window
from schema.wire.card_transactions import (
    CardTransactionResource,
    MerchantResource,
    PullSummary,
    Summary,
)
from schema.wire.common import money

_APPROVALS: Final = (events.Authorized, events.AuthorizationAdjusted)
_AT_AUTHORIZATION: Final = (events.Authorized, events.Declined, events.Pulled, events.PullPending)


class Identity(NamedTuple):
    """What never changes about a card transaction, from its first event on."""

    id: UUID
    customer_id: UUID
    platform_id: UUID
    platform_customer_id: str
    card_id: UUID
    account_id: UUID
    issuer_transaction_token: str
    currency: str
    descriptor: str | None
    mcc: str | None
    country: str | None
    created_at: datetime


class RollUp(NamedTuple):
    """One row of `card_transactions`; its place among debts is (`debt_since`, `debt_id`)."""

    identity: Identity
    state: CardTransaction
    debt_since: datetime | None
    debt_id: UUID | None
    expires_at: datetime | None
    last_event_at: datetime | None
    updated_at: datetime


def opened(identity: Identity) -> RollUp:
    """Return the roll-up before its first event."""
    return RollUp(
        identity=identity,
        state=UNKNOWN,
        debt_since=None,
        debt_id=None,
        expires_at=None,
        last_event_at=None,
        updated_at=identity.created_at,
    )


def advance(
    roll_up: RollUp, facts: Sequence[events.Event], *, message_id: UUID, recorded_at: datetime
) -> RollUp:
    """Return `roll_up` after `facts`, all caused by one message and recorded at one time."""
    state = fold(facts, roll_up.state)
    return roll_up._replace(
        state=state,
        debt_since=(roll_up.debt_since or recorded_at) if state.in_debt else None,
        debt_id=(roll_up.debt_id or message_id) if state.in_debt else None,
        expires_at=_expires_at(roll_up, state, facts, recorded_at),
        last_event_at=recorded_at if any(map(_is_later, facts)) else roll_up.last_event_at,
        updated_at=recorded_at if facts else roll_up.updated_at,
    )


def render(roll_up: RollUp) -> CardTransactionResource:
    """Return `roll_up` as every reader sees it."""
    who, state = roll_up.identity, roll_up.state
    return CardTransactionResource(
        id=who.id,
        card_id=who.card_id,
        customer_id=who.customer_id,
        platform_customer_id=who.platform_customer_id,
        account_id=who.account_id,
        issuer_transaction_token=who.issuer_transaction_token,
        status=state.status,
        status_reason=state.status_reason,
        decline_reason=state.decline_reason,
        direction="DEBIT" if state.authorizations or state.settlement_count else "CREDIT",
        merchant=MerchantResource(
            descriptor=who.descriptor or "UNKNOWN", mcc=who.mcc, country=who.country
        ),
        authorized_amount=money(state.authorized_amount, who.currency),
        settled_amount=(money(state.settled, who.currency) if state.settlement_count else None),
        refunded_amount=money(state.refunded, who.currency) if state.refunded else None,
        held_amount=money(state.held, who.currency),
        owed_amount=money(state.owed, who.currency),
        pull_summary=PullSummary(
            count=state.pull_count, total_amount=state.pulled, pending_count=state.pending_count
        ),
        settlement_summary=Summary(count=state.settlement_count, total_amount=state.settled),
        refund_summary=Summary(
            count=state.refund_count if state.refunded else 0, total_amount=state.refunded
        ),
        release_summary=Summary(count=state.release_count, total_amount=state.released),
        sequence=state.sequence,
        authorized_at=who.created_at,
        expires_at=roll_up.expires_at,
        last_event_at=roll_up.last_event_at,
        created_at=who.created_at,
        updated_at=roll_up.updated_at,
    )


def _expires_at(
    roll_up: RollUp, state: CardTransaction, facts: Sequence[events.Event], recorded_at: datetime
) -> datetime | None:
    """Return when what stands comes to its end; every approval starts the time again."""
    if not state.stands:
        return None
    if roll_up.expires_at is None or any(isinstance(fact, _APPROVALS) for fact in facts):
        return recorded_at + window(roll_up.identity.mcc, max(state.authorized, state.settled))
    return roll_up.expires_at


def _is_later(event: events.Event) -> bool:
    """Return whether `event` is news after the authorization and the pull that belongs to it."""
    return not isinstance(event, _AT_AUTHORIZATION)
