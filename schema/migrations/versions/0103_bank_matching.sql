CREATE FUNCTION begin_bank_statement(
    platform uuid, account_name text, statement text, currency_code text, first_booking date,
    last_booking date, opening_balance bigint, closing_balance bigint
) RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    made uuid;
BEGIN
    IF NOT EXISTS (SELECT FROM platforms p WHERE p.id = platform) THEN
        RAISE EXCEPTION 'there is no platform %', coalesce(platform::text, 'null')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- The lock of the commands: of two imports at once the second sees the lines of the first.
    PERFORM pg_advisory_xact_lock(hashtext('cardledger settlement files'));
    INSERT INTO bank_statements (platform_id, account, statement_id, currency, first_day, last_day,
        opening, closing)
    VALUES (platform, account_name, statement, currency_code, first_booking, last_booking,
        opening_balance, closing_balance)
    ON CONFLICT (platform_id, account, statement_id) DO NOTHING RETURNING id INTO made;
    RETURN made;
END $body$;

-- A field of the lines is an element of a text that U+001F separates: no line has it.
CREATE FUNCTION add_bank_lines(
    statement uuid, lines text, booking_dates text, value_dates text, amounts text, refs text,
    descriptions text
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $body$
BEGIN
    IF NOT EXISTS (SELECT FROM bank_statements s WHERE s.id = statement AND s.digest IS NULL) THEN
        RAISE EXCEPTION 'there is no statement % that is being imported',
            coalesce(statement::text, 'null') USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    INSERT INTO bank_lines (statement_id, line, booking_date, value_date, amount, bank_reference,
        description)
    SELECT statement, n.line::integer, n.booking_date::date, n.value_date::date,
        n.amount::bigint, n.reference, n.description
    FROM unnest(string_to_array(lines, E'\x1f', ''), string_to_array(booking_dates, E'\x1f', ''),
        string_to_array(value_dates, E'\x1f', ''), string_to_array(amounts, E'\x1f', ''),
        string_to_array(refs, E'\x1f', ''), string_to_array(descriptions, E'\x1f', '')
    ) AS n (line, booking_date, value_date, amount, reference, description);
END $body$;

CREATE FUNCTION finish_bank_statement(statement uuid, sha256 text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    s bank_statements;
    found record;
    other record;
    following uuid[];
BEGIN
    SELECT * INTO s FROM bank_statements b WHERE b.id = statement AND b.digest IS NULL;
    IF s.id IS NULL THEN
        RAISE EXCEPTION 'there is no statement % that is being imported',
            coalesce(statement::text, 'null') USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    SELECT count(*) AS lines, coalesce(sum(l.amount), 0) AS total, min(l.booking_date) AS first_day,
        max(l.booking_date) AS last_day
    INTO found FROM bank_lines l WHERE l.statement_id = s.id;
    IF s.opening + found.total <> s.closing
        OR found.first_day < s.first_day OR found.last_day > s.last_day
    THEN
        RAISE EXCEPTION 'the lines do not lead from the opening to the closing balance'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- A line is booked once: neither the same statement under another name or account, nor a line
    -- of another statement of the account. Statements that follow each other within a day may have
    -- equal lines: their balances tell these apart.
    WITH RECURSIVE earlier AS (
        SELECT s.opening AS opening, s.first_day AS first_day, s.id AS id
        UNION
        SELECT b.opening, b.first_day, b.id
        FROM earlier e JOIN bank_statements b ON b.last_day = e.first_day AND b.closing = e.opening
        WHERE b.platform_id = s.platform_id AND b.currency = s.currency AND b.account = s.account
    ), later AS (
        SELECT s.closing AS closing, s.last_day AS last_day, s.id AS id
        UNION
        SELECT b.closing, b.last_day, b.id
        FROM later e JOIN bank_statements b ON b.first_day = e.last_day AND b.opening = e.closing
            AND b.last_day >= e.last_day
        WHERE b.platform_id = s.platform_id AND b.currency = s.currency AND b.account = s.account
    )
    SELECT array_agg(x.id) INTO following
    FROM (SELECT e.id FROM earlier e UNION SELECT e.id FROM later e) x;
    FOR other IN
        SELECT b.* FROM bank_statements b
        WHERE b.platform_id = s.platform_id AND b.currency = s.currency AND b.id <> s.id
            AND b.last_day >= s.first_day AND b.first_day <= s.last_day
        ORDER BY b.imported_at, b.id
    LOOP
        IF other.digest = sha256 OR (
            (other.opening, other.closing, other.first_day, other.last_day, other.lines)
                = (s.opening, s.closing, s.first_day, s.last_day, found.lines)
            AND NOT EXISTS (
                SELECT l.booking_date, l.amount FROM bank_lines l WHERE l.statement_id = s.id
                EXCEPT ALL
                SELECT l.booking_date, l.amount FROM bank_lines l WHERE l.statement_id = other.id
            )
        ) THEN
            RAISE EXCEPTION 'statement % of account % is the same one, imported at %',
                quote_literal(other.statement_id), quote_literal(other.account), other.imported_at
                USING ERRCODE = 'CL006';
        END IF;
        CONTINUE WHEN other.account <> s.account OR other.id = ANY (following);
        IF EXISTS (
            SELECT l.booking_date, l.amount, l.bank_reference, l.description
            FROM bank_lines l WHERE l.statement_id = s.id
            INTERSECT
            SELECT l.booking_date, l.amount, l.bank_reference, l.description
            FROM bank_lines l WHERE l.statement_id = other.id
        ) THEN
            RAISE EXCEPTION 'statement % of this account has a line of these, and was imported at %',
                quote_literal(other.statement_id), other.imported_at USING ERRCODE = 'CL006';
        END IF;
    END LOOP;
    UPDATE bank_statements b SET digest = sha256, lines = found.lines WHERE b.id = s.id;
    PERFORM match_bank(s.platform_id, s.currency);
END $body$;

-- What a file says should come for it at the bank: positive where the network owes.
CREATE FUNCTION expected_at_bank(file uuid, currency_code text) RETURNS numeric
LANGUAGE plpgsql STABLE AS $body$
DECLARE
    expected numeric;
BEGIN
    SELECT -(t.amount - CASE WHEN f.books
            THEN rounded_half_even(t.interchange * ('1e' || y.decimals)::numeric) ELSE 0 END)
    INTO expected
    FROM network_files f
    JOIN network_file_totals t ON t.file_id = f.id
    JOIN currencies y ON y.code = t.currency
    WHERE f.id = file AND t.currency = currency_code;
    RETURN coalesce(expected, 0);
END $body$;

-- Whether `words`, which are in upper case, have `name` as a word of its own.
CREATE FUNCTION is_named(name text, words text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN strpos(words, upper(name)) > 0 AND words ~ ('(^|[^A-Z0-9])'
    || regexp_replace(upper(name), '([^A-Z0-9])', '\\\1', 'g') || '([^A-Z0-9]|$)');

-- Matches the open lines of a currency with the days that networks have to pay, or are to be paid:
-- sums that agree, first of lines that name what they pay, until nothing changes; then lines that
-- name a network or a file and differ; then what completes such a line.
CREATE FUNCTION match_bank(platform uuid, currency_code text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET work_mem = '64MB' SET jit = off AS $body$
DECLARE
    since date;
    l record;
    chosen integer[];
    shapes bigint;
    progress boolean := true;
BEGIN
    SELECT min(s.first_day) - 60 INTO since FROM bank_statements s
    WHERE s.platform_id = platform AND s.currency = currency_code;
    IF since IS NULL THEN
        RETURN;
    END IF;
    -- A table of the caller with such a name makes this fail.
    CREATE TEMP TABLE days_to_pay ON COMMIT DROP AS
    SELECT (row_number() OVER (ORDER BY f.network, f.settlement_date, f.cycle NULLS FIRST,
            f.imported_at, f.id))::integer AS n,
        f.id AS file_id, f.network, f.file_id AS name, f.settlement_date, e.expected,
        EXISTS (
            SELECT FROM bank_payments p WHERE p.file_id = f.id AND p.currency = t.currency
        ) AS is_paid
    FROM network_files f
    JOIN network_file_totals t ON t.file_id = f.id AND t.currency = currency_code
    CROSS JOIN LATERAL (SELECT expected_at_bank(f.id, t.currency) AS expected) e
    WHERE f.platform_id = platform AND f.settlement_date >= since AND f.digest IS NOT NULL
        AND e.expected <> 0;
    CREATE TEMP TABLE open_bank_lines ON COMMIT DROP AS
    SELECT b.statement_id, b.line, b.amount, b.booking_date,
        upper(concat_ws(' ', b.bank_reference, b.description)) AS words
    FROM (
        SELECT b.* FROM bank_statements s JOIN bank_lines b ON b.statement_id = s.id
        WHERE s.platform_id = platform AND s.currency = currency_code AND NOT EXISTS (
            SELECT FROM statement_proofs p WHERE p.statement_id = s.id
        )
        UNION ALL
        -- What a person has decided stays.
        SELECT b.* FROM bank_statements s
        JOIN breaks k ON k.statement_id = s.id AND k.line IS NOT NULL AND k.kind = 'BANK_ONLY'
            AND k.state IN ('open', 'investigating')
        JOIN bank_lines b ON b.statement_id = s.id AND b.line = k.line
        WHERE s.platform_id = platform AND s.currency = currency_code
    ) b;
    ANALYZE days_to_pay, open_bank_lines;
    -- Days of one network that follow each other, as a line may pay them: at most ten.
    CREATE TEMP TABLE runs_to_pay ON COMMIT DROP AS
    SELECT a.n AS first_n, b.n AS last_n, a.network, b.settlement_date AS last_day,
        sum(c.expected) AS expected, array_agg(c.expected ORDER BY c.n) AS shape
    FROM days_to_pay a
    JOIN days_to_pay b ON b.network = a.network AND b.n BETWEEN a.n AND a.n + 9
    JOIN days_to_pay c ON c.n BETWEEN a.n AND b.n
    WHERE NOT a.is_paid AND NOT b.is_paid
    GROUP BY a.n, b.n, a.network, b.settlement_date
    HAVING NOT bool_or(c.is_paid);
    CREATE TEMP TABLE bank_candidates (
        statement_id uuid, line integer, files jsonb
    ) ON COMMIT DROP;
    CREATE INDEX ON runs_to_pay (expected);
    ANALYZE runs_to_pay;

    WHILE progress LOOP
        progress := false;
        FOR l IN
            SELECT o.* FROM open_bank_lines o
            WHERE EXISTS (
                SELECT FROM runs_to_pay r WHERE r.expected = o.amount
                    AND r.last_day BETWEEN o.booking_date - 10 AND o.booking_date
            )
            ORDER BY o.booking_date, o.statement_id, o.line
        LOOP
            CONTINUE WHEN NOT EXISTS (SELECT FROM runs_to_pay r WHERE r.expected = l.amount);
            SELECT count(DISTINCT (r.network, r.shape)), (array_agg(ARRAY[r.first_n, r.last_n]
                ORDER BY r.last_day, r.first_n))[1:1]
            INTO shapes, chosen
            FROM runs_named(l.words) r
            WHERE r.expected = l.amount
                AND r.last_day BETWEEN l.booking_date - 10 AND l.booking_date;
            CONTINUE WHEN shapes <> 1;
            PERFORM pay_days(currency_code, l.statement_id, l.line, l.amount, chosen[1][1],
                chosen[1][2], CASE WHEN EXISTS (
                    SELECT FROM days_to_pay d WHERE d.n BETWEEN chosen[1][1] AND chosen[1][2]
                        AND length(d.name) >= 4 AND is_named(d.name, l.words)
                ) THEN 'REFERENCE' ELSE 'AMOUNT' END);
            progress := true;
        END LOOP;
    END LOOP;
    INSERT INTO bank_candidates
    SELECT o.statement_id, o.line, (
        SELECT jsonb_agg(jsonb_build_object('firstFile', a.name, 'lastFile', b.name)
            ORDER BY c.last_day, c.first_n)
        FROM (
            SELECT * FROM runs_named(o.words) r WHERE r.expected = o.amount
                AND r.last_day BETWEEN o.booking_date - 10 AND o.booking_date
            ORDER BY r.last_day, r.first_n LIMIT 10
        ) c
        JOIN days_to_pay a ON a.n = c.first_n JOIN days_to_pay b ON b.n = c.last_n
    )
    FROM open_bank_lines o
    WHERE EXISTS (SELECT FROM runs_to_pay r WHERE r.expected = o.amount);

    -- Paid, but not that: of the run from the oldest unpaid day on that is nearest, at most a fifth.
    FOR l IN
        SELECT o.* FROM open_bank_lines o
        WHERE EXISTS (
            SELECT FROM days_to_pay d WHERE NOT d.is_paid AND (is_named(d.network, o.words)
                OR (length(d.name) >= 4 AND is_named(d.name, o.words)))
        ) AND NOT EXISTS (
            SELECT FROM bank_candidates c WHERE (c.statement_id, c.line) = (o.statement_id, o.line)
                AND c.files IS NOT NULL
        )
        ORDER BY o.booking_date, o.statement_id, o.line
    LOOP
        SELECT ARRAY[ARRAY[r.first_n, r.last_n]] INTO chosen
        FROM runs_named(l.words) r
        WHERE r.last_day BETWEEN l.booking_date - 10 AND l.booking_date
            AND sign(r.expected) = sign(l.amount)
            AND (EXISTS (
                SELECT FROM days_to_pay d WHERE d.n BETWEEN r.first_n AND r.last_n
                    AND length(d.name) >= 4 AND is_named(d.name, l.words)
            ) OR (
                is_named(r.network, l.words) AND abs(r.expected - l.amount) * 5 <= abs(r.expected)
                AND r.first_n = (
                    SELECT min(d.n) FROM days_to_pay d WHERE d.network = r.network
                        AND NOT d.is_paid AND d.settlement_date >= l.booking_date - 10
                )
            ))
        ORDER BY abs(r.expected - l.amount), r.last_day, r.first_n LIMIT 1;
        CONTINUE WHEN NOT FOUND;
        PERFORM pay_days(currency_code, l.statement_id, l.line, l.amount, chosen[1][1],
            chosen[1][2], 'NETWORK');
    END LOOP;

    PERFORM pay_rests(currency_code);
    PERFORM open_bank_breaks(platform, currency_code);
    PERFORM prove_statements(platform, currency_code);
    DROP TABLE days_to_pay, open_bank_lines, runs_to_pay, bank_candidates;
END $body$;

-- The runs that a line with `words` may pay: those of the files that it names, else of the networks
-- that it names, else all.
CREATE FUNCTION runs_named(words text) RETURNS TABLE (
    first_n integer, last_n integer, network text, last_day date, expected numeric, shape numeric[]
) LANGUAGE plpgsql AS $body$
DECLARE
    files integer[];
    networks text[];
BEGIN
    SELECT array_agg(d.n) FILTER (WHERE length(d.name) >= 4 AND is_named(d.name, words)),
        array_agg(DISTINCT d.network) FILTER (WHERE is_named(d.network, words))
    INTO files, networks
    FROM days_to_pay d;
    RETURN QUERY SELECT r.first_n, r.last_n, r.network, r.last_day, r.expected, r.shape
    FROM runs_to_pay r
    WHERE CASE WHEN files IS NOT NULL THEN EXISTS (
                SELECT FROM unnest(files) x WHERE x BETWEEN r.first_n AND r.last_n
            ) AND NOT EXISTS (
                SELECT FROM unnest(files) x JOIN days_to_pay d ON d.n = x
                WHERE NOT d.is_paid AND x NOT BETWEEN r.first_n AND r.last_n
            )
        WHEN networks IS NOT NULL THEN r.network = ANY (networks)
        ELSE true END;
END $body$;

-- Pays the days `first_day` to `last_day`, the last of which takes what differs, and books the line.
CREATE FUNCTION pay_days(
    currency_code text, statement uuid, line_number integer, paid bigint, first_day integer,
    last_day integer, by_rule text
) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    expected_sum numeric;
    last_file uuid;
BEGIN
    SELECT sum(d.expected), (array_agg(d.file_id ORDER BY d.n DESC))[1]
    INTO expected_sum, last_file
    FROM days_to_pay d WHERE d.n BETWEEN first_day AND last_day;
    INSERT INTO bank_payments (statement_id, line, file_id, currency, amount, expected, rule)
    SELECT statement, line_number, d.file_id, currency_code,
        d.expected + CASE d.n WHEN last_day THEN paid - expected_sum ELSE 0 END, d.expected, by_rule
    FROM days_to_pay d WHERE d.n BETWEEN first_day AND last_day;
    PERFORM book_bank_line(statement, line_number);
    IF paid <> expected_sum THEN
        PERFORM explain_break(k.id, 'the line pays days of a network, and differs', 0)
        FROM breaks k WHERE (k.statement_id, k.line) = (statement, line_number);
        INSERT INTO breaks (statement_id, line, paid_file_id, kind, currency, file_amount,
            ledger_amount, difference, state)
        SELECT statement, line_number, last_file, 'BANK_DIFFERS', currency_code, paid,
            expected_sum, paid - expected_sum, 'open'
        ON CONFLICT (statement_id, line, kind) WHERE statement_id IS NOT NULL AND line IS NOT NULL
        DO NOTHING;
    ELSE
        PERFORM explain_break(k.id, 'the line pays days of a network', 0)
        FROM breaks k WHERE (k.statement_id, k.line) = (statement, line_number);
    END IF;
    UPDATE days_to_pay SET is_paid = true WHERE n BETWEEN first_day AND last_day;
    DELETE FROM runs_to_pay r WHERE r.first_n <= pay_days.last_day AND r.last_n >= first_day;
    DELETE FROM open_bank_lines o WHERE (o.statement_id, o.line) = (statement, line_number);
END $body$;

-- Nothing else books to the bank: what a line moves between it and the network.
CREATE FUNCTION book_bank_line(statement uuid, line_number integer) RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    INSERT INTO settlement_bookings (platform_id, statement_id, line, amount, posted_for, kind,
        currency, from_kind, to_kind)
    SELECT s.platform_id, s.id, l.line, abs(l.amount), l.booking_date, 'BANK_LINE', s.currency,
        CASE WHEN l.amount > 0 THEN 'SETTLEMENT_BANK' ELSE 'NETWORK_SETTLEMENT' END,
        CASE WHEN l.amount > 0 THEN 'NETWORK_SETTLEMENT' ELSE 'SETTLEMENT_BANK' END
    FROM bank_statements s JOIN bank_lines l ON l.statement_id = s.id
    WHERE s.id = statement AND l.line = line_number;
END $body$;

-- Lines that bring exactly what one line that differed has lacked, and name its network or file.
CREATE FUNCTION pay_rests(currency_code text) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    l record;
    broken record;
BEGIN
    FOR l IN
        SELECT * FROM open_bank_lines o
        WHERE o.amount IN (
            SELECT -k.difference FROM breaks k
            WHERE k.kind = 'BANK_DIFFERS' AND k.state IN ('open', 'investigating')
                AND k.currency = currency_code
        )
        ORDER BY o.booking_date, o.statement_id, o.line
    LOOP
        SELECT count(*) AS n, min(k.id::text)::uuid AS id INTO broken
        FROM breaks k
        JOIN network_files f ON f.id = k.paid_file_id
        JOIN bank_lines b ON b.statement_id = k.statement_id AND b.line = k.line
        WHERE k.kind = 'BANK_DIFFERS' AND k.state IN ('open', 'investigating')
            AND k.currency = currency_code AND k.difference = -l.amount
            AND l.booking_date BETWEEN b.booking_date AND b.booking_date + 60
            AND f.platform_id = (
                SELECT s.platform_id FROM bank_statements s WHERE s.id = l.statement_id
            )
            AND (is_named(f.network, l.words)
                OR (length(f.file_id) >= 4 AND is_named(f.file_id, l.words)));
        CONTINUE WHEN broken.n <> 1;
        INSERT INTO bank_payments (statement_id, line, file_id, currency, amount, expected, rule,
            rest_of_statement_id, rest_of_line)
        SELECT l.statement_id, l.line, k.paid_file_id, currency_code, l.amount, l.amount, 'REST',
            k.statement_id, k.line
        FROM breaks k WHERE k.id = broken.id;
        PERFORM book_bank_line(l.statement_id, l.line);
        PERFORM explain_break(broken.id, 'another line brings the rest', 0);
        PERFORM explain_break(k.id, 'the line completes another one', 0)
        FROM breaks k WHERE (k.statement_id, k.line) = (l.statement_id, l.line);
        DELETE FROM open_bank_lines o WHERE (o.statement_id, o.line) = (l.statement_id, l.line);
    END LOOP;
END $body$;

-- Lines that pay nothing, and days that nothing pays: a later day of the network is paid, or five
-- days have gone by on a statement.
CREATE FUNCTION open_bank_breaks(platform uuid, currency_code text) RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    INSERT INTO breaks (statement_id, line, kind, currency, file_amount, difference, candidates,
        state)
    SELECT o.statement_id, o.line, 'BANK_ONLY', currency_code, o.amount, o.amount, c.files, 'open'
    FROM open_bank_lines o
    LEFT JOIN bank_candidates c ON (c.statement_id, c.line) = (o.statement_id, o.line)
    ON CONFLICT (statement_id, line, kind) WHERE statement_id IS NOT NULL AND line IS NOT NULL DO NOTHING;
    PERFORM explain_break(k.id, 'a later line pays the day', 0)
    FROM breaks k JOIN days_to_pay d ON d.file_id = k.paid_file_id
    WHERE k.kind = 'NOT_PAID' AND k.currency = currency_code AND d.is_paid AND k.difference <> 0;
    INSERT INTO breaks (statement_id, paid_file_id, kind, currency, ledger_amount, difference,
        state)
    SELECT x.id, d.file_id, 'NOT_PAID', currency_code, d.expected, -d.expected, 'open'
    FROM days_to_pay d
    CROSS JOIN (
        SELECT s.id, s.last_day FROM bank_statements s
        WHERE s.platform_id = platform AND s.currency = currency_code
        ORDER BY s.last_day DESC, s.imported_at DESC, s.id LIMIT 1
    ) x
    WHERE NOT d.is_paid AND d.settlement_date >= (
            SELECT min(s.first_day) FROM bank_statements s
            WHERE s.platform_id = platform AND s.currency = currency_code
        )
        AND (d.settlement_date + 5 <= x.last_day OR EXISTS (
            SELECT FROM days_to_pay y WHERE y.network = d.network AND y.is_paid
                AND y.settlement_date > d.settlement_date
        ))
    ON CONFLICT (paid_file_id, currency) WHERE kind = 'NOT_PAID' DO NOTHING;
END $body$;

-- Expected and differences add up to each statement; a row where that has changed.
CREATE FUNCTION prove_statements(platform uuid, currency_code text) RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    INSERT INTO statement_proofs (statement_id, ledger, difference, statement)
    SELECT p.id, p.ledger, p.difference, p.statement
    FROM (
        SELECT s.id, s.closing::numeric - s.opening AS statement,
            coalesce((SELECT sum(b.expected) FROM bank_payments b WHERE b.statement_id = s.id), 0)
            - coalesce((
                SELECT sum(b.amount) FROM bank_payments b
                WHERE b.rest_of_statement_id = s.id AND b.rule = 'REST'
            ), 0)
            - coalesce((
                SELECT sum(k.difference) FROM breaks k
                WHERE k.statement_id = s.id AND k.kind = 'NOT_PAID'
            ), 0) AS ledger,
            coalesce((
                SELECT sum(k.difference) FROM breaks k WHERE k.statement_id = s.id
            ), 0) AS difference
        FROM bank_statements s
        WHERE s.platform_id = platform AND s.currency = currency_code AND s.digest IS NOT NULL
    ) p
    LEFT JOIN LATERAL (
        SELECT o.ledger, o.difference FROM statement_proofs o WHERE o.statement_id = p.id
        ORDER BY o.id DESC LIMIT 1
    ) o ON true
    WHERE (p.ledger, p.difference) IS DISTINCT FROM (o.ledger, o.difference);
END $body$;

CREATE FUNCTION rematch_bank() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    each record;
    found integer := 0;
BEGIN
    FOR each IN SELECT DISTINCT s.platform_id, s.currency FROM bank_statements s LOOP
        PERFORM match_bank(each.platform_id, each.currency);
        found := found + 1;
    END LOOP;
    RETURN found;
END $body$;
