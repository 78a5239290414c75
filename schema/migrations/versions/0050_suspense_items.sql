CREATE TABLE suspense_items (
    id UUID NOT NULL,
    customer_id UUID NOT NULL,
    platform_id UUID NOT NULL,
    source TEXT,
    reference TEXT,
    card_id UUID NOT NULL,
    type TEXT NOT NULL,
    currency TEXT NOT NULL,
    amount BIGINT NOT NULL,
    cause TEXT NOT NULL,
    reason TEXT,
    recorded_at TIMESTAMP WITH TIME ZONE NOT NULL,
    posted_on DATE NOT NULL,
    resolved_at TIMESTAMP WITH TIME ZONE,
    resolved_by UUID,
    network TEXT,
    settlement_date DATE,
    CONSTRAINT suspense_items_pkey PRIMARY KEY (id, customer_id),
    CONSTRAINT suspense_items_amount_check CHECK (amount > 0),
    CONSTRAINT suspense_items_cause_check CHECK (cause IN ('REJECTED', 'PARKED')),
    CONSTRAINT suspense_items_resolution_check CHECK (num_nulls(resolved_at, resolved_by) IN (0, 2)),
    CONSTRAINT suspense_items_settlement_check CHECK (num_nulls(network, settlement_date) IN (0, 2)),
    CONSTRAINT suspense_items_type_check CHECK (type IN ('CLEARING', 'CLEARING_REVERSAL', 'RETURN', 'RETURN_REVERSAL', 'FINANCIAL_CREDIT_AUTHORIZATION'))
);
-- Hashes, because a reference may be longer than an index can hold.
CREATE INDEX suspense_items_open_idx ON suspense_items (platform_id, md5(reference)) WHERE resolved_at IS NULL;
CREATE INDEX suspense_items_reference_idx ON suspense_items (md5(reference));
COMMENT ON TABLE suspense_items IS 'Movements of the network that were rejected or parked: what SUSPENSE consists of. A row is only ever resolved, once.';
COMMENT ON COLUMN suspense_items.id IS 'The message (`rejections.id`, `parked.id`); `entries.subject_id` of what was booked.';
COMMENT ON COLUMN suspense_items.customer_id IS 'The cardholder.';
COMMENT ON COLUMN suspense_items.platform_id IS 'The platform of the card.';
COMMENT ON COLUMN suspense_items.source IS 'Sender; null when unreadable.';
COMMENT ON COLUMN suspense_items.reference IS 'Identifier at the sender; null when unreadable.';
COMMENT ON COLUMN suspense_items.card_id IS 'The card.';
COMMENT ON COLUMN suspense_items.type IS 'Type of the event: CLEARING, CLEARING_REVERSAL, RETURN, RETURN_REVERSAL or FINANCIAL_CREDIT_AUTHORIZATION.';
COMMENT ON COLUMN suspense_items.currency IS 'Currency of the card, in which it is booked.';
COMMENT ON COLUMN suspense_items.amount IS 'Amount, minor units; always positive.';
COMMENT ON COLUMN suspense_items.cause IS 'REJECTED or PARKED.';
COMMENT ON COLUMN suspense_items.reason IS 'Rejection code; null: it is parked.';
COMMENT ON COLUMN suspense_items.recorded_at IS 'When it was booked.';
COMMENT ON COLUMN suspense_items.posted_on IS 'The business day in whose books it was booked.';
COMMENT ON COLUMN suspense_items.resolved_at IS 'When it was taken back; null: it is open.';
COMMENT ON COLUMN suspense_items.resolved_by IS 'The message or adjustment that resolved it; a parked message that was applied: itself.';
COMMENT ON COLUMN suspense_items.network IS 'Network of the settlement details that the message had; null: none that could be read.';
COMMENT ON COLUMN suspense_items.settlement_date IS 'Settlement date that the message had; null: none that could be read.';

CREATE TRIGGER no_removal BEFORE DELETE OR TRUNCATE ON suspense_items
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE suspense_items ENABLE ALWAYS TRIGGER no_removal;
CREATE TRIGGER resolved_once BEFORE UPDATE ON suspense_items FOR EACH ROW
    WHEN (OLD.resolved_at IS NOT NULL OR NEW.resolved_at IS NULL
        OR (OLD.id, OLD.customer_id, OLD.platform_id, OLD.source, OLD.reference, OLD.card_id, OLD.type, OLD.currency, OLD.amount, OLD.cause, OLD.reason, OLD.recorded_at, OLD.posted_on, OLD.network, OLD.settlement_date)
        IS DISTINCT FROM
        (NEW.id, NEW.customer_id, NEW.platform_id, NEW.source, NEW.reference, NEW.card_id, NEW.type, NEW.currency, NEW.amount, NEW.cause, NEW.reason, NEW.recorded_at, NEW.posted_on, NEW.network, NEW.settlement_date))
    EXECUTE FUNCTION refuse_change();
ALTER TABLE suspense_items ENABLE ALWAYS TRIGGER resolved_once;
