CREATE TABLE chart_of_accounts (
    kind TEXT NOT NULL,
    class TEXT NOT NULL,
    normal_side TEXT NOT NULL,
    CONSTRAINT chart_of_accounts_pkey PRIMARY KEY (kind),
    CONSTRAINT chart_of_accounts_class_check CHECK (class IN ('ASSET', 'LIABILITY', 'INCOME', 'EXPENSE')),
    CONSTRAINT chart_of_accounts_normal_side_check CHECK (
        normal_side = CASE WHEN class IN ('ASSET', 'EXPENSE') THEN 'D' ELSE 'C' END
    )
);
COMMENT ON TABLE chart_of_accounts IS 'Chart of accounts: the class of every kind of account; written by migrations.';
COMMENT ON COLUMN chart_of_accounts.kind IS 'Kind of account: one of `system_accounts.kind`, or CUSTOMER.';
COMMENT ON COLUMN chart_of_accounts.class IS 'ASSET, LIABILITY, INCOME or EXPENSE.';
COMMENT ON COLUMN chart_of_accounts.normal_side IS 'Side on which the account grows: D (debit) for ASSET and EXPENSE, else C.';
INSERT INTO chart_of_accounts (kind, class, normal_side) VALUES
    ('CUSTOMER', 'LIABILITY', 'C'),
    ('CARD_HOLDS', 'LIABILITY', 'C'),
    ('NETWORK_SETTLEMENT', 'LIABILITY', 'C'),
    ('TRANSFERS', 'LIABILITY', 'C'),
    ('SUSPENSE', 'LIABILITY', 'C'),
    ('RECEIVABLE', 'ASSET', 'D'),
    ('SANDBOX_FUNDING', 'ASSET', 'D'),
    ('SETTLEMENT_BANK', 'ASSET', 'D'),
    ('INTERCHANGE', 'INCOME', 'C'),
    ('OPERATOR_LOSS', 'EXPENSE', 'D'),
    ('NETWORK_FEES', 'EXPENSE', 'D');

CREATE TABLE currencies (
    code TEXT NOT NULL,
    decimals SMALLINT NOT NULL,
    CONSTRAINT currencies_pkey PRIMARY KEY (code),
    CONSTRAINT currencies_decimals_check CHECK (decimals BETWEEN 0 AND 18)
);
COMMENT ON TABLE currencies IS 'Currencies of the ledger; written by migrations.';
COMMENT ON COLUMN currencies.code IS 'ISO 4217 code, or the ticker of a crypto currency.';
COMMENT ON COLUMN currencies.decimals IS 'Decimal places: amounts in minor units are divided by 10 to this power.';
INSERT INTO currencies (code, decimals) VALUES
    ('USD', 2), ('EUR', 2), ('GBP', 2), ('INR', 2), ('MXN', 2), ('JPY', 0),
    ('USDC', 6), ('USDB', 6), ('BTC', 8);

CREATE TABLE calendars (
    name TEXT NOT NULL,
    valid_from DATE NOT NULL,
    time_zone TEXT NOT NULL,
    cut_off TIME WITHOUT TIME ZONE NOT NULL,
    days SMALLINT[] NOT NULL,
    holidays DATE[] DEFAULT '{}' NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    created_by TEXT DEFAULT SESSION_USER NOT NULL,
    CONSTRAINT calendars_pkey PRIMARY KEY (name, valid_from),
    CONSTRAINT calendars_name_check CHECK (name ~ '^[A-Z0-9][A-Z0-9_-]*$' AND length(name) <= 64),
    CONSTRAINT calendars_days_of_the_week_check CHECK (
        cardinality(days) > 0 AND days <@ '{1,2,3,4,5,6,7}'::smallint[]
    )
);
COMMENT ON TABLE calendars IS 'Business days of networks and of the books, a row for each version, append-only. Without a row for BOOKS a business day is a calendar day in UTC.';
COMMENT ON COLUMN calendars.name IS 'Network (`settlement_details.network`), or BOOKS for all that has no calendar.';
COMMENT ON COLUMN calendars.valid_from IS 'First day, in UTC, whose movements the version applies to.';
COMMENT ON COLUMN calendars.time_zone IS 'Time zone of the business day, as in the IANA database.';
COMMENT ON COLUMN calendars.cut_off IS 'Local time from which a movement belongs to the next day; 00:00: midnight, so a business day is a calendar day.';
COMMENT ON COLUMN calendars.days IS 'Days of the week that settle, 1 (Monday) to 7 (Sunday).';
COMMENT ON COLUMN calendars.holidays IS 'Dates that do not settle.';
COMMENT ON COLUMN calendars.created_at IS 'When the version was added.';
COMMENT ON COLUMN calendars.created_by IS 'The login that added it; written by the database.';

CREATE TABLE books (
    is_only BOOLEAN NOT NULL,
    first_open_day DATE NOT NULL,
    CONSTRAINT books_pkey PRIMARY KEY (is_only),
    CONSTRAINT books_is_only_check CHECK (is_only)
);
COMMENT ON TABLE books IS 'One row: which days the books are open for.';
COMMENT ON COLUMN books.is_only IS 'True.';
COMMENT ON COLUMN books.first_open_day IS 'No entry is posted before this day: an earlier movement is posted on it.';
INSERT INTO books (is_only, first_open_day)
SELECT true, date_trunc('month', coalesce(min(recorded_at), now()) AT TIME ZONE 'UTC')::date FROM entries;

CREATE TABLE settlement_details (
    card_transaction_id UUID NOT NULL,
    sequence INTEGER NOT NULL,
    customer_id UUID NOT NULL,
    platform_id UUID NOT NULL,
    message_id UUID NOT NULL,
    network TEXT NOT NULL,
    institution_id TEXT,
    settlement_date DATE NOT NULL,
    cycle TEXT,
    acquirer_reference TEXT,
    network_reference TEXT,
    merchant_amount BIGINT,
    merchant_currency TEXT,
    interchange NUMERIC(20, 6),
    fee_program TEXT,
    recorded_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT settlement_details_pkey PRIMARY KEY (card_transaction_id, sequence, customer_id),
    CONSTRAINT settlement_details_merchant_amount_check CHECK (num_nulls(merchant_amount, merchant_currency) IN (0, 2))
);
COMMENT ON TABLE settlement_details IS 'What the network said about the settlement of an event, append-only; no row: nothing.';
COMMENT ON COLUMN settlement_details.card_transaction_id IS 'The card transaction.';
COMMENT ON COLUMN settlement_details.sequence IS 'First event of the message (`card_transaction_events.sequence`).';
COMMENT ON COLUMN settlement_details.customer_id IS 'The cardholder.';
COMMENT ON COLUMN settlement_details.platform_id IS 'The cardholder''s platform.';
COMMENT ON COLUMN settlement_details.message_id IS 'The message (`outcomes.message_id`).';
COMMENT ON COLUMN settlement_details.network IS 'The network, such as VISA.';
COMMENT ON COLUMN settlement_details.institution_id IS 'Identifier of the institution at the network.';
COMMENT ON COLUMN settlement_details.settlement_date IS 'Business date of the network on which it settles the movement.';
COMMENT ON COLUMN settlement_details.cycle IS 'Settlement cycle within that date.';
COMMENT ON COLUMN settlement_details.acquirer_reference IS 'Acquirer reference number (ARN), 23 digits.';
COMMENT ON COLUMN settlement_details.network_reference IS 'Transaction identifier or trace id of the network.';
COMMENT ON COLUMN settlement_details.merchant_amount IS 'Amount in the currency of the merchant, minor units of `merchant_currency`.';
COMMENT ON COLUMN settlement_details.merchant_currency IS 'Currency of the merchant, ISO 4217.';
COMMENT ON COLUMN settlement_details.interchange IS 'Interchange in major units of the card transaction''s currency; positive: earned.';
COMMENT ON COLUMN settlement_details.fee_program IS 'Fee program of the interchange.';
COMMENT ON COLUMN settlement_details.recorded_at IS 'When the ledger recorded it.';
