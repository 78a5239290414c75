"""The payments of quotes before there are any."""

from dataclasses import replace
from datetime import datetime

from cardledger.ledger.projections import payment_resources
from cardledger.ledger.quotes.records import EXPIRED, Shown, payment_of
from cardledger.schema.wire.cards.transactions import OutgoingTransaction


def promised(shown: Shown, *, at: datetime) -> OutgoingTransaction:
    """Return the payment of a quote that is not executed: pending, or expired."""
    quote = shown.quote
    payment = payment_of(
        quote, platform_customer_id=shown.platform_customer_id, at=quote.created_at
    )
    expired = quote.is_expired(at)
    status = EXPIRED if expired else quote.status
    updated_at = max(quote.updated_at, quote.expires_at) if expired else quote.updated_at
    return payment_resources.outgoing(replace(payment, status=status, updated_at=updated_at))
