"""Transactions: card transactions (`CARD`), transfers (`OUTGOING`), deposits (`INCOMING`)."""

from typing import Annotated, Final, Literal, TypeAlias, get_args

from pydantic import ConfigDict, Field

from cardledger.schema.wire.cards.card_transactions import CardTransactionResource
from cardledger.schema.wire.common import (
    AgentId,
    CardId,
    CurrencyAmount,
    CustomerId,
    Documented,
    InternalAccountId,
    LongName,
    Name,
    PageQuery,
    Request,
    Response,
    SortOrder,
    Time,
    TransactionId,
)

TransactionType = Literal["INCOMING", "OUTGOING", "CARD"]

TransactionStatus = Literal[
    # Card transactions.
    "AUTHORIZED",
    "PARTIALLY_SETTLED",
    "SETTLED",
    "REFUNDED",
    "EXCEPTION",
    "DECLINED",
    "VOIDED",
    # Transfers and deposits.
    "CREATED",
    "PENDING",
    "PENDING_AUTHORIZATION",
    "PROCESSING",
    "COMPLETED",
    "REJECTED",
    "FAILED",
    "EXPIRED",
]

OutgoingStatus = Literal["PENDING", "PROCESSING", "COMPLETED", "FAILED"]
IncomingStatus = Literal["COMPLETED"]

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
FailureReason = Literal[
    "ACCOUNT_INVALID",
    "ACCOUNT_CANNOT_RECEIVE",
    "INSUFFICIENT_FUNDS",
    "LIMIT_EXCEEDED",
    "AGENT_NOT_ALLOWED",
    "REJECTED_BY_PLATFORM",
    "INTERNAL_ERROR",
]

OUTGOING_STATUSES: Final = frozenset(get_args(OutgoingStatus))
"""The statuses of a transfer."""

INCOMING_STATUSES: Final = frozenset(get_args(IncomingStatus))
"""The statuses of a deposit, which is shown once it has arrived."""


class PaymentsQuery(PageQuery):
    """Filters of the list of one customer's transactions; all must match.

    The sender of a card transaction is its funding account; its receiver, a merchant, has no
    account here. A transfer has a sender and a receiver; a deposit has a receiver only.
    `reference` is the `issuerTransactionToken` of a card transaction and the
    `remittanceInformation` of a transfer; a deposit has none. The dates are inclusive and compare
    with `createdAt`.
    """

    account_identifier: InternalAccountId | None = None
    sender_account_identifier: InternalAccountId | None = None
    receiver_account_identifier: InternalAccountId | None = None
    reference: Name | None = None
    start_date: Time | None = None
    end_date: Time | None = None
    status: TransactionStatus | None = None
    type: TransactionType | None = None
    sort_order: SortOrder = "desc"


class TransactionsQuery(PaymentsQuery):
    """Filters of the list of a platform's transactions; all must match.

    The filters of one customer's list, and: the customer, and the card, which only card
    transactions have.
    """

    customer_id: CustomerId | None = None
    platform_customer_id: Name | None = None
    card_id: CardId | None = None


class AccountSource(Response):
    """The internal account that is debited."""

    source_type: Literal["ACCOUNT"] = "ACCOUNT"
    account_id: InternalAccountId


class RealtimeFundingSource(Response):
    """Money from outside the service; the sandbox creates it."""

    source_type: Literal["REALTIME_FUNDING"] = "REALTIME_FUNDING"
    currency: str


class AccountDestination(Response):
    """The internal account that is credited."""

    destination_type: Literal["ACCOUNT"] = "ACCOUNT"
    account_id: InternalAccountId
    currency: str


class IncomingTransaction(Response):
    """A deposit: money that has arrived in an internal account."""

    type: Literal["INCOMING"] = "INCOMING"
    id: TransactionId
    status: Annotated[str, Documented(IncomingStatus)]
    direction: Literal["CREDIT"] = "CREDIT"
    source: RealtimeFundingSource
    destination: AccountDestination
    customer_id: CustomerId
    platform_customer_id: str
    received_amount: CurrencyAmount
    settled_at: Time
    created_at: Time
    updated_at: Time


class OutgoingTransaction(Response):
    """A transfer between two internal accounts of one customer.

    `PENDING` awaits the platform's approval. `COMPLETED` and `FAILED` are final; a failed transfer
    has moved no money, and `failureReason` is its cause.
    """

    type: Literal["OUTGOING"] = "OUTGOING"
    id: TransactionId
    status: Annotated[str, Documented(OutgoingStatus)]
    direction: Literal["DEBIT"] = "DEBIT"
    source: AccountSource
    destination: AccountDestination
    customer_id: CustomerId
    platform_customer_id: str
    agent_id: AgentId | None = None
    sent_amount: CurrencyAmount
    received_amount: CurrencyAmount
    remittance_information: str | None = None
    purpose_of_payment: Annotated[str, Documented(PurposeOfPayment)] | None = None
    failure_reason: Annotated[str, Documented(FailureReason)] | None = None
    settled_at: Time | None = None
    created_at: Time
    updated_at: Time


PaymentResource: TypeAlias = IncomingTransaction | OutgoingTransaction

TransactionResource: TypeAlias = Annotated[
    CardTransactionResource | IncomingTransaction | OutgoingTransaction,
    Field(discriminator="type"),
]
"""A transaction of any type."""


class ReceiverCustomerInfo(Request):
    """Details of the receiver of an incoming payment, in the platform's own fields."""

    model_config = ConfigDict(extra="allow")


class ApproveRequest(Request):
    """The platform's approval.

    `receiverCustomerInfo` belongs to incoming payments; it is accepted and has no effect.
    """

    receiver_customer_info: (
        Annotated[dict[str, object], Documented(ReceiverCustomerInfo)] | None
    ) = None


class RejectRequest(Request):
    """The platform's rejection, with an optional reason."""

    reason: LongName | None = None
