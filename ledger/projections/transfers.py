"""Transfers, payments and deposits: rows and SQL.

Whether a transfer may happen, and what may become of a payment, is decided by `core.payments`;
their resources are in `payment_resources`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, Self

from psycopg import Connection
from pydantic_core import to_json
from sqlalchemy import Insert, Row, Select, Text, Update, cast, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.core.payments.payment import Kind, Terms
from cardledger.ledger.core.payments.transfer import FailureReason
from cardledger.ledger.storage import pg_arrays
from cardledger.ledger.storage.bulk_writes import BulkInsert, BulkUpdate, SentUpdate
from cardledger.schema import tables
from cardledger.schema.ids import Id

PENDING: Final = "PENDING"
"""A transfer that needs approval, or a payment that is not handed over."""

PROCESSING: Final = "PROCESSING"
"""A transfer whose message was sent to the engine, or a payment that was handed over."""

COMPLETED: Final = "COMPLETED"
"""A transfer or a deposit whose money has moved."""

FAILED: Final = "FAILED"
"""A transfer that has moved no money and never will, or a payment whose money goes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A row of `transfers`, and the platform's own id of the owner; a platform's is its id."""

    id: Id
    customer_id: Id
    platform_id: Id
    source_account_id: Id | None
    destination_account_id: Id | None
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
    kind: str = Kind.INTERNAL.value
    sequence: int = 0
    requested_at: datetime | None = None
    account_ending: str | None = None
    peer_id: Id | None = None
    peer_platform_id: Id | None = None
    origin_id: Id | None = None
    payment_rail: str | None = None
    rail_selection: str | None = None
    fee_amount: int = 0
    received_amount: int | None = None
    received_currency: str | None = None
    rate_numerator: int | None = None
    rate_denominator: int | None = None
    locked_side: str | None = None
    quote_id: Id | None = None
    description: str | None = None
    uma_address: str | None = None
    own_uma_address: str | None = None
    requested_fields: Sequence[str] | None = None
    rejection_reason: str | None = None
    counterparty_information: Mapping[str, Any] | None = None
    external_reference: str | None = None
    is_funded: bool = False
    needs_approval: bool = False
    expected_settlement_at: datetime | None = None
    due_at: datetime | None = None
    refund_reference: str | None = None
    refund_status: str | None = None
    refund_initiated_at: datetime | None = None
    refund_settled_at: datetime | None = None
    refund_reason: str | None = None
    receipt_confirmed_at: datetime | None = None
    mac: bytes | None = None  # Of its terms; what has arrived needs none.

    @property
    def is_internal(self) -> bool:
        """Whether it moves between two accounts of one owner in one currency, in one step."""
        return self.kind == Kind.INTERNAL

    @property
    def is_incoming(self) -> bool:
        """Whether it is shown as money that arrives."""
        return self.kind in INCOMING_KINDS

    @property
    def awaits_approval(self) -> bool:
        """Whether the platform has to approve it before it is sent to the engine."""
        return self.status == PENDING and self.requested_at is None

    @property
    def received(self) -> int:
        """What arrives, minor units of `arriving_currency`."""
        return (
            self.amount - self.fee_amount if self.received_amount is None else self.received_amount
        )

    @property
    def arriving_currency(self) -> str:
        """The currency that arrives."""
        return self.received_currency or self.currency

    @property
    def own_accounts(self) -> set[Id]:
        """The internal accounts of its owner that it concerns."""
        accounts: set[Id | None] = set()
        if self.kind not in {Kind.IN, Kind.RECEIVED, Kind.FEE}:
            accounts.add(self.source_account_id)
        if self.kind != Kind.OUT:
            accounts.add(self.destination_account_id)
        return {account for account in accounts if account is not None}

    @property
    def external_account_id(self) -> Id | None:
        """The external account that it is paid to, or collected from; None: there is none."""
        if self.kind == Kind.IN:
            return self.source_account_id
        is_payout = self.kind == Kind.OUT and self.peer_id is None
        return self.destination_account_id if is_payout else None

    @property
    def terms(self) -> Terms:
        """What the rules of payments read of it."""
        return Terms(
            kind=Kind(self.kind),
            amount=self.amount,
            fee=self.fee_amount,
            received=self.received,
            is_converted=self.received_currency is not None,
            is_funded=self.is_funded,
        )

    @property
    def is_begun(self) -> bool:
        """Whether the engine, and nothing else, has written that it has worked on it."""
        return bool(self.sequence) or not (self.due_at is None and self.settled_at is None)

    @property
    def signed_terms(self) -> Mapping[str, Any]:
        """What its MAC is of."""
        return {name: getattr(self, name) for name in SIGNED}

    def processing(self, *, at: datetime) -> Self:
        """Return the transfer after it was sent to the engine."""
        return replace(self, status=PROCESSING, updated_at=at)

    def requested(self, *, at: datetime) -> Self:
        """Return the payment after it was sent to the engine."""
        return replace(self, requested_at=at, updated_at=at)

    def completed(self, *, at: datetime) -> Self:
        """Return the transfer after its money has moved."""
        return replace(self, status=COMPLETED, settled_at=at, updated_at=at)

    def failed(self, reason: FailureReason, *, at: datetime) -> Self:
        """Return the transfer after it failed; its money does not move."""
        return replace(self, status=FAILED, failure_reason=reason.value, updated_at=at)


INCOMING_KINDS: Final = (Kind.IN.value, Kind.RECEIVED.value, Kind.FEE.value)
"""The kinds of payments that are shown as money that arrives."""

_FIELDS: Final = tuple(field.name for field in fields(Transfer))
TRANSFER_COLUMNS: Final = tuple(name for name in _FIELDS if name != "platform_customer_id")
"""The columns of `transfers`, in the order of the fields of `Transfer`."""

_CHANGING: Final = frozenset(
    {"status", "failure_reason", "settled_at", "updated_at", "sequence", "requested_at", "due_at",
     "refund_reference", "refund_status", "refund_initiated_at", "refund_settled_at",
     "refund_reason", "rejection_reason", "receipt_confirmed_at", "mac"}
)  # fmt: skip

SIGNED: Final = tuple(name for name in TRANSFER_COLUMNS if name not in _CHANGING)
"""The columns that are the terms of a transfer: none changes after its request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deposit:
    """A row of `deposits`, with the currency of its account and the platform's id of the owner."""

    id: Id
    customer_id: Id
    account_id: Id
    amount: int
    recorded_at: datetime
    platform_id: Id
    currency: str
    platform_customer_id: str


# --- rows of transfers -----------------------------------------------------------------------

_CUSTOMER: Final = tables.customers.c
_TRANSFER: Final = tables.transfers.c

_OWNER_NAME: Final = func.coalesce(
    _CUSTOMER.platform_customer_id, cast(_TRANSFER.customer_id, Text)
).label("platform_customer_id")

TRANSFERS: Final[Select[*tuple[Any, ...]]] = select(
    *(_OWNER_NAME if name == "platform_customer_id" else _TRANSFER[name] for name in _FIELDS)
).join_from(tables.transfers, tables.customers, _CUSTOMER.id == _TRANSFER.customer_id, isouter=True)
"""The columns that `transfer_from_row` reads, in its order; a platform is no customer."""


def transfer_from_row(row: Sequence[Any]) -> Transfer:
    """Return the transfer of a row of `TRANSFERS`."""
    return Transfer(**dict(zip(_FIELDS, row, strict=True)))


_DEFAULTS: Final = (
    ("sequence", 0),
    ("needs_approval", False),
    ("is_funded", False),
    ("fee_amount", 0),
)


def insert(transfer: Transfer) -> Insert:
    """Return the statement that inserts `transfer`, which is not settled.

    It names no column that is null: who may request a transfer has no right to settle it.
    """
    values = {column: getattr(transfer, column) for column in TRANSFER_COLUMNS}
    # What the engine says of it later has defaults.
    present = {
        column: value
        for column, value in values.items()
        if value is not None and (column, value) not in _DEFAULTS
    }
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
            **({} if transfer.requested_at is None else {"requested_at": transfer.requested_at}),
        )
    )


def confirm_receipt(transfer: Transfer) -> Update:
    """Return the statement that stores when the receipt of `transfer` was delivered."""
    return (
        tables.transfers.update()
        .where(_TRANSFER.id == transfer.id, _TRANSFER.customer_id == transfer.customer_id)
        .values(receipt_confirmed_at=transfer.receipt_confirmed_at)
    )


async def lock_status(connection: AsyncConnection, transfer: Transfer) -> str | None:
    """Lock the row of `transfer` and return its status; None when there is no such row.

    A payment that was sent to the engine counts as PROCESSING, whatever its status.
    """
    rows = await connection.execute(
        select(_TRANSFER.status, _TRANSFER.requested_at)
        .where(_TRANSFER.id == transfer.id, _TRANSFER.customer_id == transfer.customer_id)
        .with_for_update()
    )
    row = rows.one_or_none()
    if row is None:
        return None
    is_sent = row.status == PENDING and row.requested_at is not None
    return PROCESSING if is_sent else str(row.status)


LISTED: Final = ", ".join(
    "coalesce(u.platform_customer_id, t.customer_id::text)"
    if name == "platform_customer_id"
    else f"t.{name}"
    for name in _FIELDS
)
"""The columns that `transfer_from_row` reads, of `transfers` t and `customers` u."""

_LOCK: Final = f"""
    SELECT {LISTED}
    FROM unnest(%s, %s) AS k (id, customer_id)
    JOIN transfers t USING (id, customer_id) LEFT JOIN customers u ON u.id = t.customer_id
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

_PROGRESS: Final = (
    *_RESULT,
    "sequence",
    "due_at",
    "refund_reference",
    "refund_status",
    "refund_initiated_at",
    "refund_settled_at",
    "refund_reason",
    "rejection_reason",
)
_progress_row: Final = attrgetter("id", "customer_id", *_PROGRESS)
_ADVANCE: Final = BulkUpdate(tables.transfers, _PROGRESS)


def end(connection: Connection[Any], transfers: Sequence[Transfer]) -> SentUpdate:
    """Store the results of transfers that are `PROCESSING`."""
    return _END.send(connection, list(map(_result_row, transfers)))


def advance(connection: Connection[Any], payments: Sequence[Transfer]) -> SentUpdate:
    """Store what has become of payments, which are locked."""
    return _ADVANCE.send(connection, list(map(_progress_row, payments)))


_NOT_OF_NEW: Final = frozenset({"receipt_confirmed_at", "mac"})
_NEW: Final = BulkInsert(tables.transfers, without=_NOT_OF_NEW)
_new_row: Final = attrgetter(
    *(column.name for column in tables.transfers.columns if column.name not in _NOT_OF_NEW)
)


def append(connection: Connection[Any], payments: Sequence[Transfer]) -> None:
    """Insert payments that have arrived."""
    rows = [
        _new_row(
            replace(
                each,
                counterparty_information=_json(each.counterparty_information),
                requested_fields=_json(each.requested_fields),
            )
        )
        for each in payments
    ]
    _NEW.write(connection, rows)


def _json(value: object) -> Any:  # noqa: ANN401 - JSON travels as text
    return None if value is None else to_json(value).decode()


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
        _DEPOSIT.platform_id,
        _ACCOUNT.currency,
        func.coalesce(_CUSTOMER.platform_customer_id, cast(_DEPOSIT.customer_id, Text)).label(
            "platform_customer_id"
        ),
    )
    .join_from(
        tables.deposits,
        tables.internal_accounts,
        (_ACCOUNT.id == _DEPOSIT.account_id) & (_ACCOUNT.customer_id == _DEPOSIT.customer_id),
    )
    .join(tables.customers, _CUSTOMER.id == _DEPOSIT.customer_id, isouter=True)
)
"""The columns that `deposit_from_row` reads, by name."""


def deposit_from_row(row: Row[*tuple[Any, ...]]) -> Deposit:
    """Return the deposit of a row of `DEPOSITS`."""
    return Deposit(**row._mapping)  # noqa: SLF001 - SQLAlchemy's public name for it
