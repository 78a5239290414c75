"""The audit of settlement: files and statements are booked once, as their lines say.

Source: docs/decisions/0083-bookings-of-files.md
"""

from collections.abc import Iterator
from typing import Any, Final

from psycopg import Connection


def differences(connection: Connection[Any]) -> Iterator[str]:
    """Yield what is wrong with what files of networks have booked."""
    for statement, description in _CHECKS:
        for row in connection.execute(statement):
            yield description.format(*row)


# Each statement returns the rows that are wrong, none when all is well; the text describes a row.
# What a file has to book is added up from its lines again, not with the function that booked it.
_CHECKS: Final = (
    (
        """
        SELECT b.id, b.kind, count(e.subject_id)
        FROM settlement_bookings b
        LEFT JOIN system_accounts d ON (d.platform_id, d.currency, d.kind)
            = (b.platform_id, b.currency, b.from_kind)
        LEFT JOIN system_accounts c ON (c.platform_id, c.currency, c.kind)
            = (b.platform_id, b.currency, b.to_kind)
        LEFT JOIN entries e ON e.subject_id = b.id
        GROUP BY b.id, b.kind
        HAVING count(e.subject_id) <> CASE WHEN b.booked_at IS NULL THEN 0 ELSE 1 END
            OR bool_or(
                (e.sequence, e.line, e.customer_id, e.debit_account_id, e.credit_account_id,
                    e.amount, e.recorded_at)
                IS DISTINCT FROM (0, 0, '00000000-0000-0000-0000-000000000000'::uuid, d.id, c.id,
                    b.amount, b.booked_at)
            ) FILTER (WHERE e.subject_id IS NOT NULL)
        """,
        "Settlement booking {} ({}): its {} entries do not match",
    ),
    (
        """
        SELECT b.id, o.outcome FROM settlement_bookings b
        LEFT JOIN outcomes o ON (o.reference, o.source, o.platform_id)
            = (b.id::text, 'settlements', b.platform_id)
        WHERE CASE WHEN b.booked_at IS NULL THEN o.outcome IS NOT NULL
            ELSE o.outcome IS DISTINCT FROM 'APPLIED' END
        """,
        "Settlement booking {}: its recorded outcome is {}",
    ),
    # A line of a fee that repeats another one is a break, and books nothing.
    (
        """
        WITH said AS (
            SELECT f.id, n.currency, 'INTERCHANGE' AS kind, 1 AS direction,
                sum(n.interchange) * ('1e' || y.decimals)::numeric AS exact
            FROM network_files f JOIN network_lines n ON n.file_id = f.id
            JOIN currencies y ON y.code = n.currency
            WHERE f.books AND n.interchange IS NOT NULL
            GROUP BY f.id, n.currency, y.decimals
            UNION ALL
            SELECT f.id, n.currency, 'NETWORK_FEES',
                CASE n.type WHEN 'FEE' THEN 1 ELSE -1 END,
                sum(CASE n.type WHEN 'FEE' THEN n.amount ELSE -n.amount END)
            FROM network_files f JOIN network_lines n ON n.file_id = f.id
            WHERE f.books AND n.type IN ('FEE', 'FEE_REVERSAL') AND NOT EXISTS (
                SELECT FROM breaks b WHERE b.file_id = n.file_id AND b.line = n.line
            )
            GROUP BY f.id, n.currency, n.type
        ), rounded AS (
            SELECT s.id, s.currency, s.kind, CASE s.kind WHEN 'INTERCHANGE' THEN 0
                    ELSE s.direction END AS direction,
                CASE WHEN mod(s.exact, 1) IN (0.5, -0.5) THEN s.exact - mod(s.exact, 2)
                        + CASE WHEN abs(mod(s.exact, 2)) > 1 THEN sign(s.exact) * 2 ELSE 0 END
                    ELSE round(s.exact) END AS amount
            FROM said s
        ), booked AS (
            SELECT b.file_id AS id, b.currency, b.kind, CASE b.kind WHEN 'INTERCHANGE' THEN 0
                    WHEN 'NETWORK_FEES' THEN CASE b.from_kind WHEN b.kind THEN 1 ELSE -1 END
                    END AS direction,
                CASE b.from_kind WHEN CASE b.kind WHEN 'INTERCHANGE' THEN 'NETWORK_SETTLEMENT'
                    ELSE 'NETWORK_FEES' END THEN b.amount ELSE -b.amount END::numeric AS amount
            FROM settlement_bookings b WHERE b.file_id IS NOT NULL
        )
        SELECT coalesce(r.id, b.id), coalesce(r.kind, b.kind), coalesce(r.currency, b.currency),
            coalesce(b.amount, 0), coalesce(r.amount, 0)
        FROM (SELECT * FROM rounded WHERE amount <> 0) r
        FULL JOIN booked b ON (b.id, b.currency, b.kind, b.direction)
            = (r.id, r.currency, r.kind, r.direction)
        WHERE b.amount IS DISTINCT FROM r.amount
        """,
        "Settlement file {}: booked for {} in {} is {}; its lines give {}",
    ),
)
