"""What agents ask for, and what becomes of it."""

from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from cardledger.schema.wire.cards.transactions import OutgoingTransaction
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

MAX_REMITTANCE_LENGTH: Final = 80

PaymentRail = Literal[
    "ACH",
    "ACH_COLOMBIA",
    "BANK_TRANSFER",
    "BRE_B",
    "CIPS",
    "FAST",
    "FASTER_PAYMENTS",
    "FEDNOW",
    "INSTAPAY",
    "MOBILE_MONEY",
    "NEFT",
    "PAYNOW",
    "PESONET",
    "PIX",
    "RTGS",
    "RTP",
    "SEPA",
    "SEPA_INSTANT",
    "SPEI",
    "SWIFT",
    "UNIONPAY",
    "UPI",
    "WIRE",
]

PurposeOfPayment = Literal[
    "GIFT",
    "SELF",
    "GOODS_OR_SERVICES",
    "EDUCATION",
    "HEALTH_OR_MEDICAL",
    "REAL_ESTATE_PURCHASE",
    "TAX_PAYMENT",
    "LOAN_PAYMENT",
    "UTILITY_BILL",
    "DONATION",
    "TRAVEL",
    "FAMILY_SUPPORT",
    "SALARY_PAYMENT",
    "OTHER",
]

ActionStatus = Literal["PENDING_APPROVAL", "APPROVED", "REJECTED", "FAILED"]
ActionType = Literal["TRANSFER_OUT", "TRANSFER_IN"]

Remittance = Annotated[
    str,
    StringConstraints(strict=True, min_length=1, max_length=MAX_REMITTANCE_LENGTH),
    STORABLE,
]


class TransferSource(Request):
    """Where the money comes from."""

    account_id: AnyAccountId


class TransferDestination(Request):
    """Where the money goes to; `paymentRail` is for external accounts."""

    account_id: AnyAccountId
    payment_rail: PaymentRail | None = None


class AgentTransferCreate(Request):
    """A transfer that an agent asks for. `amount` is in minor units, and cannot be left out."""

    source: TransferSource
    destination: TransferDestination
    amount: Annotated[int, Field(strict=True)] | None = None
    remittance_information: Remittance | None = None
    purpose_of_payment: PurposeOfPayment | None = None


class TransferDetails(Response):
    """What is to move, in minor units of `currency`."""

    amount: int
    currency: str
    source_account_id: InternalAccountId
    destination_account_id: InternalAccountId


class AgentActionResource(Response):
    """What an agent has asked for.

    `APPROVED` is being carried out or done: `transaction` tells. `FAILED` was let happen and could
    not be carried out; nothing has moved. `transaction` is not there while an approval is pending,
    nor when it was refused.
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
    """Filters of the list of actions that wait for approval; dates are of their creation."""

    agent_id: AgentId | None = None
    customer_id: CustomerId | None = None
    start_date: Time | None = None
    end_date: Time | None = None
    sort_order: SortOrder = "desc"
