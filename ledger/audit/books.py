"""The audit of the books: sums, references and owners of stored rows, in SQL."""

from collections.abc import Iterator
from typing import Any, Final

from psycopg import Connection

from cardledger.ledger.audit.payments import SUB_LEDGER
from cardledger.ledger.core.payments.transfer import DECIDED_BY_THE_LEDGER


def differences(connection: Connection[Any]) -> Iterator[str]:
    """Yield what is wrong with roll-ups, entries, deposits, transfers and outcomes."""
    for statement, description in _CHECKS:
        for row in connection.execute(statement):
            yield description.format(*row)


_LEDGER_FAILURES: Final = ", ".join(f"'{reason}'" for reason in sorted(DECIDED_BY_THE_LEDGER))

# Each statement returns the rows that are wrong, none when all is well; the text describes a row.
_CHECKS: Final = (
    (
        """
        SELECT a.id, a.balance, a.version, coalesce(m.total, 0), coalesce(m.number, 0)
        FROM internal_accounts a LEFT JOIN (
            SELECT account_id, count(*) AS number,
                   sum(CASE credit_account_id WHEN account_id THEN amount ELSE -amount END) AS total
            FROM entries WHERE account_id IS NOT NULL GROUP BY account_id
        ) m ON m.account_id = a.id
        WHERE (a.balance, a.version) <> (coalesce(m.total, 0), coalesce(m.number, 0))
        """,
        "InternalAccount:{}: stored balance is {} at version {}; its entries give {} at version {}",
    ),
    (
        """
        SELECT a.id, a.held, a.owed, a.pending,
               coalesce(t.held, 0), coalesce(t.owed, 0), coalesce(t.pending, 0)
        FROM internal_accounts a LEFT JOIN (
            SELECT account_id, sum(greatest(ahead, 0)) AS held,
                   sum(greatest(-ahead, 0) + unpaid) AS owed, sum(pending) AS pending
            FROM card_transactions CROSS JOIN LATERAL (
                SELECT pulled - released - settled + (written_off - debits_written_off) AS ahead
            ) a
            GROUP BY account_id
        ) t ON t.account_id = a.id
        WHERE (a.held, a.owed, a.pending)
            <> (coalesce(t.held, 0), coalesce(t.owed, 0), coalesce(t.pending, 0))
        """,
        "InternalAccount:{}: held {}, owed {}, pending {}; its card transactions give {}, {}, {}",
    ),
    (
        """
        SELECT account_id, account_version, balance_after, running FROM (
            SELECT account_id, account_version, balance_after,
                   sum(CASE WHEN credit_account_id = account_id THEN amount ELSE -amount END)
                       OVER w AS running,
                   row_number() OVER w AS number
            FROM entries WHERE account_id IS NOT NULL
            WINDOW w AS (PARTITION BY account_id ORDER BY account_version)
        ) e WHERE running <> balance_after OR number <> account_version
        """,
        "InternalAccount:{}: entry {} records a balance of {}; the entries up to it give {}",
    ),
    (
        """
        SELECT e.subject_id, e.sequence, e.line FROM entries e
        WHERE account_id IS DISTINCT FROM (
            SELECT a.id FROM internal_accounts a
            WHERE a.id IN (e.debit_account_id, e.credit_account_id)
        )
        """,
        "Entry {}/{}/{}: account_id is not the customer account that the entry debits or credits",
    ),
    (
        """
        SELECT e.subject_id, e.sequence, e.line FROM entries e
        LEFT JOIN card_transactions t ON t.id = e.subject_id AND e.sequence > 0
        LEFT JOIN deposits d ON d.id = e.subject_id AND e.sequence = 0
        LEFT JOIN transfers f ON f.id = e.subject_id
            AND (e.sequence = 0) = (f.kind = 'INTERNAL') AND e.customer_id = f.customer_id
        LEFT JOIN suspense_items i ON i.id = e.subject_id
        LEFT JOIN adjustments j ON j.id = e.subject_id AND e.sequence = 0
        LEFT JOIN settlement_bookings b ON b.id = e.subject_id AND e.sequence = 0
        WHERE num_nonnulls(t.id, d.id, f.id, i.id, j.id, b.id) = 0
        """,
        "Entry {}/{}/{}: is of nothing that makes entries",
    ),
    (
        """
        SELECT d.id, d.amount, count(e.*) FROM deposits d
        LEFT JOIN (
            entries e JOIN system_accounts s
            ON s.id = e.debit_account_id AND s.kind = 'SANDBOX_FUNDING'
        ) ON e.subject_id = d.id AND e.credit_account_id = d.account_id AND e.amount = d.amount
        GROUP BY d.id, d.amount HAVING count(e.*) <> 1
        """,
        "Deposit {}: {} minor units, posted {} times instead of once",
    ),
    (
        """
        SELECT e.subject_id, count(*) FROM entries e JOIN deposits d ON d.id = e.subject_id
        WHERE e.sequence = 0 GROUP BY e.subject_id HAVING count(*) <> 1 OR max(e.line) <> 0
        """,
        "Deposit {}: has {} entries instead of one",
    ),
    (
        """
        SELECT d.id FROM deposits d LEFT JOIN internal_accounts a ON a.id = d.account_id
        WHERE a.id IS NULL OR (a.customer_id, a.platform_id) <> (d.customer_id, d.platform_id)
        """,
        "Deposit {}: its account belongs to another customer or platform",
    ),
    (
        """
        SELECT f.id, f.status, count(e.subject_id)
        FROM transfers f
        LEFT JOIN system_accounts s ON (s.platform_id, s.currency, s.kind)
            = (f.platform_id, f.currency, 'TRANSFERS')
        LEFT JOIN entries e ON e.subject_id = f.id
        WHERE f.kind = 'INTERNAL'
        GROUP BY f.id, f.status
        HAVING count(e.subject_id) <> CASE f.status WHEN 'COMPLETED' THEN 2 ELSE 0 END
            OR bool_or(
                (e.sequence, e.customer_id, e.amount) <> (0, f.customer_id, f.amount)
                OR (e.line, e.debit_account_id, e.credit_account_id, e.account_id) NOT IN (
                    (0, f.source_account_id, s.id, f.source_account_id),
                    (1, s.id, f.destination_account_id, f.destination_account_id)
                )
            ) IS TRUE
        """,
        "Transfer {}: status is {}; its {} entries do not match",
    ),
    (
        """
        SELECT f.id FROM transfers f
        LEFT JOIN customers u ON u.id = f.customer_id
        LEFT JOIN internal_accounts a ON a.id = f.source_account_id
        LEFT JOIN internal_accounts b ON b.id = f.destination_account_id
        -- A platform owns accounts by its own id, and is no customer.
        WHERE coalesce(u.platform_id, f.customer_id) <> f.platform_id
            OR (f.kind IN ('INTERNAL', 'EXCHANGE', 'OUT') AND
                (a.customer_id, a.platform_id, a.currency)
                    IS DISTINCT FROM (f.customer_id, f.platform_id, f.currency))
            OR (f.kind <> 'OUT' AND
                (b.customer_id, b.platform_id, b.currency) IS DISTINCT FROM
                    (f.customer_id, f.platform_id, coalesce(f.received_currency, f.currency)))
        """,
        "Transfer {}: its accounts do not belong to its owner, platform and currency",
    ),
    (
        f"""
        SELECT f.id, f.status, f.failure_reason, o.outcome, o.reason
        FROM transfers f
        LEFT JOIN outcomes o ON (o.reference, o.source, o.platform_id, o.customer_id)
            = (f.id::text, 'transfers', f.platform_id, f.customer_id)
        WHERE f.kind = 'INTERNAL' AND CASE
            WHEN f.status = 'COMPLETED' THEN o.outcome IS DISTINCT FROM 'APPLIED'
            WHEN f.failure_reason IN ({_LEDGER_FAILURES}) THEN
                (o.outcome, o.reason) IS DISTINCT FROM ('DECLINED', f.failure_reason)
            ELSE o.outcome IS NOT NULL END
        """,
        "Transfer {}: status is {} ({}); its recorded outcome is {} ({})",
    ),
    (
        """
        SELECT f.id FROM transfers f LEFT JOIN agent_actions a ON a.id = f.id
        WHERE f.agent_id IS DISTINCT FROM a.agent_id
            OR (a.customer_id, a.platform_id) <> (f.customer_id, f.platform_id)
            OR (a.rejection_reason IS NOT NULL
                AND f.failure_reason IS DISTINCT FROM 'REJECTED_BY_PLATFORM')
        """,
        "Transfer {}: does not match the agent action that requested it",
    ),
    (
        """
        SELECT e.subject_id, e.sequence, e.line FROM entries e
        LEFT JOIN customers u ON u.id = e.customer_id
        LEFT JOIN internal_accounts a ON a.id = e.account_id
        LEFT JOIN system_accounts d ON d.id = e.debit_account_id
        LEFT JOIN system_accounts c ON c.id = e.credit_account_id
        WHERE num_nonnulls(a.id, d.id, c.id) <> 2
            -- Those of a platform alone have no cardholder.
            OR (u.id IS NULL AND e.customer_id <> '00000000-0000-0000-0000-000000000000'
                AND e.customer_id <> coalesce(d.platform_id, c.platform_id))
            OR coalesce(a.customer_id, e.customer_id) <> e.customer_id
            OR coalesce(a.platform_id, d.platform_id) <> coalesce(u.platform_id, d.platform_id)
            OR coalesce(c.platform_id, d.platform_id) <> coalesce(u.platform_id, d.platform_id)
            OR coalesce(a.currency, c.currency) <> coalesce(d.currency, c.currency)
        """,
        "Entry {}/{}/{}: its accounts do not belong to one cardholder, platform and currency",
    ),
    (
        """
        SELECT e.subject_id, e.sequence, e.line FROM entries e
        LEFT JOIN card_transactions t ON t.id = e.subject_id
        LEFT JOIN deposits d ON d.id = e.subject_id
        LEFT JOIN transfers f ON f.id = e.subject_id
        LEFT JOIN suspense_items i ON i.id = e.subject_id
        WHERE coalesce(t.customer_id, d.customer_id, f.customer_id, i.customer_id) <> e.customer_id
        """,
        "Entry {}/{}/{}: what it books has another cardholder",
    ),
    (
        """
        SELECT e.card_transaction_id, e.sequence FROM card_transaction_events e
        JOIN card_transactions t ON t.id = e.card_transaction_id
        WHERE e.customer_id <> t.customer_id
        """,
        "Event {}/{}: its card transaction has another cardholder",
    ),
    (
        """
        SELECT t.id FROM card_transactions t
        LEFT JOIN customers u ON u.id = t.customer_id
        LEFT JOIN cards c ON c.id = t.card_id
        LEFT JOIN internal_accounts a ON a.id = t.account_id
        WHERE num_nulls(u.id, c.id, a.id) > 0 OR u.platform_id <> t.platform_id
            OR (c.customer_id, c.platform_id, c.currency)
                <> (t.customer_id, t.platform_id, t.currency)
            OR (a.customer_id, a.platform_id, a.currency)
                <> (t.customer_id, t.platform_id, t.currency)
        """,
        "CardTransaction:{}: its card, account and cardholder do not belong together",
    ),
    (
        """
        SELECT f.id, f.sequence FROM (
            SELECT card_transaction_id AS id, sequence, customer_id, message_id
            FROM card_transaction_events
            UNION ALL SELECT id, 0, customer_id, message_id FROM deposits
            UNION ALL SELECT transfer_id, sequence, customer_id, message_id FROM transfer_events
        ) f LEFT JOIN outcomes o ON o.message_id = f.message_id AND o.customer_id = f.customer_id
        WHERE o.message_id IS NULL
        """,
        "Event or deposit {}/{}: has no outcome, so its message could be applied again",
    ),
    (
        f"""
        WITH payments_made AS ({SUB_LEDGER})
        SELECT s.id, s.kind, s.currency, coalesce(k.kept, 0), coalesce(t.made, 0)
        FROM system_accounts s
        LEFT JOIN (
            SELECT platform_id, currency, kind, sum(amount) AS made FROM (
                SELECT platform_id, currency, c.kind, c.amount
                FROM card_transactions CROSS JOIN LATERAL (
                    SELECT pulled - released - settled + (written_off - debits_written_off) AS ahead
                ) a CROSS JOIN LATERAL (VALUES
                    ('CARD_HOLDS', greatest(ahead, 0)::numeric),
                    ('RECEIVABLE', -(greatest(-ahead, 0)::numeric + unpaid)),
                    ('NETWORK_SETTLEMENT', settled::numeric - refunded),
                    ('OPERATOR_LOSS', -written_off::numeric)
                ) c (kind, amount)
                UNION ALL
                SELECT i.platform_id, i.currency, k.kind,
                    CASE WHEN i.type IN ('CLEARING', 'RETURN_REVERSAL') THEN k.sign
                        ELSE -k.sign END * i.amount::numeric
                FROM suspense_items i
                CROSS JOIN (VALUES ('NETWORK_SETTLEMENT', 1), ('SUSPENSE', -1)) AS k (kind, sign)
                WHERE i.resolved_at IS NULL AND i.cause <> 'CLOSED'
                UNION ALL
                SELECT i.platform_id, i.currency, k.kind, k.sign * i.amount::numeric
                FROM suspense_items i CROSS JOIN LATERAL (VALUES ('OUTBOUND_CLEARING', -1),
                    (CASE WHEN i.resolved_at IS NULL THEN 'SUSPENSE' ELSE 'SANDBOX_FUNDING' END, 1)
                ) AS k (kind, sign)
                WHERE i.cause = 'CLOSED'
                UNION ALL
                SELECT a.platform_id, a.currency, 'SANDBOX_FUNDING', -d.amount::numeric
                FROM deposits d JOIN internal_accounts a ON a.id = d.account_id
                UNION ALL
                SELECT * FROM payments_made
                UNION ALL
                SELECT platform_id, currency, to_kind, amount::numeric FROM adjustments
                WHERE kind = 'MOVE' AND state = 'BOOKED'
                UNION ALL
                SELECT platform_id, currency, from_kind, -amount::numeric FROM adjustments
                WHERE kind = 'MOVE' AND state = 'BOOKED'
                UNION ALL
                SELECT b.platform_id, b.currency, s.kind, s.sign * b.amount::numeric
                FROM settlement_bookings b
                CROSS JOIN LATERAL (VALUES (b.to_kind, 1), (b.from_kind, -1)) AS s (kind, sign)
                WHERE b.booked_at IS NOT NULL
            ) m GROUP BY platform_id, currency, kind
        ) t USING (platform_id, currency, kind)
        LEFT JOIN (
            SELECT id, sum(change) AS kept FROM (
                SELECT credit_account_id AS id, amount AS change FROM entries
                UNION ALL SELECT debit_account_id, -amount FROM entries
            ) e GROUP BY id
        ) k ON k.id = s.id
        WHERE coalesce(k.kept, 0) <> coalesce(t.made, 0)
        """,
        "System account {} ({} {}): its entries give {}; its sub-ledger gives {}",
    ),
    (
        """
        SELECT o.reference, o.source FROM outcomes o
        LEFT JOIN card_transaction_events e
            ON e.card_transaction_id = o.subject_id AND e.sequence = o.sequence
        WHERE o.outcome IN ('APPLIED', 'DECLINED') AND o.subject_id IS NOT NULL
            AND e.sequence IS NULL
        """,
        "Outcome of {} from {}: its event does not exist",
    ),
)
