-- What is in the way of closing a period that ends on `last_day`; a kind can have several rows.
CREATE OR REPLACE FUNCTION closing_findings(from_day date, to_day date)
RETURNS TABLE (kind text, found bigint, detail text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
BEGIN ATOMIC
    WITH message AS (
        SELECT 'INBOX' AS kind, i.received_at, finance.json_or_null(i.body::text) AS body
        FROM inbox i WHERE i.source <> 'canary'
        UNION ALL SELECT 'INBOX', q.enqueued_at, q.event FROM enqueued_events q
        UNION ALL
        SELECT 'PARKED', p.received_at, finance.json_or_null(p.body::text) FROM parked p
    ), period AS (
        SELECT end_of_business_day(to_day) AS ends_at, to_char(to_day, 'YYYY-MM-DD') AS last_day
    )
    SELECT m.kind, count(*), 'the oldest was accepted at '
        || to_char(min(m.received_at) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
    FROM message m CROSS JOIN period p
    WHERE m.received_at < p.ends_at OR EXISTS (
        SELECT FROM (VALUES
            (m.body ->> 'occurredAt'), (m.body -> 'settlement' ->> 'settlementDate')
        ) AS named (day)
        WHERE named.day ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}' AND left(named.day, 10) <= p.last_day
    )
    GROUP BY m.kind
    UNION ALL
    -- Entries are only added: where as many were checked, all were.
    SELECT 'UNVERIFIED', n.entries - v.entries, CASE v.last_at IS NULL
        WHEN true THEN 'the books were never verified'
        ELSE 'verified last at '
            || to_char(v.last_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') END
    FROM (
        SELECT count(*) AS entries FROM entries e WHERE e.posted_on BETWEEN from_day AND to_day
    ) n
    CROSS JOIN (
        SELECT max(b.verified_at) AS last_at, coalesce(sum(d.value::bigint), 0)::bigint AS entries
        FROM (SELECT * FROM book_verifications ORDER BY id DESC LIMIT 1) b
        LEFT JOIN LATERAL jsonb_each_text(b.days) d
            ON d.key::date BETWEEN from_day AND to_day
    ) v
    WHERE n.entries <> v.entries
    UNION ALL
    SELECT 'SUSPENSE', 1, format('%s %s of platform %s', s.currency,
        (sum(m.amount) * ('1e-' || y.decimals)::numeric)::text, s.platform_id)
    FROM (
        SELECT e.credit_account_id AS id, e.amount FROM entries e WHERE e.posted_on <= to_day
        UNION ALL
        SELECT e.debit_account_id, -e.amount FROM entries e WHERE e.posted_on <= to_day
    ) m
    JOIN system_accounts s ON s.id = m.id AND s.kind = 'SUSPENSE'
    LEFT JOIN currencies y ON y.code = s.currency
    GROUP BY s.platform_id, s.currency, y.decimals HAVING sum(m.amount) <> 0
    UNION ALL
    SELECT b.kind, count(*), format('files of %s, the oldest of %s', f.network,
        to_char(min(f.settlement_date), 'YYYY-MM-DD'))
    FROM breaks b JOIN network_files f ON f.id = b.file_id
    WHERE b.state IN ('open', 'investigating') AND f.settlement_date <= to_day
    GROUP BY b.kind, f.network
    UNION ALL
    -- A network of a platform has files from the first one on, for each day that settles.
    SELECT 'MISSING_FILE', count(*), format('%s of platform %s, the first of %s', n.network,
        n.platform_id, to_char(min(n.day), 'YYYY-MM-DD'))
    FROM (
        SELECT u.platform_id, u.network, d.day::date AS day
        FROM (
            SELECT f.platform_id, f.network, min(f.settlement_date) AS first_day
            FROM network_files f GROUP BY f.platform_id, f.network
        ) u
        CROSS JOIN LATERAL generate_series(greatest(u.first_day, from_day)::timestamp,
            to_day::timestamp, interval '1 day') AS d (day)
        CROSS JOIN LATERAL (
            SELECT c.days, c.holidays FROM calendars c
            WHERE c.name = u.network AND c.valid_from <= d.day
            ORDER BY c.valid_from DESC LIMIT 1
        ) c
        WHERE extract(isodow FROM d.day)::smallint = ANY (c.days)
            AND d.day::date <> ALL (c.holidays)
        UNION
        SELECT x.platform_id, x.network, x.settlement_date
        FROM settlement_details x
        WHERE x.settlement_date BETWEEN from_day AND to_day AND EXISTS (
            SELECT FROM network_files f WHERE f.platform_id = x.platform_id
                AND f.network = x.network AND f.settlement_date <= x.settlement_date
        )
    ) n
    WHERE NOT EXISTS (
        SELECT FROM network_files f WHERE f.platform_id = n.platform_id AND f.network = n.network
            AND f.settlement_date = n.day
    )
    GROUP BY n.platform_id, n.network
    UNION ALL
    SELECT b.kind, count(*), format('statements of the bank, the oldest of %s',
        to_char(min(coalesce(l.booking_date, f.settlement_date)), 'YYYY-MM-DD'))
    FROM breaks b
    JOIN bank_statements s ON s.id = b.statement_id
    LEFT JOIN bank_lines l ON l.statement_id = b.statement_id AND l.line = b.line
    LEFT JOIN network_files f ON f.id = b.paid_file_id
    WHERE b.state IN ('open', 'investigating')
        AND coalesce(l.booking_date, f.settlement_date) <= to_day
    GROUP BY b.kind
    UNION ALL
    -- A day is settled when a line pays it in full, or people have closed what differs. A platform
    -- has statements in a currency from the first one on.
    SELECT 'UNPAID_DAY', count(*), format('%s of platform %s in %s, the first of %s', f.network,
        f.platform_id, t.currency, to_char(min(f.settlement_date), 'YYYY-MM-DD'))
    FROM network_files f
    JOIN network_file_totals t ON t.file_id = f.id
    JOIN (
        SELECT s.platform_id, s.currency, min(s.first_day) AS first_day
        FROM bank_statements s GROUP BY s.platform_id, s.currency
    ) s ON s.platform_id = f.platform_id AND s.currency = t.currency
    WHERE f.settlement_date BETWEEN greatest(from_day, s.first_day) AND to_day
        AND expected_at_bank(f.id, t.currency) <> 0
        AND NOT EXISTS (
            SELECT FROM bank_payments p WHERE p.file_id = f.id AND p.currency = t.currency
                AND p.rule <> 'REST' AND NOT EXISTS (
                    SELECT FROM breaks b
                    WHERE (b.statement_id, b.line, b.kind) = (p.statement_id, p.line, 'BANK_DIFFERS')
                        AND b.state IN ('open', 'investigating')
                )
        )
        AND NOT EXISTS (
            SELECT FROM breaks b WHERE b.paid_file_id = f.id AND b.currency = t.currency
                AND b.kind = 'NOT_PAID' AND b.state IN ('resolved', 'written_off')
        )
    GROUP BY f.network, f.platform_id, t.currency
    UNION ALL
    SELECT 'INBOX', count(*), 'bookings of files and statements, the oldest for '
        || to_char(min(b.posted_for), 'YYYY-MM-DD')
    FROM settlement_bookings b
    WHERE b.booked_at IS NULL AND b.posted_for <= to_day
    HAVING count(*) > 0;
END;

CREATE OR REPLACE VIEW finance.audit WITH (security_barrier) AS
SELECT c.created_at AS recorded_at, c.created_by AS person, 'CALENDAR_SET'::text AS action,
    c.name AS subject,
    jsonb_build_object('validFrom', c.valid_from, 'timeZone', c.time_zone,
        'cutOff', to_char(c.cut_off, 'HH24:MI'), 'days', c.days, 'holidays', c.holidays) AS detail
FROM calendars c
UNION ALL
SELECT p.changed_at, p.changed_by, 'PERSON_' || p.change, p.name, jsonb_build_object('may', p.may)
FROM person_changes p
UNION ALL
SELECT b.begun_at, b.begun_by, 'BOOKS_BEGUN', b.first_day::text, '{}'::jsonb
FROM book_beginnings b
UNION ALL
SELECT a.prepared_at, a.prepared_by, 'ADJUSTMENT_PREPARED', a.id::text,
    jsonb_strip_nulls(jsonb_build_object('kind', a.kind, 'amount', a.amount::text,
        'currency', a.currency, 'from', a.from_kind, 'to', a.to_kind,
        'cardTransaction', a.card_transaction_id, 'suspense', a.suspense_id,
        'reason', a.reason))
FROM adjustments a
UNION ALL
SELECT a.decided_at, a.decided_by,
    'ADJUSTMENT_' || CASE a.state WHEN 'REJECTED' THEN 'REJECTED' ELSE 'APPROVED' END, a.id::text,
    jsonb_strip_nulls(jsonb_build_object('kind', a.kind, 'amount', a.amount::text,
        'currency', a.currency,
        'reason', CASE a.state WHEN 'REJECTED' THEN a.refusal END))
FROM adjustments a WHERE a.decided_by IS NOT NULL
UNION ALL
SELECT c.prepared_at, c.prepared_by, c.kind || '_PREPARED', c.id::text,
    jsonb_strip_nulls(jsonb_build_object('firstDay', c.first_day, 'lastDay', c.last_day,
        'closing', c.closing_id, 'reason', c.reason, 'allowed', (
            SELECT jsonb_agg(jsonb_build_object('kind', x.kind, 'reason', x.reason)
                ORDER BY x.kind)
            FROM closing_exceptions x WHERE x.closing_id = c.id
        )))
FROM closings c
UNION ALL
SELECT c.decided_at, c.decided_by,
    c.kind || CASE c.state WHEN 'REJECTED' THEN '_REJECTED' ELSE '_APPROVED' END, c.id::text,
    jsonb_strip_nulls(jsonb_build_object('firstDay', c.first_day, 'lastDay', c.last_day,
        'reason', c.decision_reason))
FROM closings c WHERE c.decided_by IS NOT NULL
UNION ALL
SELECT s.sealed_at, s.sealed_by, 'CLOSE_SEALED', s.closing_id::text,
    jsonb_build_object('sha256', s.sha256, 'entries', s.entries)
FROM seals s
UNION ALL
SELECT f.imported_at, f.imported_by, 'FILE_IMPORTED', f.id::text,
    jsonb_build_object('fileId', f.file_id, 'network', f.network,
        'settlementDate', f.settlement_date, 'lines', f.lines, 'digest', f.digest)
FROM network_files f
UNION ALL
SELECT r.refused_at, r.refused_by, 'FILE_REFUSED', r.id::text,
    jsonb_strip_nulls(jsonb_build_object('code', r.code, 'line', r.line,
        'column', r.column_name, 'message', r.message))
FROM file_refusals r
UNION ALL
SELECT h.done_at, h.done_by, 'BREAK_' || h.action, h.break_id::text,
    jsonb_strip_nulls(jsonb_build_object('note', h.note, 'owner', h.owner,
        'difference', h.difference::text))
FROM break_history h
UNION ALL
SELECT s.imported_at, s.imported_by, 'STATEMENT_IMPORTED', s.id::text,
    jsonb_build_object('account', s.account, 'statementId', s.statement_id,
        'currency', s.currency, 'lines', s.lines, 'digest', s.digest)
FROM bank_statements s;

COMMENT ON VIEW finance.audit IS 'Who did what: calendars, people with a login, the beginning of the books, adjustments, closings and reopenings of periods, settlement files, statements of the bank and what was done about breaks.';

COMMENT ON COLUMN finance.audit.action IS 'CALENDAR_SET, PERSON_ADDED, PERSON_REMOVED, BOOKS_BEGUN, ADJUSTMENT_PREPARED, ADJUSTMENT_APPROVED, ADJUSTMENT_REJECTED, CLOSE_PREPARED, CLOSE_APPROVED, CLOSE_REJECTED, CLOSE_SEALED, REOPEN_PREPARED, REOPEN_APPROVED, REOPEN_REJECTED, FILE_IMPORTED, FILE_REFUSED, STATEMENT_IMPORTED, BREAK_ASSIGNED, BREAK_NOTED, BREAK_RESOLVED, BREAK_WRITTEN_OFF or BREAK_EXPLAINED.';

COMMENT ON COLUMN finance.audit.subject IS 'The calendar, the person, the day, the adjustment, the closing, the reopening, the file, the statement, the refusal or the break.';

CREATE OR REPLACE VIEW finance.breaks AS
SELECT b.id AS break_id, coalesce(f.platform_id, s.platform_id) AS platform_id,
    coalesce(f.network, g.network) AS network,
    coalesce(f.settlement_date, x.booking_date, g.settlement_date) AS settlement_date,
    coalesce(f.cycle, g.cycle) AS cycle,
    b.file_id AS network_file_id, coalesce(f.file_id, s.statement_id) AS file_id, b.line, b.kind,
    b.cause, b.state,
    coalesce(n.reference, x.bank_reference, g.file_id, (
        SELECT o.reference FROM outcomes o
        WHERE o.message_id = e.message_id AND o.customer_id = e.customer_id LIMIT 1
    )) AS reference,
    coalesce(n.token, t.issuer_transaction_token) AS issuer_transaction_token,
    b.card_transaction_id, b.sequence, b.currency, b.file_amount, b.ledger_amount, b.difference,
    b.ledger_currency, b.ledger_difference, coalesce(m.rule, y.rule) AS rule,
    (now() AT TIME ZONE 'UTC')::date
        - coalesce(f.settlement_date, x.booking_date, g.settlement_date) AS age_days,
    b.owner, b.opened_at, b.closed_at, b.closed_by, b.candidates,
    b.statement_id, b.paid_file_id AS paid_network_file_id
FROM breaks b
LEFT JOIN network_files f ON f.id = b.file_id
LEFT JOIN bank_statements s ON s.id = b.statement_id
LEFT JOIN bank_lines x ON x.statement_id = b.statement_id AND x.line = b.line
LEFT JOIN network_files g ON g.id = b.paid_file_id
LEFT JOIN LATERAL (
    SELECT p.rule FROM bank_payments p WHERE p.statement_id = b.statement_id AND p.line = b.line
    LIMIT 1
) y ON true
LEFT JOIN network_lines n ON n.file_id = b.file_id AND n.line = b.line
LEFT JOIN line_matches m ON m.file_id = b.file_id AND m.line = b.line
LEFT JOIN card_transactions t ON t.id = b.card_transaction_id AND t.customer_id = b.customer_id
LEFT JOIN card_transaction_events e ON e.card_transaction_id = b.card_transaction_id
    AND e.sequence = b.sequence AND e.customer_id = b.customer_id;
COMMENT ON VIEW finance.breaks IS 'What settlement files, statements of the bank and the ledger differ by.';
COMMENT ON COLUMN finance.breaks.network IS 'The network; null: BANK_ONLY.';
COMMENT ON COLUMN finance.breaks.settlement_date IS 'Business date of the network, of the file; of a line of the bank its booking date.';
COMMENT ON COLUMN finance.breaks.network_file_id IS 'The file; null: of a statement.';
COMMENT ON COLUMN finance.breaks.file_id IS 'Identifier of the file at the network, or of the statement.';
COMMENT ON COLUMN finance.breaks.line IS 'The line; null: IN_LEDGER_ONLY or NOT_PAID.';
COMMENT ON COLUMN finance.breaks.kind IS 'AMOUNT_DIFFERS, CURRENCY_DIFFERS, TYPE_DIFFERS, DUPLICATE_LINE, IN_FILE_ONLY, IN_LEDGER_ONLY, TIMING or AMBIGUOUS; of a statement BANK_DIFFERS, BANK_ONLY or NOT_PAID.';
COMMENT ON COLUMN finance.breaks.reference IS 'Reference of the line, or of the event without a line; of NOT_PAID the file that is not paid.';
COMMENT ON COLUMN finance.breaks.file_amount IS 'Amount of the line, minor units; positive: due to the network, of a statement arrived at the bank.';
COMMENT ON COLUMN finance.breaks.ledger_amount IS 'Amount of the event, minor units of its currency, of a statement what was expected; signed as file_amount.';
COMMENT ON COLUMN finance.breaks.candidates IS 'Of AMBIGUOUS and BANK_ONLY: events or files that the line may be, up to 10.';
COMMENT ON COLUMN finance.breaks.statement_id IS 'The statement of the bank; null: of a file.';
COMMENT ON COLUMN finance.breaks.paid_network_file_id IS 'Of BANK_DIFFERS and NOT_PAID: the file that is paid, or not; of several the last.';

CREATE OR REPLACE VIEW finance.network_days AS
SELECT n.settlement_date, n.network, n.cycle, n.currency, n.platform_id,
    sum(CASE WHEN n.kind = 'CLEARED' THEN n.due ELSE 0 END) AS presentments,
    -sum(CASE WHEN n.kind IN ('REFUNDED', 'CREDITED') THEN n.due ELSE 0 END) AS credits,
    -sum(CASE WHEN n.kind IN ('CLEARING_REVERSED', 'REFUND_REVERSED') THEN n.due ELSE 0
        END) AS reversals,
    sum(CASE WHEN n.other = 'NETWORK_FEES' THEN n.due ELSE 0 END) AS fees,
    coalesce(-sum(n.due) FILTER (WHERE n.other = 'INTERCHANGE'), 0)
        + trim_scale(sum(n.interchange)) AS interchange,
    sum(CASE WHEN n.other = 'SETTLEMENT_BANK' THEN 0 ELSE n.due END) AS net,
    -sum(CASE WHEN n.other = 'SETTLEMENT_BANK' THEN n.due ELSE 0 END) AS paid,
    sum(n.due) AS open
FROM (
    SELECT coalesce(x.settlement_date,
            CASE WHEN e.sequence = 0 OR j.id IS NULL THEN coalesce(i.settlement_date, i.posted_on)
                END,
            coalesce(g.settlement_date, h.settlement_date), e.posted_on) AS settlement_date,
        coalesce(x.network, i.network, b.network, h.network) AS network,
        coalesce(x.cycle, g.cycle, h.cycle) AS cycle,
        a.currency, a.platform_id,
        coalesce(f.kind, CASE i.type WHEN 'CLEARING' THEN 'CLEARED' WHEN 'RETURN' THEN 'REFUNDED'
            WHEN 'FINANCIAL_CREDIT_AUTHORIZATION' THEN 'CREDITED'
            WHEN 'CLEARING_REVERSAL' THEN 'CLEARING_REVERSED'
            WHEN 'RETURN_REVERSAL' THEN 'REFUND_REVERSED' END) AS kind,
        CASE WHEN a.id = c.id THEN d.kind ELSE c.kind END AS other,
        coalesce(p.amount, CASE WHEN a.id = c.id THEN e.amount ELSE -e.amount END) AS due,
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
    LEFT JOIN suspense_items i ON i.id = e.subject_id AND i.customer_id = e.customer_id
    LEFT JOIN adjustments j ON j.id = i.resolved_by
    LEFT JOIN settlement_bookings b ON b.id = e.subject_id
    LEFT JOIN network_files g ON g.id = b.file_id
    -- A line of the bank may pay several days.
    LEFT JOIN bank_payments p ON p.statement_id = b.statement_id AND p.line = b.line
    LEFT JOIN network_files h ON h.id = p.file_id
    UNION ALL
    SELECT x.settlement_date, x.network, x.cycle, t.currency, x.platform_id, NULL, NULL, 0,
        x.interchange * ('1e' || m.decimals)::numeric
    FROM settlement_details x
    JOIN card_transactions t ON t.id = x.card_transaction_id AND t.customer_id = x.customer_id
    JOIN currencies m ON m.code = t.currency
    WHERE x.interchange IS NOT NULL AND NOT EXISTS (
        -- What the file says of it is booked.
        SELECT FROM network_files g
        WHERE g.platform_id = x.platform_id AND g.network = x.network
            AND g.settlement_date = x.settlement_date AND g.books
            AND coalesce(g.cycle = x.cycle, true)
    )
) n
GROUP BY n.settlement_date, n.network, n.cycle, n.currency, n.platform_id;

COMMENT ON COLUMN finance.network_days.paid IS 'Paid to the network less what it paid, as statements of the bank say.';

CREATE VIEW finance.bank_statements WITH (security_barrier) AS
SELECT s.id AS statement_id, s.platform_id, s.account, s.statement_id AS bank_statement_id,
    s.currency, s.first_day, s.last_day, s.opening, s.closing, s.lines, s.digest, s.imported_at,
    s.imported_by,
    (
        SELECT p.closing FROM bank_statements p
        WHERE p.platform_id = s.platform_id AND p.account = s.account AND p.currency = s.currency
            AND p.id <> s.id AND (p.last_day, p.imported_at) <= (s.first_day, s.imported_at)
        ORDER BY p.last_day DESC, p.imported_at DESC, p.id LIMIT 1
    ) AS closing_before,
    (
        SELECT count(*) FROM breaks b
        WHERE b.statement_id = s.id AND b.state IN ('open', 'investigating')
    ) AS open_breaks
FROM bank_statements s;
COMMENT ON VIEW finance.bank_statements IS 'Statements of the bank that were imported.';
COMMENT ON COLUMN finance.bank_statements.statement_id IS 'The statement.';
COMMENT ON COLUMN finance.bank_statements.platform_id IS 'The platform.';
COMMENT ON COLUMN finance.bank_statements.account IS 'The account at the bank.';
COMMENT ON COLUMN finance.bank_statements.bank_statement_id IS 'Identifier of the statement of this account.';
COMMENT ON COLUMN finance.bank_statements.currency IS 'Currency of the account.';
COMMENT ON COLUMN finance.bank_statements.first_day IS 'First booking date.';
COMMENT ON COLUMN finance.bank_statements.last_day IS 'Last booking date.';
COMMENT ON COLUMN finance.bank_statements.opening IS 'Balance before its lines, minor units.';
COMMENT ON COLUMN finance.bank_statements.closing IS 'Balance after its lines, minor units.';
COMMENT ON COLUMN finance.bank_statements.lines IS 'Number of lines.';
COMMENT ON COLUMN finance.bank_statements.digest IS 'SHA-256 of the parsed rows, hexadecimal.';
COMMENT ON COLUMN finance.bank_statements.imported_at IS 'When it was imported.';
COMMENT ON COLUMN finance.bank_statements.imported_by IS 'The login that imported it.';
COMMENT ON COLUMN finance.bank_statements.closing_before IS 'Closing balance of the statement before; null: it is the first. If it differs from opening, a statement is missing.';
COMMENT ON COLUMN finance.bank_statements.open_breaks IS 'Number of its breaks that are open or investigated.';

CREATE VIEW finance.bank_lines WITH (security_barrier) AS
SELECT l.statement_id, l.line, s.platform_id, s.account, l.booking_date, l.value_date, l.amount,
    s.currency, l.bank_reference, l.description, (
        SELECT p.rule FROM bank_payments p WHERE p.statement_id = l.statement_id AND p.line = l.line
        LIMIT 1
    ) AS rule, b.id AS booking_id
FROM bank_lines l
JOIN bank_statements s ON s.id = l.statement_id
LEFT JOIN settlement_bookings b ON b.statement_id = l.statement_id AND b.line = l.line;
COMMENT ON VIEW finance.bank_lines IS 'Lines of statements of the bank, each with its booking.';
COMMENT ON COLUMN finance.bank_lines.statement_id IS 'The statement.';
COMMENT ON COLUMN finance.bank_lines.line IS 'Line of the file on which it begins.';
COMMENT ON COLUMN finance.bank_lines.platform_id IS 'The platform.';
COMMENT ON COLUMN finance.bank_lines.account IS 'The account at the bank.';
COMMENT ON COLUMN finance.bank_lines.booking_date IS 'Day on which the bank booked it.';
COMMENT ON COLUMN finance.bank_lines.value_date IS 'Day from which on it counts for interest.';
COMMENT ON COLUMN finance.bank_lines.amount IS 'Amount, minor units; positive: arrived at the bank.';
COMMENT ON COLUMN finance.bank_lines.currency IS 'Currency.';
COMMENT ON COLUMN finance.bank_lines.bank_reference IS 'Reference of the bank.';
COMMENT ON COLUMN finance.bank_lines.description IS 'What the bank says about it.';
COMMENT ON COLUMN finance.bank_lines.rule IS 'REFERENCE, AMOUNT, NETWORK or REST: by what it was found to pay days of a network; null: it pays none.';
COMMENT ON COLUMN finance.bank_lines.booking_id IS 'Its booking; `subject_id` of its entry in the journal; null: it is not booked.';

CREATE VIEW finance.bank_payments WITH (security_barrier) AS
SELECT p.statement_id, p.line, p.file_id AS network_file_id, f.network, f.settlement_date, f.cycle,
    p.currency, p.amount, p.expected, p.rule, p.rest_of_statement_id, p.rest_of_line, p.matched_at
FROM bank_payments p JOIN network_files f ON f.id = p.file_id;
COMMENT ON VIEW finance.bank_payments IS 'Which line of the bank pays which day of a network.';
COMMENT ON COLUMN finance.bank_payments.statement_id IS 'The statement.';
COMMENT ON COLUMN finance.bank_payments.line IS 'The line.';
COMMENT ON COLUMN finance.bank_payments.network_file_id IS 'The file of the network.';
COMMENT ON COLUMN finance.bank_payments.network IS 'The network.';
COMMENT ON COLUMN finance.bank_payments.settlement_date IS 'Business date of the network.';
COMMENT ON COLUMN finance.bank_payments.cycle IS 'Settlement cycle; null: the whole day.';
COMMENT ON COLUMN finance.bank_payments.currency IS 'Currency.';
COMMENT ON COLUMN finance.bank_payments.amount IS 'What of the line is for it, minor units; positive: arrived at the bank.';
COMMENT ON COLUMN finance.bank_payments.expected IS 'What the file says should come, minor units.';
COMMENT ON COLUMN finance.bank_payments.rule IS 'REFERENCE, AMOUNT, NETWORK or REST.';
COMMENT ON COLUMN finance.bank_payments.rest_of_statement_id IS 'Of REST: statement of the line that it completes.';
COMMENT ON COLUMN finance.bank_payments.rest_of_line IS 'Of REST: the line that it completes.';
COMMENT ON COLUMN finance.bank_payments.matched_at IS 'When it was matched.';

CREATE VIEW finance.statement_proofs WITH (security_barrier) AS
SELECT p.statement_id, p.proved_at, p.ledger, p.difference, p.statement,
    p.id = max(p.id) OVER (PARTITION BY p.statement_id) AS is_latest
FROM statement_proofs p;
COMMENT ON VIEW finance.statement_proofs IS 'That what was expected at the bank and all differences add up to the statement, whenever it changed.';
COMMENT ON COLUMN finance.statement_proofs.statement_id IS 'The statement.';
COMMENT ON COLUMN finance.statement_proofs.proved_at IS 'When it was computed.';
COMMENT ON COLUMN finance.statement_proofs.ledger IS 'What was expected at the bank, minor units.';
COMMENT ON COLUMN finance.statement_proofs.difference IS 'Sum of the differences of all breaks of the statement.';
COMMENT ON COLUMN finance.statement_proofs.statement IS 'Closing less opening balance.';
COMMENT ON COLUMN finance.statement_proofs.is_latest IS 'Whether it is the last one of the statement.';

-- What people call to change something is volatile; who may call it is granted one by one.
CREATE FUNCTION finance.begin_statement(
    platform_id uuid, account text, bank_statement_id text, currency text, first_day date,
    last_day date, opening bigint, closing bigint
) RETURNS uuid
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT begin_bank_statement(begin_statement.platform_id, begin_statement.account,
        begin_statement.bank_statement_id, begin_statement.currency, begin_statement.first_day,
        begin_statement.last_day, begin_statement.opening, begin_statement.closing);
END;
COMMENT ON FUNCTION finance.begin_statement(uuid, text, text, text, date, date, bigint, bigint) IS 'Begin to import a statement of the bank, in the database transaction that finishes it. Returns the statement; null: it was imported before.';

CREATE FUNCTION finance.add_statement_lines(
    statement_id uuid, lines text, booking_dates text, value_dates text, amounts text, refs text,
    descriptions text
) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT add_bank_lines(add_statement_lines.statement_id, add_statement_lines.lines,
        add_statement_lines.booking_dates, add_statement_lines.value_dates,
        add_statement_lines.amounts, add_statement_lines.refs, add_statement_lines.descriptions);
END;
COMMENT ON FUNCTION finance.add_statement_lines(uuid, text, text, text, text, text, text) IS 'Add lines to a statement that is being imported: each argument has one column of them, separated by U+001F.';

CREATE FUNCTION finance.finish_statement(statement_id uuid, sha256 text) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT finish_bank_statement(finish_statement.statement_id, finish_statement.sha256);
END;
COMMENT ON FUNCTION finance.finish_statement(uuid, text) IS 'Compare the lines with the balances, and match them with the days of networks.';

CREATE FUNCTION finance.rematch_bank() RETURNS integer
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT rematch_bank();
END;
COMMENT ON FUNCTION finance.rematch_bank() IS 'Match open lines of statements with what came later. Returns the number of platforms and currencies.';
