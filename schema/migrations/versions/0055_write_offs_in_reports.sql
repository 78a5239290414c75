-- `ahead`: what is paid or written off beyond what has cleared; negative: what is not.
CREATE OR REPLACE VIEW finance.card_transactions AS
SELECT t.id AS card_transaction_id, t.platform_id, t.customer_id, t.card_id, t.account_id,
    t.issuer_transaction_token, t.descriptor AS merchant, t.mcc, t.country, t.currency, t.status,
    t.decline_reason, t.authorized, t.settled, t.refunded, t.pulled, t.released,
    greatest(a.ahead, 0) AS held,
    greatest(-a.ahead, 0) + t.unpaid AS owed,
    t.debt_since AS owed_since,
    (
        SELECT f.occurred_at FROM card_transaction_events f
        WHERE f.card_transaction_id = t.id AND f.customer_id = t.customer_id
            AND f.kind = 'AUTHORIZED'
        ORDER BY f.sequence LIMIT 1
    ) AS authorized_at,
    t.created_at AS recorded_at, t.expires_at, t.updated_at, t.written_off
FROM card_transactions t
CROSS JOIN LATERAL (
    SELECT t.pulled - t.released - t.settled + t.written_off - t.debits_written_off AS ahead
) a;
COMMENT ON COLUMN finance.card_transactions.owed IS 'Cleared, not funded and not written off: owed by the customer, minor units.';
COMMENT ON COLUMN finance.card_transactions.written_off IS 'Written off as a loss, less what came back, minor units; the sum is the balance of OPERATOR_LOSS.';

CREATE OR REPLACE VIEW finance.receivables AS
SELECT t.id AS card_transaction_id, t.platform_id, t.customer_id, t.card_id, t.account_id,
    t.descriptor AS merchant, t.currency,
    greatest(-a.ahead, 0) + t.unpaid AS owed, t.debt_since AS owed_since,
    (
        SELECT f.occurred_at FROM card_transaction_events f
        WHERE f.card_transaction_id = t.id AND f.customer_id = t.customer_id
            AND f.kind = 'AUTHORIZED'
        ORDER BY f.sequence LIMIT 1
    ) AS authorized_at,
    (now() AT TIME ZONE 'UTC')::date - (t.debt_since AT TIME ZONE 'UTC')::date AS age_days,
    t.written_off
FROM card_transactions t
CROSS JOIN LATERAL (
    SELECT t.pulled - t.released - t.settled + t.written_off - t.debits_written_off AS ahead
) a
WHERE t.debt_id IS NOT NULL AND greatest(-a.ahead, 0) + t.unpaid > 0;
COMMENT ON COLUMN finance.receivables.owed IS 'Cleared, not funded and not written off, minor units.';
COMMENT ON COLUMN finance.receivables.written_off IS 'Written off as a loss of the same card transaction, less what came back, minor units.';
COMMENT ON FUNCTION finance.receivables(date, timestamptz) IS 'What each card transaction owed: posted on or before a day, as known at a time. Columns as in the view, without written_off. Negative: its collection counts on an earlier day than its debt.';
