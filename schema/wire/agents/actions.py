"""Actions of agents: the transfers they request, and the approvals of those."""

from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from cardledger.schema.wire.cards.transactions import OutgoingTransaction, PurposeOfPayment
from cardledger.schema.wire.common import (
    STORABLE,
    AgentActionId,
    AgentId,
    AnyAccountId,
    CustomerId,
    InternalAccountId,
    PageQuery,
    Request,
    Response,
    SortOrder,
    Time,
)
from cardledger.schema.wire.customers.account_variants import PaymentRail

MAX_REMITTANCE_LENGTH: Final = 80

ActionStatus = Literal["PENDING_APPROVAL", "APPROVED", "REJECTED", "FAILED"]
ActionType = Literal["TRANSFER_OUT", "TRANSFER_IN"]

Remittance = Annotated[
    str,
    StringConstraints(strict=True, min_length=1, max_length=MAX_REMITTANCE_LENGTH),
    STORABLE,
]


class TransferSource(Request):
    """The account that is debited."""

    account_id: AnyAccountId


class TransferDestination(Request):
    """The account that is credited; `paymentRail` is for external accounts."""

    account_id: AnyAccountId
    payment_rail: PaymentRail | None = None


class AgentTransferCreate(Request):
    """A transfer that an agent requests; `amount` is required and in minor units."""

    source: TransferSource
    destination: TransferDestination
    amount: Annotated[int, Field(strict=True)] | None = None
    remittance_information: Remittance | None = None
    purpose_of_payment: PurposeOfPayment | None = None


class TransferDetails(Response):
    """The amount to transfer, in minor units of `currency`, and its accounts."""

    amount: int
    currency: str
    source_account_id: InternalAccountId
    destination_account_id: InternalAccountId


class AgentActionResource(Response):
    """An action that an agent has requested.

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
    transfer_details: TransferDetails
    transaction: OutgoingTransaction | None = None
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
