CREATE FUNCTION finance.version() RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT 1;
END;
COMMENT ON FUNCTION finance.version() IS 'The version of this schema. Columns are only ever added, on the right; what else changes raises it.';

-- They read tables with the rights of their owner, and only what they say here: names in a body
-- between BEGIN ATOMIC and END are looked up now, and not where a caller says. A day or a time that
-- is null is no limit.

-- One reading of the entries, added up by pairs of system accounts, of which there are few; null is
-- the customer's side. PostgreSQL expects as many pairs as there are customers and would sort.
CREATE FUNCTION finance.trial_balance(
    on_date date, known_at timestamptz, platform uuid DEFAULT NULL
) RETURNS TABLE (
    account text, class text, currency text, debits bigint, credits bigint, net bigint,
    platform_id uuid
)
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_sort = off SET jit = off
BEGIN ATOMIC
    SELECT s.kind, h.class, s.currency, sum(s.debits)::bigint, sum(s.credits)::bigint,
        (sum(s.debits) - sum(s.credits))::bigint, trial_balance.platform
    FROM (
        SELECT nullif(e.debit_account_id, e.account_id) AS debit_id,
            nullif(e.credit_account_id, e.account_id) AS credit_id, sum(e.amount) AS amount
        FROM entries e
        WHERE e.posted_on <= coalesce(trial_balance.on_date, 'infinity')
            AND e.recorded_at <= coalesce(trial_balance.known_at, 'infinity')
        GROUP BY 1, 2
    ) m
    LEFT JOIN system_accounts d ON d.id = m.debit_id
    LEFT JOIN system_accounts c ON c.id = m.credit_id
    CROSS JOIN LATERAL (VALUES
        (coalesce(d.kind, 'CUSTOMER'), coalesce(d.currency, c.currency), m.amount, 0),
        (coalesce(c.kind, 'CUSTOMER'), coalesce(d.currency, c.currency), 0, m.amount)
    ) AS s (kind, currency, debits, credits)
    LEFT JOIN chart_of_accounts h ON h.kind = s.kind
    WHERE trial_balance.platform IS NULL
        OR coalesce(d.platform_id, c.platform_id) = trial_balance.platform
    GROUP BY s.kind, h.class, s.currency
    ORDER BY s.currency, s.kind;
END;
COMMENT ON FUNCTION finance.trial_balance(date, timestamptz, uuid) IS 'Debits and credits of each account of the chart and currency, posted on or before a day, as known at a time, of one platform or of all; net is debits less credits.';

CREATE FUNCTION finance.balance(account_id uuid, on_date date, known_at timestamptz)
RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET jit = off
BEGIN ATOMIC
    SELECT (CASE a.normal_side WHEN 'D' THEN b.net ELSE -b.net END)::bigint
    FROM finance.accounts a
    CROSS JOIN (
        SELECT coalesce(sum(m.amount), 0) AS net
        FROM (
            -- A customer's account, by its index.
            SELECT CASE e.debit_account_id WHEN balance.account_id THEN e.amount ELSE -e.amount
                END AS amount
            FROM entries e
            WHERE e.account_id = balance.account_id
                AND e.posted_on <= coalesce(balance.on_date, 'infinity')
                AND e.recorded_at <= coalesce(balance.known_at, 'infinity')
            UNION ALL
            SELECT CASE e.debit_account_id WHEN balance.account_id THEN e.amount ELSE -e.amount
                END
            FROM entries e
            WHERE balance.account_id IN (e.debit_account_id, e.credit_account_id)
                AND (SELECT true FROM system_accounts s WHERE s.id = balance.account_id)
                AND e.posted_on <= coalesce(balance.on_date, 'infinity')
                AND e.recorded_at <= coalesce(balance.known_at, 'infinity')
        ) m
    ) b
    WHERE a.account_id = balance.account_id;
END;
COMMENT ON FUNCTION finance.balance(uuid, date, timestamptz) IS 'Balance of an account, on its normal side: posted on or before a day, as known at a time; null: there is no such account.';

CREATE FUNCTION finance.statement(
    account_id uuid, from_date date, to_date date, known_at timestamptz DEFAULT NULL
) RETURNS TABLE (
    posted_on date, recorded_at timestamptz, entry_id text, event text, side text, amount bigint,
    balance bigint
)
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET jit = off
BEGIN ATOMIC
    WITH account AS (
        SELECT a.normal_side FROM finance.accounts a WHERE a.account_id = statement.account_id
    ), moved AS MATERIALIZED (
        SELECT e.posted_on, e.recorded_at, e.account_version, e.subject_id, e.sequence, e.line,
            e.customer_id, e.amount,
            CASE e.debit_account_id WHEN statement.account_id THEN 'D' ELSE 'C' END AS side
        FROM entries e
        WHERE e.account_id = statement.account_id
            AND e.posted_on <= coalesce(statement.to_date, 'infinity')
            AND e.recorded_at <= coalesce(statement.known_at, 'infinity')
        UNION ALL
        SELECT e.posted_on, e.recorded_at, e.account_version, e.subject_id, e.sequence, e.line,
            e.customer_id, e.amount,
            CASE e.debit_account_id WHEN statement.account_id THEN 'D' ELSE 'C' END
        FROM entries e
        WHERE statement.account_id IN (e.debit_account_id, e.credit_account_id)
            AND (SELECT true FROM system_accounts s WHERE s.id = statement.account_id)
            AND e.posted_on <= coalesce(statement.to_date, 'infinity')
            AND e.recorded_at <= coalesce(statement.known_at, 'infinity')
    ), opening AS (
        SELECT coalesce(sum(CASE m.side WHEN a.normal_side THEN m.amount ELSE -m.amount END), 0)
            AS balance
        FROM account a CROSS JOIN moved m WHERE m.posted_on < statement.from_date
    ), line AS (
        SELECT m.*,
            row_number() OVER w AS place,
            sum(CASE m.side WHEN a.normal_side THEN m.amount ELSE -m.amount END) OVER w AS change
        FROM account a CROSS JOIN moved m
        WHERE m.posted_on >= coalesce(statement.from_date, '-infinity')
        WINDOW w AS (
            ORDER BY m.posted_on, m.recorded_at, m.account_version, m.subject_id, m.sequence,
                m.line
        )
    )
    SELECT s.posted_on, s.recorded_at, s.entry_id, s.event, s.side, s.amount, s.balance::bigint
    FROM (
        SELECT 0::bigint AS place, statement.from_date AS posted_on,
            NULL::timestamptz AS recorded_at, NULL::text AS entry_id, 'OPENING' AS event,
            NULL::text AS side, NULL::bigint AS amount, o.balance
        FROM opening o CROSS JOIN account
        UNION ALL
        SELECT l.place, l.posted_on, l.recorded_at,
            l.subject_id || ':' || l.sequence || ':' || l.line,
            coalesce(f.kind, CASE WHEN p.id IS NOT NULL THEN 'DEPOSITED'
                WHEN t.id IS NOT NULL THEN 'TRANSFERRED' ELSE 'BOOKED' END),
            l.side, l.amount, o.balance + l.change
        FROM line l CROSS JOIN opening o
        LEFT JOIN card_transaction_events f ON f.card_transaction_id = l.subject_id
            AND f.sequence = l.sequence AND f.customer_id = l.customer_id
        LEFT JOIN deposits p ON p.id = l.subject_id AND p.customer_id = l.customer_id
        LEFT JOIN transfers t ON t.id = l.subject_id AND t.customer_id = l.customer_id
    ) s
    ORDER BY s.place;
END;
COMMENT ON FUNCTION finance.statement(uuid, date, date, timestamptz) IS 'Statement of an account: a row OPENING, then each entry posted from the first day to the last, with the balance after it on the normal side of the account.';

CREATE FUNCTION finance.open_holds(on_date date, known_at timestamptz)
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
            - (coalesce(t.authorized_at, t.recorded_at) AT TIME ZONE 'UTC')::date
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
COMMENT ON FUNCTION finance.open_holds(date, timestamptz) IS 'What was held for each card transaction: posted on or before a day, as known at a time. Columns as in the view; expires_at is that of now. Negative: its release counts on an earlier day than its hold.';

CREATE FUNCTION finance.receivables(on_date date, known_at timestamptz)
RETURNS TABLE (
    card_transaction_id uuid, platform_id uuid, customer_id uuid, card_id uuid, account_id uuid,
    merchant text, currency text, owed bigint, owed_since timestamptz, authorized_at timestamptz,
    age_days integer
)
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET jit = off
BEGIN ATOMIC
    WITH moved AS (
        SELECT e.subject_id, e.customer_id, e.sequence, e.line, e.recorded_at,
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
            min(s.recorded_at) FILTER (WHERE s.place > s.last_paid) AS owed_since
        FROM since_paid s
        GROUP BY s.subject_id, s.customer_id HAVING sum(s.amount) <> 0
    )
    SELECT t.card_transaction_id, t.platform_id, t.customer_id, t.card_id, t.account_id,
        t.merchant, t.currency, h.owed::bigint, h.owed_since, t.authorized_at,
        coalesce(receivables.on_date, (now() AT TIME ZONE 'UTC')::date)
            - (h.owed_since AT TIME ZONE 'UTC')::date
    FROM debt h
    JOIN finance.card_transactions t ON t.card_transaction_id = h.subject_id
        AND t.customer_id = h.customer_id
    ORDER BY t.card_transaction_id;
END;
COMMENT ON FUNCTION finance.receivables(date, timestamptz) IS 'What each card transaction owed: posted on or before a day, as known at a time. Columns as in the view. Negative: its collection counts on an earlier day than its debt.';
