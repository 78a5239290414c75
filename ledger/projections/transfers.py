"""Transfers between accounts of one customer, and deposits: rows, SQL and resources.

Whether a transfer may happen is decided by `core.transfer`. Everything else about one is here:
every other module calls this one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, Self

from psycopg import Connection
from sqlalchemy import Insert, Row, Select, Update, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.core.transfer import FailureReason
from cardledger.ledger.storage import pg_arrays
from cardledger.ledger.storage.bulk_writes import BulkUpdate, SentUpdate
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.cards.transactions import (
    AccountDestination,
    AccountSource,
    IncomingTransaction,
    OutgoingTransaction,
    RealtimeFundingSource,
)
from cardledger.schema.wire.common import money
from cardledger.schema.wire.webhooks.envelope import WebhookType

PENDING: Final = "PENDING"
"""A transfer that needs the approval of its platform."""

PROCESSING: Final = "PROCESSING"
"""A transfer whose message was sent to the engine."""

COMPLETED: Final = "COMPLETED"
"""A transfer or a deposit whose money has moved."""

FAILED: Final = "FAILED"
"""A transfer that has moved no money and never will."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """A row of `transfers`, and the platform's own id of the customer."""

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
        """Return the transfer after it was sent to the engine."""
        return replace(self, status=PROCESSING, updated_at=at)

    def completed(self, *, at: datetime) -> Self:
        """Return the transfer after its money has moved."""
        return replace(self, status=COMPLETED, settled_at=at, updated_at=at)

    def failed(self, reason: FailureReason, *, at: datetime) -> Self:
        """Return the transfer after it failed; its money does not move."""
        return replace(self, status=FAILED, failure_reason=reason.value, updated_at=at)


TRANSFER_COLUMNS: Final = tuple(
    field.name for field in fields(Transfer) if field.name != "platform_customer_id"
)
"""The columns of `transfers`, in the order of the fields of `Transfer`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deposit:
    """A row of `deposits`, with the currency of its account and the platform's id of the owner."""

    id: Id
    customer_id: Id
    account_id: Id
    amount: int
    recorded_at: datetime
    currency: str
    platform_customer_id: str


# --- resources -------------------------------------------------------------------------------


def outgoing(transfer: Transfer) -> OutgoingTransaction:
    """Return `transfer` as a resource of the API and of webhooks."""
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


def webhook_type(transfer: Transfer) -> WebhookType:
    """Return the type of the webhook that announces the status of `transfer`."""
    return WebhookType(f"OUTGOING_PAYMENT.{transfer.status}")


def incoming(deposit: Deposit) -> IncomingTransaction:
    """Return `deposit` as a resource of the API and of webhooks: it is always completed."""
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


# --- rows of transfers -----------------------------------------------------------------------

_CUSTOMER: Final = tables.customers.c
_TRANSFER: Final = tables.transfers.c

TRANSFERS: Final[Select[*tuple[Any, ...]]] = select(
    *(_TRANSFER[column] for column in TRANSFER_COLUMNS), _CUSTOMER.platform_customer_id
).join_from(tables.transfers, tables.customers, _CUSTOMER.id == _TRANSFER.customer_id)
"""The columns that `transfer_from_row` reads, in its order."""


def transfer_from_row(row: Sequence[Any]) -> Transfer:
    """Return the transfer of a row of `TRANSFERS`."""
    return Transfer(*row)


def insert(transfer: Transfer) -> Insert:
    """Return the statement that inserts `transfer`, which is not settled.

    It names no column that is null: who may request a transfer has no right to settle it.
    """
    values = {column: getattr(transfer, column) for column in TRANSFER_COLUMNS}
    present = {column: value for column, value in values.items() if value is not None}
    return tables.transfers.insert().values(present)


def decide(transfer: Transfer) -> Update:
    """Return the statement that stores the decision on a pending transfer: its new status."""
    return (
        tables.transfers.update()
        .where(_TRANSFER.id == transfer.id, _TRANSFER.customer_id == transfer.customer_id)
        .values(
            status=transfer.status,
            failure_reason=transfer.failure_reason,
            updated_at=transfer.updated_at,
        )
    )


async def lock_status(connection: AsyncConnection, transfer: Transfer) -> str | None:
    """Lock the row of `transfer` and return its status; None when there is no such row."""
    status: str | None = await connection.scalar(
        select(_TRANSFER.status)
        .where(_TRANSFER.id == transfer.id, _TRANSFER.customer_id == transfer.customer_id)
        .with_for_update()
    )
    return status


_LOCK: Final = f"""
    SELECT {", ".join(f"t.{column}" for column in TRANSFER_COLUMNS)}, u.platform_customer_id
    FROM unnest(%s, %s) AS k (id, customer_id)
    JOIN transfers t USING (id, customer_id) JOIN customers u ON u.id = t.customer_id
    ORDER BY t.id FOR UPDATE OF t
"""


def lock(connection: Connection[Any], keys: Iterable[tuple[Id, Id]]) -> dict[Id, Transfer]:
    """Lock and return, by id, the transfers with `keys`, each a transfer and its customer."""
    ids, customers = pg_arrays.columns(sorted(keys), "uuid", "uuid")
    cursor = connection.cursor(binary=True).execute(_LOCK, [ids, customers])
    return {row[0]: transfer_from_row(row) for row in cursor}


_LOCK_FREE: Final = """
    SELECT t.id FROM unnest(%s, %s) AS k (id, customer_id)
    JOIN transfers t USING (id, customer_id) ORDER BY t.id FOR UPDATE OF t SKIP LOCKED
"""
_EXISTING: Final = """
    SELECT t.id, t.customer_id FROM unnest(%s, %s) AS k (id, customer_id)
    JOIN transfers t USING (id, customer_id)
"""


def locked_by_others(connection: Connection[Any], keys: Iterable[tuple[Id, Id]]) -> set[Id]:
    """Lock what is free of the transfers with `keys`; return the customers of the others."""
    arrays = pg_arrays.columns(sorted(keys), "uuid", "uuid")
    with connection.pipeline():
        free = connection.cursor(binary=True).execute(_LOCK_FREE, arrays)
        existing = connection.cursor(binary=True).execute(_EXISTING, arrays)
    locked = {key for (key,) in free.fetchall()}
    return {customer for key, customer in existing.fetchall() if key not in locked}


_RESULT: Final = ("status", "failure_reason", "settled_at", "updated_at")
_result_row: Final = attrgetter("id", "customer_id", *_RESULT)
_END: Final = BulkUpdate(tables.transfers, _RESULT, only="t.status = 'PROCESSING'")


def end(connection: Connection[Any], transfers: Sequence[Transfer]) -> SentUpdate:
    """Store the results of transfers that are `PROCESSING`."""
    return _END.send(connection, list(map(_result_row, transfers)))


# --- rows of deposits ------------------------------------------------------------------------

_DEPOSIT: Final = tables.deposits.c
_ACCOUNT: Final = tables.internal_accounts.c

DEPOSITS: Final[Select[*tuple[Any, ...]]] = (
    select(
        _DEPOSIT.id,
        _DEPOSIT.customer_id,
        _DEPOSIT.account_id,
        _DEPOSIT.amount,
        _DEPOSIT.recorded_at,
        _ACCOUNT.currency,
        _CUSTOMER.platform_customer_id,
    )
    .join_from(
        tables.deposits,
        tables.internal_accounts,
        (_ACCOUNT.id == _DEPOSIT.account_id) & (_ACCOUNT.customer_id == _DEPOSIT.customer_id),
    )
    .join(tables.customers, _CUSTOMER.id == _DEPOSIT.customer_id)
)
"""The columns that `deposit_from_row` reads, by name."""


def deposit_from_row(row: Row[*tuple[Any, ...]]) -> Deposit:
    """Return the deposit of a row of `DEPOSITS`."""
    return Deposit(**row._mapping)  # noqa: SLF001 - SQLAlchemy's public name for it
