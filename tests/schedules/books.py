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

# The payments of the cardholder, those of others that these have caused, and those from others to
# the cardholder; and what names the cardholder and has no owner (`bookings`).
_SUBJECTS: Final = """
    WITH cardholder (id) AS (VALUES (%s::uuid)), subjects AS (
        SELECT t.id, t.kind FROM transfers t, cardholder c WHERE c.id IN (t.customer_id, t.peer_id)
        UNION ALL
        SELECT a.id, a.kind FROM adjustments a, cardholder c WHERE a.reason = c.id::text
        UNION ALL
        SELECT b.id, b.kind FROM settlement_bookings b, cardholder c
        WHERE c.id IN (b.file_id, b.statement_id)
    )
"""
_OF_SUBJECTS: Final = {
    "payments": """
        SELECT t.kind, t.amount, t.fee_amount, t.status, t.failure_reason, t.rejection_reason,
            t.sequence, t.refund_status, t.refund_reason, t.due_at IS NULL, t.settled_at IS NULL,
            t.refund_settled_at IS NULL
        FROM transfers t JOIN subjects s USING (id) ORDER BY id
    """,
    "steps": """
        SELECT s.kind, e.sequence, e.kind, e.reason
        FROM transfer_events e JOIN subjects s ON s.id = e.transfer_id ORDER BY s.id, e.sequence
    """,
    "adjustments": """
        SELECT a.kind, a.amount, a.state, a.refusal, a.booked_at IS NULL
        FROM adjustments a JOIN subjects s USING (id) ORDER BY id
    """,
    "bookings": """
        SELECT b.kind, b.amount, b.booked_at IS NULL
        FROM settlement_bookings b JOIN subjects s USING (id) ORDER BY id
    """,
    "journal": """
        SELECT s.kind, j.sequence, j.line, j.debit, j.credit, j.amount, j.currency
        FROM journal j JOIN subjects s ON s.id = j.subject_id ORDER BY s.id, j.sequence, j.line
    """,
    "announced": """
        SELECT s.kind, o.type, o.data ->> 'status', o.data -> 'refund' ->> 'status'
        FROM outbox o JOIN subjects s ON s.id = o.subject_id ORDER BY s.id, o.id
    """,
    "decided": """
        SELECT s.kind, split_part(o.reference, '/', 2), o.source, o.outcome, o.reason
        FROM outcomes o JOIN subjects s ON starts_with(o.reference, s.id::text)
        ORDER BY s.id, o.message_id
    """,
    "rejected": """
        SELECT s.kind, split_part(r.reference, '/', 2), r.source, r.reason
        FROM rejections r JOIN subjects s ON starts_with(r.reference, s.id::text)
        ORDER BY s.id, r.id
    """,
    "accounts": """
        SELECT a.status, a.balance, a.held, a.owed, a.pending, a.version
        FROM internal_accounts a
        WHERE a.customer_id <> a.platform_id AND a.customer_id IN (
            SELECT id FROM cardholder UNION
            SELECT customer_id FROM transfers JOIN subjects USING (id))
        ORDER BY a.id
    """,
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
        **{
            name: world.rows(_SUBJECTS + query, customer_id) for name, query in _OF_SUBJECTS.items()
        },
    }
