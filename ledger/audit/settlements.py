"""The audit of settlement: files and statements are booked once, as their lines say.

Source: docs/decisions/0083-bookings-of-files.md
"""

from collections.abc import Iterator
from typing import Any, Final

from psycopg import Connection


def differences(connection: Connection[Any]) -> Iterator[str]:
    """Yield what is wrong with what files of networks and statements of the bank have booked."""
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
    (
        """
        SELECT l.statement_id, l.line, l.amount, count(p.file_id), coalesce(sum(p.amount), 0),
            coalesce(min(b.amount), 0)
        FROM bank_lines l
        LEFT JOIN bank_payments p ON p.statement_id = l.statement_id AND p.line = l.line
        LEFT JOIN settlement_bookings b ON b.statement_id = l.statement_id AND b.line = l.line
        GROUP BY l.statement_id, l.line
        HAVING CASE WHEN count(p.file_id) = 0 THEN count(b.id) > 0 ELSE
            sum(p.amount) <> l.amount OR min(b.amount) IS DISTINCT FROM abs(l.amount)
            OR min(b.from_kind) <> CASE WHEN l.amount > 0 THEN 'SETTLEMENT_BANK'
                ELSE 'NETWORK_SETTLEMENT' END
            OR min(b.posted_for) <> l.booking_date END
        """,
        "Bank statement {}, line {}: {} is paid for {} files with {}, and booked with {}",
    ),
    # A line is booked by what it pays, or by moves of two people, and never more than it moved.
    (
        """
        SELECT l.statement_id, l.line, l.amount, m.moved, count(p.file_id)
        FROM bank_lines l
        JOIN breaks k ON (k.statement_id, k.line, k.kind) = (l.statement_id, l.line, 'BANK_ONLY')
        JOIN (
            SELECT j.break_id, sum(CASE j.from_kind WHEN 'SETTLEMENT_BANK' THEN j.amount
                ELSE -j.amount END) AS moved
            FROM adjustments j WHERE j.kind = 'MOVE' AND j.state NOT IN ('REJECTED', 'REFUSED')
            GROUP BY j.break_id
        ) m ON m.break_id = k.id
        LEFT JOIN bank_payments p ON p.statement_id = l.statement_id AND p.line = l.line
        GROUP BY l.statement_id, l.line, m.moved
        HAVING count(p.file_id) > 0 OR sign(m.moved) <> sign(l.amount)
            OR abs(m.moved) > abs(l.amount)
        """,
        "Bank statement {}, line {}: {} has moves of {}, and pays {} files",
    ),
    # The account has what statements of the bank say, less what of their lines is not booked; and
    # moves from before there were statements.
    (
        """
        SELECT a.platform_id, a.currency,
            coalesce(s.total, 0) - coalesce(n.total, 0) + coalesce(m.total, 0),
            coalesce(k.kept, 0)
        FROM system_accounts a
        LEFT JOIN (
            SELECT b.platform_id, b.currency, sum(b.closing::numeric - b.opening) AS total
            FROM bank_statements b GROUP BY b.platform_id, b.currency
        ) s ON s.platform_id = a.platform_id AND s.currency = a.currency
        LEFT JOIN (
            SELECT b.platform_id, b.currency, sum(
                CASE WHEN c.id IS NULL THEN l.amount - coalesce(j.moved, 0)
                    WHEN c.booked_at IS NULL THEN l.amount ELSE 0 END) AS total
            FROM bank_statements b JOIN bank_lines l ON l.statement_id = b.id
            LEFT JOIN settlement_bookings c ON c.statement_id = l.statement_id AND c.line = l.line
            LEFT JOIN (
                SELECT x.statement_id, x.line, sum(CASE y.from_kind WHEN 'SETTLEMENT_BANK'
                    THEN y.amount ELSE -y.amount END) AS moved
                FROM breaks x JOIN adjustments y ON y.break_id = x.id AND y.state = 'BOOKED'
                WHERE x.kind = 'BANK_ONLY' GROUP BY x.statement_id, x.line
            ) j ON j.statement_id = l.statement_id AND j.line = l.line
            GROUP BY b.platform_id, b.currency
        ) n ON n.platform_id = a.platform_id AND n.currency = a.currency
        LEFT JOIN (
            SELECT j.platform_id, j.currency, sum(CASE 'SETTLEMENT_BANK' WHEN j.from_kind
                THEN j.amount WHEN j.to_kind THEN -j.amount END) AS total
            FROM adjustments j
            WHERE j.kind = 'MOVE' AND j.state = 'BOOKED' AND j.break_id IS NULL
            GROUP BY j.platform_id, j.currency
        ) m ON m.platform_id = a.platform_id AND m.currency = a.currency
        LEFT JOIN (
            SELECT id, sum(change) AS kept FROM (
                SELECT debit_account_id AS id, amount AS change FROM entries
                UNION ALL SELECT credit_account_id, -amount FROM entries
            ) e GROUP BY id
        ) k ON k.id = a.id
        WHERE a.kind = 'SETTLEMENT_BANK'
            AND coalesce(s.total, 0) - coalesce(n.total, 0) + coalesce(m.total, 0)
                <> coalesce(k.kept, 0)
        """,
        "Platform {} in {}: statements less unbooked lines give {}; SETTLEMENT_BANK has {}",
    ),
    (
        """
        SELECT s.id, s.opening, s.closing, coalesce(sum(l.amount), 0) FROM bank_statements s
        LEFT JOIN bank_lines l ON l.statement_id = s.id
        GROUP BY s.id HAVING s.opening + coalesce(sum(l.amount), 0) <> s.closing
            OR s.lines <> count(l.line)
        """,
        "Bank statement {}: opening is {}, closing {}; its lines add up to {}",
    ),
    # What a line should have paid is computed from the lines of the file again.
    (
        """
        SELECT p.file_id, p.currency, p.expected, f.due
        FROM bank_payments p
        CROSS JOIN LATERAL (
            SELECT -coalesce((
                SELECT sum(CASE WHEN n.type IN ('PRESENTMENT', 'CREDIT_REVERSAL', 'FEE')
                    THEN n.amount ELSE -n.amount END)
                FROM network_lines n WHERE n.file_id = p.file_id AND n.currency = p.currency
            ), 0) + coalesce((
                SELECT sum(CASE b.to_kind WHEN 'INTERCHANGE' THEN b.amount ELSE -b.amount END)
                FROM settlement_bookings b WHERE b.file_id = p.file_id
                    AND b.currency = p.currency AND b.kind = 'INTERCHANGE'
            ), 0) AS due
        ) f
        WHERE p.rule <> 'REST' AND p.expected <> f.due
        """,
        "Settlement file {} in {}: expected at the bank is {}; its lines give {}",
    ),
    (
        """
        SELECT s.statement_id, p.ledger, p.difference, s.total
        FROM (
            SELECT l.statement_id, sum(l.amount) AS total FROM bank_lines l
            GROUP BY l.statement_id
        ) s
        JOIN LATERAL (
            SELECT o.ledger, o.difference FROM statement_proofs o
            WHERE o.statement_id = s.statement_id ORDER BY o.id DESC LIMIT 1
        ) p ON true
        WHERE p.ledger + p.difference <> s.total OR p.difference <> coalesce((
            SELECT sum(b.difference) FROM breaks b WHERE b.statement_id = s.statement_id
        ), 0)
        """,
        "Bank statement {}: expected {} and differences {} do not give its lines, {}",
    ),
    # What stands on the account: events of cards that are not paid, what is in suspense, fees less
    # interchange of files, less payments of the bank; and moves by hand.
    (
        """
        SELECT a.platform_id, a.currency, coalesce(d.due, 0) + coalesce(m.moved, 0),
            coalesce(k.kept, 0)
        FROM system_accounts a
        LEFT JOIN (
            SELECT t.platform_id, t.currency, sum(t.due) AS due FROM (
                SELECT c.platform_id, c.currency, c.settled::numeric - c.refunded AS due
                FROM card_transactions c
                UNION ALL
                SELECT i.platform_id, i.currency, CASE
                    WHEN i.type IN ('CLEARING', 'RETURN_REVERSAL') THEN i.amount
                    ELSE -i.amount END
                FROM suspense_items i WHERE i.resolved_at IS NULL AND i.cause <> 'CLOSED'
                UNION ALL
                SELECT f.platform_id, n.currency,
                    CASE n.type WHEN 'FEE' THEN n.amount ELSE -n.amount END
                FROM network_files f JOIN network_lines n ON n.file_id = f.id
                WHERE f.books AND n.type IN ('FEE', 'FEE_REVERSAL') AND NOT EXISTS (
                    SELECT FROM breaks b WHERE b.file_id = n.file_id AND b.line = n.line
                )
                UNION ALL
                SELECT b.platform_id, b.currency,
                    CASE b.to_kind WHEN 'INTERCHANGE' THEN -b.amount ELSE b.amount END
                FROM settlement_bookings b WHERE b.kind = 'INTERCHANGE'
                UNION ALL
                SELECT s.platform_id, s.currency, p.amount
                FROM bank_payments p JOIN bank_statements s ON s.id = p.statement_id
                UNION ALL
                -- Not booked yet.
                SELECT b.platform_id, b.currency, CASE 'NETWORK_SETTLEMENT'
                    WHEN b.to_kind THEN -b.amount ELSE b.amount END
                FROM settlement_bookings b WHERE b.booked_at IS NULL
            ) t GROUP BY t.platform_id, t.currency
        ) d ON d.platform_id = a.platform_id AND d.currency = a.currency
        LEFT JOIN (
            SELECT j.platform_id, j.currency, sum(CASE 'NETWORK_SETTLEMENT'
                WHEN j.to_kind THEN j.amount WHEN j.from_kind THEN -j.amount END) AS moved
            FROM adjustments j WHERE j.kind = 'MOVE' AND j.state = 'BOOKED'
            GROUP BY j.platform_id, j.currency
        ) m ON m.platform_id = a.platform_id AND m.currency = a.currency
        LEFT JOIN (
            SELECT id, sum(change) AS kept FROM (
                SELECT credit_account_id AS id, amount AS change FROM entries
                UNION ALL SELECT debit_account_id, -amount FROM entries
            ) e GROUP BY id
        ) k ON k.id = a.id
        WHERE a.kind = 'NETWORK_SETTLEMENT'
            AND coalesce(d.due, 0) + coalesce(m.moved, 0) <> coalesce(k.kept, 0)
        """,
        "Platform {} in {}: unpaid days and moves give {}; NETWORK_SETTLEMENT has {}",
    ),
)
