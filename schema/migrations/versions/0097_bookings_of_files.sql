-- Fees that another line is, of this file or of an earlier one of the network: they are not booked.
CREATE FUNCTION duplicate_fees(file uuid) RETURNS TABLE (line integer)
LANGUAGE plpgsql AS $body$
DECLARE
    f network_files := network_file(file);
BEGIN
    RETURN QUERY
    SELECT l.line FROM (
        SELECT n.line, row_number() OVER (
            PARTITION BY n.reference, n.type, n.currency, n.amount ORDER BY n.line) AS place
        FROM network_lines n
        WHERE n.file_id = f.id AND n.type IN ('FEE', 'FEE_REVERSAL') AND n.reference IS NOT NULL
    ) l WHERE l.place > 1
    UNION
    SELECT n.line
    FROM network_lines n
    JOIN network_lines d ON d.reference = n.reference AND d.type IN ('FEE', 'FEE_REVERSAL')
        AND (d.type, d.currency, d.amount) = (n.type, n.currency, n.amount) AND d.file_id <> f.id
    JOIN network_files g ON g.id = d.file_id AND g.platform_id = f.platform_id
        AND g.network = f.network AND (g.imported_at, g.id) < (f.imported_at, f.id)
    WHERE n.file_id = f.id AND n.type IN ('FEE', 'FEE_REVERSAL') AND n.reference IS NOT NULL;
END $body$;

-- Half-even: halves go to the even neighbour, so that sums of many files do not drift.
CREATE FUNCTION rounded_half_even(amount numeric) RETURNS numeric
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN abs(amount - trunc(amount)) = 0.5 THEN 2 * round(amount / 2) ELSE round(amount) END;

-- What a file books beside its events: interchange and fees, one booking for each currency and
-- direction. The engine makes their entries.
CREATE FUNCTION book_network_file(file uuid) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    f network_files := network_file(file);
BEGIN
    INSERT INTO settlement_bookings (platform_id, file_id, amount, posted_for, kind, currency,
        from_kind, to_kind, network)
    SELECT f.platform_id, f.id, abs(b.amount)::bigint, f.settlement_date, b.kind, b.currency,
        CASE WHEN b.amount > 0 THEN b.from_kind ELSE b.to_kind END,
        CASE WHEN b.amount > 0 THEN b.to_kind ELSE b.from_kind END, f.network
    FROM (
        SELECT 'INTERCHANGE' AS kind, 'NETWORK_SETTLEMENT' AS from_kind, 'INTERCHANGE' AS to_kind,
            t.currency,
            rounded_half_even(t.interchange * ('1e' || y.decimals)::numeric) AS amount
        FROM network_file_totals t JOIN currencies y ON y.code = t.currency
        WHERE t.file_id = f.id
        UNION ALL
        SELECT 'NETWORK_FEES', 'NETWORK_FEES', 'NETWORK_SETTLEMENT', n.currency,
            line_sign(n.type) * sum(n.amount)
        FROM network_lines n
        WHERE n.file_id = f.id AND n.type IN ('FEE', 'FEE_REVERSAL')
            AND n.line NOT IN (SELECT d.line FROM duplicate_fees(f.id) d)
        GROUP BY n.currency, n.type
    ) b
    WHERE b.amount <> 0;
END $body$;
