CREATE TABLE bank_statements (
    id UUID DEFAULT gen_random_uuid() NOT NULL,
    platform_id UUID NOT NULL,
    opening BIGINT NOT NULL,
    closing BIGINT NOT NULL,
    lines BIGINT,
    imported_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    first_day DATE NOT NULL,
    last_day DATE NOT NULL,
    account TEXT NOT NULL,
    statement_id TEXT NOT NULL,
    currency TEXT NOT NULL,
    digest TEXT,
    imported_by TEXT DEFAULT SESSION_USER NOT NULL,
    CONSTRAINT bank_statements_pkey PRIMARY KEY (id),
    CONSTRAINT bank_statements_statement_key UNIQUE (platform_id, account, statement_id),
    CONSTRAINT bank_statements_texts_check CHECK (length(account) BETWEEN 1 AND 100 AND length(statement_id) BETWEEN 1 AND 200),
    CONSTRAINT bank_statements_days_check CHECK (first_day <= last_day),
    CONSTRAINT bank_statements_digest_check CHECK (digest ~ '^[0-9a-f]{64}$'),
    CONSTRAINT bank_statements_whole_check CHECK (num_nulls(lines, digest) IN (0, 2))
);
CREATE INDEX bank_statements_day_idx ON bank_statements (platform_id, currency, last_day);
CREATE UNIQUE INDEX bank_statements_digest_key ON bank_statements (platform_id, currency, digest);
COMMENT ON TABLE bank_statements IS 'Statements of the bank that were imported, each whole; nothing is deleted.';
COMMENT ON COLUMN bank_statements.id IS 'The statement.';
COMMENT ON COLUMN bank_statements.platform_id IS 'The platform.';
COMMENT ON COLUMN bank_statements.opening IS 'Balance before its lines, minor units.';
COMMENT ON COLUMN bank_statements.closing IS 'Balance after its lines, minor units: opening plus the lines.';
COMMENT ON COLUMN bank_statements.lines IS 'Number of lines; null only within the import.';
COMMENT ON COLUMN bank_statements.imported_at IS 'When it was imported.';
COMMENT ON COLUMN bank_statements.first_day IS 'First booking date of its lines.';
COMMENT ON COLUMN bank_statements.last_day IS 'Last booking date of its lines.';
COMMENT ON COLUMN bank_statements.account IS 'The account at the bank.';
COMMENT ON COLUMN bank_statements.statement_id IS 'Identifier of the statement of this account.';
COMMENT ON COLUMN bank_statements.currency IS 'Currency of the account.';
COMMENT ON COLUMN bank_statements.digest IS 'SHA-256 of the parsed rows, hexadecimal; null only within the import.';
COMMENT ON COLUMN bank_statements.imported_by IS 'The login that imported it; written by the database.';

CREATE TABLE bank_lines (
    statement_id UUID NOT NULL,
    amount BIGINT NOT NULL,
    line INTEGER NOT NULL,
    booking_date DATE NOT NULL,
    value_date DATE,
    bank_reference TEXT,
    description TEXT,
    CONSTRAINT bank_lines_pkey PRIMARY KEY (statement_id, line),
    CONSTRAINT bank_lines_amount_check CHECK (amount <> 0)
);
COMMENT ON TABLE bank_lines IS 'Lines of statements of the bank, append-only.';
COMMENT ON COLUMN bank_lines.statement_id IS 'The statement (bank_statements.id).';
COMMENT ON COLUMN bank_lines.amount IS 'Amount, minor units; positive: arrived at the bank.';
COMMENT ON COLUMN bank_lines.line IS 'Line of the file on which it begins.';
COMMENT ON COLUMN bank_lines.booking_date IS 'Day on which the bank booked it.';
COMMENT ON COLUMN bank_lines.value_date IS 'Day from which on it counts for interest.';
COMMENT ON COLUMN bank_lines.bank_reference IS 'Reference of the bank.';
COMMENT ON COLUMN bank_lines.description IS 'What the bank says about it.';

CREATE TABLE bank_payments (
    statement_id UUID NOT NULL,
    file_id UUID NOT NULL,
    amount NUMERIC NOT NULL,
    expected NUMERIC NOT NULL,
    rest_of_statement_id UUID,
    matched_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    line INTEGER NOT NULL,
    rest_of_line INTEGER,
    currency TEXT NOT NULL,
    rule TEXT NOT NULL,
    CONSTRAINT bank_payments_pkey PRIMARY KEY (statement_id, line, file_id),
    CONSTRAINT bank_payments_rule_check CHECK (rule IN ('REFERENCE', 'AMOUNT', 'NETWORK', 'REST')),
    CONSTRAINT bank_payments_rest_check CHECK (num_nulls(rest_of_statement_id, rest_of_line) = CASE rule WHEN 'REST' THEN 0 ELSE 2 END)
);
CREATE UNIQUE INDEX bank_payments_file_key ON bank_payments (file_id, currency) WHERE rule <> 'REST';
CREATE UNIQUE INDEX bank_payments_rest_key ON bank_payments (rest_of_statement_id, rest_of_line) WHERE rule = 'REST';
COMMENT ON TABLE bank_payments IS 'Which line of the bank pays which days of networks, append-only: a file and currency is paid by one line, and by one more that brings the rest.';
COMMENT ON COLUMN bank_payments.statement_id IS 'The statement (bank_statements.id).';
COMMENT ON COLUMN bank_payments.file_id IS 'The file of the network (network_files.id).';
COMMENT ON COLUMN bank_payments.amount IS 'What of the line is for it, minor units; positive: arrived at the bank.';
COMMENT ON COLUMN bank_payments.expected IS 'What its file says should come for it, minor units.';
COMMENT ON COLUMN bank_payments.rest_of_statement_id IS 'Of REST: statement of the line that it completes.';
COMMENT ON COLUMN bank_payments.matched_at IS 'When it was matched.';
COMMENT ON COLUMN bank_payments.line IS 'The line.';
COMMENT ON COLUMN bank_payments.rest_of_line IS 'Of REST: the line that it completes.';
COMMENT ON COLUMN bank_payments.currency IS 'Currency of both.';
COMMENT ON COLUMN bank_payments.rule IS 'REFERENCE: names the file; AMOUNT: sums agree; NETWORK: names the network; REST: completes another line.';

CREATE TABLE statement_proofs (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    statement_id UUID NOT NULL,
    ledger NUMERIC NOT NULL,
    difference NUMERIC NOT NULL,
    statement NUMERIC NOT NULL,
    proved_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT statement_proofs_pkey PRIMARY KEY (id),
    CONSTRAINT statement_proofs_proof_check CHECK (ledger + difference = statement)
);
CREATE INDEX statement_proofs_statement_idx ON statement_proofs (statement_id, id);
COMMENT ON TABLE statement_proofs IS 'That what was expected at the bank and all differences add up to the statement, append-only: a row whenever it changed.';
COMMENT ON COLUMN statement_proofs.id IS 'Ids rise with time.';
COMMENT ON COLUMN statement_proofs.statement_id IS 'The statement (bank_statements.id).';
COMMENT ON COLUMN statement_proofs.ledger IS 'What the files of networks say should come for the days that its lines pay, and that it should have paid; minor units.';
COMMENT ON COLUMN statement_proofs.difference IS 'Sum of the differences of all breaks of the statement.';
COMMENT ON COLUMN statement_proofs.statement IS 'Closing less opening balance.';
COMMENT ON COLUMN statement_proofs.proved_at IS 'When it was computed.';

-- An import that is not finished cannot be committed.
CREATE FUNCTION refuse_unfinished_statement() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER AS $body$
BEGIN
    IF EXISTS (SELECT FROM bank_statements s WHERE s.id = NEW.id AND s.digest IS NULL) THEN
        RAISE EXCEPTION 'the import of statement % is not finished', NEW.statement_id
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN NULL;
END $body$;
CREATE CONSTRAINT TRIGGER whole AFTER INSERT ON bank_statements
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse_unfinished_statement();
ALTER TABLE bank_statements ENABLE ALWAYS TRIGGER whole;
CREATE TRIGGER finished_once BEFORE UPDATE ON bank_statements FOR EACH ROW
    WHEN (OLD.digest IS NOT NULL OR (OLD.id, OLD.platform_id, OLD.opening, OLD.closing,
        OLD.imported_at, OLD.first_day, OLD.last_day, OLD.account, OLD.statement_id, OLD.currency,
        OLD.imported_by)
        IS DISTINCT FROM (NEW.id, NEW.platform_id, NEW.opening, NEW.closing, NEW.imported_at,
        NEW.first_day, NEW.last_day, NEW.account, NEW.statement_id, NEW.currency,
        NEW.imported_by))
    EXECUTE FUNCTION refuse_change();
ALTER TABLE bank_statements ENABLE ALWAYS TRIGGER finished_once;
CREATE TRIGGER never_deleted BEFORE DELETE OR TRUNCATE ON bank_statements
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE bank_statements ENABLE ALWAYS TRIGGER never_deleted;
