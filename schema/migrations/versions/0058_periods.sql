CREATE TABLE closing_kinds (
    kind TEXT NOT NULL,
    meaning TEXT NOT NULL,
    remedy TEXT NOT NULL,
    is_lasting BOOLEAN NOT NULL,
    CONSTRAINT closing_kinds_pkey PRIMARY KEY (kind)
);
COMMENT ON TABLE closing_kinds IS 'What can be in the way of closing a period; written by migrations.';
COMMENT ON COLUMN closing_kinds.kind IS 'Its name, as `cardledger close --allow` takes it.';
COMMENT ON COLUMN closing_kinds.meaning IS 'What it is.';
COMMENT ON COLUMN closing_kinds.remedy IS 'How to clear it.';
COMMENT ON COLUMN closing_kinds.is_lasting IS 'Whether it is checked again at the approval; what goes by itself is not.';
INSERT INTO closing_kinds (kind, meaning, remedy, is_lasting) VALUES
    ('INBOX', 'messages of the period wait to be decided', 'let the workers decide them; `cardledger doctor` shows queues that have stopped', false),
    ('PARKED', 'messages of the period wait for the event that they reverse', '`cardledger parked list`; submit the missing events', true),
    ('UNVERIFIED', 'entries of the period that no `cardledger verify` has checked', 'run `cardledger verify`', false),
    ('SUSPENSE', 'the network moved money that is not applied', '`cardledger report unapplied`; submit the events corrected, or resolve them', true),
    ('UNPAID_DAY', 'days of settlement that the network was not paid for', 'book the payments of the bank', true),
    ('MISSING_FILE', 'days of settlement without the file of the network', 'import the file', true);

CREATE TABLE closings (
    id UUID DEFAULT gen_random_uuid() NOT NULL,
    kind TEXT NOT NULL,
    closing_id UUID,
    first_day DATE NOT NULL,
    last_day DATE NOT NULL,
    state TEXT DEFAULT 'PREPARED' NOT NULL,
    reason TEXT,
    prepared_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    prepared_by TEXT DEFAULT SESSION_USER NOT NULL,
    decided_at TIMESTAMP WITH TIME ZONE,
    decided_by TEXT,
    decision_reason TEXT,
    CONSTRAINT closings_pkey PRIMARY KEY (id),
    CONSTRAINT closings_closing_id_fkey FOREIGN KEY (closing_id) REFERENCES closings (id),
    CONSTRAINT closings_kind_check CHECK (
        kind IN ('CLOSE', 'REOPEN') AND (kind = 'REOPEN') = (num_nulls(closing_id, reason) = 0)
    ),
    CONSTRAINT closings_period_check CHECK (first_day <= last_day),
    CONSTRAINT closings_state_check CHECK (
        state IN ('PREPARED', 'REJECTED', 'REOPENED')
        OR (kind = 'CLOSE' AND state IN ('APPROVED', 'SEALED'))
    ),
    CONSTRAINT closings_decision_check CHECK (
        num_nulls(decided_at, decided_by) = CASE state WHEN 'PREPARED' THEN 2 ELSE 0 END
        AND (state = 'REJECTED') = (decision_reason IS NOT NULL)
    ),
    CONSTRAINT closings_two_people_check CHECK (decided_by <> prepared_by)
);
CREATE UNIQUE INDEX closings_prepared_key ON closings (state) WHERE state = 'PREPARED';
COMMENT ON TABLE closings IS 'Periods that were closed, and closings that were taken back: prepared by one person, decided by another. At most one is undecided.';
COMMENT ON COLUMN closings.id IS 'The closing or the reopening.';
COMMENT ON COLUMN closings.kind IS 'CLOSE or REOPEN.';
COMMENT ON COLUMN closings.closing_id IS 'The closing that a reopening takes back.';
COMMENT ON COLUMN closings.first_day IS 'First day of the period.';
COMMENT ON COLUMN closings.last_day IS 'Last day of the period.';
COMMENT ON COLUMN closings.state IS 'PREPARED, then REJECTED, or APPROVED (closed), SEALED, and REOPENED when it was taken back; of a reopening PREPARED, then REOPENED or REJECTED.';
COMMENT ON COLUMN closings.reason IS 'Why it is to be reopened.';
COMMENT ON COLUMN closings.prepared_at IS 'When it was prepared.';
COMMENT ON COLUMN closings.prepared_by IS 'The login that prepared it; written by the database.';
COMMENT ON COLUMN closings.decided_at IS 'When it was approved or rejected. No entry that is recorded later is posted into a closed period.';
COMMENT ON COLUMN closings.decided_by IS 'The login that approved or rejected it; written by the database.';
COMMENT ON COLUMN closings.decision_reason IS 'Why it was rejected.';

CREATE TRIGGER never_deleted BEFORE DELETE OR TRUNCATE ON closings
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE closings ENABLE ALWAYS TRIGGER never_deleted;
CREATE TRIGGER decided_once BEFORE UPDATE ON closings FOR EACH ROW
    WHEN (
        (OLD.id, OLD.kind, OLD.closing_id, OLD.first_day, OLD.last_day, OLD.reason,
            OLD.prepared_at, OLD.prepared_by)
        IS DISTINCT FROM (NEW.id, NEW.kind, NEW.closing_id, NEW.first_day, NEW.last_day,
            NEW.reason, NEW.prepared_at, NEW.prepared_by)
        OR (OLD.decided_by IS NOT NULL
            AND (OLD.decided_at, OLD.decided_by, OLD.decision_reason)
            IS DISTINCT FROM (NEW.decided_at, NEW.decided_by, NEW.decision_reason))
    )
    EXECUTE FUNCTION refuse_change();
ALTER TABLE closings ENABLE ALWAYS TRIGGER decided_once;

CREATE TABLE closing_exceptions (
    closing_id UUID NOT NULL,
    kind TEXT NOT NULL,
    reason TEXT NOT NULL,
    found BIGINT NOT NULL,
    allowed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    allowed_by TEXT DEFAULT SESSION_USER NOT NULL,
    CONSTRAINT closing_exceptions_pkey PRIMARY KEY (closing_id, kind),
    CONSTRAINT closing_exceptions_closing_id_fkey FOREIGN KEY (closing_id) REFERENCES closings (id),
    CONSTRAINT closing_exceptions_kind_fkey FOREIGN KEY (kind) REFERENCES closing_kinds (kind)
);
COMMENT ON TABLE closing_exceptions IS 'What was in the way of a closing and was allowed, append-only.';
COMMENT ON COLUMN closing_exceptions.closing_id IS 'The closing.';
COMMENT ON COLUMN closing_exceptions.kind IS 'What was allowed to be in the way.';
COMMENT ON COLUMN closing_exceptions.reason IS 'Why.';
COMMENT ON COLUMN closing_exceptions.found IS 'How many of the kind were in the way when the closing was prepared.';
COMMENT ON COLUMN closing_exceptions.allowed_at IS 'When it was allowed.';
COMMENT ON COLUMN closing_exceptions.allowed_by IS 'The login that allowed it; written by the database.';

CREATE TABLE seals (
    closing_id UUID NOT NULL,
    version INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    entries BIGINT NOT NULL,
    late_entries BIGINT NOT NULL,
    trial_balance JSONB NOT NULL,
    sealed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    sealed_by TEXT DEFAULT SESSION_USER NOT NULL,
    CONSTRAINT seals_pkey PRIMARY KEY (closing_id),
    CONSTRAINT seals_closing_id_fkey FOREIGN KEY (closing_id) REFERENCES closings (id),
    CONSTRAINT seals_sha256_check CHECK (sha256 ~ '^[0-9a-f]{64}$')
);
COMMENT ON TABLE seals IS 'What a period was when it was closed, append-only; a seal stays when its period is reopened.';
COMMENT ON COLUMN seals.closing_id IS 'The closing.';
COMMENT ON COLUMN seals.version IS 'Version of the columns that sha256 is made of (docs/finance.md).';
COMMENT ON COLUMN seals.sha256 IS 'SHA-256 of the entries of the period, hexadecimal.';
COMMENT ON COLUMN seals.entries IS 'Number of entries of the period.';
COMMENT ON COLUMN seals.late_entries IS 'Number of them that are late: of a period closed before.';
COMMENT ON COLUMN seals.trial_balance IS 'Trial balance at the last day; amounts are text, minor units.';
COMMENT ON COLUMN seals.sealed_at IS 'When it was sealed.';
COMMENT ON COLUMN seals.sealed_by IS 'The login that sealed it; written by the database.';

CREATE TABLE book_verifications (
    days JSONB NOT NULL,
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    verified_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    verified_by TEXT DEFAULT SESSION_USER NOT NULL,
    CONSTRAINT book_verifications_pkey PRIMARY KEY (id)
);
COMMENT ON TABLE book_verifications IS 'Runs of `cardledger verify` after which the proof held, append-only.';
COMMENT ON COLUMN book_verifications.id IS 'Ids rise with time.';
COMMENT ON COLUMN book_verifications.days IS 'Number of entries that were checked of each day from the first open day on, by day: entries are only added, so a day with as many has no other.';
COMMENT ON COLUMN book_verifications.verified_at IS 'When it was recorded.';
COMMENT ON COLUMN book_verifications.verified_by IS 'The login that verified; written by the database.';

-- A closing takes the lock in EXCLUSIVE mode: it waits for every batch that has written entries, and
-- a batch that comes later sees the new day. Who only reads neither waits nor is waited for. In
-- another isolation level a snapshot may be older than the closing: a row lock fails then.
CREATE FUNCTION refuse_closed_day() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    open_day date;
    earliest date;
BEGIN
    LOCK TABLE books IN ROW SHARE MODE;
    IF current_setting('transaction_isolation') = 'read committed' THEN
        SELECT b.first_open_day INTO open_day FROM books b WHERE b.is_only;
    ELSE
        SELECT b.first_open_day INTO open_day FROM books b WHERE b.is_only FOR SHARE;
    END IF;
    SELECT min(w.posted_on) INTO earliest FROM written w;
    IF earliest < open_day THEN
        RAISE EXCEPTION 'the books are closed before %: an entry posted on % is refused',
            open_day, earliest
            USING ERRCODE = 'CL004', HINT = 'Post it on the first open day, with late_from.';
    END IF;
    RETURN NULL;
END $body$;

CREATE FUNCTION end_of_business_day(day date) RETURNS timestamp with time zone
LANGUAGE sql STABLE SECURITY DEFINER AS $body$
    SELECT ((day + CASE c.cut_off WHEN '00:00' THEN 1 ELSE 0 END) + c.cut_off)
        AT TIME ZONE c.time_zone
    FROM (
        SELECT v.cut_off, v.time_zone, v.valid_from FROM calendars v
        WHERE v.name = 'BOOKS' AND v.valid_from <= day
        UNION ALL SELECT '00:00', 'UTC', NULL
        ORDER BY valid_from DESC NULLS LAST LIMIT 1
    ) c
$body$;

-- One decision at a time: the row is locked.
CREATE FUNCTION find_closing(closing uuid) RETURNS closings
LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    c closings;
BEGIN
    SELECT * INTO c FROM closings WHERE id = closing FOR UPDATE;
    IF c.id IS NULL THEN
        RAISE EXCEPTION 'there is no closing %', coalesce(closing::text, 'null')
            USING ERRCODE = 'CL002', HINT = '`cardledger close list` shows those there are.';
    END IF;
    RETURN c;
END $body$;

CREATE FUNCTION refuse_second_request() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET datestyle = 'ISO' AS $body$
DECLARE
    c closings;
BEGIN
    SELECT * INTO c FROM closings WHERE state = 'PREPARED';
    RAISE EXCEPTION '% (% of % to %) is prepared: approve or reject it first', c.id,
        lower(c.kind), c.first_day, c.last_day
        USING ERRCODE = 'CL002';
END $body$;

-- What is in the way is found by `closing_findings`, of the revision of the views.
CREATE FUNCTION prepare_closing(from_day date, to_day date, allowed jsonb) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET datestyle = 'ISO' AS $body$
DECLARE
    open_day date := (SELECT b.first_open_day FROM books b);
    period text := CASE from_day WHEN to_day THEN to_day::text
        ELSE from_day || ' to ' || to_day END;
    ends_at timestamp with time zone := end_of_business_day(to_day);
    found jsonb;
    wrong text;
    made uuid;
BEGIN
    IF from_day IS NULL OR to_day IS NULL OR to_day < from_day THEN
        RAISE EXCEPTION 'a period needs a first day and a last day that is not before it'
            USING ERRCODE = 'CL002';
    ELSIF to_day < open_day THEN
        RAISE EXCEPTION '% is closed already: the first open day is %', period, open_day
            USING ERRCODE = 'CL002';
    ELSIF clock_timestamp() < ends_at THEN
        RAISE EXCEPTION '% has not ended: it can be closed from % on', period,
            coalesce(to_char(ends_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 'never')
            USING ERRCODE = 'CL002';
    ELSIF from_day > open_day THEN
        RAISE EXCEPTION '% cannot be closed while days before it are open: close those from % on'
            ' first', period, open_day
            USING ERRCODE = 'CL002';
    ELSIF jsonb_typeof(allowed) IS DISTINCT FROM 'array' THEN
        RAISE EXCEPTION 'what is allowed must be a JSON array of {"kind", "reason"}'
            USING ERRCODE = 'CL002';
    END IF;
    SELECT coalesce(x ->> 'kind', 'null') INTO wrong FROM jsonb_array_elements(allowed) AS a (x)
    WHERE NOT EXISTS (SELECT FROM closing_kinds k WHERE k.kind = x ->> 'kind') LIMIT 1;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION '% cannot be allowed; there are %', quote_literal(wrong),
            (SELECT string_agg(k.kind, ', ' ORDER BY k.kind) FROM closing_kinds k)
            USING ERRCODE = 'CL002';
    END IF;
    SELECT x ->> 'kind' INTO wrong FROM jsonb_array_elements(allowed) AS a (x)
    WHERE coalesce(trim(x ->> 'reason'), '') = '' LIMIT 1;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION '% is allowed only with a reason', wrong USING ERRCODE = 'CL002';
    END IF;

    -- Days of the month may be closed already: the period begins on the first open one.
    SELECT coalesce(jsonb_object_agg(f.kind, f.found), '{}') INTO found
    FROM (
        SELECT w.kind, sum(w.found) AS found
        FROM closing_findings(open_day, to_day) w GROUP BY w.kind
    ) f;
    SELECT string_agg(f.kind, ', ' ORDER BY f.kind) INTO wrong
    FROM jsonb_object_keys(found) AS f (kind)
    WHERE NOT EXISTS (SELECT FROM jsonb_array_elements(allowed) AS a (x) WHERE x ->> 'kind' = f.kind);
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION '% cannot be closed: % in the way', period, wrong USING ERRCODE = 'CL003';
    END IF;
    BEGIN
        INSERT INTO closings (kind, first_day, last_day) VALUES ('CLOSE', open_day, to_day)
        RETURNING id INTO made;
    EXCEPTION WHEN unique_violation THEN
        PERFORM refuse_second_request();
    END;
    INSERT INTO closing_exceptions (closing_id, kind, reason, found)
    SELECT DISTINCT ON (x ->> 'kind') made, x ->> 'kind', trim(x ->> 'reason'),
        coalesce((found ->> (x ->> 'kind'))::bigint, 0)
    FROM jsonb_array_elements(allowed) AS a (x);
    RETURN made;
END $body$;

CREATE FUNCTION prepare_reopening(closing uuid, why text) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET datestyle = 'ISO' AS $body$
DECLARE
    c closings := find_closing(closing);
    open_day date := (SELECT b.first_open_day FROM books b);
    made uuid;
BEGIN
    IF coalesce(trim(why), '') = '' THEN
        RAISE EXCEPTION 'reopening a period needs a reason' USING ERRCODE = 'CL002';
    ELSIF c.kind <> 'CLOSE' OR c.state <> 'SEALED' THEN
        RAISE EXCEPTION '% is % and cannot be reopened: only a sealed period can', c.id, c.state
            USING ERRCODE = 'CL002';
    ELSIF c.last_day + 1 <> open_day THEN
        RAISE EXCEPTION '% to % cannot be reopened while later days are closed: reopen those'
            ' before % first', c.first_day, c.last_day, open_day
            USING ERRCODE = 'CL002';
    END IF;
    BEGIN
        INSERT INTO closings (kind, closing_id, first_day, last_day, reason)
        VALUES ('REOPEN', c.id, c.first_day, c.last_day, trim(why)) RETURNING id INTO made;
    EXCEPTION WHEN unique_violation THEN
        PERFORM refuse_second_request();
    END;
    RETURN made;
END $body$;

-- The lock is held until the commit, and batches wait for it; see refuse_closed_day. A session
-- that leaves its database transaction open is ended, so that batches go on.
-- In another isolation level what is read after the lock would be from before it.
CREATE FUNCTION lock_books() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $body$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'periods are changed in the isolation level READ COMMITTED only'
            USING ERRCODE = 'CL002';
    END IF;
    LOCK TABLE books IN EXCLUSIVE MODE;
    PERFORM set_config('idle_in_transaction_session_timeout', '1s', true);
END $body$;

-- The time of the decision is after the lock, so every entry that was posted before is older.
CREATE FUNCTION approve_closing(closing uuid) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '100ms' SET datestyle = 'ISO' AS $body$
DECLARE
    c closings := find_closing(closing);
    open_day date;
    wrong text;
BEGIN
    IF c.prepared_by = session_user THEN
        RAISE EXCEPTION '% was prepared by %: another person must approve it', c.id, c.prepared_by
            USING ERRCODE = 'CL002';
    ELSIF c.state = 'REJECTED' THEN
        RAISE EXCEPTION '% was rejected by %: prepare it again', c.id, c.decided_by
            USING ERRCODE = 'CL002';
    ELSIF c.state <> 'PREPARED' THEN
        RETURN c.state;  -- Approved before.
    END IF;
    IF c.kind = 'CLOSE' THEN
        SELECT string_agg(DISTINCT f.kind, ', ') INTO wrong
        FROM closing_findings(c.first_day, c.last_day) f
        JOIN closing_kinds k ON k.kind = f.kind AND k.is_lasting
        WHERE NOT EXISTS (
            SELECT FROM closing_exceptions x WHERE x.closing_id = c.id AND x.kind = f.kind
        );
        IF wrong IS NOT NULL THEN
            RAISE EXCEPTION '% to % cannot be closed any more: % in the way since it was prepared;'
                ' clear it, or reject % and prepare it again', c.first_day, c.last_day, wrong, c.id
                USING ERRCODE = 'CL003';
        END IF;
    END IF;
    PERFORM lock_books();
    SELECT b.first_open_day INTO open_day FROM books b;
    IF open_day <> (CASE c.kind WHEN 'CLOSE' THEN c.first_day ELSE c.last_day + 1 END) THEN
        RAISE EXCEPTION 'the first open day is % now: reject % and prepare it again', open_day, c.id
            USING ERRCODE = 'CL002';
    END IF;
    UPDATE books SET first_open_day = CASE c.kind WHEN 'CLOSE' THEN c.last_day + 1
        ELSE c.first_day END;
    UPDATE closings SET state = CASE c.kind WHEN 'CLOSE' THEN 'APPROVED' ELSE 'REOPENED' END,
        decided_at = clock_timestamp(), decided_by = session_user
    WHERE id = c.id RETURNING state INTO c.state;
    UPDATE closings SET state = 'REOPENED' WHERE id = c.closing_id;
    RETURN c.state;
END $body$;

-- The caller has read the entries, of which there cannot be another one, outside of any lock.
CREATE FUNCTION seal_closing(closing uuid, columns_version integer, digest text, number bigint)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET datestyle = 'ISO' AS $body$
DECLARE
    c closings := find_closing(closing);
    counted bigint;
    late bigint;
    sealed seals;
BEGIN
    IF c.kind <> 'CLOSE' OR c.state NOT IN ('APPROVED', 'SEALED') THEN
        RAISE EXCEPTION '% is % and cannot be sealed', c.id, c.state USING ERRCODE = 'CL002';
    ELSIF c.state = 'SEALED' THEN
        SELECT * INTO sealed FROM seals s WHERE s.closing_id = c.id;
        IF (sealed.version, sealed.sha256, sealed.entries)
            IS DISTINCT FROM (columns_version, digest, number)
        THEN
            RAISE EXCEPTION 'the entries of % to % are not those of its seal: run'
                ' `cardledger verify`', c.first_day, c.last_day
                USING ERRCODE = 'CL002';
        END IF;
        RETURN c.state;
    END IF;
    SELECT count(*), count(e.late_from) INTO counted, late FROM entries e
    WHERE e.posted_on BETWEEN c.first_day AND c.last_day;
    IF counted IS DISTINCT FROM number THEN
        RAISE EXCEPTION '% to % has % entries; % were read', c.first_day, c.last_day, counted,
            coalesce(number::text, 'none')
            USING ERRCODE = 'CL002';
    END IF;
    INSERT INTO seals (closing_id, version, sha256, entries, late_entries, trial_balance)
    VALUES (c.id, columns_version, digest, counted, late, closing_trial_balance(c.last_day));
    UPDATE closings SET state = 'SEALED' WHERE id = c.id;
    RETURN 'SEALED';
END $body$;

CREATE FUNCTION reject_closing(closing uuid, why text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '100ms' AS $body$
DECLARE
    c closings := find_closing(closing);
BEGIN
    IF coalesce(trim(why), '') = '' THEN
        RAISE EXCEPTION 'a rejection needs a reason' USING ERRCODE = 'CL002';
    ELSIF c.prepared_by = session_user THEN
        RAISE EXCEPTION '% was prepared by %: another person must reject it', c.id, c.prepared_by
            USING ERRCODE = 'CL002';
    ELSIF c.state = 'REJECTED' THEN
        RETURN c.state;
    ELSIF c.state <> 'PREPARED' THEN
        RAISE EXCEPTION '% is % and cannot be rejected any more', c.id, c.state
            USING ERRCODE = 'CL002';
    END IF;
    UPDATE closings SET state = 'REJECTED', decided_at = clock_timestamp(),
        decided_by = session_user, decision_reason = trim(why)
    WHERE id = c.id;
    RETURN 'REJECTED';
END $body$;
