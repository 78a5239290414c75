-- An entry of the platform alone has no customer.
CREATE OR REPLACE VIEW finance.journal AS
SELECT e.subject_id || ':' || e.sequence || ':' || e.line AS entry_id,
    coalesce(d.platform_id, c.platform_id) AS platform_id,
    e.posted_on, e.occurred_at, e.recorded_at,
    coalesce(f.kind, CASE WHEN 'TRANSFERS' IN (d.kind, c.kind) THEN 'TRANSFERRED'
        WHEN e.customer_id = '00000000-0000-0000-0000-000000000000' THEN 'ADJUSTED'
        WHEN 'SUSPENSE' IN (d.kind, c.kind) THEN
            CASE e.sequence WHEN 0 THEN 'SUSPENDED' ELSE 'SUSPENSE_RESOLVED' END
        WHEN p.id IS NOT NULL THEN 'DEPOSITED' ELSE 'BOOKED' END) AS event,
    e.debit_account_id, coalesce(d.kind, 'CUSTOMER') AS debit_kind, dc.class AS debit_class,
    e.credit_account_id, coalesce(c.kind, 'CUSTOMER') AS credit_kind, cc.class AS credit_class,
    e.amount, e.amount * ('1e-' || m.decimals)::numeric AS amount_decimal,
    coalesce(d.currency, c.currency) AS currency,
    nullif(e.customer_id, '00000000-0000-0000-0000-000000000000') AS customer_id,
    t.card_id, t.descriptor AS merchant,
    (
        SELECT o.source FROM outcomes o
        WHERE o.message_id = coalesce(f.message_id, p.message_id) AND o.customer_id = e.customer_id
        LIMIT 1
    ) AS source,
    coalesce(p.external_reference, (
        SELECT o.reference FROM outcomes o
        WHERE o.message_id = coalesce(f.message_id, p.message_id) AND o.customer_id = e.customer_id
        LIMIT 1
    )) AS reference,
    e.subject_id, e.sequence, e.line, e.late_from
FROM entries e
LEFT JOIN system_accounts d ON d.id = e.debit_account_id
LEFT JOIN system_accounts c ON c.id = e.credit_account_id
LEFT JOIN chart_of_accounts dc ON dc.kind = coalesce(d.kind, 'CUSTOMER')
LEFT JOIN chart_of_accounts cc ON cc.kind = coalesce(c.kind, 'CUSTOMER')
LEFT JOIN currencies m ON m.code = coalesce(d.currency, c.currency)
LEFT JOIN card_transaction_events f ON f.card_transaction_id = e.subject_id
    AND f.sequence = e.sequence AND f.customer_id = e.customer_id
LEFT JOIN card_transactions t ON t.id = e.subject_id AND t.customer_id = e.customer_id
LEFT JOIN deposits p ON p.id = e.subject_id AND p.customer_id = e.customer_id;
COMMENT ON COLUMN finance.journal.event IS 'What happened: CLEARED, PULLED, RELEASED, REFUNDED, DEPOSITED, TRANSFERRED, SUSPENDED, SUSPENSE_RESOLVED, ADJUSTED, ...';
COMMENT ON COLUMN finance.journal.subject_id IS 'The card transaction, deposit, transfer, suspended message or adjustment.';

-- What is in the way of closing a period that ends on `last_day`; a kind can have several rows.
CREATE FUNCTION closing_findings(from_day date, to_day date)
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
    GROUP BY s.platform_id, s.currency, y.decimals HAVING sum(m.amount) <> 0;
END;

CREATE FUNCTION closing_trial_balance(day date) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT coalesce(jsonb_agg(jsonb_build_object('account', b.account, 'class', b.class,
        'currency', b.currency, 'debits', b.debits::text, 'credits', b.credits::text,
        'net', b.net::text) ORDER BY b.currency, b.account), '[]')
    FROM finance.trial_balance(day, NULL, NULL) b;
END;

CREATE VIEW finance.periods WITH (security_barrier) AS
SELECT c.id AS closing_id, c.first_day, c.last_day, c.state, c.prepared_at, c.prepared_by,
    c.decided_at, c.decided_by, c.decision_reason,
    (
        SELECT jsonb_agg(jsonb_build_object('kind', x.kind, 'reason', x.reason, 'found', x.found)
            ORDER BY x.kind)
        FROM closing_exceptions x WHERE x.closing_id = c.id
    ) AS exceptions,
    s.sealed_at, s.sealed_by, s.version AS seal_version, s.sha256, s.entries, s.late_entries,
    s.trial_balance
FROM closings c LEFT JOIN seals s ON s.closing_id = c.id
WHERE c.kind = 'CLOSE';
COMMENT ON VIEW finance.periods IS 'Closings of periods, those that were rejected or reopened too; a period that was reopened and closed again has two.';
COMMENT ON COLUMN finance.periods.closing_id IS 'The closing.';
COMMENT ON COLUMN finance.periods.first_day IS 'First day.';
COMMENT ON COLUMN finance.periods.last_day IS 'Last day.';
COMMENT ON COLUMN finance.periods.state IS 'PREPARED, then REJECTED, or APPROVED (closed), SEALED, and REOPENED when it was taken back.';
COMMENT ON COLUMN finance.periods.prepared_at IS 'When it was prepared.';
COMMENT ON COLUMN finance.periods.prepared_by IS 'The login that prepared it.';
COMMENT ON COLUMN finance.periods.decided_at IS 'When it was approved or rejected: no entry of a later time is in a closed period.';
COMMENT ON COLUMN finance.periods.decided_by IS 'The login that approved or rejected it.';
COMMENT ON COLUMN finance.periods.decision_reason IS 'Why it was rejected.';
COMMENT ON COLUMN finance.periods.exceptions IS 'What was in the way and allowed: kind, reason, and how many were found; null: nothing.';
COMMENT ON COLUMN finance.periods.sealed_at IS 'When it was sealed; null: not yet.';
COMMENT ON COLUMN finance.periods.sealed_by IS 'The login that sealed it.';
COMMENT ON COLUMN finance.periods.seal_version IS 'Version of the columns that sha256 is made of.';
COMMENT ON COLUMN finance.periods.sha256 IS 'SHA-256 of its entries, hexadecimal.';
COMMENT ON COLUMN finance.periods.entries IS 'Number of its entries.';
COMMENT ON COLUMN finance.periods.late_entries IS 'Number of them that are late: of a period closed before.';
COMMENT ON COLUMN finance.periods.trial_balance IS 'Trial balance at the last day; amounts are text, minor units.';

CREATE VIEW finance.reopenings WITH (security_barrier) AS
SELECT c.id AS reopening_id, c.closing_id, c.first_day, c.last_day, c.state, c.reason,
    c.prepared_at, c.prepared_by, c.decided_at, c.decided_by, c.decision_reason
FROM closings c WHERE c.kind = 'REOPEN';
COMMENT ON VIEW finance.reopenings IS 'Requests to reopen a closed period.';
COMMENT ON COLUMN finance.reopenings.reopening_id IS 'The reopening.';
COMMENT ON COLUMN finance.reopenings.closing_id IS 'The closing that it takes back.';
COMMENT ON COLUMN finance.reopenings.first_day IS 'First day of the period.';
COMMENT ON COLUMN finance.reopenings.last_day IS 'Last day of the period.';
COMMENT ON COLUMN finance.reopenings.state IS 'PREPARED, then REOPENED or REJECTED.';
COMMENT ON COLUMN finance.reopenings.reason IS 'Why the period is to be reopened.';
COMMENT ON COLUMN finance.reopenings.prepared_at IS 'When it was prepared.';
COMMENT ON COLUMN finance.reopenings.prepared_by IS 'The login that prepared it.';
COMMENT ON COLUMN finance.reopenings.decided_at IS 'When it was approved or rejected.';
COMMENT ON COLUMN finance.reopenings.decided_by IS 'The login that approved or rejected it.';
COMMENT ON COLUMN finance.reopenings.decision_reason IS 'Why it was rejected.';

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
FROM seals s;
COMMENT ON VIEW finance.audit IS 'Who did what: calendars, people with a login, closings and reopenings of periods.';
COMMENT ON COLUMN finance.audit.recorded_at IS 'When it was done.';
COMMENT ON COLUMN finance.audit.person IS 'The login that did it.';
COMMENT ON COLUMN finance.audit.action IS 'CALENDAR_SET, PERSON_ADDED, PERSON_REMOVED, CLOSE_PREPARED, CLOSE_APPROVED, CLOSE_REJECTED, CLOSE_SEALED, REOPEN_PREPARED, REOPEN_APPROVED or REOPEN_REJECTED.';
COMMENT ON COLUMN finance.audit.subject IS 'The calendar, the person, the closing or the reopening.';
COMMENT ON COLUMN finance.audit.detail IS 'What it was about: of a calendar or a person what it was changed to, of a period its days, reasons and seal.';

CREATE FUNCTION finance.in_the_way(first_day date, last_day date)
RETURNS TABLE (kind text, found bigint, detail text, meaning text, remedy text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT f.kind, f.found, f.detail, k.meaning, k.remedy
    FROM closing_findings(in_the_way.first_day, in_the_way.last_day) f
    JOIN closing_kinds k ON k.kind = f.kind ORDER BY f.kind, f.detail;
END;
COMMENT ON FUNCTION finance.in_the_way(date, date) IS 'What is in the way of closing the days, and how to clear it.';

CREATE FUNCTION finance.first_open_day() RETURNS date
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT b.first_open_day FROM books b;
END;
COMMENT ON FUNCTION finance.first_open_day() IS 'The first day that is not closed.';

-- What people call to change something is volatile; who may call it is granted one by one.
CREATE FUNCTION finance.prepare_closing(first_day date, last_day date, allowed jsonb) RETURNS uuid
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT prepare_closing(prepare_closing.first_day, prepare_closing.last_day, prepare_closing.allowed);
END;
COMMENT ON FUNCTION finance.prepare_closing(date, date, jsonb) IS 'Prepare to close the open days up to the last one; allowed: [{"kind", "reason"}], what may be in the way. Returns the closing, which another person approves.';

CREATE FUNCTION finance.prepare_reopening(closing_id uuid, reason text) RETURNS uuid
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT prepare_reopening(prepare_reopening.closing_id, prepare_reopening.reason);
END;
COMMENT ON FUNCTION finance.prepare_reopening(uuid, text) IS 'Prepare to take the last closing back. Returns the reopening, which another person approves.';

CREATE FUNCTION finance.approve_closing(id uuid) RETURNS text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT approve_closing(approve_closing.id);
END;
COMMENT ON FUNCTION finance.approve_closing(uuid) IS 'Close or reopen the period that another person has prepared. Returns the state; APPROVED: seal it next.';

CREATE FUNCTION finance.seal_closing(id uuid, version integer, sha256 text, entries bigint) RETURNS text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT seal_closing(seal_closing.id, seal_closing.version, seal_closing.sha256, seal_closing.entries);
END;
COMMENT ON FUNCTION finance.seal_closing(uuid, integer, text, bigint) IS 'Keep what was computed of the entries of a closed period, with its trial balance. Returns the state.';

CREATE FUNCTION finance.reject_closing(id uuid, reason text) RETURNS text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT reject_closing(reject_closing.id, reject_closing.reason);
END;
COMMENT ON FUNCTION finance.reject_closing(uuid, text) IS 'Reject a closing or a reopening that another person has prepared. Returns the state.';
