CREATE TABLE settlement_bookings (
    id UUID DEFAULT gen_random_uuid() NOT NULL,
    platform_id UUID NOT NULL,
    file_id UUID,
    statement_id UUID,
    amount BIGINT NOT NULL,
    made_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    booked_at TIMESTAMP WITH TIME ZONE,
    posted_for DATE NOT NULL,
    line INTEGER,
    kind TEXT NOT NULL,
    currency TEXT NOT NULL,
    from_kind TEXT NOT NULL,
    to_kind TEXT NOT NULL,
    network TEXT,
    CONSTRAINT settlement_bookings_pkey PRIMARY KEY (id),
    CONSTRAINT settlement_bookings_amount_check CHECK (amount > 0),
    CONSTRAINT settlement_bookings_source_check CHECK (CASE kind WHEN 'BANK_LINE' THEN num_nulls(statement_id, line) = 0 AND num_nonnulls(file_id, network) = 0 ELSE num_nulls(file_id, network) = 0 AND num_nonnulls(statement_id, line) = 0 END),
    CONSTRAINT settlement_bookings_accounts_check CHECK ((kind, least(from_kind, to_kind), greatest(from_kind, to_kind)) IN (('INTERCHANGE', 'INTERCHANGE', 'NETWORK_SETTLEMENT'), ('NETWORK_FEES', 'NETWORK_FEES', 'NETWORK_SETTLEMENT'), ('BANK_LINE', 'NETWORK_SETTLEMENT', 'SETTLEMENT_BANK')))
);
CREATE UNIQUE INDEX settlement_bookings_file_key ON settlement_bookings (file_id, currency, kind, from_kind) WHERE file_id IS NOT NULL;
CREATE UNIQUE INDEX settlement_bookings_line_key ON settlement_bookings (statement_id, line) WHERE statement_id IS NOT NULL;
CREATE INDEX settlement_bookings_due_idx ON settlement_bookings (made_at, id) WHERE booked_at IS NULL;
COMMENT ON TABLE settlement_bookings IS 'What files of networks and statements of the bank book, each once; nothing is deleted.';
COMMENT ON COLUMN settlement_bookings.id IS 'The booking; `entries.subject_id` of its entry.';
COMMENT ON COLUMN settlement_bookings.platform_id IS 'The platform.';
COMMENT ON COLUMN settlement_bookings.file_id IS 'Of INTERCHANGE and NETWORK_FEES: the file (network_files.id).';
COMMENT ON COLUMN settlement_bookings.statement_id IS 'Of BANK_LINE: the statement (bank_statements.id).';
COMMENT ON COLUMN settlement_bookings.amount IS 'Amount, minor units; always positive.';
COMMENT ON COLUMN settlement_bookings.made_at IS 'When the file or statement was matched.';
COMMENT ON COLUMN settlement_bookings.booked_at IS 'When the engine booked it: `entries.recorded_at` of its entry; null: not yet.';
COMMENT ON COLUMN settlement_bookings.posted_for IS 'The day on which it is posted, if that is open: settlement date of the file, booking date of the line.';
COMMENT ON COLUMN settlement_bookings.line IS 'Of BANK_LINE: the line.';
COMMENT ON COLUMN settlement_bookings.kind IS 'INTERCHANGE, NETWORK_FEES or BANK_LINE.';
COMMENT ON COLUMN settlement_bookings.currency IS 'Its currency.';
COMMENT ON COLUMN settlement_bookings.from_kind IS 'Account of the chart that is debited.';
COMMENT ON COLUMN settlement_bookings.to_kind IS 'Account of the chart that is credited.';
COMMENT ON COLUMN settlement_bookings.network IS 'Network of the file: its calendar decides on the day of recording.';

-- The engine says when it has booked one, once; nothing else of it changes.
CREATE TRIGGER booked_once BEFORE UPDATE ON settlement_bookings FOR EACH ROW
    WHEN (OLD.booked_at IS NOT NULL OR (OLD.id, OLD.platform_id, OLD.file_id, OLD.statement_id,
        OLD.amount, OLD.made_at, OLD.posted_for, OLD.line, OLD.kind, OLD.currency, OLD.from_kind,
        OLD.to_kind, OLD.network)
        IS DISTINCT FROM (NEW.id, NEW.platform_id, NEW.file_id, NEW.statement_id, NEW.amount,
        NEW.made_at, NEW.posted_for, NEW.line, NEW.kind, NEW.currency, NEW.from_kind, NEW.to_kind,
        NEW.network))
    EXECUTE FUNCTION refuse_change();
ALTER TABLE settlement_bookings ENABLE ALWAYS TRIGGER booked_once;
CREATE TRIGGER never_deleted BEFORE DELETE OR TRUNCATE ON settlement_bookings
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE settlement_bookings ENABLE ALWAYS TRIGGER never_deleted;
