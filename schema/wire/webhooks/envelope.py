"""The types and the envelope of webhooks."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic_core import to_json

from cardledger.schema.ids import Id
from cardledger.schema.wire.common import public_id, rfc3339


class WebhookType(StrEnum):
    """Every type of webhook; the type of a card transaction's webhook contains its status."""

    CARD_STATE_CHANGE = "CARD.STATE_CHANGE"
    CARD_FUNDING_SOURCE_CHANGE = "CARD.FUNDING_SOURCE_CHANGE"
    CARD_TRANSACTION_AUTHORIZED = "CARD_TRANSACTION.AUTHORIZED"
    CARD_TRANSACTION_PARTIALLY_SETTLED = "CARD_TRANSACTION.PARTIALLY_SETTLED"
    CARD_TRANSACTION_SETTLED = "CARD_TRANSACTION.SETTLED"
    CARD_TRANSACTION_REFUNDED = "CARD_TRANSACTION.REFUNDED"
    CARD_TRANSACTION_EXCEPTION = "CARD_TRANSACTION.EXCEPTION"
    CARD_TRANSACTION_DECLINED = "CARD_TRANSACTION.DECLINED"
    CARD_TRANSACTION_VOIDED = "CARD_TRANSACTION.VOIDED"
    CUSTOMER_KYC_PENDING = "CUSTOMER.KYC_PENDING"
    CUSTOMER_KYC_APPROVED = "CUSTOMER.KYC_APPROVED"
    CUSTOMER_KYC_REJECTED = "CUSTOMER.KYC_REJECTED"
    CUSTOMER_KYB_PENDING = "CUSTOMER.KYB_PENDING"
    CUSTOMER_KYB_APPROVED = "CUSTOMER.KYB_APPROVED"
    CUSTOMER_KYB_REJECTED = "CUSTOMER.KYB_REJECTED"
    VERIFICATION_RESOLVE_ERRORS = "VERIFICATION.RESOLVE_ERRORS"
    VERIFICATION_PENDING_MANUAL_REVIEW = "VERIFICATION.PENDING_MANUAL_REVIEW"
    VERIFICATION_APPROVED = "VERIFICATION.APPROVED"
    VERIFICATION_REJECTED = "VERIFICATION.REJECTED"
    OUTGOING_PAYMENT_PENDING = "OUTGOING_PAYMENT.PENDING"
    OUTGOING_PAYMENT_PROCESSING = "OUTGOING_PAYMENT.PROCESSING"
    OUTGOING_PAYMENT_COMPLETED = "OUTGOING_PAYMENT.COMPLETED"
    OUTGOING_PAYMENT_FAILED = "OUTGOING_PAYMENT.FAILED"
    INCOMING_PAYMENT_COMPLETED = "INCOMING_PAYMENT.COMPLETED"
    AGENT_ACTION_PENDING_APPROVAL = "AGENT_ACTION.PENDING_APPROVAL"
    INTERNAL_ACCOUNT_BALANCE_UPDATED = "INTERNAL_ACCOUNT.BALANCE_UPDATED"
    EXTERNAL_ACCOUNT_STATUS_UPDATED = "EXTERNAL_ACCOUNT.STATUS_UPDATED"
    BULK_UPLOAD_COMPLETED = "BULK_UPLOAD.COMPLETED"
    BULK_UPLOAD_FAILED = "BULK_UPLOAD.FAILED"
    WEBHOOK_ENDPOINT_DISABLED = "WEBHOOK_ENDPOINT.DISABLED"
    TEST = "TEST"


def envelope(
    key: Id, kind: str, at: datetime, data: Mapping[str, Any], *, sequence: int | None = None
) -> bytes:
    """Return the bytes of one webhook that are signed and sent: compact JSON, UTF-8.

    The id is the same in every attempt. `sequence` rises with every event of a card transaction
    and with every entry of an account; other resources have none.
    """
    head = {"id": public_id("Webhook", key), "type": kind, "timestamp": rfc3339(at)}
    numbered = {} if sequence is None else {"sequence": sequence}
    return to_json({**head, **numbered, "data": data})
