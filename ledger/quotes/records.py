"""Quotes: rows, and what their payments are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row, Select, Text, Update, cast, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.core.payments.conversion import Rate
from cardledger.ledger.core.payments.payment import Kind
from cardledger.ledger.messaging.inbox_key import InboxKey, Signed
from cardledger.ledger.projections import transfers
from cardledger.ledger.projections.transfers import Transfer
from cardledger.schema import tables
from cardledger.schema.ids import Id

PENDING: Final = "PENDING"
"""A quote that can be executed."""

PENDING_AUTHORIZATION: Final = "PENDING_AUTHORIZATION"
"""A quote that its customer has to authorize first."""

EXECUTED: Final = "EXECUTED"
EXPIRED: Final = "EXPIRED"

OPEN: Final = (PENDING, PENDING_AUTHORIZATION)
"""The statuses in which a quote expires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A row of `quotes`; amounts in minor units of the currency sent, or received."""

    id: Id
    platform_id: Id
    customer_id: Id
    agent_id: Id | None
    status: str
    transaction_id: Id
    source_account_id: Id
    is_funded: bool
    crypto_network: str | None
    destination_account_id: Id | None
    is_external: bool
    uma_address: str | None
    peer_id: Id | None
    peer_platform_id: Id | None
    payment_rail: str | None
    rail_selection: str | None
    sending_currency: str
    receiving_currency: str
    locked_side: str
    sending_amount: int
    receiving_amount: int
    fee_amount: int
    fee_fixed: int
    fee_bps: int
    rate_numerator: int
    rate_denominator: int
    executes_at_once: bool
    description: str | None
    remittance_information: str | None
    purpose_of_payment: str | None
    sender_information: Mapping[str, str] | None
    created_at: datetime
    expires_at: datetime
    executed_at: datetime | None
    updated_at: datetime
    mac: bytes | None = None  # Of its terms.

    @property
    def signed_terms(self) -> Mapping[str, Any]:
        """What its MAC is of."""
        return {name: getattr(self, name) for name in SIGNED}

    @property
    def rate(self) -> Rate:
        """The rate at which it converts."""
        return Rate(self.rate_numerator, self.rate_denominator)

    @property
    def is_of_platform(self) -> bool:
        """Whether the platform itself pays."""
        return self.customer_id == self.platform_id

    @property
    def is_own(self) -> bool:
        """Whether it converts between two internal accounts of one owner."""
        return self.peer_id is None and not self.is_external and self.uma_address is None

    def is_expired(self, at: datetime) -> bool:
        """Return whether it was not executed and cannot be any more."""
        return self.status == EXPIRED or (self.status in OPEN and at >= self.expires_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A quote, the platform's own id of who pays, and the payment once there is one."""

    quote: Quote
    platform_customer_id: str
    payment_status: str | None = None
    awaits_approval: bool = False


COLUMNS: Final = tuple(field.name for field in fields(Quote))
"""The columns of `quotes`, in the order of the fields of `Quote`."""

_CHANGING: Final = frozenset({"status", "executed_at", "updated_at", "mac"})

SIGNED: Final = tuple(name for name in COLUMNS if name not in _CHANGING)
"""The columns that are the terms of a quote: none changes."""

_QUOTE: Final = tables.quotes.c
_TRANSFER: Final = tables.transfers.c
_CUSTOMER: Final = tables.customers.c

_SHOWN: Final[Select[*tuple[Any, ...]]] = (
    select(
        *(_QUOTE[name] for name in COLUMNS),
        func.coalesce(_CUSTOMER.platform_customer_id, cast(_QUOTE.customer_id, Text)),
        _TRANSFER.status,
        _TRANSFER.requested_at,
    )
    .join_from(tables.quotes, tables.customers, _CUSTOMER.id == _QUOTE.customer_id, isouter=True)
    .join(
        tables.transfers,
        (_TRANSFER.id == _QUOTE.transaction_id) & (_TRANSFER.customer_id == _QUOTE.customer_id),
        isouter=True,
    )
)


async def insert(connection: AsyncConnection, quote: Quote, key: InboxKey) -> Quote:
    """Record `quote`, signed with `key`, and return it so."""
    recorded = replace(quote, mac=key.mac_of_terms(Signed.QUOTE, quote.signed_terms))
    values = {name: getattr(recorded, name) for name in COLUMNS}
    await connection.execute(
        tables.quotes.insert().values(
            {name: value for name, value in values.items() if value is not None}
        )
    )
    return recorded


async def get(
    connection: AsyncConnection, *, platform_id: Id, quote_id: Id, agent_id: Id | None = None
) -> Shown | None:
    """Return a quote of the platform, of `agent_id` if given; None: there is none."""
    matching = [_QUOTE.id == quote_id, _QUOTE.platform_id == platform_id]
    if agent_id is not None:
        matching.append(_QUOTE.agent_id == agent_id)
    row = (await connection.execute(_SHOWN.where(*matching))).one_or_none()
    return None if row is None else _shown(row)


async def of_transaction(
    connection: AsyncConnection, *, platform_id: Id, transaction_id: Id
) -> Shown | None:
    """Return the quote that promises a transaction; None: there is none."""
    matching = (_QUOTE.transaction_id == transaction_id, _QUOTE.platform_id == platform_id)
    row = (await connection.execute(_SHOWN.where(*matching))).one_or_none()
    return None if row is None else _shown(row)


async def locked(
    connection: AsyncConnection, *, platform_id: Id, quote_id: Id, agent_id: Id | None = None
) -> Quote | None:
    """Lock and return a quote of the platform, of `agent_id` if given; None: there is none."""
    matching = [_QUOTE.id == quote_id, _QUOTE.platform_id == platform_id]
    if agent_id is not None:
        matching.append(_QUOTE.agent_id == agent_id)
    rows = await connection.execute(
        select(*(_QUOTE[name] for name in COLUMNS)).where(*matching).with_for_update()
    )
    row = rows.one_or_none()
    return None if row is None else from_row(row)


def set_status(quote: Quote, status: str, *, at: datetime) -> Update:
    """Return the statement that stores the new status of a locked quote."""
    return (
        tables.quotes.update()
        .where(_QUOTE.id == quote.id, _QUOTE.platform_id == quote.platform_id)
        .values(status=status, updated_at=at, executed_at=at if status == EXECUTED else None)
    )


def from_row(row: Sequence[Any]) -> Quote:
    """Return the quote of a row of `COLUMNS`."""
    return Quote(**dict(zip(COLUMNS, row, strict=True)))


def _shown(row: Row[*tuple[Any, ...]]) -> Shown:
    *columns, platform_customer_id, status, requested_at = row
    return Shown(
        quote=from_row(columns),
        platform_customer_id=platform_customer_id,
        payment_status=status,
        awaits_approval=status == transfers.PENDING and requested_at is None,
    )


# --- the payment of a quote, pure ----------------------------------------------------------------


def payment_of(
    quote: Quote, *, platform_customer_id: str, at: datetime, own_uma_address: str | None = None
) -> Transfer:
    """Return the payment that executes `quote`, not recorded.

    `own_uma_address` is what the receiver sees of the payer of a payment to a UMA address.
    """
    is_converted = quote.sending_currency != quote.receiving_currency
    return Transfer(
        id=quote.transaction_id,
        kind=Kind.EXCHANGE if quote.is_own else Kind.OUT,
        customer_id=quote.customer_id,
        platform_id=quote.platform_id,
        source_account_id=quote.source_account_id,
        destination_account_id=quote.destination_account_id,
        amount=quote.sending_amount,
        currency=quote.sending_currency,
        fee_amount=quote.fee_amount,
        received_amount=quote.receiving_amount if is_converted else None,
        received_currency=quote.receiving_currency if is_converted else None,
        rate_numerator=quote.rate_numerator if is_converted else None,
        rate_denominator=quote.rate_denominator if is_converted else None,
        locked_side=quote.locked_side if is_converted else None,
        status=transfers.PENDING,
        failure_reason=None,
        agent_id=quote.agent_id,
        remittance_information=quote.remittance_information,
        purpose_of_payment=quote.purpose_of_payment,
        created_at=at,
        settled_at=None,
        updated_at=at,
        platform_customer_id=platform_customer_id,
        peer_id=quote.peer_id,
        peer_platform_id=quote.peer_platform_id,
        payment_rail=quote.payment_rail,
        rail_selection=quote.rail_selection,
        quote_id=quote.id,
        description=quote.description,
        uma_address=quote.uma_address,
        own_uma_address=own_uma_address if quote.uma_address is not None else None,
        is_funded=quote.is_funded,
    )
