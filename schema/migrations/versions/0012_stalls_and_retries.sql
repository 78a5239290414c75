-- Stalls, retries and compatibility, first version. Frozen: a change to a table is a new migration.

CREATE TABLE stalled_queues (
    lane SMALLINT NOT NULL,
    shard SMALLINT NOT NULL,
    is_whole_queue BOOLEAN NOT NULL,
    customer_id UUID NOT NULL,
    message_id UUID,
    error TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    since TIMESTAMP WITH TIME ZONE NOT NULL,
    last_attempt_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT stalled_queues_pkey PRIMARY KEY (lane, shard, is_whole_queue, customer_id)
);
COMMENT ON TABLE stalled_queues IS 'Queues, and cardholders in them, whose messages fail for a reason that is not theirs; deleted when they move again.';
COMMENT ON COLUMN stalled_queues.lane IS '0: live, 1: bulk.';
COMMENT ON COLUMN stalled_queues.shard IS '0 .. 15.';
COMMENT ON COLUMN stalled_queues.is_whole_queue IS 'Whether the queue has stopped, not only the messages of one cardholder.';
COMMENT ON COLUMN stalled_queues.customer_id IS 'The cardholder whose messages wait; the nil UUID for a whole queue.';
COMMENT ON COLUMN stalled_queues.message_id IS 'The message that failed last; null: the queue could not be read.';
COMMENT ON COLUMN stalled_queues.error IS 'What failed last.';
COMMENT ON COLUMN stalled_queues.attempts IS 'How often it was tried.';
COMMENT ON COLUMN stalled_queues.since IS 'When it first failed.';
COMMENT ON COLUMN stalled_queues.last_attempt_at IS 'When it failed last.';

CREATE TABLE rejection_retries (
    rejection_id UUID NOT NULL,
    platform_id UUID NOT NULL,
    message_id UUID NOT NULL,
    retried_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT rejection_retries_pkey PRIMARY KEY (rejection_id)
);
COMMENT ON TABLE rejection_retries IS 'Rejected messages that were enqueued again, each at most once; append-only.';
COMMENT ON COLUMN rejection_retries.rejection_id IS 'The rejection.';
COMMENT ON COLUMN rejection_retries.platform_id IS 'The platform of the sender.';
COMMENT ON COLUMN rejection_retries.message_id IS 'The message that was enqueued.';
COMMENT ON COLUMN rejection_retries.retried_at IS 'When it was enqueued.';

CREATE INDEX rejections_platform_id_idx ON rejections (platform_id, id);

CREATE TABLE schema_compatibility (
    oldest_head TEXT NOT NULL,
    CONSTRAINT schema_compatibility_pkey PRIMARY KEY (oldest_head)
);
COMMENT ON TABLE schema_compatibility IS 'One row: which releases may use this schema; written by migrations.';
COMMENT ON COLUMN schema_compatibility.oldest_head IS 'Newest revision that the oldest of them knows.';
INSERT INTO schema_compatibility (oldest_head) VALUES ('0012');
