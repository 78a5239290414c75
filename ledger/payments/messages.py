"""The messages that the engine decides about payments. Pure: nothing is written here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from cardledger.ledger.core.payments.transfer import FailureReason
from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import Lane, Message, Owner
from cardledger.ledger.projections.transfers import Transfer
from cardledger.schema.ids import Id

SOURCE: Final = "transfers"
"""Source of the messages that the API sends; their reference contains the transfer's id."""

RAIL: Final = "rail"
"""Source of what a payment rail tells."""


class Decision(StrEnum):
    """About a payment that has arrived and needs the platform's approval."""

    APPROVE = "APPROVE"
    REJECT = "REJECT"
    FAIL = "FAIL"


class RailOutcome(StrEnum):
    """What a rail, or the bank behind it, has done with a payment."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    RETURNED = "RETURNED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """Money that arrives from outside for an internal account; `amount` in minor units.

    `id` will be that of the payment; `reference` the idempotency key of its arrival.
    """

    id: Id
    owner: Owner
    account_id: Id
    amount: int
    currency: str
    needs_approval: bool = False
    uma_address: str | None = None
    own_uma_address: str | None = None
    description: str | None = None
    remittance_information: str | None = None
    external_reference: str | None = None
    counterparty_information: Mapping[str, Any] | None = None
    requested_fields: Sequence[str] | None = None


def execution(transfer: Transfer, reply_to: str | None, at: datetime) -> Message:
    """Return the message that begins `transfer`."""
    body = {
        "type": inbox.TRANSFER,
        "source": SOURCE,
        "reference": str(transfer.id),
        "transferId": str(transfer.id),
    }
    return _message(body, _owner(transfer), reply_to, at)


def cancellation(transfer: Transfer, reply_to: str | None, at: datetime) -> Message:
    """Return the message that cancels `transfer`, unless it was handed over."""
    body = {
        "type": inbox.TRANSFER_CANCELLATION,
        "source": SOURCE,
        "reference": f"{transfer.id}/cancellation",
        "transferId": str(transfer.id),
    }
    return _message(body, _owner(transfer), reply_to, at)


def approval(  # noqa: PLR0913 - each by name
    transfer_id: Id,
    owner: Owner,
    decision: Decision,
    *,
    reason: str | None,
    reply_to: str | None = None,
    at: datetime,
) -> Message:
    """Return the message that decides about a payment that has arrived.

    `reason` is a failure code for FAIL, and the words of the platform for REJECT. The first
    decision counts: each has a reference of its own.
    """
    body: dict[str, Any] = {
        "type": inbox.TRANSFER_APPROVAL,
        "source": SOURCE,
        "reference": f"{transfer_id}/approval/{decision.value}",
        "transferId": str(transfer_id),
        "decision": decision.value,
    }
    if reason is not None:
        body["reason"] = reason
    return _message(body, owner, reply_to, at)


def arrival(wanted: Arrival, reply_to: str | None, at: datetime) -> Message:
    """Return the message by which money arrives from outside."""
    body: dict[str, Any] = {
        "type": inbox.TRANSFER_ARRIVAL,
        "source": SOURCE,
        "reference": f"{wanted.id}/arrival",
        "transferId": str(wanted.id),
        "accountId": str(wanted.account_id),
        "amount": wanted.amount,
        "currency": wanted.currency,
        "needsApproval": wanted.needs_approval,
        "umaAddress": wanted.uma_address,
        "ownUmaAddress": wanted.own_uma_address,
        "description": wanted.description,
        "remittanceInformation": wanted.remittance_information,
        "externalReference": wanted.external_reference,
        "counterpartyInformation": (
            None
            if wanted.counterparty_information is None
            else dict(wanted.counterparty_information)
        ),
        "requestedFields": (
            None if wanted.requested_fields is None else list(wanted.requested_fields)
        ),
    }
    present = {name: value for name, value in body.items() if value is not None}
    return _message(present, wanted.owner, reply_to, at)


def rail_answer(
    transfer: Transfer, outcome: RailOutcome, reason: FailureReason | None, *, at: datetime
) -> Message:
    """Return the message by which a rail tells what it has done with `transfer`."""
    body: dict[str, Any] = {
        "type": inbox.RAIL_ANSWER,
        "source": RAIL,
        "reference": f"{transfer.id}/{outcome.value}",
        "transferId": str(transfer.id),
        "outcome": outcome.value,
    }
    if reason is not None:
        body["reason"] = reason.value
    return _message(body, _owner(transfer), None, at)


def refund(transfer_id: Id, owner: Owner, attempt: Id, *, at: datetime) -> Message:
    """Return the message that refunds a payment whose refund has failed; one for each `attempt`."""
    body = {
        "type": inbox.TRANSFER_REFUND,
        "source": SOURCE,
        "reference": f"{transfer_id}/refund/{attempt}",
        "transferId": str(transfer_id),
    }
    return _message(body, owner, None, at)


def _owner(transfer: Transfer) -> Owner:
    return Owner(transfer.customer_id, transfer.platform_id)


def _message(body: Mapping[str, Any], owner: Owner, reply_to: str | None, at: datetime) -> Message:
    return inbox.address(body, owner, lane=Lane.LIVE, reply_to=reply_to, at=at)
