"""The `data` of every type of webhook: the whole resource, as its GET returns it."""

from collections.abc import Mapping
from typing import Any, Final

from cardledger.schema.wire.agents.actions import AgentActionResource
from cardledger.schema.wire.cards.card_transactions import CardTransactionResource
from cardledger.schema.wire.cards.cards import CardResource
from cardledger.schema.wire.cards.transactions import IncomingTransaction, OutgoingTransaction
from cardledger.schema.wire.customers.accounts import InternalAccountResource
from cardledger.schema.wire.customers.customers import CustomerResource
from cardledger.schema.wire.customers.external_accounts import ExternalAccountResource
from cardledger.schema.wire.customers.uploads import CustomerUploadResource
from cardledger.schema.wire.customers.verifications import VerificationResource
from cardledger.schema.wire.exchange.invitations import UmaInvitation
from cardledger.schema.wire.webhooks.endpoints import WebhookEndpointDisabled

PAYLOADS: Final[Mapping[str, Any]] = {
    "AGENT_ACTION": AgentActionResource,
    "BULK_UPLOAD": CustomerUploadResource,
    "CARD": CardResource,
    "CARD_TRANSACTION": CardTransactionResource,
    "CUSTOMER": CustomerResource,
    "EXTERNAL_ACCOUNT": ExternalAccountResource,
    "INCOMING_PAYMENT": IncomingTransaction,
    "INTERNAL_ACCOUNT": InternalAccountResource,
    "INVITATION": UmaInvitation,
    "OUTGOING_PAYMENT": OutgoingTransaction,
    "TEST": None,
    "VERIFICATION": VerificationResource,
    "WEBHOOK_ENDPOINT": WebhookEndpointDisabled,
}
"""The type of `data` by the first part of the webhook's type, such as `CARD`; None is `{}`."""

IN_ORDER: Final = frozenset({"CARD_TRANSACTION", "INTERNAL_ACCOUNT"})
"""The webhooks with a `sequence`, which rises with every change of the resource."""
