"""The messages by which the queues of two owners tell each other about payments."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from cardledger.ledger.core.payments.payment import Kind
from cardledger.ledger.core.payments.transfer import FailureReason
from cardledger.ledger.engine.decisions.recovery import ENGINE
from cardledger.ledger.engine.parsing import (
    RejectedError,
    amount_of,
    id_of,
    malformed,
    string_of,
    text_of,
)
from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import Lane, Message, Owner
from cardledger.ledger.projections import transfers
from cardledger.ledger.projections.transfers import Transfer
from cardledger.ledger.storage.ids import new_id

_PASSED_ON: Final = {
    "remittanceInformation": "remittance_information",
    "purposeOfPayment": "purpose_of_payment",
    "description": "description",
    "externalReference": "external_reference",
}
"""What the receiver sees of the payment of a sender, by the name in a message."""


def arrival(payment: Transfer, at: datetime) -> Message:
    """Return the message by which `payment` arrives at its receiver."""
    assert payment.peer_id is not None
    assert payment.peer_platform_id is not None
    body: dict[str, Any] = {
        "type": inbox.TRANSFER_ARRIVAL,
        "source": ENGINE,
        "reference": f"{payment.id}/arrival",
        "transferId": str(new_id()),
        "originId": str(payment.id),
        "senderId": str(payment.customer_id),
        "senderPlatformId": str(payment.platform_id),
        "sourceAccountId": str(payment.source_account_id),
        "accountId": str(payment.destination_account_id),
        "amount": payment.received,
        "currency": payment.arriving_currency,
        "needsApproval": payment.needs_approval,
        "umaAddress": payment.own_uma_address,
        "ownUmaAddress": payment.uma_address,
        "counterpartyInformation": payment.counterparty_information,
        "requestedFields": payment.requested_fields,
        **{name: getattr(payment, column) for name, column in _PASSED_ON.items()},
    }
    return _message(_present(body), Owner(payment.peer_id, payment.peer_platform_id), at)


def receipt(payment: Transfer, reason: FailureReason | None, at: datetime) -> Message:
    """Return the message that tells the sender what became of `payment`."""
    assert payment.peer_id is not None
    assert payment.peer_platform_id is not None
    body = {
        "type": inbox.TRANSFER_RECEIPT,
        "source": ENGINE,
        "reference": f"{payment.origin_id}/receipt",
        "transferId": str(payment.origin_id),
        "outcome": "FAILED" if reason else "COMPLETED",
        "reason": reason,
    }
    return _message(_present(body), Owner(payment.peer_id, payment.peer_platform_id), at)


def returned(arrival: Message, at: datetime) -> Message | None:
    """Return the message that tells the sender that `arrival` was rejected, and nothing has come.

    None for another message, and for one whose sender cannot be read.
    """
    body = arrival.body
    if not isinstance(body, dict) or body.get("type") != inbox.TRANSFER_ARRIVAL:
        return None
    try:
        origin, sender = id_of(body, "originId"), id_of(body, "senderId")
        owner = Owner(sender, id_of(body, "senderPlatformId"))
    except RejectedError:
        return None
    failure = {
        "type": inbox.TRANSFER_RECEIPT,
        "source": ENGINE,
        "reference": f"{origin}/receipt",
        "transferId": str(origin),
        "outcome": "FAILED",
        "reason": FailureReason.INTERNAL_ERROR.value,
    }
    return _message(failure, owner, at)


def fee(payment: Transfer, at: datetime) -> Message:
    """Return the message that credits the platform with the fee of `payment`."""
    body = {
        "type": inbox.TRANSFER_FEE,
        "source": ENGINE,
        "reference": f"{payment.id}/fee",
        "transferId": str(new_id()),
        "originId": str(payment.id),
        "senderId": str(payment.customer_id),
        "sourceAccountId": str(payment.source_account_id),
        "amount": payment.fee_amount,
        "currency": payment.currency,
    }
    return _message(body, Owner(payment.platform_id, payment.platform_id), at)


def arriving(message: Message, owner_name: str, at: datetime) -> Transfer:
    """Return the payment that arrives by `message`.

    Raises: RejectedError for a malformed message.
    """
    body = message.body
    origin = _optional_id(body, "originId")
    passed_on: dict[str, Any] = {
        column: optional_text(body, name) for name, column in _PASSED_ON.items()
    }
    return Transfer(
        **_common(message, at),
        **passed_on,
        platform_customer_id=owner_name,
        kind=Kind.RECEIVED.value,
        source_account_id=_optional_id(body, "sourceAccountId"),
        destination_account_id=id_of(body, "accountId"),
        origin_id=origin,
        peer_id=_optional_id(body, "senderId"),
        peer_platform_id=_optional_id(body, "senderPlatformId"),
        needs_approval=body.get("needsApproval") is True,
        uma_address=optional_text(body, "umaAddress"),
        own_uma_address=optional_text(body, "ownUmaAddress"),
        counterparty_information=_optional(body, "counterpartyInformation", dict),
        requested_fields=_optional(body, "requestedFields", list),
    )


def arriving_fee(message: Message, at: datetime) -> Transfer:
    """Return the fee that arrives by `message`, without its account.

    Raises: RejectedError for a malformed message.
    """
    body = message.body
    return Transfer(
        **_common(message, at),
        remittance_information=None,
        purpose_of_payment=None,
        platform_customer_id=str(message.customer_id),
        kind=Kind.FEE.value,
        source_account_id=_optional_id(body, "sourceAccountId"),
        destination_account_id=None,
        origin_id=id_of(body, "originId"),
        peer_id=_optional_id(body, "senderId"),
        peer_platform_id=message.platform_id,
    )


def optional_text(body: Mapping[str, Any], name: str) -> str | None:
    """Return the text `name` in `body`, if it has one.

    Raises: RejectedError when it is no text.
    """
    value = body.get(name)
    return None if value is None else text_of(value)


def _common(message: Message, at: datetime) -> dict[str, Any]:
    body = message.body
    return {
        "id": id_of(body, "transferId"),
        "customer_id": message.customer_id,
        "platform_id": message.platform_id,
        "amount": amount_of(body),
        "currency": string_of(body, "currency"),
        "status": transfers.PENDING,
        "failure_reason": None,
        "agent_id": None,
        "created_at": at,
        "requested_at": at,
        "settled_at": None,
        "updated_at": at,
    }


def _optional_id(body: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - an Id or None
    return None if body.get(name) is None else id_of(body, name)


def _optional(body: Mapping[str, Any], name: str, kind: type[Any]) -> Any:  # noqa: ANN401 - JSON
    value = body.get(name)
    if value is not None and not isinstance(value, kind):
        raise malformed(f"{name} must be of another type")
    return value


def _present(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}


def _message(body: Mapping[str, Any], owner: Owner, at: datetime) -> Message:
    return inbox.address(body, owner, lane=Lane.LIVE, reply_to=None, at=at)
