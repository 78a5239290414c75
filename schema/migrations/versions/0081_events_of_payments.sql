CREATE TABLE transfer_events (
    transfer_id UUID NOT NULL,
    sequence INTEGER NOT NULL,
    customer_id UUID NOT NULL,
    kind TEXT NOT NULL,
    reason TEXT,
    message_id UUID NOT NULL,
    occurred_at TIMESTAMP WITH TIME ZONE NOT NULL,
    recorded_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT transfer_events_pkey PRIMARY KEY (transfer_id, sequence, customer_id),
    CONSTRAINT transfer_events_sequence_check CHECK (sequence > 0)
);
COMMENT ON TABLE transfer_events IS 'Events of payments, append-only; their entries have the same sequence.';
COMMENT ON COLUMN transfer_events.transfer_id IS 'The payment (`transfers.id`).';
COMMENT ON COLUMN transfer_events.sequence IS 'Position within the payment: 1, 2, 3, ...';
COMMENT ON COLUMN transfer_events.customer_id IS 'Its owner.';
COMMENT ON COLUMN transfer_events.kind IS 'DEBITED, SUBMITTED, COMPLETED, FAILED, REJECTED, RETURNED, REFUNDED, REFUND_FAILED, ARRIVED, CREDITED or EXCHANGED.';
COMMENT ON COLUMN transfer_events.reason IS 'Failure code.';
COMMENT ON COLUMN transfer_events.message_id IS 'The message that caused the event (`outcomes.message_id`).';
COMMENT ON COLUMN transfer_events.occurred_at IS 'When it happened.';
COMMENT ON COLUMN transfer_events.recorded_at IS 'When the ledger recorded it.';

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON transfer_events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE transfer_events ENABLE ALWAYS TRIGGER append_only;

INSERT INTO chart_of_accounts (kind, class, normal_side) VALUES
    ('OUTBOUND_CLEARING', 'LIABILITY', 'C'),
    ('INBOUND_CLEARING', 'LIABILITY', 'C'),
    ('FX', 'LIABILITY', 'C')
ON CONFLICT DO NOTHING;
