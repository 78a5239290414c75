CREATE TABLE book_beginnings (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    first_day DATE NOT NULL,
    begun_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    begun_by TEXT DEFAULT SESSION_USER NOT NULL,
    CONSTRAINT book_beginnings_pkey PRIMARY KEY (id)
);
COMMENT ON TABLE book_beginnings IS 'Days from which the books were opened, before any was closed, append-only; no row: from the month of the first entry on.';
COMMENT ON COLUMN book_beginnings.id IS 'Ids rise with time.';
COMMENT ON COLUMN book_beginnings.first_day IS 'First day of the books.';
COMMENT ON COLUMN book_beginnings.begun_at IS 'When it was set.';
COMMENT ON COLUMN book_beginnings.begun_by IS 'The login that set it; written by the database.';
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON book_beginnings
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE book_beginnings ENABLE ALWAYS TRIGGER append_only;

-- An entry that the beginning has moved would have another posting day now. A release before 0057
-- had no place to say that an entry is late: it is posted on the first day, and occurred before it.
CREATE FUNCTION moved_by_beginning(day date, first_day date, since timestamp with time zone)
RETURNS text LANGUAGE sql STABLE SECURITY DEFINER SET datestyle = 'ISO' AS $body$
    SELECT CASE
        WHEN e.posted_on < day THEN format('an entry is posted on %s', e.posted_on)
        ELSE format('an entry of an earlier day is posted on %s', e.posted_on)
    END
    FROM entries e
    WHERE e.recorded_at >= since AND (e.posted_on < day OR e.late_from IS NOT NULL OR (
        e.posted_on = first_day AND e.occurred_at < first_day - interval '2 days'
    ))
    LIMIT 1
$body$;

-- All entries are read before the lock of `books`, and those recorded meanwhile under it; see
-- refuse_closed_day.
CREATE FUNCTION begin_books(day date) RETURNS date
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '100ms' SET datestyle = 'ISO' AS $body$
DECLARE
    read_at timestamp with time zone := clock_timestamp();
    open_day date := (SELECT b.first_open_day FROM books b);
    wrong text := moved_by_beginning(day, open_day, '-infinity');
BEGIN
    -- PostgreSQL has earlier days than the programs that post entries can read.
    IF day IS NULL OR day < '1970-01-01' OR day > (clock_timestamp() AT TIME ZONE 'UTC')::date THEN
        RAISE EXCEPTION 'the books begin on a day from 1970-01-01 until today'
            USING ERRCODE = 'CL002';
    END IF;
    IF wrong IS NULL THEN
        PERFORM lock_books();
        wrong := moved_by_beginning(day, open_day, read_at - interval '1 minute');
    END IF;
    IF EXISTS (SELECT FROM closings c WHERE c.state IN ('APPROVED', 'SEALED', 'REOPENED')) THEN
        wrong := 'a period has been closed';
    END IF;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'the beginning of the books cannot be moved to % any more: %', day, wrong
            USING ERRCODE = 'CL002';
    END IF;
    UPDATE books SET first_open_day = day;
    INSERT INTO book_beginnings (first_day) VALUES (day);
    RETURN day;
END $body$;
