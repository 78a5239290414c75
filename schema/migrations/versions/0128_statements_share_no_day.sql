-- Whether a statement may say what another one says, though their balances follow each other: an
-- account that is at the same balance again each night follows itself. Formats may put several lines
-- into one, or date a line a day later, so sums of days are compared as well as lines; and where more
-- than one day is common, at most one line may be on these days, which the bank has dated back.
CREATE FUNCTION repeats_lines(statement uuid, other uuid) RETURNS boolean
LANGUAGE plpgsql STABLE AS $body$
DECLARE
    a bank_statements;
    b bank_statements;
    from_day date;
    to_day date;
    balances bigint;
    is_equal boolean;
    fewest bigint;
BEGIN
    SELECT * INTO a FROM bank_statements s WHERE s.id = statement;
    SELECT * INTO b FROM bank_statements s WHERE s.id = other;
    from_day := greatest(a.first_day, b.first_day);
    to_day := least(a.last_day, b.last_day);
    SELECT count(DISTINCT x.balance) INTO balances
    FROM (
        SELECT s.opening + coalesce(sum(l.amount) FILTER (WHERE l.booking_date < from_day), 0)
            AS balance
        FROM bank_statements s JOIN bank_lines l ON l.statement_id = s.id
        WHERE s.id IN (statement, other) GROUP BY s.id
    ) x;
    IF balances > 1 AND a.opening <> a.closing AND b.opening <> b.closing THEN
        RETURN false;
    END IF;
    WITH day AS (
        SELECT l.booking_date, l.statement_id, count(*) AS lines, sum(l.amount) AS net,
            sum(l.amount) FILTER (WHERE l.amount > 0) AS arrived,
            sum(l.amount) FILTER (WHERE l.amount < 0) AS gone
        FROM bank_lines l
        WHERE l.statement_id IN (statement, other) AND l.booking_date BETWEEN from_day AND to_day
        GROUP BY l.booking_date, l.statement_id
    )
    SELECT (
            SELECT bool_or(x.net = y.net OR x.arrived = y.arrived OR x.gone = y.gone)
            FROM day x JOIN day y ON y.booking_date = x.booking_date
            WHERE x.statement_id = statement AND y.statement_id = other
        ), least(
            coalesce((SELECT sum(x.lines) FROM day x WHERE x.statement_id = statement), 0),
            coalesce((SELECT sum(y.lines) FROM day y WHERE y.statement_id = other), 0)
        )
    INTO is_equal, fewest;
    IF is_equal OR (fewest > 1 AND a.last_day > b.first_day AND b.last_day > a.first_day) THEN
        RETURN true;
    END IF;
    RETURN fewest > 0 AND (NOT EXISTS (
            SELECT l.booking_date, l.amount FROM bank_lines l
            WHERE l.statement_id = statement AND l.booking_date BETWEEN from_day AND to_day
            EXCEPT ALL
            SELECT l.booking_date, l.amount FROM bank_lines l WHERE l.statement_id = other
        ) OR NOT EXISTS (
            SELECT l.booking_date, l.amount FROM bank_lines l
            WHERE l.statement_id = other AND l.booking_date BETWEEN from_day AND to_day
            EXCEPT ALL
            SELECT l.booking_date, l.amount FROM bank_lines l WHERE l.statement_id = statement
        ));
END $body$;

-- The statement of the same account under another name: on the days of both it has the same lines, and
-- before them the same balance.
CREATE FUNCTION statement_of_namesake(statement uuid) RETURNS uuid LANGUAGE plpgsql STABLE AS $body$
DECLARE
    s bank_statements;
    other record;
BEGIN
    SELECT * INTO s FROM bank_statements b WHERE b.id = statement;
    FOR other IN
        WITH near AS (
            SELECT b.id, b.opening, greatest(b.first_day, s.first_day) AS from_day,
                least(b.last_day, s.last_day) AS to_day, b.imported_at
            FROM bank_statements b
            WHERE b.platform_id = s.platform_id AND b.currency = s.currency
                AND b.account <> s.account
                AND b.last_day >= s.first_day AND b.first_day <= s.last_day
        ), day AS MATERIALIZED (
            SELECT l.statement_id, l.booking_date, count(*) AS lines, sum(l.amount) AS net
            FROM (SELECT s.id UNION ALL SELECT n.id FROM near n) x
            JOIN bank_lines l ON l.statement_id = x.id
            GROUP BY l.statement_id, l.booking_date
        ), summed AS (
            SELECT n.id, n.from_day, n.to_day, n.imported_at, d.statement_id,
                CASE d.statement_id WHEN s.id THEN s.opening ELSE n.opening END
                    + coalesce(sum(d.net) FILTER (WHERE d.booking_date < n.from_day), 0) AS balance,
                jsonb_agg(jsonb_build_array(d.booking_date, d.lines, d.net)
                    ORDER BY d.booking_date)
                    FILTER (WHERE d.booking_date BETWEEN n.from_day AND n.to_day) AS days
            FROM near n JOIN day d ON d.statement_id IN (n.id, s.id)
            GROUP BY n.id, n.opening, n.from_day, n.to_day, n.imported_at, d.statement_id
        )
        SELECT x.id, x.from_day, x.to_day FROM summed x JOIN summed y USING (id)
        WHERE x.statement_id = s.id AND y.statement_id <> s.id
            AND (x.balance, x.days) = (y.balance, y.days)
        ORDER BY x.imported_at, x.id
    LOOP
        -- The sums of days agree; are they those of the same lines?
        IF NOT EXISTS (
            SELECT l.booking_date, l.amount FROM bank_lines l
            WHERE l.statement_id = s.id AND l.booking_date BETWEEN other.from_day AND other.to_day
            EXCEPT ALL
            SELECT l.booking_date, l.amount FROM bank_lines l WHERE l.statement_id = other.id
        ) THEN
            RETURN other.id;
        END IF;
    END LOOP;
    RETURN NULL;
END $body$;

CREATE OR REPLACE FUNCTION finish_bank_statement(statement uuid, sha256 text) RETURNS void
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
    -- A line is booked once. Statements of an account have no day in common, unless the balances of
    -- one follow those of the other: whatever the texts and formats say, such lines are others.
    -- Between two of them may be others, with none of these days.
    WITH RECURSIVE shared AS (
        SELECT min(b.last_day) AS from_day, max(b.last_day) AS to_day FROM bank_statements b
        WHERE b.platform_id = s.platform_id AND b.currency = s.currency AND b.account = s.account
            AND b.last_day >= s.first_day AND b.first_day <= s.last_day
    ), near AS (
        SELECT b.id, b.opening, b.closing, b.last_day FROM shared d JOIN bank_statements b
            ON b.last_day BETWEEN d.from_day AND d.to_day
        WHERE b.platform_id = s.platform_id AND b.currency = s.currency AND b.account = s.account
    ), earlier AS (
        SELECT n.* FROM near n WHERE n.id = s.id
        UNION
        SELECT n.* FROM earlier e JOIN near n ON n.closing = e.opening
            AND n.last_day <= e.last_day
    ), later AS (
        SELECT n.* FROM near n WHERE n.id = s.id
        UNION
        SELECT n.* FROM later e JOIN near n ON n.opening = e.closing
            AND n.last_day >= e.last_day
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
        CONTINUE WHEN other.account <> s.account;
        IF other.id <> ALL (following) THEN
            RAISE EXCEPTION 'statement % of this account has days of these, % to %, and was imported'
                ' at %; their balances do not follow each other: export the days that are missing,'
                ' or import first what is between them', quote_literal(other.statement_id),
                other.first_day, other.last_day, other.imported_at USING ERRCODE = 'CL006';
        ELSIF repeats_lines(s.id, other.id) THEN
            RAISE EXCEPTION 'statement % of this account, imported at %, may have lines of these: days'
                ' of both, and balances that do not tell them apart',
                quote_literal(other.statement_id), other.imported_at USING ERRCODE = 'CL006';
        END IF;
    END LOOP;
    SELECT b.* INTO other FROM bank_statements b WHERE b.id = statement_of_namesake(s.id);
    IF other.id IS NOT NULL THEN
        RAISE EXCEPTION 'statement % of account % has the lines of these days, and was imported at %:'
            ' give an account one name', quote_literal(other.statement_id),
            quote_literal(other.account), other.imported_at USING ERRCODE = 'CL006';
    END IF;
    UPDATE bank_statements b SET digest = sha256, lines = found.lines WHERE b.id = s.id;
    PERFORM match_bank(s.platform_id, s.currency);
END $body$;
