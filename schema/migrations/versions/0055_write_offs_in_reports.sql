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
    SELECT t.pulled - t.released - t.settled + (t.written_off - t.debits_written_off) AS ahead
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
    SELECT t.pulled - t.released - t.settled + (t.written_off - t.debits_written_off) AS ahead
) a
WHERE t.debt_id IS NOT NULL AND greatest(-a.ahead, 0) + t.unpaid > 0;
COMMENT ON COLUMN finance.receivables.owed IS 'Cleared, not funded and not written off, minor units.';
COMMENT ON COLUMN finance.receivables.written_off IS 'Written off as a loss of the same card transaction, less what came back, minor units.';

-- What is posted on a day can be recorded long after it; no age is negative.
CREATE OR REPLACE FUNCTION finance.open_holds(on_date date, known_at timestamptz)
RETURNS TABLE (
    card_transaction_id uuid, platform_id uuid, customer_id uuid, card_id uuid, account_id uuid,
    merchant text, currency text, held bigint, authorized_at timestamptz, recorded_at timestamptz,
    expires_at timestamptz, age_days integer
)
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET jit = off
BEGIN ATOMIC
    SELECT t.card_transaction_id, t.platform_id, t.customer_id, t.card_id, t.account_id,
        t.merchant, t.currency, h.held::bigint, t.authorized_at, t.recorded_at, t.expires_at,
        coalesce(open_holds.on_date, (now() AT TIME ZONE 'UTC')::date)
            - least(
                (coalesce(t.authorized_at, t.recorded_at) AT TIME ZONE 'UTC')::date,
                open_holds.on_date
            )
    FROM (
        SELECT e.subject_id, e.customer_id,
            sum(CASE c.kind WHEN 'CARD_HOLDS' THEN e.amount ELSE -e.amount END) AS held
        FROM entries e
        LEFT JOIN system_accounts d ON d.id = e.debit_account_id
        LEFT JOIN system_accounts c ON c.id = e.credit_account_id
        WHERE 'CARD_HOLDS' IN (d.kind, c.kind)
            AND e.posted_on <= coalesce(open_holds.on_date, 'infinity')
            AND e.recorded_at <= coalesce(open_holds.known_at, 'infinity')
        GROUP BY e.subject_id, e.customer_id
        HAVING sum(CASE c.kind WHEN 'CARD_HOLDS' THEN e.amount ELSE -e.amount END) <> 0
    ) h
    JOIN finance.card_transactions t ON t.card_transaction_id = h.subject_id
        AND t.customer_id = h.customer_id
    ORDER BY t.card_transaction_id;
END;
COMMENT ON FUNCTION finance.open_holds(date, timestamptz) IS 'What was held for each card transaction: posted on or before a day, as known at a time. Columns as in the view; expires_at is that of now; age_days is 0 on a day before the authorization or first record. Negative: its release counts on an earlier day than its hold.';

CREATE OR REPLACE FUNCTION finance.receivables(on_date date, known_at timestamptz)
RETURNS TABLE (
    card_transaction_id uuid, platform_id uuid, customer_id uuid, card_id uuid, account_id uuid,
    merchant text, currency text, owed bigint, owed_since timestamptz, authorized_at timestamptz,
    age_days integer
)
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET jit = off
BEGIN ATOMIC
    WITH moved AS (
        SELECT e.subject_id, e.customer_id, e.sequence, e.line, e.recorded_at, e.posted_on,
            CASE d.kind WHEN 'RECEIVABLE' THEN e.amount ELSE -e.amount END AS amount
        FROM entries e
        LEFT JOIN system_accounts d ON d.id = e.debit_account_id
        LEFT JOIN system_accounts c ON c.id = e.credit_account_id
        WHERE 'RECEIVABLE' IN (d.kind, c.kind)
            AND e.posted_on <= coalesce(receivables.on_date, 'infinity')
            AND e.recorded_at <= coalesce(receivables.known_at, 'infinity')
    ), running AS (
        SELECT m.*, row_number() OVER w AS place, sum(m.amount) OVER w AS owed
        FROM moved m
        WINDOW w AS (PARTITION BY m.subject_id, m.customer_id ORDER BY m.sequence, m.line)
    ), since_paid AS (
        SELECT r.*, coalesce(max(CASE WHEN r.owed <= 0 THEN r.place END)
            OVER (PARTITION BY r.subject_id, r.customer_id), 0) AS last_paid
        FROM running r
    ), debt AS (
        SELECT s.subject_id, s.customer_id, sum(s.amount) AS owed,
            min(s.recorded_at) FILTER (WHERE s.place > s.last_paid) AS owed_since,
            min(s.posted_on) FILTER (WHERE s.place > s.last_paid) AS owed_on
        FROM since_paid s
        GROUP BY s.subject_id, s.customer_id HAVING sum(s.amount) <> 0
    )
    SELECT t.card_transaction_id, t.platform_id, t.customer_id, t.card_id, t.account_id,
        t.merchant, t.currency, h.owed::bigint, h.owed_since, t.authorized_at,
        coalesce(receivables.on_date, (now() AT TIME ZONE 'UTC')::date)
            - least((h.owed_since AT TIME ZONE 'UTC')::date, h.owed_on)
    FROM debt h
    JOIN finance.card_transactions t ON t.card_transaction_id = h.subject_id
        AND t.customer_id = h.customer_id
    ORDER BY t.card_transaction_id;
END;
COMMENT ON FUNCTION finance.receivables(date, timestamptz) IS 'What each card transaction owed: posted on or before a day, as known at a time. Columns as in the view, without written_off; age_days is counted from owed_since, or from the posting day where that is earlier. Negative: its collection counts on an earlier day than its debt.';
