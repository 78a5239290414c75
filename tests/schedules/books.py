"""The rows that a scenario leaves in the database, in a form that can be compared between runs."""

from typing import Any, Final

from tests.world import Cardholder, World

_EVENTS: Final = """
    SELECT t.issuer_transaction_token, e.sequence, e.kind, e.amount, e.unfunded, e.final, e.reason
    FROM card_transaction_events e JOIN card_transactions t ON t.id = e.card_transaction_id
    WHERE e.customer_id = %s ORDER BY 1, 2
"""
_OUTCOMES: Final = """
    SELECT source, outcome, reason, sequence
    FROM outcomes WHERE customer_id = %s ORDER BY message_id
"""
_REJECTIONS: Final = """
    SELECT source, reason, detail FROM rejections WHERE customer_id = %s ORDER BY id
"""
_ENTRIES: Final = """
    SELECT account_version, line, amount, balance_after, credit_account_id = account_id
    FROM entries WHERE customer_id = %s ORDER BY account_version, line, amount
"""
_WEBHOOKS: Final = """
    SELECT type, sequence, count(*) FROM outbox WHERE customer_id = %s GROUP BY 1, 2 ORDER BY 1, 2
"""
_SUSPENSE: Final = """
    SELECT source, type, amount, cause, reason, resolved_at IS NULL
    FROM suspense_items WHERE customer_id = %s ORDER BY id
"""
_WAITING: Final = {
    "inbox": "SELECT count(*) FROM inbox WHERE customer_id = %s",
    "parked": "SELECT count(*) FROM parked WHERE customer_id = %s",
    "pending_pulls": "SELECT count(*) FROM pending_pulls WHERE customer_id = %s",
    "deposits": "SELECT count(*) FROM deposits WHERE customer_id = %s",
    "transfers": "SELECT count(*) FROM transfers WHERE customer_id = %s AND status <> 'COMPLETED'",
}


def books_of(world: World, cardholder: Cardholder) -> dict[str, Any]:
    """Return everything that is recorded about `cardholder`, without ids and times."""
    customer_id = cardholder.owner.customer_id
    return {
        "account": world.account(cardholder),
        "events": world.rows(_EVENTS, customer_id),
        "outcomes": world.rows(_OUTCOMES, customer_id),
        "rejections": world.rows(_REJECTIONS, customer_id),
        "entries": world.rows(_ENTRIES, customer_id),
        "webhooks": world.rows(_WEBHOOKS, customer_id),
        "suspense": world.rows(_SUSPENSE, customer_id),
        **{name: world.rows(count, customer_id)[0][0] for name, count in _WAITING.items()},
    }
