COMMENT ON COLUMN entries.subject_id IS 'The card transaction, deposit, transfer or item of suspense.';
COMMENT ON COLUMN entries.sequence IS 'Event of the card transaction; 0 for a deposit or a transfer; of an item of suspense 0: booked, 1: taken back.';

-- What jsonb cannot hold, U+0000 and half of a surrogate pair, is replaced: type, amount and currency
-- have neither, and a text elsewhere in the message must not hide them.
CREATE OR REPLACE FUNCTION finance.json_or_null(body text) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    RETURN body::jsonb;
EXCEPTION WHEN OTHERS THEN
    BEGIN
        RETURN regexp_replace(body, '(?<!\\)((\\\\)*)\\u(0000|[dD][89a-fA-F][0-9a-fA-F]{2})',
            '\1\\ufffd', 'g')::jsonb;
    EXCEPTION WHEN OTHERS THEN
        RETURN NULL;
    END;
END $body$;
COMMENT ON FUNCTION finance.json_or_null(text) IS 'The text as JSON, with U+FFFD in the place of what it cannot hold; null: it is not JSON.';

-- Which item a rejection without one of its own belongs to: that of its key; of a reused key, that
-- of the same movement. A rejection is settled by an outcome of its key: of its cardholder; where
-- that is not known, of a message that came later, because one that came before is another event.
CREATE OR REPLACE VIEW finance.unapplied WITH (security_barrier) AS
SELECT w.message_id, w.state, w.platform_id, w.source, w.reference, w.body ->> 'type' AS type,
    CASE WHEN jsonb_typeof(w.body -> 'amount') = 'number'
        AND w.body ->> 'amount' ~ '^[0-9]{1,18}$' THEN (w.body ->> 'amount')::bigint END AS amount,
    m.code AS currency,
    w.reason, w.recorded_at,
    (now() AT TIME ZONE 'UTC')::date - (w.recorded_at AT TIME ZONE 'UTC')::date AS age_days,
    w.suspense_id
FROM (
    SELECT r.id AS message_id, 'REJECTED'::text AS state, r.platform_id, r.source, r.reference,
        r.reason, r.body, r.recorded_at,
        CASE WHEN own.id IS NULL THEN of_key.open_id ELSE own.id END AS suspense_id
    FROM (
        SELECT j.id, j.customer_id, j.platform_id, j.source, j.reference, j.reason, j.recorded_at,
            finance.json_or_null(j.body) AS body,
            '00000000-0000-0000-0000-000000000000'::uuid AS unknown
        FROM rejections j
    ) r
    LEFT JOIN suspense_items own ON own.id = r.id
    LEFT JOIN LATERAL (
        SELECT (min(i.id::text) FILTER (WHERE i.resolved_at IS NULL))::uuid AS open_id,
            max(i.resolved_at) AS resolved_at
        FROM suspense_items i
        WHERE own.id IS NULL AND md5(i.reference) = md5(r.reference)
            AND i.reference = r.reference AND i.source = r.source
            AND r.platform_id IN (i.platform_id, r.unknown)
            AND r.customer_id IN (i.customer_id, r.unknown)
            AND (i.reason IS NOT DISTINCT FROM 'KEY_REUSED') = (r.reason = 'KEY_REUSED')
            AND (r.reason <> 'KEY_REUSED'
                OR (i.type, i.amount::text) = (r.body ->> 'type', r.body ->> 'amount'))
    ) of_key ON true
    WHERE CASE WHEN own.id IS NOT NULL THEN own.resolved_at IS NULL
        WHEN of_key.open_id IS NOT NULL THEN true
        WHEN of_key.resolved_at IS NOT NULL THEN false
        ELSE NOT EXISTS (SELECT FROM rejection_retries s WHERE s.rejection_id = r.id)
            AND (r.reason = 'KEY_REUSED' OR NOT EXISTS (
                SELECT FROM outcomes o
                WHERE o.reference = r.reference AND o.source = r.source
                    AND o.platform_id = r.platform_id
                    AND (o.customer_id = r.customer_id OR (r.customer_id = r.unknown
                        AND (r.reason = 'MALFORMED' OR o.message_id > r.id)))
            ))
        END
    UNION ALL
    SELECT p.id, 'PARKED', p.platform_id, p.body ->> 'source', p.body ->> 'reference', NULL,
        finance.json_or_null(p.body::text), p.received_at, i.id
    FROM parked p
    LEFT JOIN suspense_items i ON i.id = p.id AND i.customer_id = p.customer_id
        AND i.resolved_at IS NULL
) w
LEFT JOIN currencies m ON m.code = w.body ->> 'currency'
WHERE w.body ->> 'type' IN ('CLEARING', 'CLEARING_REVERSAL', 'RETURN', 'RETURN_REVERSAL',
    'FINANCIAL_CREDIT_AUTHORIZATION');
COMMENT ON VIEW finance.unapplied IS 'Messages of the network that moved money and were not applied: rejected, or parked until the event comes that they reverse. Not FINANCIAL_AUTHORIZATION: the network is told that it is refused, so nothing has moved.';
COMMENT ON COLUMN finance.unapplied.suspense_id IS 'The open item that has its money in SUSPENSE (`finance.suspense`), which repetitions share; null: card, cardholder or amount cannot be read.';

CREATE VIEW finance.suspense AS
SELECT i.id AS suspense_id, i.platform_id, i.customer_id, i.card_id, i.source, i.reference, i.type,
    i.currency, i.amount,
    CASE WHEN i.resolved_at IS NOT NULL THEN 0
        WHEN i.type IN ('CLEARING', 'RETURN_REVERSAL') THEN -i.amount ELSE i.amount
        END AS open_amount,
    i.cause, i.reason, i.recorded_at, i.posted_on,
    (now() AT TIME ZONE 'UTC')::date
        - least((i.recorded_at AT TIME ZONE 'UTC')::date, i.posted_on) AS age_days,
    i.resolved_at, i.resolved_by
FROM suspense_items i;
COMMENT ON VIEW finance.suspense IS 'Items of SUSPENSE: movements of the network that were rejected or parked, also those that are resolved; the sum of open_amount is the balance of SUSPENSE.';
COMMENT ON COLUMN finance.suspense.suspense_id IS 'The item: the message.';
COMMENT ON COLUMN finance.suspense.platform_id IS 'The platform.';
COMMENT ON COLUMN finance.suspense.customer_id IS 'The cardholder.';
COMMENT ON COLUMN finance.suspense.card_id IS 'The card.';
COMMENT ON COLUMN finance.suspense.source IS 'The sender; null: not readable.';
COMMENT ON COLUMN finance.suspense.reference IS 'Identifier at the sender; null: not readable.';
COMMENT ON COLUMN finance.suspense.type IS 'Type of the event.';
COMMENT ON COLUMN finance.suspense.currency IS 'Currency of the card, in which it is booked.';
COMMENT ON COLUMN finance.suspense.amount IS 'What the network moved, minor units of the currency; always positive.';
COMMENT ON COLUMN finance.suspense.open_amount IS 'Its part of the balance of SUSPENSE, on the credit side, minor units: positive: due to the cardholder; negative: due from the cardholder; 0: resolved.';
COMMENT ON COLUMN finance.suspense.cause IS 'REJECTED or PARKED.';
COMMENT ON COLUMN finance.suspense.reason IS 'Why it was rejected; null: it is parked.';
COMMENT ON COLUMN finance.suspense.recorded_at IS 'When it was booked.';
COMMENT ON COLUMN finance.suspense.posted_on IS 'The day in whose books it was booked.';
COMMENT ON COLUMN finance.suspense.age_days IS 'Days since it was booked, or since `posted_on` if that is earlier, until today (UTC).';
COMMENT ON COLUMN finance.suspense.resolved_at IS 'When it was taken back; null: it is open.';
COMMENT ON COLUMN finance.suspense.resolved_by IS 'The message or adjustment that resolved it; null: it is open.';

CREATE FUNCTION finance.suspense(on_date date, known_at timestamptz)
RETURNS TABLE (
    suspense_id uuid, platform_id uuid, customer_id uuid, card_id uuid, source text, reference text,
    type text, currency text, amount bigint, open_amount bigint, cause text, reason text,
    recorded_at timestamptz, posted_on date, age_days integer
)
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET jit = off
BEGIN ATOMIC
    SELECT i.id, i.platform_id, i.customer_id, i.card_id, i.source, i.reference, i.type, i.currency,
        i.amount, CASE WHEN i.type IN ('CLEARING', 'RETURN_REVERSAL') THEN -i.amount ELSE i.amount
        END, i.cause, i.reason, i.recorded_at, i.posted_on,
        coalesce(suspense.on_date, (now() AT TIME ZONE 'UTC')::date)
            - least((i.recorded_at AT TIME ZONE 'UTC')::date, i.posted_on)
    FROM suspense_items i
    WHERE i.posted_on <= coalesce(suspense.on_date, 'infinity')
        AND i.recorded_at <= coalesce(suspense.known_at, 'infinity')
        AND NOT EXISTS (
            SELECT FROM entries e
            WHERE e.subject_id = i.id AND e.sequence = 1 AND e.customer_id = i.customer_id
                AND e.posted_on <= coalesce(suspense.on_date, 'infinity')
                AND e.recorded_at <= coalesce(suspense.known_at, 'infinity')
        )
    ORDER BY i.recorded_at, i.id;
END;
COMMENT ON FUNCTION finance.suspense(date, timestamptz) IS 'Items that were open in SUSPENSE: booked on or before a day and not taken back by then, as known at a time. Columns as in the view.';
