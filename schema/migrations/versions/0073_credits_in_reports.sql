-- `ahead`: what is paid or written off beyond what has cleared; negative: what is not.
CREATE OR REPLACE VIEW finance.card_transactions AS
SELECT t.id AS card_transaction_id, t.platform_id, t.customer_id, t.card_id, t.account_id,
    t.issuer_transaction_token, t.descriptor AS merchant, t.mcc, t.country, t.currency,
    CASE t.status WHEN 'CREDITED' THEN 'SETTLED' ELSE t.status END AS status,
    t.decline_reason, t.authorized, t.settled, t.refunded, t.pulled, t.released,
    greatest(a.ahead, 0) AS held,
    greatest(-a.ahead, 0) + t.unpaid AS owed,
    t.debt_since AS owed_since,
    (
        SELECT f.occurred_at FROM card_transaction_events f
        WHERE f.card_transaction_id = t.id AND f.customer_id = t.customer_id
            AND f.kind IN ('AUTHORIZED', 'CREDIT_AUTHORIZED')
        ORDER BY f.sequence LIMIT 1
    ) AS authorized_at,
    t.created_at AS recorded_at, t.expires_at, t.updated_at, t.written_off, t.credit_authorized
FROM card_transactions t
CROSS JOIN LATERAL (
    SELECT t.pulled - t.released - t.settled + (t.written_off - t.debits_written_off) AS ahead
) a;
COMMENT ON COLUMN finance.card_transactions.refunded IS 'Refunded or credited, net of reversals, minor units.';
COMMENT ON COLUMN finance.card_transactions.credit_authorized IS 'Authorized total of a credit, minor units; empty: none was ever authorized. What was credited is in refunded.';
