-- The record, first version. Frozen: a change to a table is a new migration.

CREATE TABLE card_transaction_events (
    card_transaction_id UUID NOT NULL,
    sequence INTEGER NOT NULL,
    customer_id UUID NOT NULL,
    kind TEXT NOT NULL,
    amount BIGINT NOT NULL,
    unfunded BIGINT,
    final BOOLEAN,
    reason TEXT,
    message_id UUID NOT NULL,
    occurred_at TIMESTAMP WITH TIME ZONE NOT NULL,
    recorded_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT card_transaction_events_pkey PRIMARY KEY (card_transaction_id, sequence, customer_id),
    CONSTRAINT card_transaction_events_amounts_check CHECK (sequence > 0 AND amount >= 0)
);
COMMENT ON TABLE card_transaction_events IS 'The facts, append-only. Its key makes a second event of the same place impossible.';
COMMENT ON COLUMN card_transaction_events.card_transaction_id IS 'The card transaction it belongs to.';
COMMENT ON COLUMN card_transaction_events.sequence IS 'Its place there: 1, 2, 3, ...';
COMMENT ON COLUMN card_transaction_events.customer_id IS 'The cardholder.';
COMMENT ON COLUMN card_transaction_events.kind IS 'AUTHORIZED, DECLINED, PULLED, PULL_OPENED, ... (ledger.core.events).';
COMMENT ON COLUMN card_transaction_events.amount IS 'Amount of the fact.';
COMMENT ON COLUMN card_transaction_events.unfunded IS 'Part of `amount` on the receivable account.';
COMMENT ON COLUMN card_transaction_events.final IS 'Whether a clearing closed the card transaction.';
COMMENT ON COLUMN card_transaction_events.reason IS 'Why an authorization was refused.';
COMMENT ON COLUMN card_transaction_events.message_id IS 'The message that caused it (outcomes, deposits).';
COMMENT ON COLUMN card_transaction_events.occurred_at IS 'When it happened, as the network says.';
COMMENT ON COLUMN card_transaction_events.recorded_at IS 'When we recorded it.';

CREATE TABLE card_transactions (
    id UUID NOT NULL,
    customer_id UUID NOT NULL,
    platform_id UUID NOT NULL,
    card_id UUID NOT NULL,
    account_id UUID NOT NULL,
    issuer_transaction_token TEXT NOT NULL,
    currency TEXT NOT NULL,
    descriptor TEXT,
    mcc TEXT,
    country TEXT,
    status TEXT NOT NULL,
    sequence INTEGER DEFAULT 0 NOT NULL,
    authorizations INTEGER DEFAULT 0 NOT NULL,
    authorized BIGINT DEFAULT 0 NOT NULL,
    settled BIGINT DEFAULT 0 NOT NULL,
    settlement_count INTEGER DEFAULT 0 NOT NULL,
    refunded BIGINT DEFAULT 0 NOT NULL,
    refund_count INTEGER DEFAULT 0 NOT NULL,
    pulled BIGINT DEFAULT 0 NOT NULL,
    pull_count INTEGER DEFAULT 0 NOT NULL,
    pending BIGINT DEFAULT 0 NOT NULL,
    pending_count INTEGER DEFAULT 0 NOT NULL,
    open_pull BIGINT DEFAULT 0 NOT NULL,
    unpaid BIGINT DEFAULT 0 NOT NULL,
    debt_since TIMESTAMP WITH TIME ZONE,
    debt_id UUID,
    released BIGINT DEFAULT 0 NOT NULL,
    release_count INTEGER DEFAULT 0 NOT NULL,
    closed_by TEXT,
    declined BIGINT DEFAULT 0 NOT NULL,
    decline_reason TEXT,
    expires_at TIMESTAMP WITH TIME ZONE,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    last_event_at TIMESTAMP WITH TIME ZONE,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT card_transactions_pkey PRIMARY KEY (id, customer_id),
    CONSTRAINT card_transactions_token_key UNIQUE (customer_id, card_id, issuer_transaction_token),
    CONSTRAINT card_transactions_released_was_pulled_check CHECK (pulled >= released),
    CONSTRAINT card_transactions_totals_not_negative_check CHECK (least(authorized, settled, refunded, pulled, pending, open_pull, unpaid, released, declined) >= 0)
)
 WITH (fillfactor = 80);
CREATE INDEX card_transactions_debt_idx ON card_transactions (account_id, debt_since, debt_id) WHERE debt_id IS NOT NULL;
CREATE INDEX card_transactions_expires_at_idx ON card_transactions (expires_at, id) WHERE expires_at IS NOT NULL;
CREATE INDEX card_transactions_platform_id_idx ON card_transactions (platform_id, id);
COMMENT ON TABLE card_transactions IS 'The roll-up: one row a purchase, the fold of its events.';
COMMENT ON COLUMN card_transactions.id IS 'The card transaction.';
COMMENT ON COLUMN card_transactions.customer_id IS 'The cardholder.';
COMMENT ON COLUMN card_transactions.platform_id IS 'The cardholder''s platform.';
COMMENT ON COLUMN card_transactions.card_id IS 'The card.';
COMMENT ON COLUMN card_transactions.account_id IS 'The funding account chosen at the first event.';
COMMENT ON COLUMN card_transactions.issuer_transaction_token IS 'What ties the network''s events together.';
COMMENT ON COLUMN card_transactions.currency IS 'Currency of every amount here.';
COMMENT ON COLUMN card_transactions.descriptor IS 'Merchant, as the network names it.';
COMMENT ON COLUMN card_transactions.mcc IS 'Merchant category code, ISO 18245.';
COMMENT ON COLUMN card_transactions.country IS 'Merchant country, alpha-2.';
COMMENT ON COLUMN card_transactions.status IS 'Derived from the totals below; kept for readers.';
COMMENT ON COLUMN card_transactions.sequence IS 'Number of events folded into this row.';
COMMENT ON COLUMN card_transactions.authorizations IS 'Authorizations heard of, approved or not.';
COMMENT ON COLUMN card_transactions.authorized IS 'Approved and not taken back.';
COMMENT ON COLUMN card_transactions.settled IS 'Sum of clearings.';
COMMENT ON COLUMN card_transactions.settlement_count IS 'Number of clearings.';
COMMENT ON COLUMN card_transactions.refunded IS 'Sum of refunds.';
COMMENT ON COLUMN card_transactions.refund_count IS 'Number of refunds.';
COMMENT ON COLUMN card_transactions.pulled IS 'Gross sum of pulls paid by the funding account.';
COMMENT ON COLUMN card_transactions.pull_count IS 'Pulls opened.';
COMMENT ON COLUMN card_transactions.pending IS 'Part of `pulled` whose confirmation is out.';
COMMENT ON COLUMN card_transactions.pending_count IS 'Pulls whose confirmation is out.';
COMMENT ON COLUMN card_transactions.open_pull IS 'What the funding account still has to pay for what settled or is held.';
COMMENT ON COLUMN card_transactions.unpaid IS 'Refund reversals that the funding account still has to pay.';
COMMENT ON COLUMN card_transactions.debt_since IS 'Since when something is to be paid: the queue''s order.';
COMMENT ON COLUMN card_transactions.debt_id IS 'The message since which something is to be paid.';
COMMENT ON COLUMN card_transactions.released IS 'Gross sum of releases to the funding account.';
COMMENT ON COLUMN card_transactions.release_count IS 'Number of releases.';
COMMENT ON COLUMN card_transactions.closed_by IS 'What made it expect no further clearing; null: open.';
COMMENT ON COLUMN card_transactions.declined IS 'What was asked for and refused, while nothing has been approved.';
COMMENT ON COLUMN card_transactions.decline_reason IS 'Why it was refused.';
COMMENT ON COLUMN card_transactions.expires_at IS 'When what has not cleared goes back; null: nothing will.';
COMMENT ON COLUMN card_transactions.created_at IS 'When its first event was recorded.';
COMMENT ON COLUMN card_transactions.last_event_at IS 'Last event after the authorization.';
COMMENT ON COLUMN card_transactions.updated_at IS 'When its last event was recorded.';

CREATE TABLE deposits (
    id UUID NOT NULL,
    customer_id UUID NOT NULL,
    account_id UUID NOT NULL,
    amount BIGINT NOT NULL CONSTRAINT deposits_amount_positive_check CHECK (amount > 0),
    message_id UUID NOT NULL,
    recorded_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT deposits_pkey PRIMARY KEY (id, customer_id)
);
COMMENT ON TABLE deposits IS 'Money that arrived on an internal account, append-only.';
COMMENT ON COLUMN deposits.id IS 'The deposit.';
COMMENT ON COLUMN deposits.customer_id IS 'Owner of the account.';
COMMENT ON COLUMN deposits.account_id IS 'The account that got the money.';
COMMENT ON COLUMN deposits.amount IS 'What arrived.';
COMMENT ON COLUMN deposits.message_id IS 'The message that brought it (outcomes).';
COMMENT ON COLUMN deposits.recorded_at IS 'When we recorded it.';

CREATE TABLE entries (
    subject_id UUID NOT NULL,
    sequence INTEGER NOT NULL,
    line SMALLINT NOT NULL,
    customer_id UUID NOT NULL,
    debit_account_id UUID NOT NULL,
    credit_account_id UUID NOT NULL,
    amount BIGINT NOT NULL CONSTRAINT entries_amount_positive_check CHECK (amount > 0),
    account_id UUID,
    account_version BIGINT,
    balance_after BIGINT,
    recorded_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT entries_pkey PRIMARY KEY (subject_id, sequence, line, customer_id),
    CONSTRAINT entries_two_accounts_check CHECK (debit_account_id <> credit_account_id),
    CONSTRAINT entries_customer_side_check CHECK (num_nulls(account_id, account_version, balance_after) IN (0, 3)),
    CONSTRAINT entries_balance_not_negative_check CHECK (balance_after >= 0)
);
CREATE UNIQUE INDEX entries_account_version_key ON entries (account_id, account_version, customer_id) WHERE account_id IS NOT NULL;
COMMENT ON TABLE entries IS 'Double entries, append-only: one row moves one amount between two accounts.';
COMMENT ON COLUMN entries.subject_id IS 'The card transaction or deposit it belongs to.';
COMMENT ON COLUMN entries.sequence IS 'The event there; 0 for a deposit.';
COMMENT ON COLUMN entries.line IS 'Its place within the event.';
COMMENT ON COLUMN entries.customer_id IS 'The cardholder.';
COMMENT ON COLUMN entries.debit_account_id IS 'The account that gives.';
COMMENT ON COLUMN entries.credit_account_id IS 'The account that gets.';
COMMENT ON COLUMN entries.amount IS 'What moves.';
COMMENT ON COLUMN entries.account_id IS 'The customer''s account among the two, if one is.';
COMMENT ON COLUMN entries.account_version IS 'Number of this entry on `account_id`.';
COMMENT ON COLUMN entries.balance_after IS 'Balance of `account_id` after it.';
COMMENT ON COLUMN entries.recorded_at IS 'When we recorded it.';

CREATE TABLE inbox (
    lane SMALLINT NOT NULL,
    shard SMALLINT NOT NULL,
    id UUID NOT NULL,
    customer_id UUID NOT NULL,
    platform_id UUID NOT NULL,
    source TEXT NOT NULL,
    reference TEXT NOT NULL,
    body JSON NOT NULL,
    body_hash BYTEA NOT NULL,
    reply_to TEXT,
    received_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT inbox_pkey PRIMARY KEY (lane, shard, id, customer_id)
)
 WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE inbox IS 'Messages accepted and not decided yet; a decided one is deleted in the same commit.';
COMMENT ON COLUMN inbox.lane IS '0 live, 1 bulk.';
COMMENT ON COLUMN inbox.shard IS 'Hash of the cardholder.';
COMMENT ON COLUMN inbox.id IS 'The message; its order of arrival.';
COMMENT ON COLUMN inbox.customer_id IS 'The cardholder; the nil UUID when the card is unknown.';
COMMENT ON COLUMN inbox.platform_id IS 'The platform that sent it.';
COMMENT ON COLUMN inbox.source IS 'Who sent it.';
COMMENT ON COLUMN inbox.reference IS 'Its identifier there.';
COMMENT ON COLUMN inbox.body IS 'The message, as schema.wire parsed it.';
COMMENT ON COLUMN inbox.body_hash IS 'Hash of what it says.';
COMMENT ON COLUMN inbox.reply_to IS 'Redis list on which a caller waits for the outcome.';
COMMENT ON COLUMN inbox.received_at IS 'When it was accepted.';

CREATE TABLE inbox_shards (
    lane SMALLINT NOT NULL,
    shard SMALLINT NOT NULL,
    lock TEXT,
    CONSTRAINT inbox_shards_pkey PRIMARY KEY (lane, shard)
);
COMMENT ON TABLE inbox_shards IS 'One row for each queue of the inbox; the worker that drains a queue holds its row lock.';
COMMENT ON COLUMN inbox_shards.lane IS '0 live, 1 bulk.';
COMMENT ON COLUMN inbox_shards.shard IS '0 .. 15.';
COMMENT ON COLUMN inbox_shards.lock IS 'Never written: the right to update it is the right to lock.';

CREATE TABLE outbox (
    id UUID NOT NULL,
    customer_id UUID NOT NULL,
    platform_id UUID NOT NULL,
    type TEXT NOT NULL,
    subject_id UUID NOT NULL,
    sequence BIGINT,
    data JSON,
    recorded_at TIMESTAMP WITH TIME ZONE NOT NULL,
    retry_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT outbox_pkey PRIMARY KEY (id, customer_id)
)
 WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE outbox IS 'What has to be told, written with the fact; dispatching moves it to deliveries.';
COMMENT ON COLUMN outbox.id IS 'The webhook, as receivers see it.';
COMMENT ON COLUMN outbox.customer_id IS 'The cardholder.';
COMMENT ON COLUMN outbox.platform_id IS 'The platform to tell.';
COMMENT ON COLUMN outbox.type IS 'Webhook event type.';
COMMENT ON COLUMN outbox.subject_id IS 'The resource concerned.';
COMMENT ON COLUMN outbox.sequence IS 'Event of the card transaction, or entry of the account, that it tells of.';
COMMENT ON COLUMN outbox.data IS 'The resource as it was; null: folded from its events.';
COMMENT ON COLUMN outbox.recorded_at IS 'When it happened.';
COMMENT ON COLUMN outbox.retry_at IS 'When to render it again, after it could not be.';

CREATE TABLE outcomes (
    customer_id UUID NOT NULL,
    platform_id UUID NOT NULL,
    source TEXT NOT NULL,
    reference TEXT NOT NULL,
    body_hash BYTEA NOT NULL,
    message_id UUID NOT NULL,
    outcome TEXT NOT NULL,
    reason TEXT,
    subject_id UUID,
    sequence INTEGER,
    recorded_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT outcomes_pkey PRIMARY KEY (reference, source, platform_id, customer_id)
);
CREATE INDEX outcomes_message_id_idx ON outcomes (message_id);
COMMENT ON TABLE outcomes IS 'Outcome of every message, retained permanently: no message is applied twice.';
COMMENT ON COLUMN outcomes.customer_id IS 'The cardholder.';
COMMENT ON COLUMN outcomes.platform_id IS 'The platform that sent the message.';
COMMENT ON COLUMN outcomes.source IS 'Who sent the message.';
COMMENT ON COLUMN outcomes.reference IS 'Identifier at the sender; with the source, the permanent idempotency key.';
COMMENT ON COLUMN outcomes.body_hash IS 'Tells a repetition from a reuse.';
COMMENT ON COLUMN outcomes.message_id IS 'The first message with this key.';
COMMENT ON COLUMN outcomes.outcome IS 'APPLIED, DECLINED, IGNORED or PARKED.';
COMMENT ON COLUMN outcomes.reason IS 'Why, where there is a reason.';
COMMENT ON COLUMN outcomes.subject_id IS 'The card transaction or deposit it concerned.';
COMMENT ON COLUMN outcomes.sequence IS 'Last event of that card transaction after it.';
COMMENT ON COLUMN outcomes.recorded_at IS 'When it was decided.';

CREATE TABLE parked (
    id UUID NOT NULL,
    customer_id UUID NOT NULL,
    card_id UUID NOT NULL,
    issuer_transaction_token TEXT NOT NULL,
    body JSON NOT NULL,
    received_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT parked_pkey PRIMARY KEY (customer_id, card_id, issuer_transaction_token, id)
);
COMMENT ON TABLE parked IS 'Messages that take back what has not arrived yet; deleted when it has.';
COMMENT ON COLUMN parked.id IS 'The message.';
COMMENT ON COLUMN parked.customer_id IS 'The cardholder.';
COMMENT ON COLUMN parked.card_id IS 'The card.';
COMMENT ON COLUMN parked.issuer_transaction_token IS 'What it waits for.';
COMMENT ON COLUMN parked.body IS 'The message, as schema.wire parsed it.';
COMMENT ON COLUMN parked.received_at IS 'When it was accepted.';

CREATE TABLE pending_pulls (
    card_transaction_id UUID NOT NULL,
    sequence INTEGER NOT NULL,
    customer_id UUID NOT NULL,
    card_id UUID NOT NULL,
    issuer_transaction_token TEXT NOT NULL,
    amount BIGINT NOT NULL,
    succeeds BOOLEAN NOT NULL,
    due_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pending_pulls_pkey PRIMARY KEY (card_transaction_id, sequence, customer_id)
);
CREATE INDEX pending_pulls_due_at_idx ON pending_pulls (due_at);
COMMENT ON TABLE pending_pulls IS 'Pulls whose confirmation is out; deleted when it is asked for.';
COMMENT ON COLUMN pending_pulls.card_transaction_id IS 'The card transaction.';
COMMENT ON COLUMN pending_pulls.sequence IS 'The event that made the pull.';
COMMENT ON COLUMN pending_pulls.customer_id IS 'The cardholder.';
COMMENT ON COLUMN pending_pulls.card_id IS 'The card.';
COMMENT ON COLUMN pending_pulls.issuer_transaction_token IS 'What ties the events of the card transaction together.';
COMMENT ON COLUMN pending_pulls.amount IS 'What was pulled.';
COMMENT ON COLUMN pending_pulls.succeeds IS 'What the sandbox will answer.';
COMMENT ON COLUMN pending_pulls.due_at IS 'When it will answer.';

CREATE TABLE platforms (
    id UUID NOT NULL,
    name TEXT NOT NULL,
    supported_currencies TEXT[] NOT NULL,
    webhook_endpoint TEXT,
    signing_key BYTEA NOT NULL,
    public_key TEXT NOT NULL,
    webhook_secret BYTEA NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT platforms_pkey PRIMARY KEY (id)
);
COMMENT ON COLUMN platforms.id IS 'The tenant: a partner that issues cards.';
COMMENT ON COLUMN platforms.name IS 'What people call it.';
COMMENT ON COLUMN platforms.supported_currencies IS 'Currencies in which its customers get an internal account.';
COMMENT ON COLUMN platforms.webhook_endpoint IS 'Where its webhooks go; null: kept, not sent.';
COMMENT ON COLUMN platforms.signing_key IS 'P-256 private key of X-Grid-Signature, encrypted with the server key.';
COMMENT ON COLUMN platforms.public_key IS 'The PEM public key that belongs to `signing_key`.';
COMMENT ON COLUMN platforms.webhook_secret IS 'HMAC secret of the Standard Webhooks headers, encrypted with the server key.';
COMMENT ON COLUMN platforms.created_at IS 'When the platform was set up.';
COMMENT ON COLUMN platforms.updated_at IS 'When its configuration last changed.';

CREATE TABLE rejections (
    id UUID NOT NULL,
    customer_id UUID NOT NULL,
    platform_id UUID NOT NULL,
    source TEXT,
    reference TEXT,
    body TEXT NOT NULL,
    reason TEXT NOT NULL,
    detail TEXT,
    recorded_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT rejections_pkey PRIMARY KEY (id, customer_id)
);
COMMENT ON TABLE rejections IS 'Messages that could not be understood or applied, kept with their reason.';
COMMENT ON COLUMN rejections.id IS 'The message.';
COMMENT ON COLUMN rejections.customer_id IS 'The cardholder; the nil UUID when the card is unknown.';
COMMENT ON COLUMN rejections.platform_id IS 'The platform that sent it.';
COMMENT ON COLUMN rejections.source IS 'Who sent it, as far as it can be read.';
COMMENT ON COLUMN rejections.reference IS 'Its identifier there, as far as it can be read.';
COMMENT ON COLUMN rejections.body IS 'The message as it came.';
COMMENT ON COLUMN rejections.reason IS 'Why it was not applied: a code.';
COMMENT ON COLUMN rejections.detail IS 'What to change, in words.';
COMMENT ON COLUMN rejections.recorded_at IS 'When it was rejected.';

CREATE TABLE webhook_attempts (
    delivery_id UUID NOT NULL,
    number INTEGER NOT NULL,
    customer_id UUID NOT NULL,
    attempted_at TIMESTAMP WITH TIME ZONE NOT NULL,
    duration_ms INTEGER NOT NULL,
    status SMALLINT,
    error TEXT,
    response_head TEXT,
    CONSTRAINT webhook_attempts_pkey PRIMARY KEY (delivery_id, number, customer_id)
);
COMMENT ON TABLE webhook_attempts IS 'Every attempt to deliver a webhook, append-only.';
COMMENT ON COLUMN webhook_attempts.delivery_id IS 'The delivery.';
COMMENT ON COLUMN webhook_attempts.number IS '1, 2, 3, ...';
COMMENT ON COLUMN webhook_attempts.customer_id IS 'The cardholder.';
COMMENT ON COLUMN webhook_attempts.attempted_at IS 'When the request was sent.';
COMMENT ON COLUMN webhook_attempts.duration_ms IS 'How long it took.';
COMMENT ON COLUMN webhook_attempts.status IS 'HTTP status; null when none came.';
COMMENT ON COLUMN webhook_attempts.error IS 'What went wrong, when no status came.';
COMMENT ON COLUMN webhook_attempts.response_head IS 'First bytes of the answer.';

CREATE TABLE webhook_deliveries (
    id UUID NOT NULL,
    customer_id UUID NOT NULL,
    platform_id UUID NOT NULL,
    type TEXT NOT NULL,
    subject_id UUID NOT NULL,
    sequence BIGINT,
    url TEXT,
    body TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER DEFAULT 0 NOT NULL,
    next_attempt_at TIMESTAMP WITH TIME ZONE,
    last_status SMALLINT,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    delivered_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT webhook_deliveries_pkey PRIMARY KEY (id, customer_id),
    CONSTRAINT webhook_deliveries_state_check CHECK (state IN ('PENDING', 'DELIVERED', 'FAILED', 'NO_ENDPOINT')),
    CONSTRAINT webhook_deliveries_pending_is_due_check CHECK ((state = 'PENDING') = (next_attempt_at IS NOT NULL))
);
CREATE INDEX webhook_deliveries_due_idx ON webhook_deliveries (platform_id, next_attempt_at, id) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX webhook_deliveries_platform_id_idx ON webhook_deliveries (platform_id, id);
COMMENT ON TABLE webhook_deliveries IS 'One webhook and its way to a receiver.';
COMMENT ON COLUMN webhook_deliveries.id IS 'The webhook, as receivers see it: constant over attempts.';
COMMENT ON COLUMN webhook_deliveries.customer_id IS 'The cardholder.';
COMMENT ON COLUMN webhook_deliveries.platform_id IS 'The platform to tell.';
COMMENT ON COLUMN webhook_deliveries.type IS 'Webhook event type.';
COMMENT ON COLUMN webhook_deliveries.subject_id IS 'The resource concerned.';
COMMENT ON COLUMN webhook_deliveries.sequence IS 'As in the outbox.';
COMMENT ON COLUMN webhook_deliveries.url IS 'Where it goes; null: no endpoint was set.';
COMMENT ON COLUMN webhook_deliveries.body IS 'The exact bytes that are sent, UTF-8.';
COMMENT ON COLUMN webhook_deliveries.state IS 'PENDING, DELIVERED, FAILED or NO_ENDPOINT.';
COMMENT ON COLUMN webhook_deliveries.attempts IS 'Attempts made.';
COMMENT ON COLUMN webhook_deliveries.next_attempt_at IS 'When the next attempt is due; null: none.';
COMMENT ON COLUMN webhook_deliveries.last_status IS 'HTTP status of the last attempt.';
COMMENT ON COLUMN webhook_deliveries.created_at IS 'When it was dispatched.';
COMMENT ON COLUMN webhook_deliveries.delivered_at IS 'When a receiver took it.';

CREATE TABLE api_tokens (
    id UUID NOT NULL,
    platform_id UUID NOT NULL,
    name TEXT NOT NULL,
    client_id TEXT NOT NULL,
    secret_hash BYTEA NOT NULL,
    permissions TEXT[] NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT api_tokens_pkey PRIMARY KEY (id),
    CONSTRAINT api_tokens_platform_id_fkey FOREIGN KEY(platform_id) REFERENCES platforms (id),
    CONSTRAINT api_tokens_client_id_key UNIQUE (client_id)
);
CREATE INDEX api_tokens_platform_id_idx ON api_tokens (platform_id);
COMMENT ON COLUMN api_tokens.id IS 'The token.';
COMMENT ON COLUMN api_tokens.platform_id IS 'Whose token it is.';
COMMENT ON COLUMN api_tokens.name IS 'What people call it.';
COMMENT ON COLUMN api_tokens.client_id IS 'User name of Basic auth.';
COMMENT ON COLUMN api_tokens.secret_hash IS 'HMAC-SHA-256 of the client secret under the server key; the secret is not kept.';
COMMENT ON COLUMN api_tokens.permissions IS 'VIEW, TRANSACT, MANAGE.';
COMMENT ON COLUMN api_tokens.created_at IS 'When it was made.';

CREATE TABLE customers (
    id UUID NOT NULL,
    platform_id UUID NOT NULL,
    platform_customer_id TEXT NOT NULL,
    customer_type TEXT NOT NULL,
    kyc_status TEXT NOT NULL,
    uma_address TEXT NOT NULL,
    region TEXT,
    currencies TEXT[] NOT NULL,
    email TEXT,
    phone_number TEXT,
    full_name TEXT,
    birth_date DATE,
    nationality TEXT,
    address JSONB,
    is_deleted BOOLEAN DEFAULT false NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT customers_pkey PRIMARY KEY (id),
    CONSTRAINT customers_platform_id_fkey FOREIGN KEY(platform_id) REFERENCES platforms (id)
);
CREATE UNIQUE INDEX customers_platform_customer_id_key ON customers (platform_id, platform_customer_id) WHERE NOT is_deleted;
CREATE UNIQUE INDEX customers_uma_address_key ON customers (uma_address) WHERE NOT is_deleted;
COMMENT ON COLUMN customers.id IS 'The customer; as cardholder, a home of money.';
COMMENT ON COLUMN customers.platform_id IS 'Its platform.';
COMMENT ON COLUMN customers.platform_customer_id IS 'The platform''s own identifier.';
COMMENT ON COLUMN customers.customer_type IS 'INDIVIDUAL or BUSINESS.';
COMMENT ON COLUMN customers.kyc_status IS 'UNVERIFIED, PENDING, APPROVED, REJECTED or HOLD.';
COMMENT ON COLUMN customers.uma_address IS 'Its UMA address.';
COMMENT ON COLUMN customers.region IS 'Country, ISO 3166-1 alpha-2.';
COMMENT ON COLUMN customers.currencies IS 'Currencies of its accounts.';
COMMENT ON COLUMN customers.email IS 'E-mail address.';
COMMENT ON COLUMN customers.phone_number IS 'Phone number, E.164.';
COMMENT ON COLUMN customers.full_name IS 'Name of an individual.';
COMMENT ON COLUMN customers.birth_date IS 'Date of birth of an individual.';
COMMENT ON COLUMN customers.nationality IS 'Nationality of an individual, alpha-2.';
COMMENT ON COLUMN customers.address IS 'Postal address, as it was sent.';
COMMENT ON COLUMN customers.is_deleted IS 'Deleted for the platform; its books stay.';
COMMENT ON COLUMN customers.created_at IS 'When it was created.';
COMMENT ON COLUMN customers.updated_at IS 'When it last changed.';

CREATE TABLE internal_accounts (
    id UUID NOT NULL,
    customer_id UUID NOT NULL,
    platform_id UUID NOT NULL,
    currency TEXT NOT NULL,
    type TEXT NOT NULL,
    status TEXT NOT NULL,
    balance BIGINT DEFAULT 0 NOT NULL,
    held BIGINT DEFAULT 0 NOT NULL,
    owed BIGINT DEFAULT 0 NOT NULL,
    pending BIGINT DEFAULT 0 NOT NULL,
    version BIGINT DEFAULT 0 NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT internal_accounts_pkey PRIMARY KEY (id, customer_id),
    CONSTRAINT internal_accounts_balance_not_negative_check CHECK (balance >= 0),
    CONSTRAINT internal_accounts_sums_not_negative_check CHECK (least(held, owed, pending) >= 0),
    CONSTRAINT internal_accounts_platform_id_fkey FOREIGN KEY(platform_id) REFERENCES platforms (id)
)
 WITH (fillfactor = 50);
CREATE INDEX internal_accounts_customer_id_idx ON internal_accounts (customer_id);
CREATE INDEX internal_accounts_platform_id_idx ON internal_accounts (platform_id);
COMMENT ON TABLE internal_accounts IS 'Money of a customer. Locked by a batch in the order of id; written once a batch.';
COMMENT ON COLUMN internal_accounts.id IS 'The account.';
COMMENT ON COLUMN internal_accounts.customer_id IS 'Its owner.';
COMMENT ON COLUMN internal_accounts.platform_id IS 'Its platform.';
COMMENT ON COLUMN internal_accounts.currency IS 'Its currency.';
COMMENT ON COLUMN internal_accounts.type IS 'INTERNAL_FIAT, INTERNAL_CRYPTO or EMBEDDED_WALLET.';
COMMENT ON COLUMN internal_accounts.status IS 'PENDING, ACTIVE, CLOSED, FROZEN or FAILED; only ACTIVE pays.';
COMMENT ON COLUMN internal_accounts.balance IS 'Available: what may be spent. Never negative.';
COMMENT ON COLUMN internal_accounts.held IS 'Set aside for clearings to come: sum of its card transactions'' holds.';
COMMENT ON COLUMN internal_accounts.owed IS 'Taken by the network and not paid yet: sum over its card transactions.';
COMMENT ON COLUMN internal_accounts.pending IS 'Pulled and not confirmed yet: sum over its card transactions.';
COMMENT ON COLUMN internal_accounts.version IS 'Number of entries on this account.';
COMMENT ON COLUMN internal_accounts.created_at IS 'When it was opened.';
COMMENT ON COLUMN internal_accounts.updated_at IS 'When its amounts last changed.';

CREATE TABLE system_accounts (
    id UUID NOT NULL,
    platform_id UUID NOT NULL,
    currency TEXT NOT NULL,
    kind TEXT NOT NULL,
    CONSTRAINT system_accounts_pkey PRIMARY KEY (id),
    CONSTRAINT system_accounts_platform_id_currency_kind_key UNIQUE (platform_id, currency, kind),
    CONSTRAINT system_accounts_kind_check CHECK (kind IN ('CARD_HOLDS', 'NETWORK_SETTLEMENT', 'RECEIVABLE', 'SANDBOX_FUNDING', 'OPERATOR_LOSS')),
    CONSTRAINT system_accounts_platform_id_fkey FOREIGN KEY(platform_id) REFERENCES platforms (id)
);
COMMENT ON TABLE system_accounts IS 'The platform''s side of every movement. No running balance: it would serialise all.';
COMMENT ON COLUMN system_accounts.id IS 'The account, as entries name it.';
COMMENT ON COLUMN system_accounts.platform_id IS 'Its platform.';
COMMENT ON COLUMN system_accounts.currency IS 'Its currency.';
COMMENT ON COLUMN system_accounts.kind IS 'Its place in the chart of accounts.';

CREATE TABLE cards (
    id UUID NOT NULL,
    customer_id UUID NOT NULL,
    platform_id UUID NOT NULL,
    platform_card_id TEXT NOT NULL,
    state TEXT NOT NULL,
    state_reason TEXT,
    form TEXT NOT NULL,
    brand TEXT,
    last4 TEXT,
    exp_month SMALLINT,
    exp_year SMALLINT,
    currency TEXT NOT NULL,
    funding_sources UUID[] NOT NULL,
    max_spend_per_transaction BIGINT CONSTRAINT cards_max_spend_positive_check CHECK (max_spend_per_transaction >= 1),
    processor_ref TEXT NOT NULL,
    issuer_ref TEXT NOT NULL,
    activate_at TIMESTAMP WITH TIME ZONE,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT cards_pkey PRIMARY KEY (id),
    CONSTRAINT cards_customer_id_fkey FOREIGN KEY(customer_id) REFERENCES customers (id),
    CONSTRAINT cards_platform_id_fkey FOREIGN KEY(platform_id) REFERENCES platforms (id)
);
CREATE INDEX cards_activate_at_idx ON cards (activate_at) WHERE activate_at IS NOT NULL;
CREATE INDEX cards_customer_id_idx ON cards (customer_id);
CREATE INDEX cards_funding_sources_idx ON cards USING gin (funding_sources);
CREATE UNIQUE INDEX cards_platform_card_id_key ON cards (platform_id, platform_card_id) WHERE state != 'CLOSED';
CREATE INDEX cards_platform_id_idx ON cards (platform_id, id);
COMMENT ON COLUMN cards.id IS 'The card.';
COMMENT ON COLUMN cards.customer_id IS 'Its cardholder.';
COMMENT ON COLUMN cards.platform_id IS 'Its platform.';
COMMENT ON COLUMN cards.platform_card_id IS 'The platform''s own identifier.';
COMMENT ON COLUMN cards.state IS 'PENDING_KYC, PROCESSING, ACTIVE, FROZEN or CLOSED.';
COMMENT ON COLUMN cards.state_reason IS 'Why it is closed; null otherwise.';
COMMENT ON COLUMN cards.form IS 'VIRTUAL.';
COMMENT ON COLUMN cards.brand IS 'VISA or MASTERCARD, once provisioned.';
COMMENT ON COLUMN cards.last4 IS 'Last four digits, once provisioned.';
COMMENT ON COLUMN cards.exp_month IS 'Month of expiry, once provisioned.';
COMMENT ON COLUMN cards.exp_year IS 'Year of expiry, once provisioned.';
COMMENT ON COLUMN cards.currency IS 'Currency of its funding sources.';
COMMENT ON COLUMN cards.funding_sources IS 'Internal accounts by priority; decisions read the first. A closed card keeps them for clearings that come late, and shows none.';
COMMENT ON COLUMN cards.max_spend_per_transaction IS 'Largest amount of one authorization; null: no limit.';
COMMENT ON COLUMN cards.processor_ref IS 'The processor''s reference.';
COMMENT ON COLUMN cards.issuer_ref IS 'The issuer''s reference.';
COMMENT ON COLUMN cards.activate_at IS 'When the issuer finishes; null: never, or done.';
COMMENT ON COLUMN cards.created_at IS 'When it was asked for.';
COMMENT ON COLUMN cards.updated_at IS 'When it last changed.';

CREATE TABLE card_reveals (
    token_hash BYTEA NOT NULL,
    card_id UUID NOT NULL,
    api_token_id UUID NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    opened_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT card_reveals_pkey PRIMARY KEY (token_hash),
    CONSTRAINT card_reveals_card_id_fkey FOREIGN KEY(card_id) REFERENCES cards (id)
);
CREATE INDEX card_reveals_card_id_idx ON card_reveals (card_id);
COMMENT ON TABLE card_reveals IS 'Who asked to see a card''s number, and when it was seen. The number is nowhere.';
COMMENT ON COLUMN card_reveals.token_hash IS 'HMAC-SHA-256 of the URL''s token under the server key; the token is not kept.';
COMMENT ON COLUMN card_reveals.card_id IS 'The card.';
COMMENT ON COLUMN card_reveals.api_token_id IS 'Who asked: the API token, which may have been deleted since.';
COMMENT ON COLUMN card_reveals.created_at IS 'When it was asked for.';
COMMENT ON COLUMN card_reveals.expires_at IS 'When the page can no longer be opened.';
COMMENT ON COLUMN card_reveals.opened_at IS 'When the page was opened, which happens once; null: not.';
