-- Why lines that name no message of the ledger have no event: a parked or rejected one is it, by its
-- acquirer reference, or by token, or by card and merchant, with the same type and amount. A wrong
-- currency may be why it was rejected.
CREATE FUNCTION find_causes(file uuid) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    f network_files := network_file(file);
BEGIN
    IF NOT EXISTS (
        SELECT FROM open_lines l WHERE l.reference IS NULL OR l.reference ~ '^[0-9]{23}$'
    ) THEN
        RETURN;
    END IF;
    WITH message AS MATERIALIZED (
        SELECT m.*, CASE m.kind WHEN 'CLEARING' THEN 'PRESENTMENT'
                WHEN 'CLEARING_REVERSAL' THEN 'PRESENTMENT_REVERSAL'
                WHEN 'RETURN_REVERSAL' THEN 'CREDIT_REVERSAL' ELSE 'CREDIT' END AS type
        FROM (
            SELECT i.id, i.recorded_at, i.card_id, i.type AS kind, i.amount, b.body,
                CASE i.cause WHEN 'PARKED' THEN 'PARKED' ELSE 'REJECTED:' || i.reason END AS cause
            FROM suspense_items i
            LEFT JOIN parked p ON p.id = i.id AND p.customer_id = i.customer_id
            LEFT JOIN rejections r ON r.id = i.id
            CROSS JOIN LATERAL (
                SELECT coalesce(p.body::jsonb, finance.json_or_null(r.body)) AS body
            ) b
            WHERE i.platform_id = f.platform_id AND i.resolved_at IS NULL
                AND coalesce(i.network = f.network, true) AND coalesce(
                    i.settlement_date BETWEEN f.settlement_date - 10 AND f.settlement_date + 10, true)
        ) m
    )
    INSERT INTO line_causes (line, cause)
    SELECT DISTINCT ON (c.line) c.line, c.cause
    FROM (
        SELECT l.line, m.cause, m.recorded_at FROM open_lines l JOIN message m
            ON m.body -> 'settlement' ->> 'acquirerReference' = l.reference AND m.type = l.type
        UNION ALL
        SELECT l.line, m.cause, m.recorded_at FROM open_lines l JOIN message m
            ON m.body ->> 'issuerTransactionToken' = l.token AND m.type = l.type
            AND m.amount = l.amount
        WHERE l.reference IS NULL
        UNION ALL
        SELECT l.line, m.cause, m.recorded_at FROM open_lines l JOIN message m
            ON m.card_id = l.card_id AND m.type = l.type AND m.amount = l.amount
            AND coalesce(
                folded(m.body -> 'merchant' ->> 'descriptor') = folded(l.merchant), true)
        WHERE num_nonnulls(l.reference, l.token) = 0
    ) c
    ORDER BY c.line, c.recorded_at DESC;
END $body$;
