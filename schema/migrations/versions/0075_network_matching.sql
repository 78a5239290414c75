CREATE FUNCTION line_sign(type text) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN type IN ('PRESENTMENT', 'CREDIT_REVERSAL', 'FEE') THEN 1 ELSE -1 END;

CREATE FUNCTION folded(merchant text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN upper(regexp_replace(merchant, '\s+', '', 'g'));

-- A network is known by its calendar, or by an event.
CREATE FUNCTION begin_network_file(
    platform uuid, network_name text, file text, day date, settlement_cycle text
) RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    made uuid;
BEGIN
    IF NOT EXISTS (SELECT FROM platforms p WHERE p.id = platform) THEN
        RAISE EXCEPTION 'there is no platform %', coalesce(platform::text, 'null')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF NOT EXISTS (SELECT FROM calendars c WHERE c.name = network_name)
        AND NOT EXISTS (SELECT FROM settlement_details x WHERE x.network = network_name)
    THEN
        RAISE EXCEPTION 'network % has no calendar and no event: set its calendar with'
            ' `cardledger calendar set`', network_name USING ERRCODE = 'CL005';
    END IF;
    INSERT INTO network_files (platform_id, network, file_id, settlement_date, cycle)
    VALUES (platform, network_name, file, day, settlement_cycle)
    ON CONFLICT (platform_id, network, file_id) DO NOTHING RETURNING id INTO made;
    RETURN made;
END $body$;

-- A field of the file is an element of a text that U+001F separates: no line has it.
CREATE FUNCTION add_network_lines(
    file uuid, lines text, types text, refs text, network_refs text, tokens text, cards text,
    amounts text, codes text, merchant_amounts text, merchant_codes text, interchanges text,
    dates text, merchants text, mccs text
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $body$
BEGIN
    IF NOT EXISTS (SELECT FROM network_files f WHERE f.id = file AND f.digest IS NULL) THEN
        RAISE EXCEPTION 'there is no file % that is being imported', coalesce(file::text, 'null')
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    INSERT INTO network_lines (file_id, line, type, reference, network_reference, token, card_id,
        amount, currency, merchant_amount, merchant_currency, interchange, transaction_date,
        merchant, mcc)
    SELECT file, n.line::integer, n.type, n.reference, n.network_reference, n.token, n.card::uuid,
        n.amount::bigint, n.code, n.merchant_amount::bigint, n.merchant_code,
        n.interchange::numeric, n.day::date, n.merchant, n.mcc
    FROM unnest(string_to_array(lines, E'\x1f', ''), string_to_array(types, E'\x1f', ''),
        string_to_array(refs, E'\x1f', ''), string_to_array(network_refs, E'\x1f', ''),
        string_to_array(tokens, E'\x1f', ''), string_to_array(cards, E'\x1f', ''),
        string_to_array(amounts, E'\x1f', ''), string_to_array(codes, E'\x1f', ''),
        string_to_array(merchant_amounts, E'\x1f', ''),
        string_to_array(merchant_codes, E'\x1f', ''), string_to_array(interchanges, E'\x1f', ''),
        string_to_array(dates, E'\x1f', ''), string_to_array(merchants, E'\x1f', ''),
        string_to_array(mccs, E'\x1f', '')
    ) AS n (line, type, reference, network_reference, token, card, amount, code, merchant_amount,
        merchant_code, interchange, day, merchant, mcc);
END $body$;

-- totals: {currency: {"lines", "amount", "interchange"}}, which the lines must add up to.
CREATE FUNCTION finish_network_file(file uuid, sha256 text, totals jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    wrong text;
BEGIN
    INSERT INTO network_file_totals (file_id, currency, lines, amount, interchange)
    SELECT file, t.key, (t.value ->> 'lines')::bigint, (t.value ->> 'amount')::numeric,
        (t.value ->> 'interchange')::numeric
    FROM jsonb_each(totals) t;
    SELECT coalesce(l.currency, t.currency) INTO wrong
    FROM (
        SELECT n.currency, count(*) AS lines, sum(line_sign(n.type)::numeric * n.amount) AS amount,
            coalesce(sum(n.interchange), 0) AS interchange
        FROM network_lines n WHERE n.file_id = file GROUP BY n.currency
    ) l
    FULL JOIN (SELECT * FROM network_file_totals s WHERE s.file_id = file) t
        ON t.currency = l.currency
    WHERE (coalesce(l.lines, 0), coalesce(l.amount, 0), coalesce(l.interchange, 0))
        IS DISTINCT FROM (t.lines, t.amount, t.interchange)
    LIMIT 1;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'the lines in % do not add up to the control totals', wrong
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    UPDATE network_files f SET digest = sha256,
        lines = (SELECT coalesce(sum(t.lines), 0) FROM network_file_totals t WHERE t.file_id = file)
    WHERE f.id = file AND f.digest IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no file % that is being imported', coalesce(file::text, 'null')
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    PERFORM match_network_file(file, true);
    PERFORM match_again(file);
END $body$;

-- Pairs lines with events of the same key, both in order: those of one key are interchangeable. With
-- `alike`, only where all lines of the key are alike, and all events. Pairs that are alike and of the
-- day of the file are not compared again (`new_matches`).
CREATE FUNCTION match_round(
    file uuid, rule text, key_of_line text, key_of_event text, which text, alike boolean,
    keep_all boolean
) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    IF NOT EXISTS (SELECT FROM open_lines) OR NOT EXISTS (SELECT FROM open_events) THEN
        RETURN;
    END IF;
    EXECUTE format($sql$
        WITH l AS (
            SELECT o.line, o.key, row_number() OVER (PARTITION BY o.key ORDER BY o.line) AS n %7$s
            FROM (SELECT line, (%1$s) COLLATE "C" AS key,
                    concat_ws(' ', type, currency, amount) AS what
                FROM open_lines WHERE %3$s) o
            WHERE o.key IS NOT NULL
        ), e AS (
            SELECT o.*, row_number() OVER (PARTITION BY o.key
                ORDER BY o.in_scope DESC, o.card_transaction_id, o.sequence) AS n %7$s
            FROM (SELECT card_transaction_id, sequence, customer_id, in_scope,
                    (%2$s) COLLATE "C" AS key, concat_ws(' ', type, currency, amount) AS what
                FROM open_events) o
            WHERE o.key IS NOT NULL
        ), pairs AS MATERIALIZED (
            SELECT l.line, e.card_transaction_id, e.sequence, e.customer_id, e.in_scope
            FROM l JOIN e ON e.key = l.key AND e.n = l.n %8$s
        ), compared AS (
            INSERT INTO new_matches (line, card_transaction_id, sequence, customer_id)
            SELECT p.line, p.card_transaction_id, p.sequence, p.customer_id FROM pairs p
            WHERE %4$L::boolean OR NOT p.in_scope
        ), lines_of_pairs AS (
            DELETE FROM open_lines o USING pairs p WHERE p.line = o.line
        ), events_of_pairs AS (
            DELETE FROM open_events o USING pairs p
            WHERE (p.card_transaction_id, p.sequence) = (o.card_transaction_id, o.sequence)
        )
        INSERT INTO line_matches (file_id, line, card_transaction_id, sequence, customer_id, rule)
        SELECT %5$L, p.line, p.card_transaction_id, p.sequence, p.customer_id, %6$L FROM pairs p
    $sql$, key_of_line, key_of_event, which, keep_all OR alike, file, rule,
        CASE WHEN alike THEN ', min(o.what) OVER (PARTITION BY o.key) AS first,'
            ' max(o.what) OVER (PARTITION BY o.key) AS last' ELSE '' END,
        CASE WHEN alike THEN 'AND l.first = l.last AND e.first = e.last' ELSE '' END);
END $body$;

-- Adds events that open lines may be, and that are not of the network, day and cycle of the file:
-- of the messages and card transactions in `wanted_events`.
CREATE FUNCTION add_events(zone text) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    WITH added AS (
        INSERT INTO candidate_events
        SELECT DISTINCT ON (e.card_transaction_id, e.sequence) e.card_transaction_id, e.sequence,
            e.customer_id, e.type, e.amount, t.currency, o.reference, x.acquirer_reference,
            t.issuer_transaction_token, t.card_id, t.descriptor,
            (e.occurred_at AT TIME ZONE zone)::date, false, x.message_id IS NOT NULL, m.file_id,
            m.line, false
        FROM wanted_events w
        CROSS JOIN LATERAL (
            SELECT s.*, CASE s.kind WHEN 'CLEARED' THEN 'PRESENTMENT'
                WHEN 'CLEARING_REVERSED' THEN 'PRESENTMENT_REVERSAL'
                WHEN 'REFUND_REVERSED' THEN 'CREDIT_REVERSAL' ELSE 'CREDIT' END AS type
            FROM card_transaction_events s
            WHERE s.card_transaction_id = w.card_transaction_id AND s.customer_id = w.customer_id
                AND s.kind IN ('CLEARED', 'CLEARING_REVERSED', 'REFUNDED', 'CREDITED',
                    'REFUND_REVERSED')
                AND (w.message_id IS NULL OR s.message_id = w.message_id)
        ) e
        JOIN card_transactions t ON (t.id, t.customer_id) = (e.card_transaction_id, e.customer_id)
        LEFT JOIN settlement_details x ON x.card_transaction_id = e.card_transaction_id
            AND x.customer_id = e.customer_id AND x.message_id = e.message_id
        LEFT JOIN outcomes o ON o.message_id = e.message_id AND o.customer_id = e.customer_id
        LEFT JOIN line_matches m ON m.card_transaction_id = e.card_transaction_id
            AND m.sequence = e.sequence
        WHERE NOT EXISTS (
            SELECT FROM candidate_events c
            WHERE c.card_transaction_id = e.card_transaction_id AND c.sequence = e.sequence
        )
        RETURNING *
    )
    INSERT INTO open_events SELECT * FROM added a WHERE a.matched_by IS NULL;
    TRUNCATE wanted_events;
END $body$;

-- Nearest dates first, at most three days apart. Where a day of lines has events on both sides, or a
-- day of events lines on both sides, nothing says which belong together.
CREATE FUNCTION match_cards(file uuid) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
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
        UPDATE open_lines l SET card_key = NULL FROM ambiguous_lines a WHERE a.line = l.line;
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
            WHERE p.days_of_events = 1 AND p.days_of_lines = 1
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
END $body$;

-- The key by which the rule CARD finds lines and events, of those that it is for.
CREATE FUNCTION set_card_keys() RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    UPDATE open_lines SET card_key = concat_ws(E'\x1f', card_id, type, currency, amount,
        folded(merchant))
    WHERE reference IS NULL AND token IS NULL AND num_nulls(card_id, merchant, transaction_date) = 0
        AND line NOT IN (SELECT a.line FROM ambiguous_lines a);
    UPDATE open_events e SET card_key = concat_ws(E'\x1f', card_id, type, currency, amount,
        folded(merchant))
    WHERE merchant IS NOT NULL
        AND e.card_id IN (SELECT l.card_id FROM open_lines l WHERE l.card_key IS NOT NULL);
END $body$;

-- Nearly all rows were deleted: those that are left are written anew, for later rounds to read.
CREATE FUNCTION rewrite_open() RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    CREATE TEMP TABLE lines_left ON COMMIT DROP AS SELECT * FROM open_lines;
    CREATE TEMP TABLE events_left ON COMMIT DROP AS SELECT * FROM open_events;
    TRUNCATE open_lines, open_events;
    INSERT INTO open_lines SELECT * FROM lines_left;
    INSERT INTO open_events SELECT * FROM events_left;
    DROP TABLE lines_left, events_left;
    ANALYZE open_lines, open_events;
END $body$;

CREATE FUNCTION network_file(wanted uuid) RETURNS network_files LANGUAGE plpgsql AS $body$
DECLARE
    f network_files;
BEGIN
    SELECT * INTO f FROM network_files n WHERE n.id = wanted;
    RETURN f;
END $body$;

CREATE FUNCTION match_network_file(file uuid, is_first boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET work_mem = '64MB' SET jit = off AS $body$
DECLARE
    f network_files;
    zone text;
    exact text := 'reference || E''\x1f'' || type || '' '' || currency || '' '' || amount';
BEGIN
    f := network_file(file);
    SELECT c.time_zone INTO zone FROM calendars c
    WHERE c.name = f.network AND c.valid_from <= f.settlement_date
    ORDER BY c.valid_from DESC LIMIT 1;
    zone := coalesce(zone, 'UTC');

    -- A table of the caller with such a name makes this fail.
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
            AND coalesce(g.cycle = x.cycle, true), false) AS is_elsewhere
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
    ALTER TABLE candidate_events ADD card_key text;
    CREATE TEMP TABLE open_events ON COMMIT DROP AS
    SELECT * FROM candidate_events c WHERE c.matched_by IS NULL;
    CREATE TEMP TABLE open_lines ON COMMIT DROP AS
    SELECT n.line, n.type, n.amount, n.currency, n.reference, n.network_reference, n.token,
        n.card_id, n.merchant, n.transaction_date, NULL::text AS card_key
    FROM network_lines n
    WHERE n.file_id = file AND n.type NOT IN ('FEE', 'FEE_REVERSAL') AND (is_first OR n.line IN (
        SELECT b.line FROM breaks b WHERE b.file_id = file AND b.difference <> 0
            AND b.kind IN ('IN_FILE_ONLY', 'AMBIGUOUS', 'DUPLICATE_LINE')
    ));
    CREATE TEMP TABLE new_matches (
        line integer, card_transaction_id uuid, sequence integer, customer_id uuid
    ) ON COMMIT DROP;
    CREATE TEMP TABLE wanted_events (
        card_transaction_id uuid, customer_id uuid, message_id uuid
    ) ON COMMIT DROP;
    CREATE TEMP TABLE ambiguous_lines (line integer) ON COMMIT DROP;
    ANALYZE candidate_events, open_events, open_lines;

    -- Nearly all: the reference and all else is equal, and so is the card where the line has one.
    PERFORM match_round(file, 'REFERENCE', exact || ' || coalesce(card_id::text, '''')',
        exact || ' || card_id', 'card_id IS NOT NULL', false, NOT is_first);
    PERFORM match_round(file, 'REFERENCE', exact, exact, 'card_id IS NULL', false, NOT is_first);

    PERFORM rewrite_open();
    INSERT INTO wanted_events
    SELECT o.subject_id, o.customer_id, o.message_id
    FROM open_lines l JOIN outcomes o ON o.reference = l.reference AND o.platform_id = f.platform_id
    WHERE o.subject_id IS NOT NULL;
    IF EXISTS (SELECT FROM open_lines l WHERE l.reference ~ '^[0-9]{23}$') THEN
        INSERT INTO wanted_events
        SELECT x.card_transaction_id, x.customer_id, x.message_id
        FROM settlement_details x
        WHERE x.platform_id = f.platform_id
            AND x.settlement_date BETWEEN f.settlement_date - 60 AND f.settlement_date + 60
            AND x.acquirer_reference IN (SELECT l.reference FROM open_lines l);
    END IF;
    PERFORM add_events(zone);
    PERFORM match_round(file, 'REFERENCE', exact || ' || coalesce(card_id::text, '''')',
        exact || ' || card_id', 'card_id IS NOT NULL', false, NOT is_first);
    PERFORM match_round(file, 'REFERENCE', exact, exact, 'true', false, NOT is_first);
    PERFORM match_round(file, 'REFERENCE', exact, 'acquirer_' || exact, 'true', false, NOT is_first);
    -- The reference is equal, and something else differs.
    FOR part IN 1..4 LOOP
        exact := (ARRAY['reference || E''\x1f'' || type || '' '' || currency',
            'reference || E''\x1f'' || currency', 'reference || E''\x1f'' || type',
            'reference'])[part];
        PERFORM match_round(file, 'REFERENCE', exact, exact, 'true', true, NOT is_first);
    END LOOP;
    FOR part IN 1..2 LOOP
        exact := (ARRAY['reference || E''\x1f'' || type || '' '' || currency',
            'reference || E''\x1f'' || type'])[part];
        PERFORM match_round(file, 'REFERENCE', exact, 'acquirer_' || exact, 'true', true, NOT is_first);
    END LOOP;

    exact := 'token || E''\x1f'' || type || '' '' || currency || '' '' || amount';
    PERFORM match_round(file, 'TOKEN', exact, exact, 'reference IS NULL', false, NOT is_first);
    PERFORM rewrite_open();
    INSERT INTO wanted_events
    SELECT t.id, t.customer_id, NULL
    FROM card_transactions t
    WHERE t.platform_id = f.platform_id AND t.issuer_transaction_token IN (
        SELECT l.token FROM open_lines l WHERE l.reference IS NULL AND l.token IS NOT NULL
    );
    PERFORM add_events(zone);
    PERFORM match_round(file, 'TOKEN', exact, exact, 'reference IS NULL', false, NOT is_first);

    PERFORM set_card_keys();
    PERFORM match_cards(file);
    PERFORM rewrite_open();
    INSERT INTO wanted_events
    SELECT t.id, t.customer_id, NULL
    FROM (SELECT DISTINCT l.card_id FROM open_lines l WHERE l.card_key IS NOT NULL) l
    JOIN cards c ON c.id = l.card_id AND c.platform_id = f.platform_id
    JOIN card_transactions t ON t.customer_id = c.customer_id AND t.card_id = c.id;
    PERFORM add_events(zone);
    PERFORM set_card_keys();
    PERFORM match_cards(file);

    PERFORM explain_breaks(file);
    PERFORM open_breaks(file);
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
    DROP TABLE candidate_events, open_events, open_lines, new_matches, wanted_events,
        ambiguous_lines;
END $body$;

-- What the ledger has of the day: its events, unless another file of the day has them, and those
-- without settlement details that the file has.
CREATE FUNCTION ledger_of_file(file uuid, is_first boolean) RETURNS TABLE (currency text, amount numeric)
LANGUAGE plpgsql AS $body$
BEGIN
    RETURN QUERY SELECT e.currency, sum(e.amount)
    FROM (
        SELECT c.currency, line_sign(c.type)::numeric * c.amount AS amount
        FROM candidate_events c WHERE c.in_scope AND NOT c.is_elsewhere
        UNION ALL
        -- Events that an import has matched are candidates; those of earlier matchings may not be.
        SELECT c.currency, line_sign(c.type)::numeric * c.amount
        FROM new_matches m JOIN candidate_events c ON (c.card_transaction_id, c.sequence)
            = (m.card_transaction_id, m.sequence)
        WHERE is_first AND NOT c.in_scope AND NOT c.has_details
        UNION ALL
        SELECT t.currency, CASE WHEN s.kind IN ('CLEARED', 'REFUND_REVERSED') THEN 1 ELSE -1 END
            * s.amount::numeric
        FROM line_matches m
        JOIN card_transaction_events s ON s.card_transaction_id = m.card_transaction_id
            AND s.sequence = m.sequence AND s.customer_id = m.customer_id
        JOIN card_transactions t ON (t.id, t.customer_id) = (m.card_transaction_id, m.customer_id)
        WHERE NOT is_first AND m.file_id = file AND NOT EXISTS (
            SELECT FROM candidate_events c
            WHERE (c.card_transaction_id, c.sequence) = (m.card_transaction_id, m.sequence)
                AND c.in_scope
        ) AND NOT EXISTS (
            SELECT FROM settlement_details x
            WHERE x.card_transaction_id = s.card_transaction_id AND x.customer_id = s.customer_id
                AND x.message_id = s.message_id
        )
    ) e GROUP BY e.currency;
END $body$;

-- What earlier breaks of the file were, and are no more.
CREATE FUNCTION explain_breaks(file uuid) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    f network_files := network_file(file);
BEGIN
    PERFORM explain_break(b.id, 'the line is matched now', 0)
    FROM breaks b JOIN new_matches m ON m.line = b.line
    WHERE b.file_id = f.id AND b.kind IN ('IN_FILE_ONLY', 'AMBIGUOUS', 'DUPLICATE_LINE');
    PERFORM explain_break(b.id, CASE WHEN m.file_id = f.id THEN 'a line of the file is matched now'
        ELSE format('file %s has it', g.file_id) END,
        CASE WHEN m.file_id = f.id OR c.is_elsewhere THEN 0 ELSE b.difference END)
    FROM breaks b
    JOIN line_matches m ON (m.card_transaction_id, m.sequence)
        = (b.card_transaction_id, b.sequence)
    JOIN network_files g ON g.id = m.file_id
    JOIN candidate_events c ON (c.card_transaction_id, c.sequence)
        = (b.card_transaction_id, b.sequence)
    WHERE b.file_id = f.id AND b.kind = 'IN_LEDGER_ONLY';
END $body$;

-- What a person has decided stays; the difference is what it is.
CREATE FUNCTION explain_break(break_id uuid, because text, left_over numeric) RETURNS void
LANGUAGE plpgsql AS $body$
DECLARE
    b breaks;
BEGIN
    SELECT * INTO b FROM breaks WHERE id = break_id FOR UPDATE;
    IF b.difference = left_over AND b.state NOT IN ('open', 'investigating') THEN
        RETURN;
    END IF;
    INSERT INTO break_history (break_id, action, note, difference)
    VALUES (b.id, 'EXPLAINED', because, b.difference);
    UPDATE breaks SET difference = left_over,
        state = CASE WHEN b.state IN ('open', 'investigating') THEN 'explained' ELSE b.state END,
        closed_at = coalesce(b.closed_at, clock_timestamp()),
        closed_by = coalesce(b.closed_by, session_user)
    WHERE id = b.id;
END $body$;

CREATE FUNCTION open_breaks(file uuid) RETURNS void LANGUAGE plpgsql AS $body$
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

    PERFORM open_breaks_of_lines(file);

    INSERT INTO breaks (file_id, card_transaction_id, sequence, customer_id, kind, currency,
        ledger_amount, difference, state, closed_at, closed_by)
    SELECT f.id, c.card_transaction_id, c.sequence, c.customer_id, 'IN_LEDGER_ONLY', c.currency,
        line_sign(c.type) * c.amount, -line_sign(c.type) * c.amount,
        CASE WHEN m.file_id IS NULL THEN 'open' ELSE 'explained' END,
        CASE WHEN m.file_id IS NOT NULL THEN now() END,
        CASE WHEN m.file_id IS NOT NULL THEN session_user END
    FROM candidate_events c
    LEFT JOIN line_matches m ON (m.card_transaction_id, m.sequence)
        = (c.card_transaction_id, c.sequence)
    WHERE c.in_scope AND NOT c.is_elsewhere AND m.file_id IS DISTINCT FROM f.id
    ON CONFLICT (file_id, card_transaction_id, sequence) WHERE line IS NULL DO NOTHING;
END $body$;

-- Lines without an event: fees, and what is left of the others.
CREATE FUNCTION open_breaks_of_lines(file uuid) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    f network_files := network_file(file);
BEGIN
    INSERT INTO open_lines (line, type, amount, currency, reference, network_reference, token,
        card_id, merchant, transaction_date)
    SELECT n.line, n.type, n.amount, n.currency, n.reference, n.network_reference, n.token,
        n.card_id, n.merchant, n.transaction_date
    FROM network_lines n WHERE n.file_id = f.id AND n.type IN ('FEE', 'FEE_REVERSAL');

    WITH tied AS (
        SELECT l.line, e.card_transaction_id, e.sequence
        FROM open_lines l JOIN open_events e ON e.reference = l.reference
        UNION
        SELECT l.line, e.card_transaction_id, e.sequence
        FROM open_lines l JOIN open_events e ON e.acquirer_reference = l.reference
            AND e.type = l.type
        UNION
        SELECT l.line, e.card_transaction_id, e.sequence
        FROM ambiguous_lines a JOIN open_lines l ON l.line = a.line
        JOIN open_events e ON (e.card_id, e.type, e.currency, e.amount)
            = (l.card_id, l.type, l.currency, l.amount)
        WHERE folded(e.merchant) = folded(l.merchant) AND abs(e.day - l.transaction_date) <= 3
    ), candidates AS (
        SELECT t.line, jsonb_agg(jsonb_build_object('cardTransaction', t.card_transaction_id,
            'sequence', t.sequence) ORDER BY t.n) FILTER (WHERE t.n <= 10) AS events
        FROM (SELECT *, row_number() OVER (PARTITION BY tied.line
            ORDER BY tied.card_transaction_id, tied.sequence) AS n FROM tied) t
        GROUP BY t.line
    ), kinds AS (
        SELECT l.*, c.events, CASE WHEN c.line IS NOT NULL THEN 'AMBIGUOUS'
            WHEN d.line IS NOT NULL THEN 'DUPLICATE_LINE' ELSE 'IN_FILE_ONLY' END AS kind
        FROM open_lines l LEFT JOIN candidates c ON c.line = l.line
        LEFT JOIN duplicate_lines(file) d ON d.line = l.line
        WHERE NOT EXISTS (
            SELECT FROM breaks b WHERE b.file_id = f.id AND b.line = l.line
                AND b.kind IN ('IN_FILE_ONLY', 'AMBIGUOUS', 'DUPLICATE_LINE')
        )
    )
    INSERT INTO breaks (file_id, line, kind, cause, currency, file_amount, difference, candidates,
        state)
    SELECT f.id, k.line, k.kind, CASE k.kind WHEN 'IN_FILE_ONLY' THEN coalesce(
            (
                SELECT CASE o.outcome WHEN 'DECLINED' THEN 'REJECTED:' || o.reason
                    WHEN 'APPLIED' THEN 'NO_EVENT' ELSE o.outcome END
                FROM outcomes o
                WHERE o.reference = k.reference AND o.platform_id = f.platform_id
                ORDER BY o.recorded_at DESC LIMIT 1
            ), (
                SELECT 'REJECTED:' || r.reason FROM rejections r
                WHERE r.platform_id = f.platform_id AND md5(r.reference) = md5(k.reference)
                    AND r.reference = k.reference
                ORDER BY r.recorded_at DESC LIMIT 1
            ), 'NO_EVENT') END,
        k.currency, line_sign(k.type) * k.amount, line_sign(k.type) * k.amount, k.events, 'open'
    FROM kinds k;
END $body$;

-- Open lines that another line, of this file or an earlier one, is: it has the event, or stood here
-- before it.
CREATE FUNCTION duplicate_lines(file uuid) RETURNS TABLE (line integer)
LANGUAGE plpgsql AS $body$
DECLARE
    f network_files := network_file(file);
BEGIN
    RETURN QUERY
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
    SELECT l.line FROM open_lines l
    JOIN (
        SELECT d.reference, d.type
        FROM network_files g
        JOIN breaks b ON b.file_id = g.id AND b.kind = 'IN_FILE_ONLY' AND b.difference <> 0
        JOIN network_lines d ON d.file_id = b.file_id AND d.line = b.line
        WHERE g.platform_id = f.platform_id AND g.network = f.network
            AND (g.imported_at, g.id) < (f.imported_at, f.id)
    ) d ON d.reference = l.reference AND d.type = l.type
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

-- Files that an import has explained something of: their events are in the new file, or have come.
CREATE FUNCTION match_again(file uuid) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    other uuid;
BEGIN
    FOR other IN
        SELECT DISTINCT b.file_id FROM breaks b
        JOIN network_files g ON g.id = b.file_id
        JOIN network_files f ON f.id = file AND f.platform_id = g.platform_id
        WHERE b.file_id <> file AND b.state IN ('open', 'investigating') AND (
            (b.kind = 'IN_LEDGER_ONLY' AND EXISTS (
                SELECT FROM line_matches m
                WHERE m.card_transaction_id = b.card_transaction_id AND m.sequence = b.sequence
            ))
            OR (b.kind IN ('IN_FILE_ONLY', 'AMBIGUOUS') AND EXISTS (
                SELECT FROM network_lines n WHERE n.file_id = b.file_id AND n.line = b.line
                    AND n.type NOT IN ('FEE', 'FEE_REVERSAL')
                    AND (n.reference IS NULL OR EXISTS (
                        SELECT FROM outcomes o JOIN card_transaction_events e
                            ON e.card_transaction_id = o.subject_id AND e.message_id = o.message_id
                        WHERE o.reference = n.reference AND o.platform_id = g.platform_id
                    ))
            ))
        )
    LOOP
        PERFORM match_network_file(other, false);
    END LOOP;
END $body$;

-- Files with open breaks, and files of open days with events that came after their last proof; an
-- event may be committed a while after the time at which it was recorded.
CREATE FUNCTION rematch_network_files() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    other uuid;
    found integer := 0;
BEGIN
    FOR other IN
        SELECT f.id FROM network_files f
        WHERE EXISTS (
            SELECT FROM breaks b WHERE b.file_id = f.id AND b.state IN ('open', 'investigating')
        ) OR (f.settlement_date >= (SELECT b.first_open_day - 31 FROM books b) AND EXISTS (
            SELECT FROM settlement_details x
            WHERE x.platform_id = f.platform_id AND x.network = f.network
                AND x.settlement_date = f.settlement_date AND x.recorded_at > (
                    SELECT max(p.proved_at) - interval '1 hour' FROM file_proofs p
                    WHERE p.file_id = f.id
                )
        ))
        ORDER BY f.imported_at, f.id
    LOOP
        PERFORM match_network_file(other, false);
        found := found + 1;
    END LOOP;
    RETURN found;
END $body$;

CREATE FUNCTION refuse_network_file(
    refusal_code text, line_number integer, column_of_line text, text_of_refusal text
) RETURNS void LANGUAGE sql SECURITY DEFINER AS $body$
    INSERT INTO file_refusals (code, line, column_name, message)
    VALUES (refusal_code, line_number, column_of_line, left(text_of_refusal, 1000))
$body$;

CREATE FUNCTION find_break(wanted uuid) RETURNS breaks LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    b breaks;
BEGIN
    SELECT * INTO b FROM breaks WHERE id = wanted FOR UPDATE;
    IF b.id IS NULL THEN
        RAISE EXCEPTION 'there is no break %', coalesce(wanted::text, 'null')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN b;
END $body$;

CREATE FUNCTION work_on_break(wanted uuid, person text, words text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    b breaks := find_break(wanted);
BEGIN
    IF words IS NULL AND person IS NOT NULL THEN
        NULL;
    ELSIF coalesce(length(btrim(words)), 0) NOT BETWEEN 1 AND 2000 THEN
        RAISE EXCEPTION 'the note must have 1 to 2000 characters'
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF person IS NOT NULL AND NOT EXISTS (
        SELECT FROM person_changes p WHERE p.name = person AND p.change = 'ADDED'
            AND to_regrole(quote_ident(p.name)) IS NOT NULL
    ) THEN
        RAISE EXCEPTION 'there is no person %', quote_literal(person)
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF person IS NOT NULL AND b.state NOT IN ('open', 'investigating') THEN
        RAISE EXCEPTION 'break % is % already', b.id, b.state
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    INSERT INTO break_history (break_id, action, note, owner)
    VALUES (b.id, CASE WHEN person IS NULL THEN 'NOTED' ELSE 'ASSIGNED' END, btrim(words), person);
    IF b.state IN ('open', 'investigating') THEN
        UPDATE breaks SET state = 'investigating', owner = coalesce(person, b.owner)
        WHERE id = b.id RETURNING state INTO b.state;
    END IF;
    RETURN b.state;
END $body$;

CREATE FUNCTION close_break(wanted uuid, as_state text, words text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    b breaks := find_break(wanted);
BEGIN
    IF as_state IS NULL OR as_state NOT IN ('resolved', 'written_off') THEN
        RAISE EXCEPTION 'a break is resolved or written_off'
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF coalesce(length(btrim(words)), 0) NOT BETWEEN 1 AND 2000 THEN
        RAISE EXCEPTION 'the note must have 1 to 2000 characters'
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF b.state NOT IN ('open', 'investigating') THEN
        RAISE EXCEPTION 'break % is % already', b.id, b.state
            USING ERRCODE = 'object_not_in_prerequisite_state';
    ELSIF b.owner = session_user THEN
        RAISE EXCEPTION 'break % is assigned to %: another person must resolve it', b.id, b.owner
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    INSERT INTO break_history (break_id, action, note)
    VALUES (b.id, upper(as_state), btrim(words));
    UPDATE breaks SET state = as_state, closed_at = clock_timestamp(), closed_by = session_user
    WHERE id = b.id;
    RETURN as_state;
END $body$;
