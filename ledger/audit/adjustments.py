"""The audit of adjustments: what was approved is booked once, and nothing else is.

Source: docs/decisions/0069-adjustments.md
"""

from collections.abc import Iterator
from typing import Any, Final

from psycopg import Connection


def differences(connection: Connection[Any]) -> Iterator[str]:
    """Yield what is wrong with adjustments, and with entries of no cardholder."""
    for statement, description in _CHECKS:
        for row in connection.execute(statement):
            yield description.format(*row)


# Each statement returns the rows that are wrong, none when all is well; the text describes a row.
_CHECKS: Final = (
    (
        """
        SELECT j.id, j.state, count(e.subject_id)
        FROM adjustments j
        LEFT JOIN system_accounts d ON (d.platform_id, d.currency, d.kind)
            = (j.platform_id, j.currency, j.from_kind)
        LEFT JOIN system_accounts c ON (c.platform_id, c.currency, c.kind)
            = (j.platform_id, j.currency, j.to_kind)
        LEFT JOIN entries e ON e.subject_id = j.id
        WHERE j.kind = 'MOVE'
        GROUP BY j.id, j.state
        HAVING count(e.subject_id) <> CASE j.state WHEN 'BOOKED' THEN 1 ELSE 0 END
            OR bool_or(
                (e.sequence, e.line, e.customer_id, e.debit_account_id, e.credit_account_id,
                    e.amount, e.recorded_at)
                IS DISTINCT FROM (0, 0, '00000000-0000-0000-0000-000000000000'::uuid, d.id, c.id,
                    j.amount, j.booked_at)
            ) FILTER (WHERE e.subject_id IS NOT NULL)
        """,
        "Adjustment {}: state is {}; its {} entries do not match",
    ),
    (
        """
        SELECT e.subject_id, e.sequence, e.line FROM entries e
        LEFT JOIN adjustments j ON j.id = e.subject_id AND j.kind = 'MOVE'
        LEFT JOIN settlement_bookings b ON b.id = e.subject_id
        WHERE e.customer_id = '00000000-0000-0000-0000-000000000000'
            AND num_nonnulls(j.id, b.id) = 0
        """,
        "Entry {}/{}/{}: has no cardholder, and is of no adjustment and no settlement booking",
    ),
    # A message that was rejected, because of a defect, has no outcome.
    (
        """
        SELECT j.id, j.state, o.outcome FROM adjustments j
        LEFT JOIN outcomes o ON (o.reference, o.source, o.platform_id)
            = (j.id::text, 'adjustments', j.platform_id)
        WHERE CASE
            WHEN j.state = 'BOOKED' THEN o.outcome IS DISTINCT FROM 'APPLIED'
            WHEN j.state = 'REFUSED' THEN o.outcome <> 'DECLINED'
            ELSE o.outcome IS NOT NULL END
        """,
        "Adjustment {}: state is {}; its recorded outcome is {}",
    ),
    (
        """
        SELECT j.id, j.state, j.suspense_id FROM adjustments j
        LEFT JOIN suspense_items i ON i.id = j.suspense_id
        WHERE j.kind = 'RESOLVE_SUSPENSE' AND (
            (i.platform_id, i.currency, i.amount)
                IS DISTINCT FROM (j.platform_id, j.currency, j.amount)
            OR CASE j.state
                WHEN 'BOOKED' THEN
                    (i.resolved_by, i.resolved_at) IS DISTINCT FROM (j.id, j.booked_at)
                ELSE i.resolved_by IS NOT DISTINCT FROM j.id END
        )
        """,
        "Adjustment {}: state is {}; item of suspense {} does not match",
    ),
    (
        """
        SELECT j.id, j.card_transaction_id FROM adjustments j
        LEFT JOIN outcomes o ON (o.reference, o.source, o.platform_id)
            = (j.id::text, 'adjustments', j.platform_id)
        LEFT JOIN card_transaction_events f ON f.card_transaction_id = o.subject_id
            AND f.message_id = o.message_id AND f.kind = 'WRITTEN_OFF'
        WHERE j.kind = 'WRITE_OFF' AND j.state = 'BOOKED'
            AND (f.card_transaction_id, f.amount, f.recorded_at)
                IS DISTINCT FROM (j.card_transaction_id, j.amount, j.booked_at)
        """,
        "Adjustment {}: is no event of CardTransaction:{}",
    ),
    (
        """
        SELECT f.card_transaction_id, f.sequence FROM card_transaction_events f
        LEFT JOIN outcomes o ON o.message_id = f.message_id AND o.customer_id = f.customer_id
        LEFT JOIN adjustments j ON j.id::text = o.reference AND o.source = 'adjustments'
            AND j.kind = 'WRITE_OFF' AND j.state = 'BOOKED'
        WHERE f.kind = 'WRITTEN_OFF' AND j.id IS NULL
        """,
        "Event {}/{}: is written off by no adjustment",
    ),
)
