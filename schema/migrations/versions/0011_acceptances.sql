CREATE TABLE acceptances (
    ids UUID[] NOT NULL,
    recorded_at TIMESTAMP WITH TIME ZONE NOT NULL
);
-- UUIDs do not compress: trying costs time for every write to the inbox.
ALTER TABLE acceptances ALTER COLUMN ids SET STORAGE EXTERNAL;
COMMENT ON TABLE acceptances IS 'Accepted messages, append-only: one row for each write to the inbox, made by its trigger.';
COMMENT ON COLUMN acceptances.ids IS 'The messages; in the first row, those that waited when the table was created.';
COMMENT ON COLUMN acceptances.recorded_at IS 'When they were written, by the clock of PostgreSQL.';

CREATE TABLE duplicates (
    ids UUID[] NOT NULL,
    recorded_at TIMESTAMP WITH TIME ZONE NOT NULL
);
ALTER TABLE duplicates ALTER COLUMN ids SET STORAGE EXTERNAL;
COMMENT ON TABLE duplicates IS 'Messages whose idempotency key already had an outcome, append-only: one row for each batch with duplicates.';
COMMENT ON COLUMN duplicates.ids IS 'The messages.';
COMMENT ON COLUMN duplicates.recorded_at IS 'When they were decided.';

-- Canaries are no facts: the engine answers them and leaves nothing behind.
CREATE FUNCTION record_acceptance() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO acceptances (ids, recorded_at)
        SELECT array_agg(id), clock_timestamp() FROM written
        WHERE customer_id < 'ffffffff-ffff-ffff-ffff-fffffffffff0' HAVING count(*) > 0;
    RETURN NULL;
END $$;

-- ALWAYS: also when `session_replication_role` is `replica`, which skips ordinary triggers.
CREATE TRIGGER acceptance AFTER INSERT ON inbox REFERENCING NEW TABLE AS written
    FOR EACH STATEMENT EXECUTE FUNCTION record_acceptance();
ALTER TABLE inbox ENABLE ALWAYS TRIGGER acceptance;
