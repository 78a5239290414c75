-- Matches as before, and a line that differs may leave its days for others that it pays exactly, while
-- its break is open, without a person who works on it, and no period with one of its days is closed: what is found does not
-- depend on which file came first.
CREATE OR REPLACE FUNCTION match_bank(platform uuid, currency_code text) RETURNS void
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
        ) AS is_paid, h.statement_id AS held_by, h.line AS held_by_line
    FROM network_files f
    JOIN network_file_totals t ON t.file_id = f.id AND t.currency = currency_code
    CROSS JOIN LATERAL (SELECT expected_at_bank(f.id, t.currency) AS expected) e
    -- The line that pays the day, if it differs and may still be found to pay others exactly.
    LEFT JOIN LATERAL (
        SELECT p.statement_id, p.line FROM bank_payments p
        JOIN breaks k ON (k.statement_id, k.line, k.kind)
            = (p.statement_id, p.line, 'BANK_DIFFERS')
        WHERE p.file_id = f.id AND p.currency = t.currency AND p.rule = 'NETWORK'
            AND k.state = 'open' AND NOT EXISTS (
                SELECT FROM bank_payments q JOIN network_files g ON g.id = q.file_id
                WHERE (q.statement_id, q.line) = (p.statement_id, p.line)
                    AND g.settlement_date < (SELECT b.first_open_day FROM books b)
            ) AND NOT EXISTS (
                SELECT FROM bank_payments r WHERE r.rule = 'REST'
                    AND (r.rest_of_statement_id, r.rest_of_line) = (p.statement_id, p.line)
            )
    ) h ON true
    WHERE f.platform_id = platform AND f.settlement_date >= since AND f.digest IS NOT NULL
        AND e.expected <> 0;
    CREATE TEMP TABLE open_bank_lines ON COMMIT DROP AS
    SELECT b.statement_id, b.line, b.amount, b.booking_date,
        upper(concat_ws(' ', b.bank_reference, b.description)) AS words, b.is_held
    FROM (
        SELECT b.*, false AS is_held FROM bank_statements s JOIN bank_lines b ON b.statement_id = s.id
        WHERE s.platform_id = platform AND s.currency = currency_code AND NOT EXISTS (
            SELECT FROM statement_proofs p WHERE p.statement_id = s.id
        )
        UNION ALL
        -- What a person has decided stays.
        SELECT b.*, false FROM bank_statements s
        JOIN breaks k ON k.statement_id = s.id AND k.line IS NOT NULL AND k.kind = 'BANK_ONLY'
            AND k.state IN ('open', 'investigating')
        JOIN bank_lines b ON b.statement_id = s.id AND b.line = k.line
        WHERE s.platform_id = platform AND s.currency = currency_code
        UNION ALL
        SELECT b.*, true FROM bank_lines b WHERE (b.statement_id, b.line) IN (
            SELECT d.held_by, d.held_by_line FROM days_to_pay d
        )
    ) b;
    ANALYZE days_to_pay, open_bank_lines;
    CREATE TEMP TABLE runs_to_pay (
        first_n integer, last_n integer, network text, last_day date, expected numeric,
        shape numeric[]
    ) ON COMMIT DROP;
    CREATE INDEX ON days_to_pay (n);
    PERFORM add_runs(1, (SELECT max(d.n) FROM days_to_pay d));
    CREATE TEMP TABLE bank_candidates (
        statement_id uuid, line integer, files jsonb
    ) ON COMMIT DROP;
    CREATE INDEX ON runs_to_pay (expected);
    ANALYZE runs_to_pay;

    WHILE progress LOOP
        progress := false;
        FOR l IN
            SELECT o.* FROM open_bank_lines o
            WHERE o.is_held OR EXISTS (
                SELECT FROM runs_to_pay r WHERE r.expected = o.amount
                    AND r.last_day BETWEEN o.booking_date - 10 AND o.booking_date
            )
            ORDER BY o.booking_date, o.statement_id, o.line
        LOOP
            CONTINUE WHEN NOT l.is_held
                AND NOT EXISTS (SELECT FROM runs_to_pay r WHERE r.expected = l.amount);
            IF l.is_held THEN
                PERFORM lend_days(l.statement_id, l.line, true);
            END IF;
            SELECT count(DISTINCT (r.network, r.shape)), (array_agg(ARRAY[r.first_n, r.last_n]
                ORDER BY r.last_day, r.first_n))[1:1]
            INTO shapes, chosen
            FROM runs_named(l.words) r
            WHERE r.expected = l.amount
                AND r.last_day BETWEEN l.booking_date - 10 AND l.booking_date;
            IF l.is_held AND shapes <> 1 THEN
                PERFORM lend_days(l.statement_id, l.line, false);
            END IF;
            CONTINUE WHEN shapes <> 1;
            IF l.is_held THEN
                PERFORM release_days(l.statement_id, l.line);
            END IF;
            PERFORM pay_days(currency_code, l.statement_id, l.line, l.amount, chosen[1][1],
                chosen[1][2], CASE WHEN EXISTS (
                    SELECT FROM days_to_pay d WHERE d.n BETWEEN chosen[1][1] AND chosen[1][2]
                        AND length(d.name) >= 4 AND is_named(d.name, l.words)
                ) THEN 'REFERENCE' ELSE 'AMOUNT' END);
            progress := true;
        END LOOP;
    END LOOP;
    DELETE FROM open_bank_lines o WHERE o.is_held;
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

-- Adds the runs that have one of the days `from_n` to `to_n`: days of one network that follow each
-- other, as a line may pay them, at most ten.
CREATE FUNCTION add_runs(from_n integer, to_n integer) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    INSERT INTO runs_to_pay (first_n, last_n, network, last_day, expected, shape)
    SELECT a.n, b.n, a.network, b.settlement_date, sum(c.expected),
        array_agg(c.expected ORDER BY c.n)
    FROM days_to_pay a
    JOIN days_to_pay b ON b.network = a.network AND b.n BETWEEN a.n AND a.n + 9
    JOIN days_to_pay c ON c.n BETWEEN a.n AND b.n
    WHERE a.n BETWEEN from_n - 9 AND to_n AND b.n >= from_n
        AND NOT a.is_paid AND NOT b.is_paid AND NOT EXISTS (
            SELECT FROM runs_to_pay r WHERE (r.first_n, r.last_n) = (a.n, b.n)
        )
    GROUP BY a.n, b.n, a.network, b.settlement_date
    HAVING NOT bool_or(c.is_paid);
END $body$;

-- Lets a line that differs look for what it pays as if its days were not paid, or ends that.
CREATE FUNCTION lend_days(statement uuid, line_number integer, is_lent boolean) RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    UPDATE days_to_pay d SET is_paid = NOT is_lent
    WHERE (d.held_by, d.held_by_line) = (statement, line_number);
    IF is_lent THEN
        PERFORM add_runs(min(d.n), max(d.n)) FROM days_to_pay d
        WHERE (d.held_by, d.held_by_line) = (statement, line_number);
    ELSE
        DELETE FROM runs_to_pay r WHERE EXISTS (
            SELECT FROM days_to_pay d WHERE d.n BETWEEN r.first_n AND r.last_n
                AND (d.held_by, d.held_by_line) = (statement, line_number)
        );
    END IF;
END $body$;

-- The line pays other days exactly: those that it paid with another amount are not paid any more.
-- What was booked stays, which is the line.
CREATE FUNCTION release_days(statement uuid, line_number integer) RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    INSERT INTO break_history (break_id, action, note)
    SELECT k.id, 'NOTED', left('it does not pay ' || (
        SELECT string_agg(f.file_id, ', ' ORDER BY f.settlement_date, f.file_id)
        FROM bank_payments p JOIN network_files f ON f.id = p.file_id
        WHERE (p.statement_id, p.line) = (statement, line_number)
    ) || ' any more: it pays others exactly', 2000)
    FROM breaks k
    WHERE (k.statement_id, k.line, k.kind) = (statement, line_number, 'BANK_DIFFERS');
    DELETE FROM bank_payments p WHERE (p.statement_id, p.line) = (statement, line_number);
    UPDATE days_to_pay d SET held_by = NULL, held_by_line = NULL
    WHERE (d.held_by, d.held_by_line) = (statement, line_number);
END $body$;
