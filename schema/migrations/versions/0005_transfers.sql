-- Transfers and what agents ask for, first version. Frozen: a change to a table is a new migration.

CREATE TABLE transfers (
    id UUID NOT NULL,
    customer_id UUID NOT NULL,
    platform_id UUID NOT NULL,
    source_account_id UUID NOT NULL,
    destination_account_id UUID NOT NULL,
    amount BIGINT NOT NULL CONSTRAINT transfers_amount_positive_check CHECK (amount > 0),
    currency TEXT NOT NULL,
    status TEXT NOT NULL,
    failure_reason TEXT,
    agent_id UUID,
    remittance_information TEXT,
    purpose_of_payment TEXT,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    settled_at TIMESTAMP WITH TIME ZONE,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT transfers_pkey PRIMARY KEY (id, customer_id),
    CONSTRAINT transfers_status_check CHECK (status IN ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED')),
    CONSTRAINT transfers_failure_reason_check CHECK ((status = 'FAILED') = (failure_reason IS NOT NULL)),
    CONSTRAINT transfers_settled_at_check CHECK ((status = 'COMPLETED') = (settled_at IS NOT NULL)),
    CONSTRAINT transfers_two_accounts_check CHECK (source_account_id <> destination_account_id)
)
 WITH (fillfactor = 80);
CREATE INDEX transfers_agent_id_idx ON transfers (agent_id, created_at) WHERE agent_id IS NOT NULL;
CREATE INDEX transfers_customer_id_idx ON transfers (customer_id, id);
CREATE INDEX transfers_pending_idx ON transfers (platform_id, id) WHERE status = 'PENDING';
CREATE INDEX transfers_platform_id_idx ON transfers (platform_id, id);
COMMENT ON TABLE transfers IS 'Money between two accounts of one customer. The batch that moves it completes it.';
COMMENT ON COLUMN transfers.id IS 'The transfer.';
COMMENT ON COLUMN transfers.customer_id IS 'Owner of both accounts.';
COMMENT ON COLUMN transfers.platform_id IS 'Platform of the owner.';
COMMENT ON COLUMN transfers.source_account_id IS 'The account that gives.';
COMMENT ON COLUMN transfers.destination_account_id IS 'The account that gets.';
COMMENT ON COLUMN transfers.amount IS 'What moves.';
COMMENT ON COLUMN transfers.currency IS 'Currency of both accounts.';
COMMENT ON COLUMN transfers.status IS 'PENDING (approval), PROCESSING, COMPLETED or FAILED; only ever forward.';
COMMENT ON COLUMN transfers.failure_reason IS 'Why it failed: a code; null: it has not.';
COMMENT ON COLUMN transfers.agent_id IS 'The agent that asked for it; null: none did.';
COMMENT ON COLUMN transfers.remittance_information IS 'What the sender writes to it.';
COMMENT ON COLUMN transfers.purpose_of_payment IS 'What it is for: a code.';
COMMENT ON COLUMN transfers.created_at IS 'When it was asked for.';
COMMENT ON COLUMN transfers.settled_at IS 'When the money moved; null: it has not.';
COMMENT ON COLUMN transfers.updated_at IS 'When its status last changed.';

CREATE TABLE agent_actions (
    id UUID NOT NULL,
    agent_id UUID NOT NULL,
    customer_id UUID NOT NULL,
    platform_id UUID NOT NULL,
    type TEXT NOT NULL,
    rejection_reason TEXT,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT agent_actions_pkey PRIMARY KEY (id),
    CONSTRAINT agent_actions_type_check CHECK (type IN ('TRANSFER_OUT', 'TRANSFER_IN')),
    CONSTRAINT agent_actions_agent_id_fkey FOREIGN KEY(agent_id) REFERENCES agents (id),
    CONSTRAINT agent_actions_customer_id_fkey FOREIGN KEY(customer_id) REFERENCES customers (id),
    CONSTRAINT agent_actions_platform_id_fkey FOREIGN KEY(platform_id) REFERENCES platforms (id),
    CONSTRAINT agent_actions_id_fkey FOREIGN KEY(id, customer_id) REFERENCES transfers (id, customer_id)
);
CREATE INDEX agent_actions_agent_id_idx ON agent_actions (agent_id, id);
COMMENT ON TABLE agent_actions IS 'What agents have asked for. How it stands is told by the transfer.';
COMMENT ON COLUMN agent_actions.id IS 'The action; the transfer that it asks for has the same key.';
COMMENT ON COLUMN agent_actions.agent_id IS 'Who asks.';
COMMENT ON COLUMN agent_actions.customer_id IS 'Its customer.';
COMMENT ON COLUMN agent_actions.platform_id IS 'Its platform.';
COMMENT ON COLUMN agent_actions.type IS 'TRANSFER_OUT or TRANSFER_IN: how it was asked for.';
COMMENT ON COLUMN agent_actions.rejection_reason IS 'What the platform said when it refused.';
COMMENT ON COLUMN agent_actions.created_at IS 'When it was asked for.';

-- The other side of every transfer, for the platforms that are there already.
ALTER TABLE system_accounts DROP CONSTRAINT system_accounts_kind_check;
ALTER TABLE system_accounts ADD CONSTRAINT system_accounts_kind_check CHECK (kind IN ('CARD_HOLDS', 'NETWORK_SETTLEMENT', 'RECEIVABLE', 'SANDBOX_FUNDING', 'OPERATOR_LOSS', 'TRANSFERS'));
INSERT INTO system_accounts (id, platform_id, currency, kind)
    SELECT gen_random_uuid(), platform_id, currency, 'TRANSFERS' FROM system_accounts WHERE kind = 'CARD_HOLDS';
COMMENT ON COLUMN entries.subject_id IS 'The card transaction, deposit or transfer it belongs to.';
COMMENT ON COLUMN entries.sequence IS 'The event there; 0 for a deposit or a transfer.';

-- Deposits are listed by platform and by customer. The guard looks away for this one addition.
ALTER TABLE deposits ADD COLUMN platform_id UUID;
ALTER TABLE deposits DISABLE TRIGGER append_only;
UPDATE deposits d SET platform_id = a.platform_id FROM internal_accounts a WHERE a.id = d.account_id;
ALTER TABLE deposits ENABLE ALWAYS TRIGGER append_only;
ALTER TABLE deposits ALTER COLUMN platform_id SET NOT NULL;
CREATE INDEX deposits_customer_id_idx ON deposits (customer_id, id);
CREATE INDEX deposits_platform_id_idx ON deposits (platform_id, id);
COMMENT ON COLUMN deposits.platform_id IS 'Platform of the owner.';
