-- Sums are numeric: those of amounts near 2^63 are more than a bigint can hold.

CREATE OR REPLACE FUNCTION finance.version() RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT 2;
END;

-- The totals of all spans of time that end until then, and the entries recorded after the last of
-- these. Both ends of their time are said: with one alone PostgreSQL expects a third of all entries
-- and does not use the index. Entries are added up by pairs of system accounts, of which there are
-- few; null is the customer's side. PostgreSQL expects as many pairs as there are customers and
-- would sort.
DROP FUNCTION finance.trial_balance(date, timestamptz, uuid);
CREATE FUNCTION finance.trial_balance(
    on_date date, known_at timestamptz, platform uuid DEFAULT NULL
) RETURNS TABLE (
    account text, class text, currency text, debits numeric, credits numeric, net numeric,
    platform_id uuid
)
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_sort = off SET enable_seqscan = off SET jit = off
BEGIN ATOMIC
    SELECT s.kind, h.class, s.currency, sum(s.debits), sum(s.credits),
        sum(s.debits) - sum(s.credits), trial_balance.platform
    FROM (
        SELECT t.platform_id, t.kind, t.currency, t.debits, t.credits
        FROM posting_totals t
        WHERE t.recorded_until <= coalesce(trial_balance.known_at, 'infinity')
            AND t.posted_on <= coalesce(trial_balance.on_date, 'infinity')
        UNION ALL
        SELECT coalesce(d.platform_id, c.platform_id), side.kind,
            coalesce(d.currency, c.currency), side.debits, side.credits
        FROM (
            SELECT nullif(e.debit_account_id, e.account_id) AS debit_id,
                nullif(e.credit_account_id, e.account_id) AS credit_id, sum(e.amount) AS amount
            FROM entries e
            WHERE e.posted_on <= coalesce(trial_balance.on_date, 'infinity')
                AND e.recorded_at > (
                    SELECT coalesce(max(t.recorded_until), '-infinity') FROM posting_totals t
                    WHERE t.recorded_until <= coalesce(trial_balance.known_at, 'infinity')
                )
                AND e.recorded_at <= coalesce(trial_balance.known_at, 'infinity')
            GROUP BY 1, 2
        ) m
        LEFT JOIN system_accounts d ON d.id = m.debit_id
        LEFT JOIN system_accounts c ON c.id = m.credit_id
        CROSS JOIN LATERAL (VALUES
            (coalesce(d.kind, 'CUSTOMER'), m.amount, 0),
            (coalesce(c.kind, 'CUSTOMER'), 0, m.amount)
        ) AS side (kind, debits, credits)
    ) s
    LEFT JOIN chart_of_accounts h ON h.kind = s.kind
    WHERE trial_balance.platform IS NULL OR s.platform_id = trial_balance.platform
    GROUP BY s.kind, h.class, s.currency
    ORDER BY s.currency, s.kind;
END;
COMMENT ON FUNCTION finance.trial_balance(date, timestamptz, uuid) IS 'Debits and credits of each account of the chart and currency, posted on or before a day, as known at a time, of one platform or of all; net is debits less credits.';

-- One process: others take longer to start than the answer takes.
DROP FUNCTION finance.statement(uuid, date, date, timestamptz);
DROP FUNCTION finance.balance(uuid, date, timestamptz);
CREATE FUNCTION finance.balance(account_id uuid, on_date date, known_at timestamptz)
RETURNS numeric
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
SET max_parallel_workers_per_gather = 0
BEGIN ATOMIC
    SELECT CASE a.normal_side WHEN 'D' THEN b.net ELSE -b.net END
    FROM finance.accounts a
    CROSS JOIN (
        SELECT coalesce(sum(m.amount), 0) AS net
        FROM (
            -- A customer's account: totals of a thousand entries each that were all known,
            SELECT t.debits - t.credits AS amount
            FROM account_totals t
            WHERE t.account_id = balance.account_id
                AND t.recorded_until <= coalesce(balance.known_at, 'infinity')
                AND t.posted_on <= coalesce(balance.on_date, 'infinity')
            UNION ALL
            -- the entries of a thousand of which some were known, and those without totals.
            SELECT CASE e.debit_account_id WHEN balance.account_id THEN e.amount ELSE -e.amount
                END
            FROM (
                SELECT DISTINCT t.first_version, t.last_version
                FROM account_totals t
                WHERE t.account_id = balance.account_id
                    AND t.recorded_from <= coalesce(balance.known_at, 'infinity')
                    AND t.recorded_until > coalesce(balance.known_at, 'infinity')
                UNION ALL
                SELECT coalesce(max(t.last_version), 0) + 1, 9223372036854775807
                FROM account_totals t WHERE t.account_id = balance.account_id
            ) p
            CROSS JOIN LATERAL (
                SELECT e.debit_account_id, e.amount, e.posted_on, e.recorded_at
                FROM entries e
                WHERE e.account_id = balance.account_id
                    AND e.account_version BETWEEN p.first_version AND p.last_version
                OFFSET 0  -- By these alone: PostgreSQL expects few entries on an account.
            ) e
            WHERE e.posted_on <= coalesce(balance.on_date, 'infinity')
                AND e.recorded_at <= coalesce(balance.known_at, 'infinity')
            UNION ALL
            -- An account of the platform: as the trial balance.
            SELECT t.debits - t.credits
            FROM system_accounts s
            JOIN posting_totals t ON t.platform_id = s.platform_id AND t.currency = s.currency
                AND t.kind = s.kind
            WHERE s.id = balance.account_id
                AND t.recorded_until <= coalesce(balance.known_at, 'infinity')
                AND t.posted_on <= coalesce(balance.on_date, 'infinity')
            UNION ALL
            SELECT CASE e.debit_account_id WHEN balance.account_id THEN e.amount ELSE -e.amount
                END
            FROM entries e
            WHERE balance.account_id IN (e.debit_account_id, e.credit_account_id)
                AND (SELECT true FROM system_accounts s WHERE s.id = balance.account_id)
                AND e.posted_on <= coalesce(balance.on_date, 'infinity')
                AND e.recorded_at > (
                    SELECT coalesce(max(t.recorded_until), '-infinity') FROM posting_totals t
                    WHERE t.recorded_until <= coalesce(balance.known_at, 'infinity')
                )
                AND e.recorded_at <= coalesce(balance.known_at, 'infinity')
        ) m
    ) b
    WHERE a.account_id = balance.account_id;
END;
COMMENT ON FUNCTION finance.balance(uuid, date, timestamptz) IS 'Balance of an account, on its normal side: posted on or before a day, as known at a time; null: there is no such account.';

-- The opening balance is that of the day before. The lines are looked for where the totals say that
-- an entry was posted from the first day to the last, and among the entries without totals.
CREATE FUNCTION finance.statement(
    account_id uuid, from_date date, to_date date, known_at timestamptz DEFAULT NULL
) RETURNS TABLE (
    posted_on date, recorded_at timestamptz, entry_id text, event text, side text, amount bigint,
    balance numeric
)
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
BEGIN ATOMIC
    WITH opening AS MATERIALIZED (
        SELECT a.normal_side, a.kind,
            CASE WHEN statement.from_date IS NULL THEN 0 ELSE finance.balance(
                statement.account_id, statement.from_date - 1, statement.known_at
            ) END AS balance
        FROM finance.accounts a WHERE a.account_id = statement.account_id
    ), moved AS MATERIALIZED (
        SELECT e.posted_on, e.recorded_at, e.account_version, e.subject_id, e.sequence, e.line,
            e.customer_id, e.amount,
            CASE e.debit_account_id WHEN statement.account_id THEN 'D' ELSE 'C' END AS side,
            CASE e.debit_account_id WHEN statement.account_id THEN e.credit_account_id
                ELSE e.debit_account_id END AS other_id
        FROM (
            SELECT DISTINCT t.first_version, t.last_version
            FROM account_totals t
            WHERE t.account_id = statement.account_id
                AND t.posted_on >= coalesce(statement.from_date, '-infinity')
                AND t.posted_on <= coalesce(statement.to_date, 'infinity')
            UNION ALL
            SELECT coalesce(max(t.last_version), 0) + 1, 9223372036854775807
            FROM account_totals t WHERE t.account_id = statement.account_id
        ) p
        CROSS JOIN LATERAL (
            SELECT e.posted_on, e.recorded_at, e.account_version, e.subject_id, e.sequence, e.line,
                e.customer_id, e.amount, e.debit_account_id, e.credit_account_id
            FROM entries e
            WHERE e.account_id = statement.account_id
                AND e.account_version BETWEEN p.first_version AND p.last_version
            OFFSET 0
        ) e
        WHERE e.posted_on >= coalesce(statement.from_date, '-infinity')
            AND e.posted_on <= coalesce(statement.to_date, 'infinity')
            AND e.recorded_at <= coalesce(statement.known_at, 'infinity')
        UNION ALL
        SELECT e.posted_on, e.recorded_at, e.account_version, e.subject_id, e.sequence, e.line,
            e.customer_id, e.amount,
            CASE e.debit_account_id WHEN statement.account_id THEN 'D' ELSE 'C' END,
            CASE e.debit_account_id WHEN statement.account_id THEN e.credit_account_id
                ELSE e.debit_account_id END
        FROM entries e
        WHERE statement.account_id IN (e.debit_account_id, e.credit_account_id)
            AND (SELECT true FROM system_accounts s WHERE s.id = statement.account_id)
            AND e.posted_on >= coalesce(statement.from_date, '-infinity')
            AND e.posted_on <= coalesce(statement.to_date, 'infinity')
            AND e.recorded_at > (
                -- Where the first of them can be: with totals, or without.
                SELECT coalesce(min(t.recorded_after), (
                    SELECT coalesce(max(l.recorded_until), '-infinity') FROM posting_totals l
                ))
                FROM system_accounts s
                JOIN posting_totals t ON t.platform_id = s.platform_id
                    AND t.currency = s.currency AND t.kind = s.kind
                WHERE s.id = statement.account_id
                    AND t.posted_on >= coalesce(statement.from_date, '-infinity')
                    AND t.posted_on <= coalesce(statement.to_date, 'infinity')
            )
            AND e.recorded_at <= coalesce(statement.known_at, 'infinity')
    ), line AS (
        SELECT m.*,
            row_number() OVER w AS place,
            sum(CASE m.side WHEN o.normal_side THEN m.amount ELSE -m.amount END) OVER w AS change
        FROM opening o CROSS JOIN moved m
        WINDOW w AS (
            ORDER BY m.posted_on, m.recorded_at, m.account_version, m.subject_id, m.sequence,
                m.line
        )
    )
    SELECT s.posted_on, s.recorded_at, s.entry_id, s.event, s.side, s.amount, s.balance
    FROM (
        SELECT 0::bigint AS place, statement.from_date AS posted_on,
            NULL::timestamptz AS recorded_at, NULL::text AS entry_id, 'OPENING' AS event,
            NULL::text AS side, NULL::bigint AS amount, o.balance
        FROM opening o
        UNION ALL
        SELECT l.place, l.posted_on, l.recorded_at,
            l.subject_id || ':' || l.sequence || ':' || l.line,
            coalesce(f.kind, CASE WHEN 'TRANSFERS' IN (o.kind, c.kind) THEN 'TRANSFERRED'
                WHEN l.customer_id = '00000000-0000-0000-0000-000000000000' THEN 'ADJUSTED'
                WHEN 'SUSPENSE' IN (o.kind, c.kind) THEN
                    CASE l.sequence WHEN 0 THEN 'SUSPENDED' ELSE 'SUSPENSE_RESOLVED' END
                WHEN p.id IS NOT NULL THEN 'DEPOSITED' ELSE 'BOOKED' END),
            l.side, l.amount, o.balance + l.change
        FROM line l CROSS JOIN opening o
        LEFT JOIN card_transaction_events f ON f.card_transaction_id = l.subject_id
            AND f.sequence = l.sequence AND f.customer_id = l.customer_id
        LEFT JOIN deposits p ON p.id = l.subject_id AND p.customer_id = l.customer_id
        LEFT JOIN system_accounts c ON c.id = l.other_id
    ) s
    ORDER BY s.place;
END;
COMMENT ON FUNCTION finance.statement(uuid, date, date, timestamptz) IS 'Statement of an account: a row OPENING, then each entry posted from the first day to the last, with the balance after it on the normal side of the account.';

DROP VIEW finance.network_days;
-- What the network moved by the accounts on the other side; what it says about interchange has no
-- entry yet, and so is beside the net amount.
CREATE VIEW finance.network_days AS
SELECT n.settlement_date, n.network, n.cycle, n.currency, n.platform_id,
    sum(CASE WHEN n.kind = 'CLEARED' THEN n.due ELSE 0 END) AS presentments,
    -sum(CASE WHEN n.kind IN ('REFUNDED', 'CREDITED') THEN n.due ELSE 0 END) AS credits,
    -sum(CASE WHEN n.kind IN ('CLEARING_REVERSED', 'REFUND_REVERSED') THEN n.due ELSE 0
        END) AS reversals,
    sum(CASE WHEN n.other = 'NETWORK_FEES' THEN n.due ELSE 0 END) AS fees,
    trim_scale(sum(n.interchange)) AS interchange,
    sum(CASE WHEN n.other = 'SETTLEMENT_BANK' THEN 0 ELSE n.due END) AS net,
    -sum(CASE WHEN n.other = 'SETTLEMENT_BANK' THEN n.due ELSE 0 END) AS paid,
    sum(n.due) AS open
FROM (
    SELECT coalesce(x.settlement_date, e.posted_on) AS settlement_date, x.network, x.cycle,
        a.currency, a.platform_id, f.kind,
        CASE WHEN a.id = c.id THEN d.kind ELSE c.kind END AS other,
        CASE WHEN a.id = c.id THEN e.amount ELSE -e.amount END AS due,
        0::numeric AS interchange
    FROM entries e
    LEFT JOIN system_accounts d ON d.id = e.debit_account_id
    LEFT JOIN system_accounts c ON c.id = e.credit_account_id
    JOIN system_accounts a ON a.kind = 'NETWORK_SETTLEMENT'
        AND a.id = CASE WHEN c.kind = 'NETWORK_SETTLEMENT' THEN c.id ELSE d.id END
    LEFT JOIN card_transaction_events f ON f.card_transaction_id = e.subject_id
        AND f.sequence = e.sequence AND f.customer_id = e.customer_id
    LEFT JOIN settlement_details x ON x.card_transaction_id = e.subject_id
        AND x.customer_id = e.customer_id AND x.message_id = f.message_id
    UNION ALL
    SELECT x.settlement_date, x.network, x.cycle, t.currency, x.platform_id, NULL, NULL, 0,
        x.interchange * ('1e' || m.decimals)::numeric
    FROM settlement_details x
    JOIN card_transactions t ON t.id = x.card_transaction_id AND t.customer_id = x.customer_id
    JOIN currencies m ON m.code = t.currency
    WHERE x.interchange IS NOT NULL
) n
GROUP BY n.settlement_date, n.network, n.cycle, n.currency, n.platform_id;
COMMENT ON VIEW finance.network_days IS 'What the network settles, for each day, network, cycle, currency and platform; minor units. The sum of open is the balance of NETWORK_SETTLEMENT.';
COMMENT ON COLUMN finance.network_days.settlement_date IS 'The business day of the network; the day of the books where the network has not named one.';
COMMENT ON COLUMN finance.network_days.network IS 'The network; null: the events did not name one.';
COMMENT ON COLUMN finance.network_days.cycle IS 'The cycle of the day; null: the events did not name one.';
COMMENT ON COLUMN finance.network_days.currency IS 'Currency code, ISO 4217.';
COMMENT ON COLUMN finance.network_days.platform_id IS 'The platform.';
COMMENT ON COLUMN finance.network_days.presentments IS 'Clearings: due to the network.';
COMMENT ON COLUMN finance.network_days.credits IS 'Refunds and credits: due from the network.';
COMMENT ON COLUMN finance.network_days.reversals IS 'Reversed clearings less reversed refunds: due from the network.';
COMMENT ON COLUMN finance.network_days.fees IS 'Fees of the network: due to the network.';
COMMENT ON COLUMN finance.network_days.interchange IS 'Interchange that the events named, not rounded; positive: earned. Not part of net until it is booked.';
COMMENT ON COLUMN finance.network_days.net IS 'Due to the network; negative: due from it.';
COMMENT ON COLUMN finance.network_days.paid IS 'Paid to the network; negative: received from it.';
COMMENT ON COLUMN finance.network_days.open IS 'Not paid yet: net less paid.';
