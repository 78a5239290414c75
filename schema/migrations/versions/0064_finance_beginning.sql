CREATE FUNCTION finance.begin_books(first_day date) RETURNS date
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT begin_books(begin_books.first_day);
END;
COMMENT ON FUNCTION finance.begin_books(date) IS 'Let the books begin on a day: a movement of an earlier day is posted on it. Before the first closing, and while no entry would have another posting day.';

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
FROM seals s;
COMMENT ON VIEW finance.audit IS 'Who did what: calendars, people with a login, the beginning of the books, adjustments, closings and reopenings of periods.';
COMMENT ON COLUMN finance.audit.action IS 'CALENDAR_SET, PERSON_ADDED, PERSON_REMOVED, BOOKS_BEGUN, ADJUSTMENT_PREPARED, ADJUSTMENT_APPROVED, ADJUSTMENT_REJECTED, CLOSE_PREPARED, CLOSE_APPROVED, CLOSE_REJECTED, CLOSE_SEALED, REOPEN_PREPARED, REOPEN_APPROVED or REOPEN_REJECTED.';
COMMENT ON COLUMN finance.audit.subject IS 'The calendar, the person, the day, the adjustment, the closing or the reopening.';
COMMENT ON COLUMN finance.audit.detail IS 'What it was about: of a calendar or a person what it was changed to, of an adjustment what is booked and why, of a period its days, reasons and seal.';
