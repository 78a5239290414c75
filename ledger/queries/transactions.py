"""Queries of transactions of all types: card transactions, transfers and deposits.

Each type has its own table, with an index in the order of creation. A page of all types is merged
from a page of each type. Ids are UUIDv7, so they have a common order.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

from sqlalchemy import ColumnElement, Row, or_
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.projections import payment_resources, transfers
from cardledger.ledger.projections.transfers import DEPOSITS, TRANSFERS, Transfer
from cardledger.ledger.queries import card_transactions
from cardledger.ledger.storage import paging
from cardledger.ledger.storage.tenancy import is_of_customer, own
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.cards.card_transactions import CardTransactionResource
from cardledger.schema.wire.cards.transactions import (
    INCOMING_STATUSES,
    OUTGOING_STATUSES,
    IncomingTransaction,
    OutgoingTransaction,
    PaymentResource,
)

Resource: TypeAlias = CardTransactionResource | IncomingTransaction | OutgoingTransaction

_Page: TypeAlias = paging.Page[Any]
_Branch: TypeAlias = Callable[..., Awaitable[_Page]]

_TRANSFER: Final = tables.transfers.c
_DEPOSIT: Final = tables.deposits.c


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFilters:
    """Conditions on transactions; None matches every one. Times are inclusive.

    Accounts are internal or external; a platform's own id as `customer_id` selects its payments.
    """

    type: str | None = None
    customer_id: Id | None = None
    platform_customer_id: str | None = None
    card_id: Id | None = None
    account_id: Id | None = None  # Of the sender or the receiver.
    sender_id: Id | None = None
    receiver_id: Id | None = None
    account_ids: Collection[Id] | None = None  # One of them has to be part of it.
    status: str | None = None
    reference: str | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None


async def page(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    filters: TransactionFilters,
    wanted: paging.Wanted,
) -> paging.Page[Resource]:
    """Return one page of the platform's transactions of all types that can match."""
    pages = [
        await branch(connection, platform_id=platform_id, filters=filters, wanted=wanted)
        for branch in _branches(filters)
    ]
    return _merged(pages, wanted)


async def payment(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    transaction_id: Id,
    account_ids: Collection[Id] | None = None,
) -> PaymentResource | None:
    """Return the platform's transfer or deposit, or None.

    With `account_ids`, only a payment to or from one of these accounts.
    """
    transfer = TRANSFERS.where(
        _TRANSFER.id == transaction_id,
        _TRANSFER.platform_id == platform_id,
        *_among(account_ids, *_TRANSFER_ACCOUNTS),
    )
    sent = (await connection.execute(transfer)).one_or_none()
    if sent is not None:
        return _transfer(sent)
    deposit = DEPOSITS.where(
        _DEPOSIT.id == transaction_id,
        _DEPOSIT.platform_id == platform_id,
        *_among(account_ids, _DEPOSIT.account_id),
    )
    arrived = (await connection.execute(deposit)).one_or_none()
    return None if arrived is None else _incoming(arrived)


async def transfer(
    connection: AsyncConnection, *, platform_id: Id, transfer_id: Id
) -> Transfer | None:
    """Return the row of the platform's transfer, or None: a deposit is none."""
    rows = await connection.execute(
        TRANSFERS.where(_TRANSFER.id == transfer_id, _TRANSFER.platform_id == platform_id)
    )
    row = rows.one_or_none()
    return None if row is None else transfers.transfer_from_row(row)


def _merged(pages: Sequence[_Page], wanted: paging.Wanted) -> paging.Page[Resource]:
    """Return the first page of everything in `pages`, each the first of its own type."""
    items = sorted(
        (item for page in pages for item in page.items),
        key=lambda item: item.id,
        reverse=wanted.newest_first,
    )
    shown = items[: wanted.limit]
    has_more = len(items) > len(shown) or any(page.last is not None for page in pages)
    return paging.Page(
        items=shown,
        last=shown[-1].id if has_more else None,
        total_count=paging.total_of(pages),
    )


def _branches(filters: TransactionFilters) -> Iterator[_Branch]:
    """Yield the query of each type that can match `filters`."""
    receivers = {filters.receiver_id, filters.account_id} - {None}
    is_payment = filters.card_id is None
    # A card transaction has one account: the sender of a debit, the receiver of a credit.
    has_one_party = filters.sender_id is None or filters.receiver_id is None
    parties = {filters.sender_id, filters.receiver_id, filters.account_id} - {None}
    if filters.type in {None, "CARD"} and has_one_party and len(parties) <= 1:
        yield _card_transactions
    has_status = filters.status in {None, *OUTGOING_STATUSES, *INCOMING_STATUSES}
    if filters.type in {None, "OUTGOING", "INCOMING"} and is_payment and has_status:
        yield _transfers
    can_arrive = is_payment and filters.status in {None, transfers.COMPLETED}
    # A deposit has no sending account and no reference.
    is_plain = filters.sender_id is None and filters.reference is None and len(receivers) <= 1
    if filters.type in {None, "INCOMING"} and can_arrive and is_plain:
        yield _deposits


async def _card_transactions(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    filters: TransactionFilters,
    wanted: paging.Wanted,
) -> _Page:
    own = card_transactions.CardTransactionFilters(
        customer_id=filters.customer_id,
        platform_customer_id=filters.platform_customer_id,
        card_id=filters.card_id,
        account_id=filters.sender_id or filters.receiver_id or filters.account_id,
        account_ids=filters.account_ids,
        direction=_direction(filters),
        status=filters.status,
        token=filters.reference,
        created_from=filters.created_from,
        created_to=filters.created_to,
    )
    return await card_transactions.page(
        connection, platform_id=platform_id, filters=own, wanted=wanted
    )


def _direction(filters: TransactionFilters) -> card_transactions.Direction | None:
    if filters.sender_id is not None:
        return "DEBIT"
    return "CREDIT" if filters.receiver_id is not None else None


async def _transfers(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    filters: TransactionFilters,
    wanted: paging.Wanted,
) -> _Page:
    conditions = {
        _TRANSFER.status: filters.status,
        _TRANSFER.source_account_id: filters.sender_id,
        _TRANSFER.destination_account_id: filters.receiver_id,
        _TRANSFER.remittance_information: filters.reference,
    }
    matching = [column == value for column, value in conditions.items() if value is not None]
    if filters.type is not None:
        is_incoming = _TRANSFER.kind.in_(transfers.INCOMING_KINDS)
        matching.append(is_incoming if filters.type == "INCOMING" else ~is_incoming)
    if filters.account_id is not None:
        matching.append(
            or_(
                _TRANSFER.source_account_id == filters.account_id,
                _TRANSFER.destination_account_id == filters.account_id,
            )
        )
    return await paging.read(
        connection,
        TRANSFERS,
        table=tables.transfers,
        matching=[
            _TRANSFER.platform_id == platform_id,
            *matching,
            *_among(filters.account_ids, *_TRANSFER_ACCOUNTS),
            *_common(_TRANSFER.customer_id, _TRANSFER.created_at, platform_id, filters),
        ],
        wanted=wanted,
        item=_transfer,
    )


async def _deposits(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    filters: TransactionFilters,
    wanted: paging.Wanted,
) -> _Page:
    receiver = filters.receiver_id or filters.account_id
    return await paging.read(
        connection,
        DEPOSITS,
        table=tables.deposits,
        matching=[
            _DEPOSIT.platform_id == platform_id,
            *(_received_by(receiver, platform_id) if receiver is not None else []),
            *_among(filters.account_ids, _DEPOSIT.account_id),
            *_common(_DEPOSIT.customer_id, _DEPOSIT.recorded_at, platform_id, filters),
        ],
        wanted=wanted,
        item=_incoming,
    )


def _received_by(account_id: Id, platform_id: Id) -> Iterator[ColumnElement[bool]]:
    yield _DEPOSIT.account_id == account_id
    # No index begins with the account; one begins with its owner, who never changes.
    yield _DEPOSIT.customer_id == own(
        tables.internal_accounts, account_id, platform_id=platform_id, column="customer_id"
    )


_TRANSFER_ACCOUNTS: Final = (_TRANSFER.source_account_id, _TRANSFER.destination_account_id)


def _among(
    account_ids: Collection[Id] | None, *columns: ColumnElement[Any]
) -> Iterator[ColumnElement[bool]]:
    """Yield the condition that one of `columns` is in `account_ids`; None: no condition."""
    if account_ids is not None:
        yield or_(*(column.in_(account_ids) for column in columns))


def _common(
    customer: ColumnElement[Any],
    created_at: ColumnElement[Any],
    platform_id: Id,
    filters: TransactionFilters,
) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions that transfers and deposits share."""
    if filters.customer_id == platform_id:
        yield customer == platform_id
    elif filters.customer_id is not None:
        yield customer == own(tables.customers, filters.customer_id, platform_id=platform_id)
    if filters.platform_customer_id is not None:
        yield is_of_customer(customer, filters.platform_customer_id, platform_id=platform_id)
    if filters.created_from is not None:
        yield created_at >= filters.created_from
    if filters.created_to is not None:
        yield created_at <= filters.created_to


def _transfer(row: Row[*tuple[Any, ...]]) -> PaymentResource:
    return payment_resources.resource(transfers.transfer_from_row(row))


def _incoming(row: Row[*tuple[Any, ...]]) -> IncomingTransaction:
    return payment_resources.incoming(transfers.deposit_from_row(row))
