"""Lists of transactions; card transactions are the only type that exists yet."""

from typing import Literal

from schema.wire.common import CardId, CustomerId, PageQuery, SortOrder

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
    """Filters of the list of transactions; all have to match."""

    customer_id: CustomerId | None = None
    card_id: CardId | None = None
    status: TransactionStatus | None = None
    type: TransactionType | None = None
    sort_order: SortOrder = "desc"
