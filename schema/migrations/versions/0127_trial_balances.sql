CREATE TABLE trial_balances (
    platform_id UUID NOT NULL,
    currency TEXT NOT NULL,
    kind TEXT NOT NULL,
    debits NUMERIC(38) NOT NULL,
    credits NUMERIC(38) NOT NULL,
    entries BIGINT NOT NULL,
    recent_debits NUMERIC(38) NOT NULL,
    recent_credits NUMERIC(38) NOT NULL,
    recent_entries BIGINT NOT NULL,
    CONSTRAINT trial_balances_pkey PRIMARY KEY (platform_id, currency, kind)
);
COMMENT ON TABLE trial_balances IS 'Trial balance as of the time in `trial_balance_progress`, kept by workers.';
COMMENT ON COLUMN trial_balances.platform_id IS 'The platform.';
COMMENT ON COLUMN trial_balances.currency IS 'Currency of the account.';
COMMENT ON COLUMN trial_balances.kind IS 'Account of the chart; CUSTOMER: all accounts of customers together.';
COMMENT ON COLUMN trial_balances.debits IS 'Sum of the totals that debit the account, minor units.';
COMMENT ON COLUMN trial_balances.credits IS 'Sum of the totals that credit the account, minor units.';
COMMENT ON COLUMN trial_balances.entries IS 'Number of the entries in these totals.';
COMMENT ON COLUMN trial_balances.recent_debits IS 'The same of the entries that no totals have yet.';
COMMENT ON COLUMN trial_balances.recent_credits IS 'The same of the entries that no totals have yet.';
COMMENT ON COLUMN trial_balances.recent_entries IS 'Number of the entries without totals.';

CREATE TABLE trial_balance_progress (
    is_only BOOLEAN NOT NULL,
    totals_until TIMESTAMP WITH TIME ZONE NOT NULL,
    as_of TIMESTAMP WITH TIME ZONE,
    computed_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT trial_balance_progress_pkey PRIMARY KEY (is_only),
    CONSTRAINT trial_balance_progress_is_only_check CHECK (is_only)
);
COMMENT ON TABLE trial_balance_progress IS 'One row; the worker that locks it computes the trial balance.';
COMMENT ON COLUMN trial_balance_progress.is_only IS 'True.';
COMMENT ON COLUMN trial_balance_progress.totals_until IS 'Totals of entries recorded until then are added up.';
COMMENT ON COLUMN trial_balance_progress.as_of IS 'What was committed by then is counted; null: nothing yet.';
COMMENT ON COLUMN trial_balance_progress.computed_at IS 'When the trial balance was last computed.';

INSERT INTO trial_balance_progress VALUES (true, '-infinity', NULL, NULL);
