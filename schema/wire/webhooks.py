"""What platforms are told: the envelope of every webhook."""

from enum import StrEnum
from typing import Any

from schema.wire.common import Response, Time, WebhookId


class WebhookType(StrEnum):
    """Everything there is to tell; a card transaction's type names its status."""

    CARD_STATE_CHANGE = "CARD.STATE_CHANGE"
    CARD_FUNDING_SOURCE_CHANGE = "CARD.FUNDING_SOURCE_CHANGE"
    CARD_TRANSACTION_AUTHORIZED = "CARD_TRANSACTION.AUTHORIZED"
    CARD_TRANSACTION_PARTIALLY_SETTLED = "CARD_TRANSACTION.PARTIALLY_SETTLED"
    CARD_TRANSACTION_SETTLED = "CARD_TRANSACTION.SETTLED"
    CARD_TRANSACTION_REFUNDED = "CARD_TRANSACTION.REFUNDED"
    CARD_TRANSACTION_EXCEPTION = "CARD_TRANSACTION.EXCEPTION"
    CARD_TRANSACTION_DECLINED = "CARD_TRANSACTION.DECLINED"
    CARD_TRANSACTION_VOIDED = "CARD_TRANSACTION.VOIDED"
    INTERNAL_ACCOUNT_BALANCE_UPDATED = "INTERNAL_ACCOUNT.BALANCE_UPDATED"


class Envelope(Response):
    """One webhook: its own id, the same in every attempt, and the resource concerned."""

    id: WebhookId
    type: str
    timestamp: Time
    data: dict[str, Any]

    def body(self) -> bytes:
        """Return the bytes that are signed and sent: compact JSON, UTF-8."""
        return self.model_dump_json(by_alias=True).encode()
