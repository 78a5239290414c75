-- A reference names an event, a token a purchase, a card and a date only something alike. So events
-- are matched by the rules up to `depth` (1 REFERENCE, 2 TOKEN, 3 CARD) in all files that wait for
-- some, before the next rule is tried in any.
CREATE FUNCTION match_files(files uuid[]) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    other uuid;
BEGIN
    FOR depth IN CASE WHEN cardinality(files) > 1 THEN 1 ELSE 3 END..3 LOOP
        FOREACH other IN ARRAY files LOOP
            IF depth = 3 OR EXISTS (
                SELECT FROM breaks b
                JOIN network_lines n ON n.file_id = b.file_id AND n.line = b.line
                WHERE b.file_id = other AND b.state IN ('open', 'investigating')
                    AND (CASE depth WHEN 1 THEN n.reference
                        ELSE CASE WHEN n.reference IS NULL THEN n.token END END) IS NOT NULL
            ) THEN
                PERFORM match_network_file(other, false, depth);
            END IF;
        END LOOP;
    END LOOP;
    -- An event that one of them has taken may be missing in another one, or tied with an event there.
    FOR depth IN 1..3 LOOP
        SELECT array_agg(DISTINCT b.file_id ORDER BY b.file_id) INTO files
        FROM network_files f
        JOIN network_files g ON g.platform_id = f.platform_id AND g.network = f.network
        JOIN breaks b ON b.file_id = g.id AND b.kind = 'IN_LEDGER_ONLY'
            AND b.state IN ('open', 'investigating')
        WHERE f.id = ANY (files) AND EXISTS (
            SELECT FROM line_matches m
            WHERE m.card_transaction_id = b.card_transaction_id AND m.sequence = b.sequence
        );
        EXIT WHEN files IS NULL;
        FOREACH other IN ARRAY files LOOP
            PERFORM match_network_file(other, false, 3);
        END LOOP;
    END LOOP;
END $body$;

-- Files of the platform that wait for what has come: a line for its event, or an event for a line.
CREATE FUNCTION waiting_files(file uuid, by_reference boolean) RETURNS uuid[]
LANGUAGE plpgsql AS $body$
DECLARE
    f network_files := network_file(file);
BEGIN
    RETURN coalesce((
        SELECT array_agg(g.id ORDER BY g.imported_at, g.id)
        FROM network_files g
        WHERE g.platform_id = f.platform_id AND g.id <> f.id AND EXISTS (
            SELECT FROM breaks b
            LEFT JOIN network_lines n ON n.file_id = b.file_id AND n.line = b.line
            WHERE b.file_id = g.id AND b.state IN ('open', 'investigating') AND CASE
                WHEN b.kind = 'IN_LEDGER_ONLY' THEN NOT by_reference AND EXISTS (
                    SELECT FROM line_matches m
                    WHERE m.card_transaction_id = b.card_transaction_id AND m.sequence = b.sequence
                )
                WHEN b.kind NOT IN ('IN_FILE_ONLY', 'AMBIGUOUS') OR n.type IN ('FEE', 'FEE_REVERSAL')
                    THEN false
                WHEN n.reference IS NULL THEN NOT by_reference
                ELSE EXISTS (
                    SELECT FROM outcomes o JOIN card_transaction_events e
                        ON e.card_transaction_id = o.subject_id AND e.message_id = o.message_id
                    WHERE o.reference = n.reference AND o.platform_id = g.platform_id
                ) OR EXISTS (
                    -- It was parked, of a purchase that was not known, and is applied.
                    SELECT FROM suspense_items i
                    WHERE i.platform_id = g.platform_id AND i.cause = 'PARKED'
                        AND md5(i.reference) = md5(n.reference) AND i.reference = n.reference
                        AND i.resolved_by = i.id
                ) OR (n.reference ~ '^[0-9]{23}$' AND EXISTS (
                    SELECT FROM settlement_details x
                    WHERE x.platform_id = g.platform_id AND x.acquirer_reference = n.reference
                        AND x.settlement_date
                            BETWEEN g.settlement_date - 60 AND g.settlement_date + 60
                ))
            END
        )
    ), '{}');
END $body$;

CREATE OR REPLACE FUNCTION match_again(file uuid) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    PERFORM match_files(waiting_files(file, false));
END $body$;

-- Files with open breaks, and files of open days with events that came after their last proof; an
-- event may be committed a while after the time at which it was recorded.
CREATE OR REPLACE FUNCTION rematch_network_files() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    files uuid[];
BEGIN
    SELECT coalesce(array_agg(f.id ORDER BY f.imported_at, f.id), '{}') INTO files
    FROM network_files f
    WHERE EXISTS (
        SELECT FROM breaks b WHERE b.file_id = f.id AND b.state IN ('open', 'investigating')
    ) OR (f.settlement_date >= (SELECT b.first_open_day - 31 FROM books b) AND EXISTS (
        SELECT FROM settlement_details x
        WHERE x.platform_id = f.platform_id AND x.network = f.network
            AND x.settlement_date = f.settlement_date AND x.recorded_at > (
                SELECT max(p.proved_at) - interval '1 hour' FROM file_proofs p
                WHERE p.file_id = f.id
            )
    ));
    PERFORM match_files(files);
    RETURN cardinality(files);
END $body$;

-- The release before calls it so.
CREATE OR REPLACE FUNCTION match_network_file(file uuid, is_first boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    others uuid[] := '{}';
    other uuid;
BEGIN
    IF is_first THEN
        -- A late event that a line of an earlier file names is not one that is alike to a line here.
        others := waiting_files(file, true);
        FOREACH other IN ARRAY others LOOP
            PERFORM match_network_file(other, false, 1);
        END LOOP;
    END IF;
    PERFORM match_network_file(file, is_first, 3);
    PERFORM match_files(others);
END $body$;

CREATE FUNCTION match_network_file(file uuid, is_first boolean, depth integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET work_mem = '64MB' SET jit = off AS $body$
DECLARE
    f network_files := network_file(file);
    zone text;
BEGIN
    SELECT c.time_zone INTO zone FROM calendars c
    WHERE c.name = f.network AND c.valid_from <= f.settlement_date
    ORDER BY c.valid_from DESC LIMIT 1;
    zone := coalesce(zone, 'UTC');
    PERFORM find_events(file, zone);
    -- A table of the caller with such a name makes this fail.
    CREATE TEMP TABLE new_matches (
        line integer, card_transaction_id uuid, sequence integer, customer_id uuid
    ) ON COMMIT DROP;
    CREATE TEMP TABLE wanted_events (
        card_transaction_id uuid, customer_id uuid, message_id uuid
    ) ON COMMIT DROP;
    CREATE TEMP TABLE ambiguous_lines (line integer) ON COMMIT DROP;
    CREATE TEMP TABLE line_causes (line integer PRIMARY KEY, cause text NOT NULL) ON COMMIT DROP;

    -- Rows that statistics do not know yet are taken for few, and joined one by one with all others.
    IF is_first THEN
        ANALYZE network_lines (file_id, line);
    END IF;
    PERFORM match_equal(file, is_first);
    IF is_first THEN
        ANALYZE line_matches (file_id, line, card_transaction_id, sequence);
    END IF;
    PERFORM match_references(file, zone, is_first);
    IF depth >= 2 THEN
        PERFORM match_tokens(file, zone, is_first);
    END IF;
    IF depth >= 3 THEN
        PERFORM find_card_events(file, zone);
        PERFORM set_card_keys();
        PERFORM match_cards(file);
    END IF;

    PERFORM explain_breaks(file);
    PERFORM open_breaks_of_matches(file);
    IF depth = 3 THEN
        PERFORM find_causes(file);
        PERFORM open_breaks(file);
        PERFORM prove_file(file, is_first);
    END IF;
    DROP TABLE candidate_events, open_events, open_lines, new_matches, wanted_events,
        ambiguous_lines, line_causes;
END $body$;

-- A CHECK refuses any sum that is not true.
CREATE FUNCTION prove_file(file uuid, is_first boolean) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    f network_files := network_file(file);
BEGIN
    INSERT INTO file_proofs (file_id, currency, ledger, difference, file)
    SELECT f.id, c.currency, coalesce(l.amount, 0), coalesce(d.difference, 0), coalesce(t.amount, 0)
    FROM (
        SELECT currency FROM network_file_totals WHERE file_id = f.id
        UNION SELECT currency FROM candidate_events WHERE in_scope AND NOT is_elsewhere
        UNION SELECT currency FROM breaks WHERE file_id = f.id
        UNION SELECT ledger_currency FROM breaks WHERE file_id = f.id AND ledger_currency <> ''
    ) c
    LEFT JOIN network_file_totals t ON t.file_id = f.id AND t.currency = c.currency
    LEFT JOIN ledger_of_file(f.id, is_first) l ON l.currency = c.currency
    LEFT JOIN (
        SELECT b.currency, sum(b.difference) AS difference
        FROM (
            SELECT currency, difference FROM breaks WHERE file_id = f.id
            UNION ALL
            SELECT ledger_currency, ledger_difference FROM breaks
            WHERE file_id = f.id AND ledger_currency IS NOT NULL
        ) b GROUP BY b.currency
    ) d ON d.currency = c.currency;
END $body$;

-- The events of the network, day and cycle of the file.
CREATE FUNCTION find_events(file uuid, zone text) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    f network_files := network_file(file);
BEGIN
    CREATE TEMP TABLE candidate_events ON COMMIT DROP AS
    SELECT e.card_transaction_id, e.sequence, e.customer_id,
        CASE e.kind WHEN 'CLEARED' THEN 'PRESENTMENT'
            WHEN 'CLEARING_REVERSED' THEN 'PRESENTMENT_REVERSAL'
            WHEN 'REFUND_REVERSED' THEN 'CREDIT_REVERSAL' ELSE 'CREDIT' END AS type,
        e.amount, t.currency, o.reference, x.acquirer_reference,
        t.issuer_transaction_token AS token, t.card_id, t.descriptor AS merchant,
        (e.occurred_at AT TIME ZONE zone)::date AS day, true AS in_scope, true AS has_details,
        m.file_id AS matched_by, m.line AS matched_line,
        -- Another file of the same day has it.
        coalesce(g.id <> f.id AND g.network = x.network AND g.settlement_date = x.settlement_date
            AND coalesce(g.cycle = x.cycle, true), false) AS is_elsewhere, NULL::text AS card_key
    FROM settlement_details x
    JOIN card_transaction_events e ON e.card_transaction_id = x.card_transaction_id
        AND e.customer_id = x.customer_id AND e.message_id = x.message_id
        AND e.kind IN ('CLEARED', 'CLEARING_REVERSED', 'REFUNDED', 'CREDITED', 'REFUND_REVERSED')
    JOIN card_transactions t ON (t.id, t.customer_id) = (e.card_transaction_id, e.customer_id)
    LEFT JOIN outcomes o ON o.message_id = x.message_id AND o.customer_id = x.customer_id
    LEFT JOIN line_matches m ON m.card_transaction_id = e.card_transaction_id
        AND m.sequence = e.sequence
    LEFT JOIN network_files g ON g.id = m.file_id
    WHERE x.platform_id = f.platform_id AND x.network = f.network
        AND x.settlement_date = f.settlement_date AND coalesce(x.cycle = f.cycle, true);
    ANALYZE candidate_events;
END $body$;

-- Nearly all lines: the reference is there once among the lines and once among the events, and all
-- else is equal, so is the card where the line has one. Later rounds see what is left: `open_lines`
-- and `open_events`. Pairs of an import are not compared again (`new_matches`).
CREATE FUNCTION match_equal(file uuid, is_first boolean) RETURNS void
LANGUAGE plpgsql SET enable_nestloop = off AS $body$
BEGIN
    CREATE TEMP TABLE open_lines ON COMMIT DROP AS
    SELECT n.line, n.type, n.amount, n.currency, n.reference, n.network_reference, n.token,
        n.card_id, n.merchant, n.transaction_date, NULL::text AS card_key
    FROM network_lines n
    WHERE n.file_id = file AND n.type NOT IN ('FEE', 'FEE_REVERSAL') AND (is_first OR n.line IN (
        SELECT b.line FROM breaks b WHERE b.file_id = file AND b.difference <> 0
            AND b.kind IN ('IN_FILE_ONLY', 'AMBIGUOUS', 'DUPLICATE_LINE')
    ));
    ANALYZE open_lines;
    WITH several AS (
        SELECT l.reference FROM open_lines l GROUP BY l.reference HAVING count(*) > 1
        UNION ALL
        SELECT c.reference FROM candidate_events c WHERE c.matched_by IS NULL
        GROUP BY c.reference HAVING count(*) > 1
    )
    INSERT INTO line_matches (file_id, line, card_transaction_id, sequence, customer_id, rule)
    SELECT file, l.line, c.card_transaction_id, c.sequence, c.customer_id, 'REFERENCE'
    FROM open_lines l JOIN candidate_events c ON c.reference = l.reference AND c.type = l.type
        AND c.currency = l.currency AND c.amount = l.amount
    WHERE c.matched_by IS NULL AND coalesce(l.card_id = c.card_id, true)
        AND NOT EXISTS (SELECT FROM several s WHERE s.reference = l.reference);
    IF NOT is_first THEN
        INSERT INTO new_matches (line, card_transaction_id, sequence, customer_id)
        SELECT m.line, m.card_transaction_id, m.sequence, m.customer_id
        FROM open_lines l JOIN line_matches m ON m.file_id = file AND m.line = l.line;
    END IF;

    CREATE TEMP TABLE open_events ON COMMIT DROP AS
    SELECT c.* FROM candidate_events c
    WHERE c.matched_by IS NULL AND NOT EXISTS (
        SELECT FROM line_matches m WHERE m.file_id = file
            AND m.card_transaction_id = c.card_transaction_id AND m.sequence = c.sequence
    );
    CREATE TEMP TABLE lines_left ON COMMIT DROP AS
    SELECT l.* FROM open_lines l
    WHERE NOT EXISTS (SELECT FROM line_matches m WHERE m.file_id = file AND m.line = l.line);
    TRUNCATE open_lines;
    INSERT INTO open_lines SELECT * FROM lines_left;
    DROP TABLE lines_left;
    ANALYZE open_lines, open_events;
END $body$;

-- The reference of the event, whatever else differs; where no event has it, that of the acquirer.
CREATE FUNCTION match_references(file uuid, zone text, is_first boolean) RETURNS void
LANGUAGE plpgsql AS $body$
DECLARE
    f network_files := network_file(file);
    equal text := 'reference || E''\x1f'' || type || '' '' || currency || '' '' || amount';
    unnamed text := 'NOT EXISTS (SELECT FROM open_events e WHERE e.reference = open_lines.reference)';
    alike text;
BEGIN
    INSERT INTO wanted_events
    SELECT o.subject_id, o.customer_id, o.message_id
    FROM open_lines l JOIN outcomes o ON o.reference = l.reference AND o.platform_id = f.platform_id
    WHERE o.subject_id IS NOT NULL;
    -- What was parked, of a purchase that was not known, and is applied.
    INSERT INTO wanted_events
    SELECT t.id, t.customer_id, i.id
    FROM open_lines l
    JOIN suspense_items i ON md5(i.reference) = md5(l.reference) AND i.reference = l.reference
        AND i.platform_id = f.platform_id AND i.cause = 'PARKED' AND i.resolved_by = i.id
    JOIN card_transactions t ON t.customer_id = i.customer_id AND t.card_id = i.card_id
        AND t.updated_at >= i.resolved_at;
    IF EXISTS (SELECT FROM open_lines l WHERE l.reference ~ '^[0-9]{23}$') THEN
        INSERT INTO wanted_events
        SELECT x.card_transaction_id, x.customer_id, x.message_id
        FROM settlement_details x
        WHERE x.platform_id = f.platform_id
            AND x.settlement_date BETWEEN f.settlement_date - 60 AND f.settlement_date + 60
            AND x.acquirer_reference IN (SELECT l.reference FROM open_lines l);
    END IF;
    PERFORM add_events(zone, f.network);
    PERFORM match_round(file, 'REFERENCE', equal || ' || coalesce(card_id::text, '''')',
        equal || ' || card_id', 'card_id IS NOT NULL', false, NOT is_first);
    PERFORM match_round(file, 'REFERENCE', equal, equal, 'true', false, NOT is_first);
    FOREACH alike IN ARRAY ARRAY[
        'reference || E''\x1f'' || type || '' '' || currency',
        'reference || E''\x1f'' || currency', 'reference || E''\x1f'' || type', 'reference'
    ] LOOP
        PERFORM match_round(file, 'REFERENCE', alike, alike, 'true', true, NOT is_first);
    END LOOP;
    PERFORM match_round(file, 'REFERENCE', equal, 'acquirer_' || equal, unnamed, false, NOT is_first);
    FOREACH alike IN ARRAY ARRAY[
        'reference || E''\x1f'' || type || '' '' || currency', 'reference || E''\x1f'' || type'
    ] LOOP
        PERFORM match_round(file, 'REFERENCE', alike, 'acquirer_' || alike, unnamed, true,
            NOT is_first);
    END LOOP;
END $body$;

CREATE FUNCTION match_tokens(file uuid, zone text, is_first boolean) RETURNS void
LANGUAGE plpgsql AS $body$
DECLARE
    f network_files := network_file(file);
    equal text := 'token || E''\x1f'' || type || '' '' || currency || '' '' || amount';
BEGIN
    PERFORM match_round(file, 'TOKEN', equal, equal, 'reference IS NULL', false, NOT is_first);
    PERFORM rewrite_open();
    INSERT INTO wanted_events
    SELECT t.id, t.customer_id, NULL
    FROM open_lines l
    JOIN cards c ON c.id = l.card_id AND c.platform_id = f.platform_id
    JOIN card_transactions t ON t.customer_id = c.customer_id AND t.card_id = c.id
        AND t.issuer_transaction_token = l.token
    WHERE l.reference IS NULL;
    IF EXISTS (SELECT FROM open_lines l WHERE l.reference IS NULL AND l.card_id IS NULL
        AND l.token IS NOT NULL)
    THEN
        INSERT INTO wanted_events
        SELECT t.id, t.customer_id, NULL
        FROM card_transactions t
        WHERE t.platform_id = f.platform_id AND t.issuer_transaction_token IN (
            SELECT l.token FROM open_lines l
            WHERE l.reference IS NULL AND l.card_id IS NULL AND l.token IS NOT NULL
        );
    END IF;
    PERFORM add_events(zone, f.network);
    PERFORM match_round(file, 'TOKEN', equal, equal, 'reference IS NULL', false, NOT is_first);
END $body$;

-- Events of the cards of lines that have nothing else, whatever their day.
CREATE FUNCTION find_card_events(file uuid, zone text) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    f network_files := network_file(file);
BEGIN
    PERFORM rewrite_open();
    INSERT INTO wanted_events
    SELECT t.id, t.customer_id, NULL
    FROM (
        SELECT l.card_id, min(l.transaction_date) AS first, max(l.transaction_date) AS last
        FROM open_lines l
        WHERE num_nonnulls(l.reference, l.token) = 0
            AND num_nulls(l.card_id, l.merchant, l.transaction_date) = 0
        GROUP BY l.card_id
    ) l
    JOIN cards c ON c.id = l.card_id AND c.platform_id = f.platform_id
    JOIN card_transactions t ON t.customer_id = c.customer_id AND t.card_id = c.id
        AND t.updated_at >= l.first - 5;
    PERFORM add_events(zone, f.network);
END $body$;

-- Nearest dates first, at most three days apart. Where a day of lines has events on both sides, or a
-- day of events lines on both sides, nothing says which belong together: they are set aside, so that
-- no line further away takes one of them, and such a line is as ambiguous.
CREATE OR REPLACE FUNCTION match_cards(file uuid) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    CREATE TEMP TABLE tied_days (key text, day date) ON COMMIT DROP;
    FOR days IN 0..3 LOOP
        CREATE TEMP TABLE day_pairs ON COMMIT DROP AS
        SELECT p.*, count(*) OVER (PARTITION BY p.key, p.line_day) AS days_of_events,
            count(*) OVER (PARTITION BY p.key, p.event_day) AS days_of_lines
        FROM (
            SELECT l.key, l.day AS line_day, e.day AS event_day
            FROM (SELECT DISTINCT card_key AS key, transaction_date AS day FROM open_lines
                WHERE card_key IS NOT NULL) l
            JOIN (SELECT DISTINCT card_key AS key, day FROM open_events
                WHERE card_key IS NOT NULL) e ON e.key = l.key AND abs(l.day - e.day) = days
        ) p;
        INSERT INTO ambiguous_lines
        SELECT DISTINCT l.line FROM open_lines l JOIN day_pairs p
            ON p.key = l.card_key AND p.line_day = l.transaction_date
        WHERE p.days_of_events > 1 OR p.days_of_lines > 1;
        INSERT INTO tied_days
        SELECT DISTINCT p.key, p.event_day FROM day_pairs p
        WHERE p.days_of_events > 1 OR p.days_of_lines > 1;
        UPDATE open_lines l SET card_key = NULL FROM ambiguous_lines a WHERE a.line = l.line;
        UPDATE open_events e SET card_key = NULL FROM tied_days d
        WHERE d.key = e.card_key AND d.day = e.day;
        WITH l AS (
            SELECT o.line, o.card_key AS key, o.transaction_date AS day, row_number() OVER (
                PARTITION BY o.card_key, o.transaction_date ORDER BY o.line) AS n
            FROM open_lines o WHERE o.card_key IS NOT NULL
        ), e AS (
            SELECT o.*, row_number() OVER (PARTITION BY o.card_key, o.day
                ORDER BY o.in_scope DESC, o.card_transaction_id, o.sequence) AS n
            FROM open_events o WHERE o.card_key IS NOT NULL
        ), pairs AS MATERIALIZED (
            SELECT l.line, e.card_transaction_id, e.sequence, e.customer_id
            FROM day_pairs p
            JOIN l ON l.key = p.key AND l.day = p.line_day
            JOIN e ON e.card_key = p.key AND e.day = p.event_day AND e.n = l.n
        ), compared AS (
            INSERT INTO new_matches (line, card_transaction_id, sequence, customer_id)
            SELECT * FROM pairs
        ), lines_of_pairs AS (
            DELETE FROM open_lines o USING pairs p WHERE p.line = o.line
        ), events_of_pairs AS (
            DELETE FROM open_events o USING pairs p
            WHERE (p.card_transaction_id, p.sequence) = (o.card_transaction_id, o.sequence)
        )
        INSERT INTO line_matches (file_id, line, card_transaction_id, sequence, customer_id, rule)
        SELECT file, p.line, p.card_transaction_id, p.sequence, p.customer_id, 'CARD' FROM pairs p;
        DROP TABLE day_pairs;
    END LOOP;
    INSERT INTO ambiguous_lines
    SELECT DISTINCT l.line FROM open_lines l JOIN tied_days d ON d.key = l.card_key
        AND abs(l.transaction_date - d.day) <= 3;
    DROP TABLE tied_days;
END $body$;

CREATE FUNCTION open_breaks_of_matches(file uuid) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    f network_files := network_file(file);
BEGIN
    -- Matched, on another day: what the event adds to this day is explained.
    INSERT INTO breaks (file_id, line, card_transaction_id, sequence, customer_id, kind, currency,
        ledger_amount, difference, state, closed_at, closed_by)
    SELECT f.id, m.line, m.card_transaction_id, m.sequence, m.customer_id, 'TIMING', c.currency,
        line_sign(c.type) * c.amount, line_sign(c.type) * c.amount, 'explained', now(), session_user
    FROM new_matches m
    JOIN candidate_events c ON (c.card_transaction_id, c.sequence)
        = (m.card_transaction_id, m.sequence)
    WHERE NOT c.in_scope AND c.has_details;
    -- Matched, and different.
    INSERT INTO breaks (file_id, line, card_transaction_id, sequence, customer_id, kind, currency,
        file_amount, ledger_amount, difference, ledger_currency, ledger_difference, state)
    SELECT f.id, d.line, d.card_transaction_id, d.sequence, d.customer_id,
        CASE WHEN d.currency <> d.ledger_currency THEN 'CURRENCY_DIFFERS'
            WHEN d.type <> d.ledger_type THEN 'TYPE_DIFFERS' ELSE 'AMOUNT_DIFFERS' END,
        d.currency, d.amount, d.ledger_amount,
        d.amount::numeric
            - CASE WHEN d.currency = d.ledger_currency THEN d.ledger_amount ELSE 0 END,
        CASE WHEN d.currency <> d.ledger_currency THEN d.ledger_currency END,
        CASE WHEN d.currency <> d.ledger_currency THEN -d.ledger_amount END, 'open'
    FROM (
        SELECT m.*, n.currency, n.type, line_sign(n.type) * n.amount AS amount,
            c.currency AS ledger_currency, c.type AS ledger_type,
            line_sign(c.type) * c.amount AS ledger_amount
        FROM new_matches m
        JOIN network_lines n ON n.file_id = f.id AND n.line = m.line
        JOIN candidate_events c ON (c.card_transaction_id, c.sequence)
            = (m.card_transaction_id, m.sequence)
    ) d
    WHERE (d.currency, d.type, d.amount) <> (d.ledger_currency, d.ledger_type, d.ledger_amount);
END $body$;

CREATE OR REPLACE FUNCTION open_breaks(file uuid) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    f network_files := network_file(file);
BEGIN
    PERFORM open_breaks_of_lines(file);
    -- What is left of the events of the day, and what is a line of another file.
    INSERT INTO breaks (file_id, card_transaction_id, sequence, customer_id, kind, currency,
        ledger_amount, difference, state, closed_at, closed_by)
    SELECT f.id, c.card_transaction_id, c.sequence, c.customer_id, 'IN_LEDGER_ONLY', c.currency,
        line_sign(c.type) * c.amount, -line_sign(c.type) * c.amount,
        CASE WHEN c.matched_by IS NULL THEN 'open' ELSE 'explained' END,
        CASE WHEN c.matched_by IS NOT NULL THEN now() END,
        CASE WHEN c.matched_by IS NOT NULL THEN session_user END
    FROM (
        SELECT * FROM open_events
        UNION ALL
        SELECT * FROM candidate_events WHERE matched_by <> f.id
    ) c
    WHERE c.in_scope AND NOT c.is_elsewhere
    ON CONFLICT (file_id, card_transaction_id, sequence) WHERE line IS NULL DO NOTHING;
END $body$;

-- Open lines that another line, of this file or an earlier one, is: it has the event, or stood here
-- before it.
CREATE OR REPLACE FUNCTION duplicate_lines(file uuid) RETURNS TABLE (line integer)
LANGUAGE plpgsql AS $body$
DECLARE
    f network_files := network_file(file);
BEGIN
    RETURN QUERY
    WITH earlier AS (
        SELECT d.*
        FROM network_files g
        JOIN breaks b ON b.file_id = g.id AND b.kind = 'IN_FILE_ONLY' AND b.difference <> 0
        JOIN network_lines d ON d.file_id = b.file_id AND d.line = b.line
        WHERE g.platform_id = f.platform_id AND g.network = f.network
            AND (g.imported_at, g.id) < (f.imported_at, f.id)
            AND g.settlement_date BETWEEN f.settlement_date - 60 AND f.settlement_date + 60
    )
    SELECT l.line FROM open_lines l JOIN candidate_events c ON c.reference = l.reference
    JOIN line_matches m ON (m.card_transaction_id, m.sequence) = (c.card_transaction_id, c.sequence)
    UNION
    SELECT l.line FROM open_lines l JOIN candidate_events c ON c.acquirer_reference = l.reference
        AND c.type = l.type
    JOIN line_matches m ON (m.card_transaction_id, m.sequence) = (c.card_transaction_id, c.sequence)
    UNION
    SELECT l.line FROM (
        SELECT o.line, row_number() OVER (PARTITION BY o.reference, o.type ORDER BY o.line) AS n
        FROM open_lines o WHERE o.reference IS NOT NULL
    ) l WHERE l.n > 1
    UNION
    -- A line without a reference is another one when everything in it is equal.
    SELECT l.line FROM (
        SELECT o.line, row_number() OVER (PARTITION BY o.type, o.currency, o.amount, o.token,
            o.card_id, o.network_reference, o.transaction_date, o.merchant ORDER BY o.line) AS n
        FROM open_lines o WHERE o.reference IS NULL
    ) l WHERE l.n > 1
    UNION
    SELECT l.line FROM open_lines l JOIN earlier d ON d.reference = l.reference AND d.type = l.type
    UNION
    SELECT l.line FROM open_lines l
    JOIN earlier d ON (d.type, d.currency, d.amount) = (l.type, l.currency, l.amount)
    WHERE num_nonnulls(d.reference, l.reference) = 0
        AND (d.token, d.card_id, d.network_reference, d.transaction_date, d.merchant)
        IS NOT DISTINCT FROM
            (l.token, l.card_id, l.network_reference, l.transaction_date, l.merchant)
    UNION
    SELECT l.line FROM open_lines l
    JOIN candidate_events c ON (c.token, c.type, c.currency, c.amount)
        = (l.token, l.type, l.currency, l.amount)
    JOIN line_matches m ON (m.card_transaction_id, m.sequence) = (c.card_transaction_id, c.sequence)
    JOIN network_lines d ON d.file_id = m.file_id AND d.line = m.line
    WHERE l.reference IS NULL AND (d.type, d.currency, d.amount, d.reference,
            d.token, d.card_id, d.network_reference, d.transaction_date, d.merchant)
        IS NOT DISTINCT FROM (l.type, l.currency, l.amount, l.reference, l.token, l.card_id,
            l.network_reference, l.transaction_date, l.merchant)
    UNION
    SELECT l.line FROM open_lines l
    JOIN candidate_events c ON (c.card_id, c.type, c.currency, c.amount)
        = (l.card_id, l.type, l.currency, l.amount)
    JOIN line_matches m ON (m.card_transaction_id, m.sequence) = (c.card_transaction_id, c.sequence)
    JOIN network_lines d ON d.file_id = m.file_id AND d.line = m.line
    WHERE num_nonnulls(l.reference, l.token) = 0 AND (d.type, d.currency, d.amount, d.reference,
            d.token, d.card_id, d.network_reference, d.transaction_date, d.merchant)
        IS NOT DISTINCT FROM (l.type, l.currency, l.amount, l.reference, l.token, l.card_id,
            l.network_reference, l.transaction_date, l.merchant);
END $body$;
