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
    GROUP BY n.platform_id, n.network;
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
FROM break_history h;
COMMENT ON VIEW finance.audit IS 'Who did what: calendars, people with a login, the beginning of the books, adjustments, closings and reopenings of periods, settlement files and what was done about breaks.';
COMMENT ON COLUMN finance.audit.action IS 'CALENDAR_SET, PERSON_ADDED, PERSON_REMOVED, BOOKS_BEGUN, ADJUSTMENT_PREPARED, ADJUSTMENT_APPROVED, ADJUSTMENT_REJECTED, CLOSE_PREPARED, CLOSE_APPROVED, CLOSE_REJECTED, CLOSE_SEALED, REOPEN_PREPARED, REOPEN_APPROVED, REOPEN_REJECTED, FILE_IMPORTED, FILE_REFUSED, BREAK_ASSIGNED, BREAK_NOTED, BREAK_RESOLVED, BREAK_WRITTEN_OFF or BREAK_EXPLAINED.';
COMMENT ON COLUMN finance.audit.subject IS 'The calendar, the person, the day, the adjustment, the closing, the reopening, the file, the refusal or the break.';
COMMENT ON COLUMN finance.audit.detail IS 'What it was about: of a calendar or a person what it was changed to, of an adjustment what is booked and why, of a period its days, reasons and seal, of a file what it is or why it was refused, of a break the note.';

CREATE VIEW finance.files WITH (security_barrier) AS
SELECT f.id AS network_file_id, f.platform_id, f.network, f.file_id, f.settlement_date, f.cycle,
    f.lines, f.digest, f.imported_at, f.imported_by,
    (
        SELECT count(*) FROM breaks b
        WHERE b.file_id = f.id AND b.state IN ('open', 'investigating')
    ) AS open_breaks
FROM network_files f;
COMMENT ON VIEW finance.files IS 'Settlement files of networks that were imported.';
COMMENT ON COLUMN finance.files.network_file_id IS 'The file.';
COMMENT ON COLUMN finance.files.platform_id IS 'The platform.';
COMMENT ON COLUMN finance.files.network IS 'The network.';
COMMENT ON COLUMN finance.files.file_id IS 'Identifier of the file at the network.';
COMMENT ON COLUMN finance.files.settlement_date IS 'Business date of the network on which it settles the lines.';
COMMENT ON COLUMN finance.files.cycle IS 'Settlement cycle within that date; null: the whole day.';
COMMENT ON COLUMN finance.files.lines IS 'Number of lines.';
COMMENT ON COLUMN finance.files.digest IS 'SHA-256 of the parsed rows, hexadecimal.';
COMMENT ON COLUMN finance.files.imported_at IS 'When it was imported.';
COMMENT ON COLUMN finance.files.imported_by IS 'The login that imported it.';
COMMENT ON COLUMN finance.files.open_breaks IS 'Number of its breaks that are open or investigated.';

CREATE VIEW finance.lines AS
SELECT n.file_id AS network_file_id, n.line, f.platform_id, f.network, f.settlement_date, f.cycle,
    n.type, n.reference, n.network_reference, n.token AS issuer_transaction_token, n.card_id,
    n.amount, n.currency, n.merchant_amount, n.merchant_currency, n.interchange,
    n.transaction_date, n.merchant, n.mcc, m.rule, m.card_transaction_id, m.sequence, m.matched_at
FROM network_lines n
JOIN network_files f ON f.id = n.file_id
LEFT JOIN line_matches m ON m.file_id = n.file_id AND m.line = n.line;
COMMENT ON VIEW finance.lines IS 'Lines of settlement files, each with the event that it is; its entries have the same card transaction and sequence.';
COMMENT ON COLUMN finance.lines.network_file_id IS 'The file.';
COMMENT ON COLUMN finance.lines.line IS 'Line of the file on which it begins.';
COMMENT ON COLUMN finance.lines.platform_id IS 'The platform.';
COMMENT ON COLUMN finance.lines.network IS 'The network.';
COMMENT ON COLUMN finance.lines.settlement_date IS 'Business date of the network.';
COMMENT ON COLUMN finance.lines.cycle IS 'Settlement cycle; null: the whole day.';
COMMENT ON COLUMN finance.lines.type IS 'PRESENTMENT, PRESENTMENT_REVERSAL, CREDIT, CREDIT_REVERSAL, FEE or FEE_REVERSAL.';
COMMENT ON COLUMN finance.lines.reference IS 'Reference of the network event, or acquirer reference number.';
COMMENT ON COLUMN finance.lines.network_reference IS 'Identifier of the transaction at the network.';
COMMENT ON COLUMN finance.lines.issuer_transaction_token IS 'Issuer transaction token.';
COMMENT ON COLUMN finance.lines.card_id IS 'The card.';
COMMENT ON COLUMN finance.lines.amount IS 'Amount, minor units of the currency; always positive.';
COMMENT ON COLUMN finance.lines.currency IS 'Billing currency, ISO 4217.';
COMMENT ON COLUMN finance.lines.merchant_amount IS 'Amount in the currency of the merchant, minor units.';
COMMENT ON COLUMN finance.lines.merchant_currency IS 'Currency of the merchant.';
COMMENT ON COLUMN finance.lines.interchange IS 'Interchange, units of the currency; positive: earned.';
COMMENT ON COLUMN finance.lines.transaction_date IS 'Date of the purchase.';
COMMENT ON COLUMN finance.lines.merchant IS 'Name of the merchant.';
COMMENT ON COLUMN finance.lines.mcc IS 'Merchant category code, ISO 18245.';
COMMENT ON COLUMN finance.lines.rule IS 'REFERENCE, TOKEN or CARD: by what the event was found; null: there is none.';
COMMENT ON COLUMN finance.lines.card_transaction_id IS 'The card transaction of the event.';
COMMENT ON COLUMN finance.lines.sequence IS 'The event of the card transaction.';
COMMENT ON COLUMN finance.lines.matched_at IS 'When it was matched.';

CREATE VIEW finance.breaks AS
SELECT b.id AS break_id, f.platform_id, f.network, f.settlement_date, f.cycle,
    b.file_id AS network_file_id, f.file_id, b.line, b.kind, b.cause, b.state,
    coalesce(n.reference, (
        SELECT o.reference FROM outcomes o
        WHERE o.message_id = e.message_id AND o.customer_id = e.customer_id LIMIT 1
    )) AS reference,
    coalesce(n.token, t.issuer_transaction_token) AS issuer_transaction_token,
    b.card_transaction_id, b.sequence, b.currency, b.file_amount, b.ledger_amount, b.difference,
    b.ledger_currency, b.ledger_difference, m.rule,
    (now() AT TIME ZONE 'UTC')::date - f.settlement_date AS age_days, b.owner, b.opened_at,
    b.closed_at, b.closed_by, b.candidates
FROM breaks b
JOIN network_files f ON f.id = b.file_id
LEFT JOIN network_lines n ON n.file_id = b.file_id AND n.line = b.line
LEFT JOIN line_matches m ON m.file_id = b.file_id AND m.line = b.line
LEFT JOIN card_transactions t ON t.id = b.card_transaction_id AND t.customer_id = b.customer_id
LEFT JOIN card_transaction_events e ON e.card_transaction_id = b.card_transaction_id
    AND e.sequence = b.sequence AND e.customer_id = b.customer_id;
COMMENT ON VIEW finance.breaks IS 'What settlement files and the ledger differ by.';
COMMENT ON COLUMN finance.breaks.break_id IS 'The break.';
COMMENT ON COLUMN finance.breaks.platform_id IS 'The platform.';
COMMENT ON COLUMN finance.breaks.network IS 'The network.';
COMMENT ON COLUMN finance.breaks.settlement_date IS 'Business date of the network, of the file.';
COMMENT ON COLUMN finance.breaks.cycle IS 'Settlement cycle; null: the whole day.';
COMMENT ON COLUMN finance.breaks.network_file_id IS 'The file.';
COMMENT ON COLUMN finance.breaks.file_id IS 'Identifier of the file at the network.';
COMMENT ON COLUMN finance.breaks.line IS 'The line; null: IN_LEDGER_ONLY.';
COMMENT ON COLUMN finance.breaks.kind IS 'AMOUNT_DIFFERS, CURRENCY_DIFFERS, TYPE_DIFFERS, DUPLICATE_LINE, IN_FILE_ONLY, IN_LEDGER_ONLY, TIMING or AMBIGUOUS.';
COMMENT ON COLUMN finance.breaks.cause IS 'Of IN_FILE_ONLY: NO_EVENT, PARKED, IGNORED, or REJECTED: and the reason.';
COMMENT ON COLUMN finance.breaks.state IS 'open, investigating, resolved, written_off; explained: by a later event or file.';
COMMENT ON COLUMN finance.breaks.reference IS 'Reference of the line, or of the event without a line.';
COMMENT ON COLUMN finance.breaks.issuer_transaction_token IS 'Issuer transaction token of the line or the event.';
COMMENT ON COLUMN finance.breaks.card_transaction_id IS 'The card transaction of the event; null: there is none.';
COMMENT ON COLUMN finance.breaks.sequence IS 'The event of the card transaction.';
COMMENT ON COLUMN finance.breaks.currency IS 'Currency of the line, or of the event without a line.';
COMMENT ON COLUMN finance.breaks.file_amount IS 'Amount of the line, minor units; positive: due to the network.';
COMMENT ON COLUMN finance.breaks.ledger_amount IS 'Amount of the event, minor units of its currency; positive: due to the network.';
COMMENT ON COLUMN finance.breaks.difference IS 'What the file has more than the ledger, minor units of the currency; 0 once it is made up for.';
COMMENT ON COLUMN finance.breaks.ledger_currency IS 'Of CURRENCY_DIFFERS: the currency of the event.';
COMMENT ON COLUMN finance.breaks.ledger_difference IS 'Of CURRENCY_DIFFERS: what the file has more, in the currency of the event.';
COMMENT ON COLUMN finance.breaks.rule IS 'By what the line was matched; null: it is not.';
COMMENT ON COLUMN finance.breaks.age_days IS 'Days since the settlement date, until today (UTC).';
COMMENT ON COLUMN finance.breaks.owner IS 'The person who works on it.';
COMMENT ON COLUMN finance.breaks.opened_at IS 'When it was found.';
COMMENT ON COLUMN finance.breaks.closed_at IS 'When it was resolved, written off or explained.';
COMMENT ON COLUMN finance.breaks.closed_by IS 'The login that did so.';
COMMENT ON COLUMN finance.breaks.candidates IS 'Of AMBIGUOUS: events that the line may be, up to 10.';

CREATE VIEW finance.break_history AS
SELECT h.break_id, h.done_at, h.done_by, h.action, h.note, h.owner, h.difference
FROM break_history h;
COMMENT ON VIEW finance.break_history IS 'What was done about breaks.';
COMMENT ON COLUMN finance.break_history.break_id IS 'The break.';
COMMENT ON COLUMN finance.break_history.done_at IS 'When it was done.';
COMMENT ON COLUMN finance.break_history.done_by IS 'The login that did it.';
COMMENT ON COLUMN finance.break_history.action IS 'ASSIGNED, NOTED, RESOLVED, WRITTEN_OFF or EXPLAINED.';
COMMENT ON COLUMN finance.break_history.note IS 'What the person wrote; of EXPLAINED what explains it.';
COMMENT ON COLUMN finance.break_history.owner IS 'Of ASSIGNED: to whom.';
COMMENT ON COLUMN finance.break_history.difference IS 'Of EXPLAINED: the difference before.';

CREATE VIEW finance.proofs AS
SELECT p.file_id AS network_file_id, p.proved_at, p.currency, p.ledger, p.difference, p.file,
    p.id = max(p.id) OVER (PARTITION BY p.file_id, p.currency) AS is_latest
FROM file_proofs p;
COMMENT ON VIEW finance.proofs IS 'That the ledger and all differences add up to the file, whenever it was matched.';
COMMENT ON COLUMN finance.proofs.network_file_id IS 'The file.';
COMMENT ON COLUMN finance.proofs.proved_at IS 'When it was computed.';
COMMENT ON COLUMN finance.proofs.currency IS 'The currency.';
COMMENT ON COLUMN finance.proofs.ledger IS 'What the ledger has of the network, day and cycle of the file, minor units; positive: due to the network.';
COMMENT ON COLUMN finance.proofs.difference IS 'Sum of the differences of all breaks of the file.';
COMMENT ON COLUMN finance.proofs.file IS 'Control total of the file.';
COMMENT ON COLUMN finance.proofs.is_latest IS 'Whether it is the last one of the file and currency.';

-- What people call to change something is volatile; who may call it is granted one by one.
CREATE FUNCTION finance.begin_file(
    platform_id uuid, network text, file_id text, settlement_date date, cycle text
) RETURNS uuid
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT begin_network_file(begin_file.platform_id, begin_file.network, begin_file.file_id,
        begin_file.settlement_date, begin_file.cycle);
END;
COMMENT ON FUNCTION finance.begin_file(uuid, text, text, date, text) IS 'Begin to import a settlement file, in the database transaction that finishes it. Returns the file; null: it was imported before.';

CREATE FUNCTION finance.add_lines(
    network_file_id uuid, lines text, types text, refs text, network_refs text, tokens text,
    cards text, amounts text, currencies text, merchant_amounts text, merchant_currencies text,
    interchanges text, transaction_dates text, merchants text, mccs text
) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT add_network_lines(add_lines.network_file_id, add_lines.lines, add_lines.types,
        add_lines.refs, add_lines.network_refs, add_lines.tokens, add_lines.cards,
        add_lines.amounts, add_lines.currencies, add_lines.merchant_amounts,
        add_lines.merchant_currencies, add_lines.interchanges, add_lines.transaction_dates,
        add_lines.merchants, add_lines.mccs);
END;
COMMENT ON FUNCTION finance.add_lines(uuid, text, text, text, text, text, text, text, text, text, text, text, text, text, text) IS 'Add lines to a file that is being imported: each argument has one column of them, separated by U+001F.';

CREATE FUNCTION finance.finish_file(network_file_id uuid, sha256 text, totals jsonb) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT finish_network_file(finish_file.network_file_id, finish_file.sha256, finish_file.totals);
END;
COMMENT ON FUNCTION finance.finish_file(uuid, text, jsonb) IS 'Compare the lines with the control totals, {currency: {"lines", "amount", "interchange"}}, and match them.';

CREATE FUNCTION finance.rematch() RETURNS integer
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT rematch_network_files();
END;
COMMENT ON FUNCTION finance.rematch() IS 'Match open breaks with what came later. Returns the number of files.';

CREATE FUNCTION finance.refuse_file(code text, line integer, column_name text, message text)
RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT refuse_network_file(refuse_file.code, refuse_file.line, refuse_file.column_name,
        refuse_file.message);
END;
COMMENT ON FUNCTION finance.refuse_file(text, integer, text, text) IS 'Keep in the audit that a file was refused.';

CREATE FUNCTION finance.assign_break(break_id uuid, person text, note text) RETURNS text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT work_on_break(assign_break.break_id, coalesce(assign_break.person, ''),
        assign_break.note);
END;
COMMENT ON FUNCTION finance.assign_break(uuid, text, text) IS 'Let a person work on a break; the note may be null. Returns its state.';

CREATE FUNCTION finance.note_break(break_id uuid, note text) RETURNS text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT work_on_break(note_break.break_id, NULL, coalesce(note_break.note, ''));
END;
COMMENT ON FUNCTION finance.note_break(uuid, text) IS 'Write down what is known of a break. Returns its state.';

CREATE FUNCTION finance.resolve_break(break_id uuid, state text, note text) RETURNS text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT close_break(resolve_break.break_id, resolve_break.state, resolve_break.note);
END;
COMMENT ON FUNCTION finance.resolve_break(uuid, text, text) IS 'Resolve a break, or write it off, that is not assigned to oneself: resolved or written_off. Returns the state.';
