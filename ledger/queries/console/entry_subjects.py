"""What entries belong to: a card transaction, or else what has no page of its own.

It is found by key, in the statement that reads the entries. The API has no right on the tables of
adjustments, bookings of files and suspense. Outcomes tell the first two apart, whose ids they have
as references; the id of an item of suspense is that of its message.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cardledger.ledger.core.entries import ChartAccount
from cardledger.ledger.core.payments.payment import Kind
from cardledger.ledger.messaging import settlement_bookings
from cardledger.ledger.projections import adjustments
from cardledger.ledger.queries.console import search
from cardledger.schema.wire.common import public_id

_CARD_TRANSACTION: Final = "CARD_TRANSACTION"

_OF_SYSTEM: Final = "e.account_id IS NULL AND num_nonnulls(t.id, d.id, p.id) = 0"

# Each is read only where those before it have found nothing.
JOINS: Final = f"""
    LEFT JOIN LATERAL (
        SELECT id, descriptor FROM card_transactions
        WHERE id = e.subject_id AND customer_id = e.customer_id LIMIT 1
    ) t ON true
    LEFT JOIN LATERAL (
        SELECT kind FROM card_transaction_events
        WHERE card_transaction_id = t.id AND sequence = e.sequence LIMIT 1
    ) f ON true
    LEFT JOIN LATERAL (
        SELECT id, external_reference FROM deposits
        WHERE t.id IS NULL AND id = e.subject_id AND customer_id = e.customer_id LIMIT 1
    ) d ON true
    LEFT JOIN LATERAL (
        SELECT id, kind, external_reference FROM transfers
        WHERE num_nonnulls(t.id, d.id) = 0
            AND id = e.subject_id AND customer_id = e.customer_id LIMIT 1
    ) p ON true
    LEFT JOIN LATERAL (
        SELECT source FROM outcomes
        WHERE {_OF_SYSTEM} AND reference = e.subject_id::text
            AND source IN ('{adjustments.SOURCE}', '{settlement_bookings.SOURCE}') LIMIT 1
    ) b ON true
    LEFT JOIN LATERAL (
        SELECT id, source, reference FROM rejections
        WHERE {_OF_SYSTEM} AND b.source IS NULL AND id = e.subject_id LIMIT 1
    ) r ON true
    LEFT JOIN LATERAL (
        SELECT id FROM parked
        WHERE {_OF_SYSTEM} AND num_nonnulls(b.source, r.id) = 0 AND id = e.subject_id LIMIT 1
    ) w ON true
    LEFT JOIN LATERAL (
        SELECT source, reference FROM outcomes
        WHERE {_OF_SYSTEM} AND num_nonnulls(b.source, r.id) = 0 AND message_id = e.subject_id
        LIMIT 1
    ) m ON true
"""
"""Of an entry `e`, at most one row each: its statement selects `COLUMNS`, for `subject_of`."""

COLUMNS: Final = """
    e.subject_id, e.sequence, f.kind AS event, t.id IS NOT NULL AS is_purchase, t.descriptor,
    d.id IS NOT NULL AS is_deposit, p.kind AS transfer, b.source AS booked_by,
    r.id IS NOT NULL AS is_rejection, w.id IS NOT NULL AS is_parked,
    coalesce(r.source, m.source) AS source,
    coalesce(d.external_reference, p.external_reference, r.reference, m.reference) AS reference
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What an entry belongs to.

    `id` is its public id; a bare UUID where the API has no such resource. `descriptor` is that of
    the merchant. `source` and `reference` are those of a message of the network; a deposit or a
    payment may have a `reference` outside of the ledger.
    """

    kind: str
    id: str
    descriptor: str | None
    source: str | None
    reference: str | None

    @property
    def card_transaction(self) -> str | None:
        """The public id of the card transaction; None: it is another thing."""
        return self.id if self.kind == _CARD_TRANSACTION else None

    @property
    def is_searched(self) -> bool:
        """Whether the search of the console finds the id."""
        return self.id.rpartition(":")[0] in search.RESOURCES


def subject_of(row: Any, *accounts: str) -> Subject:  # noqa: ANN401 - a row
    """Return what an entry belongs to; `accounts` are those of the chart on either side of it."""
    kind, resource = _kind(row, accounts)
    return Subject(
        kind=kind,
        id=str(row.subject_id) if resource is None else public_id(resource, row.subject_id),
        descriptor=row.descriptor,
        source=row.source,
        reference=row.reference,
    )


_TRANSFERS: Final[Mapping[str, str]] = {
    Kind.INTERNAL: "TRANSFER",
    Kind.EXCHANGE: "EXCHANGE",
    Kind.FEE: "FEE",
}
_BOOKED_BY: Final[Mapping[str, str]] = {
    adjustments.SOURCE: "ADJUSTMENT",
    settlement_bookings.SOURCE: "SETTLEMENT_BOOKING",
}


def _kind(row: Any, accounts: tuple[str, ...]) -> tuple[str, str | None]:  # noqa: ANN401 - a row
    """Return what it is that an entry belongs to, and the resource of its public id, if any."""
    if row.is_purchase:
        return _CARD_TRANSACTION, "CardTransaction"
    if row.is_deposit:
        return "DEPOSIT", "Transaction"
    if row.transfer is not None:
        return _TRANSFERS.get(row.transfer, "PAYMENT"), "Transaction"
    if row.booked_by is not None:
        return _BOOKED_BY[row.booked_by], None
    if row.is_rejection:
        return "REJECTION", "Rejection"
    if row.is_parked:
        return "PARKED_EVENT", "ParkedEvent"
    return ("SUSPENSE_ITEM" if ChartAccount.SUSPENSE in accounts else "BOOKING"), None


_EVENTS: Final[Mapping[str, str]] = {
    ChartAccount.SUSPENSE: "SUSPENDED",
    ChartAccount.FX: "CONVERTED",
    ChartAccount.OUTBOUND_CLEARING: "PAYMENT_SENT",
    ChartAccount.INBOUND_CLEARING: "PAYMENT_RECEIVED",
    ChartAccount.TRANSFERS: "TRANSFERRED",
    ChartAccount.SANDBOX_FUNDING: "DEPOSITED",
    ChartAccount.SETTLEMENT_BANK: "BANK_LINE",
    ChartAccount.INTERCHANGE: "INTERCHANGE",
    ChartAccount.NETWORK_FEES: "NETWORK_FEES",
    ChartAccount.OPERATOR_LOSS: "ADJUSTED",
}
"""What an entry of no card transaction was booked for, by the first account that it has.

The names are those of `finance.journal`, except of payments.
"""


def event_of(row: Any, *accounts: str) -> str:  # noqa: ANN401 - a row
    """Return what an entry was booked for: the event of a card transaction, or else.

    `accounts` are those of the chart on either side of it.
    """
    if row.event is not None:
        return str(row.event)
    if row.booked_by == adjustments.SOURCE:
        return "ADJUSTED"
    if ChartAccount.SUSPENSE in accounts and row.sequence:
        return "SUSPENSE_RESOLVED"
    return next((event for account, event in _EVENTS.items() if account in accounts), "BOOKED")
