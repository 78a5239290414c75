"""Transactions: card transactions, transfers (`OUTGOING`) and deposits (`INCOMING`)."""

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from cardledger.schema.wire.cards.card_transactions import CardTransactionResource
from cardledger.schema.wire.common import (
    AgentId,
    CardId,
    CurrencyAmount,
    CustomerId,
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
    # Of card transactions.
    "AUTHORIZED",
    "PARTIALLY_SETTLED",
    "SETTLED",
    "REFUNDED",
    "CREDITED",
    "EXCEPTION",
    "DECLINED",
    "VOIDED",
    # Of payments.
    "CREATED",
    "PENDING",
    "PENDING_AUTHORIZATION",
    "PROCESSING",
    "COMPLETED",
    "REJECTED",
    "FAILED",
    "EXPIRED",
]

OUTGOING_STATUSES: Final = frozenset({"PENDING", "PROCESSING", "COMPLETED", "FAILED"})
"""Where a transfer may stand."""

INCOMING_STATUSES: Final = frozenset({"COMPLETED"})
"""Where a deposit may stand: it is shown once it is there."""


class PaymentsQuery(PageQuery):
    """Filters of a list of transactions of one customer; all have to match.

    A card transaction is sent from its funding account and received by a merchant, who has no
    account here. A transfer is sent and received by accounts; a deposit is only received.
    `reference` is the `issuerTransactionToken` of a card transaction and the
    `remittanceInformation` of a transfer; a deposit has none. Dates are of the creation, both
    included.
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
    """Filters of the list of a platform's transactions; all have to match.

    As for one customer; beside them whose it is, and the card, which only card transactions have.
    """

    customer_id: CustomerId | None = None
    platform_customer_id: Name | None = None
    card_id: CardId | None = None


class AccountSource(Response):
    """An account here that money comes from."""

    source_type: Literal["ACCOUNT"] = "ACCOUNT"
    account_id: InternalAccountId


class RealtimeFundingSource(Response):
    """Money from outside: in the sandbox, out of nowhere."""

    source_type: Literal["REALTIME_FUNDING"] = "REALTIME_FUNDING"
    currency: str


class AccountDestination(Response):
    """An account here that money goes to."""

    destination_type: Literal["ACCOUNT"] = "ACCOUNT"
    account_id: InternalAccountId
    currency: str


class IncomingTransaction(Response):
    """Money that has arrived on an internal account."""

    type: Literal["INCOMING"] = "INCOMING"
    id: TransactionId
    status: str
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

    `PENDING` waits for the platform's approval. What is `COMPLETED` or `FAILED` stays so; what
    has failed has moved nothing, and `failureReason` says why.
    """

    type: Literal["OUTGOING"] = "OUTGOING"
    id: TransactionId
    status: str
    direction: Literal["DEBIT"] = "DEBIT"
    source: AccountSource
    destination: AccountDestination
    customer_id: CustomerId
    platform_customer_id: str
    agent_id: AgentId | None = None
    sent_amount: CurrencyAmount
    received_amount: CurrencyAmount
    remittance_information: str | None = None
    purpose_of_payment: str | None = None
    failure_reason: str | None = None
    settled_at: Time | None = None
    created_at: Time
    updated_at: Time


PaymentResource: TypeAlias = IncomingTransaction | OutgoingTransaction

TransactionResource: TypeAlias = Annotated[
    CardTransactionResource | IncomingTransaction | OutgoingTransaction,
    Field(discriminator="type"),
]
"""A transaction of any type."""


class ApproveRequest(Request):
    """The platform's yes.

    `receiverCustomerInfo` is about incoming payments: nothing asks for it here.
    """

    receiver_customer_info: dict[str, object] | None = None


class RejectRequest(Request):
    """The platform's no, and what it has to say to it."""

    reason: LongName | None = None
