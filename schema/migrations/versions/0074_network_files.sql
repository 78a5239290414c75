CREATE TABLE network_files (
    id UUID DEFAULT gen_random_uuid() NOT NULL,
    platform_id UUID NOT NULL,
    network TEXT NOT NULL,
    file_id TEXT NOT NULL,
    settlement_date DATE NOT NULL,
    cycle TEXT,
    lines BIGINT,
    digest TEXT,
    imported_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    imported_by TEXT DEFAULT SESSION_USER NOT NULL,
    CONSTRAINT network_files_pkey PRIMARY KEY (id),
    CONSTRAINT network_files_file_key UNIQUE (platform_id, network, file_id),
    CONSTRAINT network_files_file_id_check CHECK (length(file_id) BETWEEN 1 AND 200),
    CONSTRAINT network_files_cycle_check CHECK (length(cycle) BETWEEN 1 AND 100),
    CONSTRAINT network_files_digest_check CHECK (digest ~ '^[0-9a-f]{64}$'),
    CONSTRAINT network_files_whole_check CHECK (num_nulls(lines, digest) IN (0, 2))
);
CREATE INDEX network_files_day_idx ON network_files (settlement_date, network);
COMMENT ON TABLE network_files IS 'Settlement files of networks that were imported, each whole; nothing is deleted.';
COMMENT ON COLUMN network_files.id IS 'The file.';
COMMENT ON COLUMN network_files.platform_id IS 'The platform.';
COMMENT ON COLUMN network_files.network IS 'The network.';
COMMENT ON COLUMN network_files.file_id IS 'Identifier of the file at the network.';
COMMENT ON COLUMN network_files.settlement_date IS 'Business date of the network on which it settles the lines.';
COMMENT ON COLUMN network_files.cycle IS 'Settlement cycle within that date; null: the whole day.';
COMMENT ON COLUMN network_files.lines IS 'Number of lines; null only within the import.';
COMMENT ON COLUMN network_files.digest IS 'SHA-256 of the parsed rows, hexadecimal; null only within the import.';
COMMENT ON COLUMN network_files.imported_at IS 'When it was imported.';
COMMENT ON COLUMN network_files.imported_by IS 'The login that imported it; written by the database.';

CREATE TABLE network_file_totals (
    file_id UUID NOT NULL,
    currency TEXT NOT NULL,
    lines BIGINT NOT NULL,
    amount NUMERIC NOT NULL,
    interchange NUMERIC NOT NULL,
    CONSTRAINT network_file_totals_pkey PRIMARY KEY (file_id, currency),
    CONSTRAINT network_file_totals_file_id_fkey FOREIGN KEY (file_id) REFERENCES network_files (id)
);
COMMENT ON TABLE network_file_totals IS 'Control totals of files, which their lines add up to, append-only.';
COMMENT ON COLUMN network_file_totals.file_id IS 'The file (network_files.id).';
COMMENT ON COLUMN network_file_totals.currency IS 'The currency.';
COMMENT ON COLUMN network_file_totals.lines IS 'Number of lines in it.';
COMMENT ON COLUMN network_file_totals.amount IS 'Sum of their amounts, minor units; positive: due to the network.';
COMMENT ON COLUMN network_file_totals.interchange IS 'Sum of their interchange, units of the currency; positive: earned.';

CREATE TABLE network_lines (
    file_id UUID NOT NULL,
    line INTEGER NOT NULL,
    amount BIGINT NOT NULL,
    type TEXT NOT NULL,
    currency TEXT NOT NULL,
    reference TEXT,
    network_reference TEXT,
    token TEXT,
    card_id UUID,
    merchant_amount BIGINT,
    merchant_currency TEXT,
    interchange NUMERIC(20, 6),
    transaction_date DATE,
    merchant TEXT,
    mcc TEXT,
    CONSTRAINT network_lines_pkey PRIMARY KEY (file_id, line),
    CONSTRAINT network_lines_amount_check CHECK (amount > 0),
    CONSTRAINT network_lines_type_check CHECK (type IN ('PRESENTMENT', 'PRESENTMENT_REVERSAL', 'CREDIT', 'CREDIT_REVERSAL', 'FEE', 'FEE_REVERSAL'))
);
COMMENT ON TABLE network_lines IS 'Lines of settlement files, append-only.';
COMMENT ON COLUMN network_lines.file_id IS 'The file (network_files.id).';
COMMENT ON COLUMN network_lines.line IS 'Line of the file on which it begins.';
COMMENT ON COLUMN network_lines.amount IS 'Amount, minor units; always positive.';
COMMENT ON COLUMN network_lines.type IS 'PRESENTMENT, PRESENTMENT_REVERSAL, CREDIT, CREDIT_REVERSAL, FEE or FEE_REVERSAL.';
COMMENT ON COLUMN network_lines.currency IS 'Billing currency.';
COMMENT ON COLUMN network_lines.reference IS 'Reference of the network event, or acquirer reference number.';
COMMENT ON COLUMN network_lines.network_reference IS 'Identifier of the transaction at the network.';
COMMENT ON COLUMN network_lines.token IS 'Issuer transaction token.';
COMMENT ON COLUMN network_lines.card_id IS 'The card.';
COMMENT ON COLUMN network_lines.merchant_amount IS 'Amount in the currency of the merchant, minor units.';
COMMENT ON COLUMN network_lines.merchant_currency IS 'Currency of the merchant.';
COMMENT ON COLUMN network_lines.interchange IS 'Interchange, units of the currency; positive: earned.';
COMMENT ON COLUMN network_lines.transaction_date IS 'Date of the purchase.';
COMMENT ON COLUMN network_lines.merchant IS 'Name of the merchant.';
COMMENT ON COLUMN network_lines.mcc IS 'Merchant category code, ISO 18245.';

CREATE TABLE line_matches (
    file_id UUID NOT NULL,
    card_transaction_id UUID NOT NULL,
    customer_id UUID NOT NULL,
    line INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    rule TEXT NOT NULL,
    matched_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT line_matches_pkey PRIMARY KEY (file_id, line),
    CONSTRAINT line_matches_event_key UNIQUE (card_transaction_id, sequence),
    CONSTRAINT line_matches_rule_check CHECK (rule IN ('REFERENCE', 'TOKEN', 'CARD'))
);
COMMENT ON TABLE line_matches IS 'Which line of a settlement file is which event, one to one, append-only.';
COMMENT ON COLUMN line_matches.file_id IS 'The file (network_files.id).';
COMMENT ON COLUMN line_matches.card_transaction_id IS 'The card transaction.';
COMMENT ON COLUMN line_matches.customer_id IS 'The cardholder.';
COMMENT ON COLUMN line_matches.line IS 'The line.';
COMMENT ON COLUMN line_matches.sequence IS 'The event of the card transaction; its entries have the same.';
COMMENT ON COLUMN line_matches.rule IS 'REFERENCE, TOKEN or CARD: by what it was matched.';
COMMENT ON COLUMN line_matches.matched_at IS 'When it was matched.';

CREATE TABLE breaks (
    id UUID DEFAULT gen_random_uuid() NOT NULL,
    file_id UUID NOT NULL,
    card_transaction_id UUID,
    customer_id UUID,
    line INTEGER,
    sequence INTEGER,
    kind TEXT NOT NULL,
    cause TEXT,
    currency TEXT NOT NULL,
    file_amount BIGINT,
    ledger_amount BIGINT,
    ledger_currency TEXT,
    difference NUMERIC NOT NULL,
    ledger_difference NUMERIC,
    candidates JSONB,
    state TEXT NOT NULL,
    owner TEXT,
    opened_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    closed_at TIMESTAMP WITH TIME ZONE,
    closed_by TEXT,
    CONSTRAINT breaks_pkey PRIMARY KEY (id),
    CONSTRAINT breaks_file_id_fkey FOREIGN KEY (file_id) REFERENCES network_files (id),
    CONSTRAINT breaks_kind_check CHECK (kind IN ('AMOUNT_DIFFERS', 'CURRENCY_DIFFERS', 'TYPE_DIFFERS', 'DUPLICATE_LINE', 'IN_FILE_ONLY', 'IN_LEDGER_ONLY', 'TIMING', 'AMBIGUOUS')),
    CONSTRAINT breaks_about_check CHECK (CASE kind WHEN 'IN_LEDGER_ONLY' THEN line IS NULL ELSE line IS NOT NULL END AND num_nulls(card_transaction_id, sequence, customer_id) IN (0, 3)),
    CONSTRAINT breaks_cause_check CHECK ((kind = 'IN_FILE_ONLY') = (cause IS NOT NULL)),
    CONSTRAINT breaks_currencies_check CHECK ((kind = 'CURRENCY_DIFFERS') = (ledger_currency IS NOT NULL) AND num_nulls(ledger_currency, ledger_difference) IN (0, 2)),
    CONSTRAINT breaks_state_check CHECK (state IN ('open', 'investigating', 'resolved', 'written_off', 'explained')),
    CONSTRAINT breaks_closed_check CHECK (num_nulls(closed_at, closed_by) = CASE WHEN state IN ('open', 'investigating') THEN 2 ELSE 0 END),
    CONSTRAINT breaks_two_people_check CHECK (state NOT IN ('resolved', 'written_off') OR closed_by IS DISTINCT FROM owner)
);
CREATE UNIQUE INDEX breaks_line_key ON breaks (file_id, line, kind) WHERE line IS NOT NULL;
CREATE UNIQUE INDEX breaks_event_key ON breaks (file_id, card_transaction_id, sequence) WHERE line IS NULL;
CREATE INDEX breaks_open_idx ON breaks (file_id) WHERE state IN ('open', 'investigating');
CREATE INDEX breaks_event_idx ON breaks (card_transaction_id, sequence) WHERE card_transaction_id IS NOT NULL;
COMMENT ON TABLE breaks IS 'What a settlement file and the ledger differ by; nothing is deleted.';
COMMENT ON COLUMN breaks.id IS 'The break.';
COMMENT ON COLUMN breaks.file_id IS 'The file (network_files.id).';
COMMENT ON COLUMN breaks.card_transaction_id IS 'The card transaction of the event; null: there is none.';
COMMENT ON COLUMN breaks.customer_id IS 'The cardholder of the event.';
COMMENT ON COLUMN breaks.line IS 'The line of the file; null: IN_LEDGER_ONLY.';
COMMENT ON COLUMN breaks.sequence IS 'The event of the card transaction.';
COMMENT ON COLUMN breaks.kind IS 'AMOUNT_DIFFERS, CURRENCY_DIFFERS, TYPE_DIFFERS, DUPLICATE_LINE, IN_FILE_ONLY, IN_LEDGER_ONLY, TIMING or AMBIGUOUS.';
COMMENT ON COLUMN breaks.cause IS 'Of IN_FILE_ONLY: NO_EVENT, PARKED, IGNORED, or REJECTED: and the reason.';
COMMENT ON COLUMN breaks.currency IS 'Currency of the line, or of the event without a line.';
COMMENT ON COLUMN breaks.file_amount IS 'Amount of the line, minor units; positive: due to the network.';
COMMENT ON COLUMN breaks.ledger_amount IS 'Amount of the event, minor units of its currency; positive: due to the network.';
COMMENT ON COLUMN breaks.ledger_currency IS 'Of CURRENCY_DIFFERS: the currency of the event.';
COMMENT ON COLUMN breaks.difference IS 'What the file has more than the ledger, minor units of the currency; 0 once it is made up for.';
COMMENT ON COLUMN breaks.ledger_difference IS 'Of CURRENCY_DIFFERS: the same in the currency of the event.';
COMMENT ON COLUMN breaks.candidates IS 'Of AMBIGUOUS: events that the line may be, up to 10.';
COMMENT ON COLUMN breaks.state IS 'open, investigating, resolved, written_off; explained: by a later event or file.';
COMMENT ON COLUMN breaks.owner IS 'The person who works on it.';
COMMENT ON COLUMN breaks.opened_at IS 'When it was found.';
COMMENT ON COLUMN breaks.closed_at IS 'When it was resolved, written off or explained.';
COMMENT ON COLUMN breaks.closed_by IS 'The login that did so; written by the database.';

CREATE TABLE break_history (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    break_id UUID NOT NULL,
    action TEXT NOT NULL,
    note TEXT,
    owner TEXT,
    difference NUMERIC,
    done_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    done_by TEXT DEFAULT SESSION_USER NOT NULL,
    CONSTRAINT break_history_pkey PRIMARY KEY (id),
    CONSTRAINT break_history_break_id_fkey FOREIGN KEY (break_id) REFERENCES breaks (id),
    CONSTRAINT break_history_action_check CHECK (action IN ('ASSIGNED', 'NOTED', 'RESOLVED', 'WRITTEN_OFF', 'EXPLAINED')),
    CONSTRAINT break_history_note_check CHECK (length(note) BETWEEN 1 AND 2000)
);
CREATE INDEX break_history_break_idx ON break_history (break_id, id);
COMMENT ON TABLE break_history IS 'What was done about breaks, append-only.';
COMMENT ON COLUMN break_history.id IS 'Ids rise with time.';
COMMENT ON COLUMN break_history.break_id IS 'The break.';
COMMENT ON COLUMN break_history.action IS 'ASSIGNED, NOTED, RESOLVED, WRITTEN_OFF or EXPLAINED.';
COMMENT ON COLUMN break_history.note IS 'What the person wrote; of EXPLAINED what explains it.';
COMMENT ON COLUMN break_history.owner IS 'Of ASSIGNED: to whom.';
COMMENT ON COLUMN break_history.difference IS 'Of EXPLAINED: the difference before.';
COMMENT ON COLUMN break_history.done_at IS 'When it was done.';
COMMENT ON COLUMN break_history.done_by IS 'The login that did it; written by the database.';

CREATE TABLE file_proofs (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    file_id UUID NOT NULL,
    currency TEXT NOT NULL,
    ledger NUMERIC NOT NULL,
    difference NUMERIC NOT NULL,
    file NUMERIC NOT NULL,
    proved_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT file_proofs_pkey PRIMARY KEY (id),
    CONSTRAINT file_proofs_file_id_fkey FOREIGN KEY (file_id) REFERENCES network_files (id),
    CONSTRAINT file_proofs_proof_check CHECK (ledger + difference = file)
);
CREATE INDEX file_proofs_file_idx ON file_proofs (file_id, currency, id);
COMMENT ON TABLE file_proofs IS 'That the ledger and all differences add up to the file, append-only: one row for each currency whenever it was matched.';
COMMENT ON COLUMN file_proofs.id IS 'Ids rise with time.';
COMMENT ON COLUMN file_proofs.file_id IS 'The file (network_files.id).';
COMMENT ON COLUMN file_proofs.currency IS 'The currency.';
COMMENT ON COLUMN file_proofs.ledger IS 'What the ledger has of the network, day and cycle of the file, minor units; positive: due to the network.';
COMMENT ON COLUMN file_proofs.difference IS 'Sum of the differences of all breaks of the file.';
COMMENT ON COLUMN file_proofs.file IS 'Control total of the file.';
COMMENT ON COLUMN file_proofs.proved_at IS 'When it was computed.';

CREATE TABLE file_refusals (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    code TEXT NOT NULL,
    line INTEGER,
    column_name TEXT,
    message TEXT NOT NULL,
    refused_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    refused_by TEXT DEFAULT SESSION_USER NOT NULL,
    CONSTRAINT file_refusals_pkey PRIMARY KEY (id),
    CONSTRAINT file_refusals_texts_check CHECK (length(code) <= 40 AND length(column_name) <= 40 AND length(message) <= 1000)
);
COMMENT ON TABLE file_refusals IS 'Files that were refused, append-only; nothing of them is kept.';
COMMENT ON COLUMN file_refusals.id IS 'Ids rise with time.';
COMMENT ON COLUMN file_refusals.code IS 'Why.';
COMMENT ON COLUMN file_refusals.line IS 'The line of the file.';
COMMENT ON COLUMN file_refusals.column_name IS 'The column.';
COMMENT ON COLUMN file_refusals.message IS 'What is wrong.';
COMMENT ON COLUMN file_refusals.refused_at IS 'When it was refused.';
COMMENT ON COLUMN file_refusals.refused_by IS 'The login that ran the command; written by the database.';

-- An import that is not finished cannot be committed.
CREATE FUNCTION refuse_unfinished_file() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $body$
BEGIN
    IF EXISTS (SELECT FROM network_files f WHERE f.id = NEW.id AND f.digest IS NULL) THEN
        RAISE EXCEPTION 'the import of file % is not finished', NEW.file_id
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN NULL;
END $body$;
CREATE CONSTRAINT TRIGGER whole AFTER INSERT ON network_files
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse_unfinished_file();
ALTER TABLE network_files ENABLE ALWAYS TRIGGER whole;
CREATE TRIGGER finished_once BEFORE UPDATE ON network_files FOR EACH ROW
    WHEN (OLD.digest IS NOT NULL OR (OLD.id, OLD.platform_id, OLD.network, OLD.file_id,
        OLD.settlement_date, OLD.cycle, OLD.imported_at, OLD.imported_by)
        IS DISTINCT FROM (NEW.id, NEW.platform_id, NEW.network, NEW.file_id,
        NEW.settlement_date, NEW.cycle, NEW.imported_at, NEW.imported_by))
    EXECUTE FUNCTION refuse_change();
ALTER TABLE network_files ENABLE ALWAYS TRIGGER finished_once;
CREATE TRIGGER never_deleted BEFORE DELETE OR TRUNCATE ON network_files
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE network_files ENABLE ALWAYS TRIGGER never_deleted;

-- A break is about what it was found for; who closed it, and with what, is not changed by people.
CREATE TRIGGER about_the_same BEFORE UPDATE ON breaks FOR EACH ROW
    WHEN ((OLD.id, OLD.file_id, OLD.card_transaction_id, OLD.customer_id, OLD.line, OLD.sequence,
            OLD.kind, OLD.cause, OLD.currency, OLD.file_amount, OLD.ledger_amount,
            OLD.ledger_currency, OLD.opened_at)
        IS DISTINCT FROM (NEW.id, NEW.file_id, NEW.card_transaction_id, NEW.customer_id, NEW.line,
            NEW.sequence, NEW.kind, NEW.cause, NEW.currency, NEW.file_amount, NEW.ledger_amount,
            NEW.ledger_currency, NEW.opened_at))
    EXECUTE FUNCTION refuse_change();
ALTER TABLE breaks ENABLE ALWAYS TRIGGER about_the_same;
CREATE TRIGGER never_deleted BEFORE DELETE OR TRUNCATE ON breaks
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE breaks ENABLE ALWAYS TRIGGER never_deleted;
