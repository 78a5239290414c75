"""What is in the `data` of every webhook: the whole resource, as reading it would show it."""

from collections.abc import Mapping
from typing import Final

from schema.wire.accounts import InternalAccountResource
from schema.wire.agent_actions import AgentActionResource
from schema.wire.card_transactions import CardTransactionResource
from schema.wire.cards import CardResource
from schema.wire.common import Response
from schema.wire.customers import CustomerResource
from schema.wire.transactions import IncomingTransaction, OutgoingTransaction
from schema.wire.verifications import VerificationResource
from schema.wire.webhook_endpoints import WebhookEndpointDisabled

PAYLOADS: Final[Mapping[str, type[Response] | None]] = {
    "AGENT_ACTION": AgentActionResource,
    "CARD": CardResource,
    "CARD_TRANSACTION": CardTransactionResource,
    "CUSTOMER": CustomerResource,
    "INCOMING_PAYMENT": IncomingTransaction,
    "INTERNAL_ACCOUNT": InternalAccountResource,
    "OUTGOING_PAYMENT": OutgoingTransaction,
    "TEST": None,
    "VERIFICATION": VerificationResource,
    "WEBHOOK_ENDPOINT": WebhookEndpointDisabled,
}
"""The model by the first part of the type, such as `CARD` of `CARD.STATE_CHANGE`; none: `{}`."""

IN_ORDER: Final = frozenset({"CARD_TRANSACTION", "INTERNAL_ACCOUNT"})
"""What comes with a `sequence`, which rises with every change of the resource."""
