CREATE TABLE conversion_details (
    card_transaction_id UUID NOT NULL,
    sequence INTEGER NOT NULL,
    customer_id UUID NOT NULL,
    platform_id UUID NOT NULL,
    message_id UUID NOT NULL,
    merchant_amount BIGINT NOT NULL,
    merchant_currency TEXT NOT NULL,
    billing_amount BIGINT NOT NULL,
    rate NUMERIC(24, 12) NOT NULL,
    recorded_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT conversion_details_pkey PRIMARY KEY (card_transaction_id, sequence, customer_id),
    CONSTRAINT conversion_details_amounts_check CHECK (least(merchant_amount, billing_amount) >= 0 AND rate > 0)
);
COMMENT ON TABLE conversion_details IS 'How the network converted the amount of an event, append-only; no row: it did not.';
COMMENT ON COLUMN conversion_details.card_transaction_id IS 'The card transaction.';
COMMENT ON COLUMN conversion_details.sequence IS 'First event of the message (`card_transaction_events.sequence`).';
COMMENT ON COLUMN conversion_details.customer_id IS 'The cardholder.';
COMMENT ON COLUMN conversion_details.platform_id IS 'The cardholder''s platform.';
COMMENT ON COLUMN conversion_details.message_id IS 'The message (`outcomes.message_id`).';
COMMENT ON COLUMN conversion_details.merchant_amount IS 'Amount in the currency of the merchant, minor units of `merchant_currency`.';
COMMENT ON COLUMN conversion_details.merchant_currency IS 'Currency of the merchant, ISO 4217.';
COMMENT ON COLUMN conversion_details.billing_amount IS 'Amount of the message, minor units of the card transaction''s currency.';
COMMENT ON COLUMN conversion_details.rate IS 'Units of the card transaction''s currency for one of the merchant''s, as the network said it.';
COMMENT ON COLUMN conversion_details.recorded_at IS 'When the ledger recorded it.';
