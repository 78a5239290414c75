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
                OR i.amount::text = r.body ->> 'amount' AND (i.type = r.body ->> 'type'
                    OR (i.type, r.body ->> 'type') IN (('RETURN', 'CLEARING'),
                        ('RETURN_REVERSAL', 'CLEARING_REVERSAL'))))
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
    'FINANCIAL_CREDIT_AUTHORIZATION')
    AND (w.state = 'PARKED' OR w.suspense_id IS NOT NULL OR w.body ->> 'expectedSequence' IS NULL);
