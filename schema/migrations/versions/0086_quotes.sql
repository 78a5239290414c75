CREATE TABLE quotes (
    id UUID NOT NULL,
    platform_id UUID NOT NULL,
    customer_id UUID NOT NULL,
    agent_id UUID,
    status TEXT NOT NULL,
    transaction_id UUID NOT NULL,
    source_account_id UUID NOT NULL,
    is_funded BOOLEAN DEFAULT false NOT NULL,
    crypto_network TEXT,
    destination_account_id UUID,
    is_external BOOLEAN DEFAULT false NOT NULL,
    uma_address TEXT,
    peer_id UUID,
    peer_platform_id UUID,
    payment_rail TEXT,
    rail_selection TEXT,
    sending_currency TEXT NOT NULL,
    receiving_currency TEXT NOT NULL,
    locked_side TEXT NOT NULL,
    sending_amount BIGINT NOT NULL,
    receiving_amount BIGINT NOT NULL,
    fee_amount BIGINT NOT NULL,
    fee_fixed BIGINT NOT NULL,
    fee_bps INTEGER NOT NULL,
    rate_numerator BIGINT NOT NULL,
    rate_denominator BIGINT NOT NULL,
    executes_at_once BOOLEAN DEFAULT false NOT NULL,
    description TEXT,
    remittance_information TEXT,
    purpose_of_payment TEXT,
    sender_information JSONB,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    executed_at TIMESTAMP WITH TIME ZONE,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT quotes_pkey PRIMARY KEY (id),
    CONSTRAINT quotes_platform_id_fkey FOREIGN KEY (platform_id) REFERENCES platforms (id),
    CONSTRAINT quotes_transaction_id_key UNIQUE (transaction_id),
    CONSTRAINT quotes_status_check CHECK (status IN ('PENDING', 'PENDING_AUTHORIZATION', 'EXECUTED', 'EXPIRED')),
    CONSTRAINT quotes_executed_at_check CHECK ((status = 'EXECUTED') = (executed_at IS NOT NULL)),
    CONSTRAINT quotes_amounts_check CHECK (least(sending_amount, receiving_amount) > 0 AND fee_amount >= 0 AND fee_amount < sending_amount),
    CONSTRAINT quotes_rate_check CHECK (least(rate_numerator, rate_denominator) > 0),
    CONSTRAINT quotes_locked_side_check CHECK (locked_side IN ('SENDING', 'RECEIVING')),
    CONSTRAINT quotes_destination_check CHECK (num_nonnulls(destination_account_id, uma_address) >= 1),
    CONSTRAINT quotes_peer_check CHECK (num_nulls(peer_id, peer_platform_id) IN (0, 2))
);
CREATE INDEX quotes_due_idx ON quotes (expires_at)
    WHERE status IN ('PENDING', 'PENDING_AUTHORIZATION');
CREATE INDEX quotes_expired_idx ON quotes (id) WHERE status = 'EXPIRED';
COMMENT ON TABLE quotes IS 'Quotes: payments that were promised at a price until a time.';
COMMENT ON COLUMN quotes.id IS 'The quote; ids rise with time.';
COMMENT ON COLUMN quotes.platform_id IS 'The platform.';
COMMENT ON COLUMN quotes.customer_id IS 'Who pays: a customer, or the platform itself (`platform_id`).';
COMMENT ON COLUMN quotes.agent_id IS 'The agent that requested it; null: not requested by an agent.';
COMMENT ON COLUMN quotes.status IS 'PENDING, PENDING_AUTHORIZATION (of the customer), EXECUTED or EXPIRED; what became of an executed one is in transfers.';
COMMENT ON COLUMN quotes.transaction_id IS 'The id that its payment has (`transfers.id`), promised from the beginning.';
COMMENT ON COLUMN quotes.source_account_id IS 'Internal account that pays; with realtime funding the one on which the money arrives.';
COMMENT ON COLUMN quotes.is_funded IS 'Whether the money arrives from outside (realtime funding).';
COMMENT ON COLUMN quotes.crypto_network IS 'Network by which it arrives; null: a bank, or not from outside.';
COMMENT ON COLUMN quotes.destination_account_id IS 'Internal or external account that is paid; null: a UMA address elsewhere.';
COMMENT ON COLUMN quotes.is_external IS 'Whether `destination_account_id` is an external account.';
COMMENT ON COLUMN quotes.uma_address IS 'UMA address that is paid; null: an account.';
COMMENT ON COLUMN quotes.peer_id IS 'Owner of the internal account that is paid, if another one.';
COMMENT ON COLUMN quotes.peer_platform_id IS 'Platform of that owner.';
COMMENT ON COLUMN quotes.payment_rail IS 'Rail of an external bank account.';
COMMENT ON COLUMN quotes.rail_selection IS 'AUTO or MANUAL; null without a rail.';
COMMENT ON COLUMN quotes.sending_currency IS 'Currency that is sent.';
COMMENT ON COLUMN quotes.receiving_currency IS 'Currency that is received.';
COMMENT ON COLUMN quotes.locked_side IS 'SENDING or RECEIVING: which amount was chosen.';
COMMENT ON COLUMN quotes.sending_amount IS 'Amount that is sent, fees included, minor units.';
COMMENT ON COLUMN quotes.receiving_amount IS 'Amount that is received, minor units.';
COMMENT ON COLUMN quotes.fee_amount IS 'Fees, part of `sending_amount`.';
COMMENT ON COLUMN quotes.fee_fixed IS 'Fixed part of the fees.';
COMMENT ON COLUMN quotes.fee_bps IS 'Variable part of the fees, in basis points.';
COMMENT ON COLUMN quotes.rate_numerator IS 'Rate: numerator / denominator minor units received for one sent.';
COMMENT ON COLUMN quotes.rate_denominator IS 'Denominator of the rate.';
COMMENT ON COLUMN quotes.executes_at_once IS 'Whether it is executed as soon as it may be, without a request.';
COMMENT ON COLUMN quotes.description IS 'Text of the sender.';
COMMENT ON COLUMN quotes.remittance_information IS 'Remittance information of the sender.';
COMMENT ON COLUMN quotes.purpose_of_payment IS 'Purpose code.';
COMMENT ON COLUMN quotes.sender_information IS 'What the institution of the receiver asked about the sender, as submitted.';
COMMENT ON COLUMN quotes.created_at IS 'Time of the request.';
COMMENT ON COLUMN quotes.expires_at IS 'Until when it can be executed.';
COMMENT ON COLUMN quotes.executed_at IS 'When it was executed; null: not executed.';
COMMENT ON COLUMN quotes.updated_at IS 'When its status last changed.';

-- Exactly one address is looked up, so that no platform can list the customers of another.
CREATE FUNCTION uma_receiver(wanted text)
RETURNS TABLE (customer_id uuid, platform_id uuid, account_id uuid, currency text)
LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT c.id, c.platform_id, a.id, a.currency
    FROM customers c JOIN internal_accounts a ON a.customer_id = c.id AND a.status = 'ACTIVE'
    WHERE c.uma_address = wanted AND NOT c.is_deleted AND c.kyc_status = 'APPROVED'
    ORDER BY a.created_at, a.id LIMIT 200
$$;
