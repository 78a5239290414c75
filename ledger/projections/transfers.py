"""Payments as every reader sees them: transfers between accounts, and deposits."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Self

from cardledger.ledger.core.transfer import FailureReason
from cardledger.schema.ids import Id
from cardledger.schema.wire.cards.transactions import (
    AccountDestination,
    AccountSource,
    IncomingTransaction,
    OutgoingTransaction,
    RealtimeFundingSource,
)
from cardledger.schema.wire.common import money

PENDING: Final = "PENDING"
"""A transfer that waits for its platform's approval."""

PROCESSING: Final = "PROCESSING"
"""A transfer whose message is on its way to the engine."""

COMPLETED: Final = "COMPLETED"
"""A payment whose money has moved."""

FAILED: Final = "FAILED"
"""A transfer that has moved nothing and never will."""

TRANSFER_COLUMNS: Final = (
    "id",
    "customer_id",
    "platform_id",
    "source_account_id",
    "destination_account_id",
    "amount",
    "currency",
    "status",
    "failure_reason",
    "agent_id",
    "remittance_information",
    "purpose_of_payment",
    "created_at",
    "settled_at",
    "updated_at",
)
"""The columns of `transfers`, in the order of the fields of `Transfer`."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """A row of `transfers`, and what its platform calls the customer."""

    id: Id
    customer_id: Id
    platform_id: Id
    source_account_id: Id
    destination_account_id: Id
    amount: int
    currency: str
    status: str
    failure_reason: str | None
    agent_id: Id | None
    remittance_information: str | None
    purpose_of_payment: str | None
    created_at: datetime
    settled_at: datetime | None
    updated_at: datetime
    platform_customer_id: str

    def processing(self, *, at: datetime) -> Self:
        """Return it once it is on its way to the engine."""
        return replace(self, status=PROCESSING, updated_at=at)

    def completed(self, *, at: datetime) -> Self:
        """Return it once its money has moved."""
        return replace(self, status=COMPLETED, settled_at=at, updated_at=at)

    def failed(self, reason: FailureReason, *, at: datetime) -> Self:
        """Return it once it is known that its money will not move."""
        return replace(self, status=FAILED, failure_reason=reason.value, updated_at=at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deposit:
    """A row of `deposits`, with what its account and its owner add to it."""

    id: Id
    customer_id: Id
    account_id: Id
    amount: int
    recorded_at: datetime
    currency: str
    platform_customer_id: str


def outgoing(transfer: Transfer) -> OutgoingTransaction:
    """Return `transfer` as every reader sees it."""
    amount = money(transfer.amount, transfer.currency)
    return OutgoingTransaction(
        id=transfer.id,
        status=transfer.status,
        source=AccountSource(account_id=transfer.source_account_id),
        destination=AccountDestination(
            account_id=transfer.destination_account_id, currency=transfer.currency
        ),
        customer_id=transfer.customer_id,
        platform_customer_id=transfer.platform_customer_id,
        agent_id=transfer.agent_id,
        sent_amount=amount,
        received_amount=amount,
        remittance_information=transfer.remittance_information,
        purpose_of_payment=transfer.purpose_of_payment,
        failure_reason=transfer.failure_reason,
        settled_at=transfer.settled_at,
        created_at=transfer.created_at,
        updated_at=transfer.updated_at,
    )


def incoming(deposit: Deposit) -> IncomingTransaction:
    """Return `deposit` as every reader sees it: it is there, or it is nothing."""
    return IncomingTransaction(
        id=deposit.id,
        status=COMPLETED,
        source=RealtimeFundingSource(currency=deposit.currency),
        destination=AccountDestination(account_id=deposit.account_id, currency=deposit.currency),
        customer_id=deposit.customer_id,
        platform_customer_id=deposit.platform_customer_id,
        received_amount=money(deposit.amount, deposit.currency),
        settled_at=deposit.recorded_at,
        created_at=deposit.recorded_at,
        updated_at=deposit.recorded_at,
    )
