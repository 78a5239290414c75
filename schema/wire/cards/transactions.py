"""Transactions: card transactions (`CARD`), transfers (`OUTGOING`), deposits (`INCOMING`)."""

from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from pydantic import ConfigDict, Field

from cardledger.schema.wire.cards.card_transactions import CardTransactionResource
from cardledger.schema.wire.common import (
    UUID_PATTERN,
    AgentId,
    CardId,
    CurrencyAmount,
    CustomerId,
    Documented,
    InternalAccountId,
    LongName,
    Name,
    PageQuery,
    QuoteId,
    Request,
    Response,
    SortOrder,
    Time,
    TransactionId,
)
from cardledger.schema.wire.customers.account_variants import PaymentRail

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

OutgoingStatus = Literal["PENDING", "PROCESSING", "COMPLETED", "FAILED", "EXPIRED"]
IncomingStatus = Literal["PENDING", "PROCESSING", "COMPLETED", "FAILED", "REJECTED"]
RefundStatus = Literal["PENDING", "COMPLETED", "FAILED"]
RefundReason = Literal["TRANSACTION_FAILED", "USER_CANCELLATION", "TIMEOUT"]
RailSelectionMode = Literal["AUTO", "MANUAL"]

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
    "CANCELLED",
    "REJECTED_BY_BANK",
    "COLLECTION_FAILED",
    "PAYOUT_RETURNED",
    "COUNTERPARTY_POST_TX_FAILED",
    "COMPLIANCE_REJECTED",
    "QUOTE_EXECUTION_FAILED",
    "QUOTE_EXPIRED",
    "MISSING_MANDATORY_PAYEE_DATA",
    "PAYMENT_APPROVAL_WEBHOOK_ERROR",
    "PAYMENT_APPROVAL_TIMED_OUT",
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


_AccountId = Annotated[
    str,
    Field(
        examples=["InternalAccount:019542f5-b3e7-7d02-0000-00000000a1b4"],
        json_schema_extra={"pattern": f"^(InternalAccount|ExternalAccount):{UUID_PATTERN}$"},
    ),
]


class AccountSource(Response):
    """The account that is debited: internal, or the external account that money is pulled from."""

    source_type: Literal["ACCOUNT"] = "ACCOUNT"
    account_id: _AccountId
    currency: str | None = None


class UmaSource(Response):
    """The UMA address from which money arrives."""

    source_type: Literal["UMA_ADDRESS"] = "UMA_ADDRESS"
    uma_address: str
    currency: str | None = None


class RealtimeFundingSource(Response):
    """Money from outside the service; the sandbox creates it."""

    source_type: Literal["REALTIME_FUNDING"] = "REALTIME_FUNDING"
    currency: str
    remittance_information: str | None = None


class AccountDestination(Response):
    """The account that is credited: internal, or the external account that is paid."""

    destination_type: Literal["ACCOUNT"] = "ACCOUNT"
    account_id: _AccountId
    currency: str


class UmaDestination(Response):
    """The UMA address that is paid."""

    destination_type: Literal["UMA_ADDRESS"] = "UMA_ADDRESS"
    uma_address: str
    currency: str


class Refund(Response):
    """What goes back to the sender of a payment that failed.

    Its status becomes `COMPLETED` when the money is back, and `FAILED` when it could not be sent.
    """

    reference: str
    status: Annotated[str, Documented(RefundStatus)]
    initiated_at: Time
    settled_at: Time | None = None
    reason: Annotated[str, Documented(RefundReason)] | None = None


class IncomingTransaction(Response):
    """Money that arrives in an internal account: a deposit, a pull, a payment or a fee.

    `PENDING` awaits the platform's approval, or the bank. The account is credited when the status
    becomes `COMPLETED`; a payment that is `FAILED` or `REJECTED` has not been credited, and
    `failureReason` is its cause.
    """

    type: Literal["INCOMING"] = "INCOMING"
    id: TransactionId
    status: Annotated[str, Documented(IncomingStatus)]
    direction: Literal["CREDIT"] = "CREDIT"
    source: Annotated[
        AccountSource | UmaSource | RealtimeFundingSource, Field(discriminator="source_type")
    ]
    destination: AccountDestination
    customer_id: CustomerId
    platform_customer_id: str
    agent_id: AgentId | None = None
    received_amount: CurrencyAmount
    description: str | None = None
    counterparty_information: dict[str, Any] | None = None
    failure_reason: Annotated[str, Documented(FailureReason)] | None = None
    refund: Refund | None = None
    receipt_delivery_confirmed_at: Time | None = None
    settled_at: Time | None = None
    created_at: Time
    updated_at: Time


class OutgoingTransaction(Response):
    """Money that leaves an internal account: a transfer, a payment or a conversion.

    `PENDING` awaits the platform's approval, or is not handed to the payment rail yet;
    `PROCESSING` is with the rail. The source is debited when the payment is created. When it is
    `FAILED`, `failureReason` is its cause, and `refund` what goes back to the source. A bank may
    return a payment that is `COMPLETED`, which is then `FAILED`. `sentAmount` includes `fees`.
    """

    type: Literal["OUTGOING"] = "OUTGOING"
    id: TransactionId
    status: Annotated[str, Documented(OutgoingStatus)]
    direction: Literal["DEBIT"] = "DEBIT"
    source: AccountSource
    destination: Annotated[
        AccountDestination | UmaDestination, Field(discriminator="destination_type")
    ]
    customer_id: CustomerId
    platform_customer_id: str
    agent_id: AgentId | None = None
    sent_amount: CurrencyAmount
    received_amount: CurrencyAmount
    exchange_rate: (
        Annotated[float, Field(description="Units that are sent for one unit that is received.")]
        | None
    ) = None
    fees: (
        Annotated[int, Field(description="Fees included in `sentAmount`, in its minor units.")]
        | None
    ) = None
    quote_id: QuoteId | None = None
    description: str | None = None
    counterparty_information: dict[str, Any] | None = None
    payment_rail: Annotated[str, Documented(PaymentRail)] | None = None
    rail_selection_mode: Annotated[str, Documented(RailSelectionMode)] | None = None
    expected_settlement_at: Time | None = None
    remittance_information: str | None = None
    purpose_of_payment: Annotated[str, Documented(PurposeOfPayment)] | None = None
    failure_reason: Annotated[str, Documented(FailureReason)] | None = None
    refund: Refund | None = None
    receipt_delivery_confirmed_at: Time | None = None
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
