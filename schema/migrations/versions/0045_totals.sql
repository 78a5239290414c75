CREATE TABLE posting_totals (
    recorded_until TIMESTAMP WITH TIME ZONE NOT NULL,
    recorded_after TIMESTAMP WITH TIME ZONE NOT NULL,
    platform_id UUID NOT NULL,
    currency TEXT NOT NULL,
    kind TEXT NOT NULL,
    posted_on DATE NOT NULL,
    debits NUMERIC(38) NOT NULL,
    credits NUMERIC(38) NOT NULL,
    entries BIGINT NOT NULL,
    CONSTRAINT posting_totals_pkey PRIMARY KEY (recorded_until, platform_id, currency, kind, posted_on),
    CONSTRAINT posting_totals_span_check CHECK (recorded_after < recorded_until)
);
CREATE INDEX posting_totals_account_idx ON posting_totals (platform_id, currency, kind, recorded_until);
COMMENT ON TABLE posting_totals IS 'Sums of the entries recorded in a span of time, by account of the chart and posting day, append-only. The spans follow each other from the first entry on.';
COMMENT ON COLUMN posting_totals.recorded_until IS 'End of the span, inclusive (`entries.recorded_at`).';
COMMENT ON COLUMN posting_totals.recorded_after IS 'Beginning of the span, exclusive: the end of the one before.';
COMMENT ON COLUMN posting_totals.platform_id IS 'The platform.';
COMMENT ON COLUMN posting_totals.currency IS 'Currency of the account.';
COMMENT ON COLUMN posting_totals.kind IS 'Account of the chart; CUSTOMER: all accounts of customers together.';
COMMENT ON COLUMN posting_totals.posted_on IS 'The business day in whose books the entries count.';
COMMENT ON COLUMN posting_totals.debits IS 'Sum of the entries that debit the account, minor units.';
COMMENT ON COLUMN posting_totals.credits IS 'Sum of the entries that credit the account, minor units.';
COMMENT ON COLUMN posting_totals.entries IS 'Number of the entries.';

CREATE TABLE account_totals (
    account_id UUID NOT NULL,
    last_version BIGINT NOT NULL,
    first_version BIGINT NOT NULL,
    posted_on DATE NOT NULL,
    recorded_from TIMESTAMP WITH TIME ZONE NOT NULL,
    recorded_until TIMESTAMP WITH TIME ZONE NOT NULL,
    debits NUMERIC(38) NOT NULL,
    credits NUMERIC(38) NOT NULL,
    CONSTRAINT account_totals_pkey PRIMARY KEY (account_id, last_version, posted_on)
);
COMMENT ON TABLE account_totals IS 'Sums of a thousand entries that follow each other on an account of a customer, by posting day, append-only; no row: the account has fewer.';
COMMENT ON COLUMN account_totals.account_id IS 'The account.';
COMMENT ON COLUMN account_totals.last_version IS 'Position of the last of the entries on the account (`entries.account_version`).';
COMMENT ON COLUMN account_totals.first_version IS 'Position of the first.';
COMMENT ON COLUMN account_totals.posted_on IS 'The business day in whose books the summed entries count.';
COMMENT ON COLUMN account_totals.recorded_from IS 'When the first of the thousand was recorded.';
COMMENT ON COLUMN account_totals.recorded_until IS 'When the last of the thousand was recorded.';
COMMENT ON COLUMN account_totals.debits IS 'Sum of the entries that debit the account, minor units.';
COMMENT ON COLUMN account_totals.credits IS 'Sum of the entries that credit the account, minor units.';

CREATE TABLE posting_totals_progress (
    is_only BOOLEAN NOT NULL,
    recorded_until TIMESTAMP WITH TIME ZONE NOT NULL,
    settled_at TIMESTAMP WITH TIME ZONE,
    settled_by BIGINT,
    CONSTRAINT posting_totals_progress_pkey PRIMARY KEY (is_only),
    CONSTRAINT posting_totals_progress_is_only_check CHECK (is_only),
    CONSTRAINT posting_totals_progress_settled_check CHECK (num_nulls(settled_at, settled_by) IN (0, 2))
);
COMMENT ON TABLE posting_totals_progress IS 'One row; the worker that locks it adds totals.';
COMMENT ON COLUMN posting_totals_progress.is_only IS 'True.';
COMMENT ON COLUMN posting_totals_progress.recorded_until IS 'Entries recorded until then are in the totals.';
COMMENT ON COLUMN posting_totals_progress.settled_at IS 'A time from before the database transaction settled_by; null: none is noted.';
COMMENT ON COLUMN posting_totals_progress.settled_by IS 'Once all database transactions before it have ended, no entry can be recorded until settled_at any more.';
INSERT INTO posting_totals_progress VALUES (true, '-infinity', NULL, NULL);

-- Pages behind the last summary would be read whenever entries are looked for by their time, and
-- only VACUUM makes summaries otherwise. It has the same lock, and is not disturbed.
CREATE FUNCTION summarize_entries() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $body$
BEGIN
    LOCK TABLE entries IN SHARE UPDATE EXCLUSIVE MODE NOWAIT;
    PERFORM brin_summarize_new_values(c.oid)
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
    WHERE i.indrelid = 'entries'::regclass AND a.amname = 'brin' AND i.indisvalid;
EXCEPTION WHEN lock_not_available THEN
    NULL;
END $body$;
COMMENT ON FUNCTION summarize_entries() IS 'Makes new entries findable by the time of their recording, unless VACUUM does.';
