"""The events of a card transaction as the API and reports show them, each with its explanation."""

from collections.abc import Sequence

from cardledger.ledger.core.card_transaction import UNKNOWN, CardTransaction
from cardledger.ledger.messaging import timeout_reversals
from cardledger.ledger.projections import explain
from cardledger.ledger.projections.card_transaction import Conversion, rate_text
from cardledger.ledger.projections.event_rows import EventRow, StoredEvent, from_row
from cardledger.ledger.projections.history import conversion_of
from cardledger.schema.wire.cards.card_transaction_events import EventResource
from cardledger.schema.wire.cards.card_transactions import ConversionResource
from cardledger.schema.wire.common import money


def explained(
    stored: Sequence[StoredEvent], currency: str, before: CardTransaction = UNKNOWN
) -> list[EventResource]:
    """Return the events of a card transaction after the state `before`, each explained."""
    facts = [from_row(EventRow(*event[:5])) for event in stored]
    return [
        EventResource(
            sequence=after.sequence,
            type=row.kind,
            amount=money(event.amount, currency),
            explanation=explain.sentence(before, event, after, currency)
            + _why(row.source, row.kind)
            + _of_conversion(row),
            changes=explain.changes(before, after),
            entries=explain.movements(event, currency),
            source=row.source,
            reference=row.reference,
            occurred_at=row.occurred_at,
            recorded_at=row.recorded_at,
            conversion=_conversion(row, currency),
        )
        for row, (before, event, after) in zip(stored, explain.steps(facts, before), strict=True)
    ]


def _conversion(row: StoredEvent, currency: str) -> ConversionResource | None:
    found = _last_columns(row)
    if found is None:
        return None
    return ConversionResource(
        merchant_amount=money(found.merchant_amount, found.merchant_currency),
        billing_amount=money(found.billing_amount, currency),
        rate=rate_text(found.rate),
    )


def _of_conversion(row: StoredEvent) -> str:
    """Return a further sentence for an event whose amount the network has converted."""
    found = _last_columns(row)
    if found is None:
        return ""
    amount = explain.amount_text(found.merchant_amount, found.merchant_currency)
    return f" The merchant's amount was {amount}, at a rate of {rate_text(found.rate)}."


def _last_columns(row: StoredEvent) -> Conversion | None:
    values = row.merchant_amount, row.merchant_currency, row.billing_amount, row.rate
    return None if row.rate is None else conversion_of(values)


def _why(source: str | None, kind: str) -> str:
    """Return a further sentence for an event whose message says why it was sent."""
    if source == timeout_reversals.SOURCE and kind.endswith("_REVERSED"):
        return " The approval could not be reported before its deadline."
    return ""
