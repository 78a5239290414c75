"""Lists of transactions; card transactions are the only type that exists yet."""

from typing import Literal

from schema.wire.common import (
    CardId,
    CustomerId,
    InternalAccountId,
    Name,
    PageQuery,
    SortOrder,
    Time,
)

TransactionType = Literal["INCOMING", "OUTGOING", "CARD"]

TransactionStatus = Literal[
    # Of card transactions.
    "AUTHORIZED",
    "PARTIALLY_SETTLED",
    "SETTLED",
    "REFUNDED",
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


class TransactionsQuery(PageQuery):
    """Filters of the list of transactions; all have to match.

    A card transaction is sent from its funding account and received by a merchant, who has no
    account here. Its `reference` is the `issuerTransactionToken`. Dates are of its creation.
    """

    customer_id: CustomerId | None = None
    platform_customer_id: Name | None = None
    card_id: CardId | None = None
    account_identifier: InternalAccountId | None = None
    sender_account_identifier: InternalAccountId | None = None
    receiver_account_identifier: InternalAccountId | None = None
    reference: Name | None = None
    start_date: Time | None = None
    end_date: Time | None = None
    status: TransactionStatus | None = None
    type: TransactionType | None = None
    sort_order: SortOrder = "desc"
