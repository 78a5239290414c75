"""Transactions: of cards (`CARD`), payments out (`OUTGOING`) and payments in (`INCOMING`)."""

from typing import Annotated, Final, Literal, TypeAlias, get_args

from pydantic import ConfigDict, Field

from cardledger.schema.wire.cards.card_transactions import CardTransactionResource
from cardledger.schema.wire.common import (
    AgentId,
    AnyAccountId,
    AnyOwnerId,
    CardId,
    CurrencyAmount,
    Documented,
    LongName,
    Name,
    OwnerReference,
    PageQuery,
    PaymentRail,
    QuoteId,
    Request,
    Response,
    SortOrder,
    Time,
    TransactionId,
)
from cardledger.schema.wire.payments.parts import (
    Counterparty,
    FailureReason,
    IncomingStatus,
    Instructions,
    OutgoingStatus,
    PaymentDestination,
    PaymentSource,
    PurposeOfPayment,
    RailSelectionMode,
    RateDetails,
    Ratio,
    ReconciliationInstructions,
    Refund,
    RequestedField,
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

OUTGOING_STATUSES: Final = frozenset(get_args(OutgoingStatus))
"""The statuses of a payment out."""

INCOMING_STATUSES: Final = frozenset(get_args(IncomingStatus))
"""The statuses of a payment in."""


class PaymentsQuery(PageQuery):
    """Filters of the list of one customer's transactions; all must match.

    Accounts are internal or external. The sender of a card transaction is its funding account; its
    receiver, a merchant, has no account here. A transfer has a sender and a receiver; a deposit has
    a receiver only. `reference` is the `issuerTransactionToken` of a card transaction and the
    `remittanceInformation` of a transfer; a deposit has none. The dates are inclusive and compare
    with `createdAt`.
    """

    account_identifier: AnyAccountId | None = None
    sender_account_identifier: AnyAccountId | None = None
    receiver_account_identifier: AnyAccountId | None = None
    reference: Name | None = None
    start_date: Time | None = None
    end_date: Time | None = None
    status: TransactionStatus | None = None
    type: TransactionType | None = None
    sort_order: SortOrder = "desc"


class TransactionsQuery(PaymentsQuery):
    """Filters of the list of a platform's transactions; all must match.

    The filters of one customer's list, and: the customer, and the card, which only card
    transactions have. The platform's own id (`PlatformConfig:…`) as `customerId` selects the
    payments of the platform itself.
    """

    customer_id: AnyOwnerId | None = None
    platform_customer_id: Name | None = None
    card_id: CardId | None = None


class IncomingTransaction(Response):
    """A payment in: money that arrives in an internal account.

    A deposit is `COMPLETED` at once. Money that is collected from an external account is
    `PROCESSING` until it has arrived. `PENDING` awaits the platform's answer, within five seconds:
    approve or reject it. The account is credited when the payment is `COMPLETED`, and not before.
    """

    type: Literal["INCOMING"] = "INCOMING"
    id: TransactionId
    status: Annotated[str, Documented(IncomingStatus)]
    direction: Literal["CREDIT"] = "CREDIT"
    source: PaymentSource | None = None
    destination: PaymentDestination
    customer_id: OwnerReference
    platform_customer_id: str
    agent_id: AgentId | None = None
    received_amount: CurrencyAmount
    sent_amount: CurrencyAmount | None = None
    exchange_rate: Ratio | None = None
    fees: int | None = None
    description: str | None = None
    remittance_information: str | None = None
    purpose_of_payment: Annotated[str, Documented(PurposeOfPayment)] | None = None
    quote_id: QuoteId | None = None
    counterparty_information: Counterparty | None = None
    reconciliation_instructions: ReconciliationInstructions | None = None
    requested_receiver_customer_info_fields: list[RequestedField] | None = None
    failure_reason: Annotated[str, Documented(FailureReason)] | None = None
    rejection_reason: str | None = None
    refund: Refund | None = None
    receipt_delivery_confirmed_at: Time | None = None
    expected_settlement_at: Time | None = None
    settled_at: Time | None = None
    created_at: Time
    updated_at: Time


class OutgoingTransaction(Response):
    """A payment out: to an external account, to a UMA address or to another internal account.

    `PENDING` awaits the platform's approval. The source is debited when the payment is
    `PROCESSING`. After `FAILED`, the whole amount is refunded (`refund`); a payment that failed
    before the debit has none. A bank can return a payment after `COMPLETED`: it becomes `FAILED`
    with `PAYOUT_RETURNED`, and is refunded.
    """

    type: Literal["OUTGOING"] = "OUTGOING"
    id: TransactionId
    status: Annotated[str, Documented(OutgoingStatus)]
    direction: Literal["DEBIT"] = "DEBIT"
    source: PaymentSource
    destination: PaymentDestination
    customer_id: OwnerReference
    platform_customer_id: str
    agent_id: AgentId | None = None
    sent_amount: CurrencyAmount
    received_amount: CurrencyAmount | None = None
    exchange_rate: Ratio | None = None
    fees: int | None = None
    platform_fees: int | None = None
    rate_details: RateDetails | None = None
    description: str | None = None
    remittance_information: str | None = None
    purpose_of_payment: Annotated[str, Documented(PurposeOfPayment)] | None = None
    quote_id: QuoteId | None = None
    payment_instructions: Instructions | None = None
    counterparty_information: Counterparty | None = None
    payment_rail: Annotated[str, Documented(PaymentRail)] | None = None
    rail_selection_mode: Annotated[str, Documented(RailSelectionMode)] | None = None
    failure_reason: Annotated[str, Documented(FailureReason)] | None = None
    refund: Refund | None = None
    receipt_delivery_confirmed_at: Time | None = None
    expected_settlement_at: Time | None = None
    settlement_timeline_seconds: int | None = None
    settled_at: Time | None = None
    created_at: Time
    updated_at: Time


PaymentResource: TypeAlias = Annotated[
    IncomingTransaction | OutgoingTransaction, Field(discriminator="type")
]
"""A payment in or out."""

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

    `receiverCustomerInfo` is for incoming payments: the fields that were requested of the receiver.
    """

    receiver_customer_info: (
        Annotated[dict[str, object], Documented(ReceiverCustomerInfo)] | None
    ) = None


class RejectRequest(Request):
    """The platform's rejection, with an optional reason."""

    reason: LongName | None = None


class CancelRequest(Request):
    """The cancellation of a payment that was not handed to its rail, with an optional reason."""

    reason: LongName | None = None


class ConfirmRequest(Request):
    """The confirmation that the customer has a receipt; absent time: now."""

    receipt_delivery_confirmed_at: Time | None = None
