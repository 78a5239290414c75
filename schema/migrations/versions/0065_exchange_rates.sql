CREATE TABLE exchange_rates (
    id UUID NOT NULL,
    source_currency TEXT NOT NULL,
    destination_currency TEXT NOT NULL,
    numerator NUMERIC(30, 0) NOT NULL,
    denominator NUMERIC(30, 0) NOT NULL,
    source TEXT NOT NULL,
    recorded_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    recorded_by TEXT DEFAULT SESSION_USER NOT NULL,
    CONSTRAINT exchange_rates_pkey PRIMARY KEY (id),
    CONSTRAINT exchange_rates_rate_check CHECK (least(numerator, denominator) > 0),
    CONSTRAINT exchange_rates_pair_check CHECK (source_currency <> destination_currency)
);
CREATE INDEX exchange_rates_pair_idx
    ON exchange_rates (source_currency, destination_currency, id);
COMMENT ON TABLE exchange_rates IS 'Exchange rates of this installation, append-only: the newest of a pair, in either direction, is used by every platform.';
COMMENT ON COLUMN exchange_rates.id IS 'The rate; ids rise with time.';
COMMENT ON COLUMN exchange_rates.source_currency IS 'One currency of the pair.';
COMMENT ON COLUMN exchange_rates.destination_currency IS 'The other one.';
COMMENT ON COLUMN exchange_rates.numerator IS 'Exact: numerator / denominator major units of the destination for one of the source.';
COMMENT ON COLUMN exchange_rates.denominator IS 'Denominator of the rate.';
COMMENT ON COLUMN exchange_rates.source IS 'Where the rate is from, as the operator says.';
COMMENT ON COLUMN exchange_rates.recorded_at IS 'When it was recorded, by the clock of PostgreSQL.';
COMMENT ON COLUMN exchange_rates.recorded_by IS 'The login that recorded it; written by the database.';

CREATE TABLE platform_exchange_rates (
    id UUID NOT NULL,
    platform_id UUID NOT NULL,
    source_currency TEXT NOT NULL,
    destination_currency TEXT NOT NULL,
    numerator NUMERIC(30, 0) NOT NULL,
    denominator NUMERIC(30, 0) NOT NULL,
    recorded_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT platform_exchange_rates_pkey PRIMARY KEY (id),
    CONSTRAINT platform_exchange_rates_platform_id_fkey FOREIGN KEY (platform_id) REFERENCES platforms (id),
    CONSTRAINT platform_exchange_rates_rate_check CHECK (least(numerator, denominator) > 0),
    CONSTRAINT platform_exchange_rates_pair_check CHECK (source_currency <> destination_currency)
);
CREATE INDEX platform_exchange_rates_pair_idx
    ON platform_exchange_rates (platform_id, source_currency, destination_currency, id);
COMMENT ON TABLE platform_exchange_rates IS 'Exchange rates that a platform has set for itself in a sandbox, append-only: they come before those of the installation.';
COMMENT ON COLUMN platform_exchange_rates.id IS 'The rate; ids rise with time.';
COMMENT ON COLUMN platform_exchange_rates.platform_id IS 'The platform.';
COMMENT ON COLUMN platform_exchange_rates.source_currency IS 'One currency of the pair.';
COMMENT ON COLUMN platform_exchange_rates.destination_currency IS 'The other one.';
COMMENT ON COLUMN platform_exchange_rates.numerator IS 'Exact: numerator / denominator major units of the destination for one of the source.';
COMMENT ON COLUMN platform_exchange_rates.denominator IS 'Denominator of the rate.';
COMMENT ON COLUMN platform_exchange_rates.recorded_at IS 'When it was recorded, by the clock of PostgreSQL.';
