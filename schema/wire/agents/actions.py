"""Actions of agents: the transfers they request, and the approvals of those."""

from typing import Literal

from cardledger.schema.wire.cards.transactions import PaymentResource
from cardledger.schema.wire.common import (
    AgentActionId,
    AgentId,
    AnyAccountReference,
    CustomerId,
    PageQuery,
    Request,
    Response,
    SortOrder,
    Time,
)
from cardledger.schema.wire.exchange.quotes import QuoteResource
from cardledger.schema.wire.payments.parts import PurposeOfPayment
from cardledger.schema.wire.payments.transfers import (
    Remittance,
    RequestedAmount,
    TransferDestination,
    TransferSource,
)

ActionStatus = Literal["PENDING_APPROVAL", "APPROVED", "REJECTED", "FAILED"]
ActionType = Literal["TRANSFER_OUT", "TRANSFER_IN", "EXECUTE_QUOTE"]


class AgentTransferCreate(Request):
    """A transfer that an agent requests; `amount` is required and in minor units."""

    source: TransferSource
    destination: TransferDestination
    amount: RequestedAmount | None = None
    remittance_information: Remittance | None = None
    purpose_of_payment: PurposeOfPayment | None = None


class TransferDetails(Response):
    """The amount to transfer, in minor units of `currency`, and its accounts."""

    amount: int
    currency: str
    source_account_id: AnyAccountReference
    destination_account_id: AnyAccountReference


class AgentActionResource(Response):
    """An action that an agent has requested.

    With `quote` it executes a quote, with `transferDetails` a transfer.
    `APPROVED`: the transfer is being executed or has been; see `transaction`. `FAILED`: the action
    was approved and could not be executed; no money has moved. `transaction` is absent while the
    approval is pending and after a rejection.
    """

    id: AgentActionId
    agent_id: AgentId
    customer_id: CustomerId
    platform_customer_id: str
    status: ActionStatus
    type: ActionType
    quote: QuoteResource | None = None
    transfer_details: TransferDetails | None = None
    transaction: PaymentResource | None = None
    rejection_reason: str | None = None
    created_at: Time
    updated_at: Time


class AgentActionsQuery(PageQuery):
    """Filters of the list of an agent's own actions."""

    status: ActionStatus | None = None


class ApprovalsQuery(PageQuery):
    """Filters of the list of actions that await approval; dates compare with `createdAt`."""

    agent_id: AgentId | None = None
    customer_id: CustomerId | None = None
    start_date: Time | None = None
    end_date: Time | None = None
    sort_order: SortOrder = "desc"
