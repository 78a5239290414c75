CREATE TABLE enqueued_events (
    lane SMALLINT NOT NULL,
    position BIGINT GENERATED ALWAYS AS IDENTITY,
    id UUID NOT NULL,
    source TEXT NOT NULL,
    reference TEXT NOT NULL,
    event JSONB NOT NULL,
    size INTEGER NOT NULL,
    enqueued_by TEXT NOT NULL,
    enqueued_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT enqueued_events_pkey PRIMARY KEY (lane, position)
)
WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
-- A hash, because a reference may be longer than an index can hold.
CREATE INDEX enqueued_events_reference_idx ON enqueued_events (md5(reference));
COMMENT ON TABLE enqueued_events IS 'Events enqueued in database transactions of others, until a worker moves them to the inbox or to the rejections.';
COMMENT ON COLUMN enqueued_events.position IS 'Order in which the events were enqueued.';
COMMENT ON COLUMN enqueued_events.id IS 'The event; the message that it becomes has the last eight bytes of it.';
COMMENT ON COLUMN enqueued_events.lane IS '0: live, 1: bulk.';
COMMENT ON COLUMN enqueued_events.source IS 'Sender.';
COMMENT ON COLUMN enqueued_events.reference IS 'Identifier of the event at the sender.';
COMMENT ON COLUMN enqueued_events.event IS 'The event as it was enqueued, not validated.';
COMMENT ON COLUMN enqueued_events.size IS 'Bytes of the event as text.';
COMMENT ON COLUMN enqueued_events.enqueued_by IS 'The login that enqueued it.';
COMMENT ON COLUMN enqueued_events.enqueued_at IS 'When it was enqueued, before the commit, by the clock of PostgreSQL.';

CREATE TABLE enqueued_events_progress (
    is_only BOOLEAN NOT NULL,
    begins_at BIGINT NOT NULL,
    last_position BIGINT NOT NULL,
    mark BIGINT NOT NULL,
    settled_by BIGINT,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT enqueued_events_progress_pkey PRIMARY KEY (is_only),
    CONSTRAINT enqueued_events_progress_is_only_check CHECK (is_only)
);
COMMENT ON TABLE enqueued_events_progress IS 'One row; the worker that locks it moves enqueued events.';
COMMENT ON COLUMN enqueued_events_progress.is_only IS 'True.';
COMMENT ON COLUMN enqueued_events_progress.begins_at IS 'No event is before this position, and none can be enqueued there any more.';
COMMENT ON COLUMN enqueued_events_progress.last_position IS 'Highest position of any event, at the last update.';
COMMENT ON COLUMN enqueued_events_progress.mark IS 'Position before which events can be enqueued until the database transaction settled_by.';
COMMENT ON COLUMN enqueued_events_progress.settled_by IS 'Once all database transactions before it have ended, begins_at follows mark.';
COMMENT ON COLUMN enqueued_events_progress.updated_at IS 'When the row was updated.';
INSERT INTO enqueued_events_progress VALUES (true, 0, 0, 0, NULL, now());

CREATE TRIGGER append_only BEFORE UPDATE OR TRUNCATE ON enqueued_events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE enqueued_events ENABLE ALWAYS TRIGGER append_only;

-- The ids of messages begin with the time of the move, which is after the beginning of its database
-- transaction. NOT IN builds a hash table, whatever the plans are that the session allows.
CREATE FUNCTION refuse_loss() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    beginning uuid := (
        lpad(to_hex(floor(extract(epoch FROM now()) * 1000)::bigint), 12, '0') || repeat('0', 20)
    )::uuid;
    lost uuid;
BEGIN
    SELECT id INTO lost FROM removed
    WHERE substr(uuid_send(id), 9) NOT IN (
        SELECT substr(uuid_send(i.id), 9)
        FROM generate_series(0, 1) AS l (lane) CROSS JOIN generate_series(0, 15) AS s (shard)
        CROSS JOIN LATERAL (
            SELECT id FROM inbox
            WHERE inbox.lane = l.lane AND inbox.shard = s.shard AND inbox.id >= beginning
        ) i
        UNION ALL SELECT substr(uuid_send(id), 9) FROM rejections WHERE id >= beginning
    )
    LIMIT 1;
    IF lost IS NOT NULL THEN
        RAISE EXCEPTION 'enqueued event % is neither in the inbox nor rejected', lost
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NULL;
END $body$;

CREATE TRIGGER loss AFTER DELETE ON enqueued_events REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_loss();
ALTER TABLE enqueued_events ENABLE ALWAYS TRIGGER loss;

-- Each look at what waits is at a thousand positions: rows that were deleted while a snapshot is
-- open for long, a backup for example, stay in the index. A session keeps its plans, also those that
-- were made for an empty table.
CREATE FUNCTION enqueue(events jsonb, lane text DEFAULT 'LIVE') RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET enable_seqscan = off SET jit = off AS $body$
#variable_conflict use_column
DECLARE
    lane_number smallint := array_position(ARRAY['LIVE', 'BULK'], enqueue.lane) - 1;
    event_count integer;
    wrong text;
    first bigint;
BEGIN
    IF lane_number IS NULL THEN
        RAISE EXCEPTION 'lane must be LIVE or BULK' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF jsonb_typeof(enqueue.events) IS DISTINCT FROM 'array' THEN
        RAISE EXCEPTION 'events must be a JSON array of network events'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    event_count := jsonb_array_length(enqueue.events);
    IF event_count NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION 'events has % elements; enqueue 1 to 10000 at a time', event_count
            USING ERRCODE = 'invalid_parameter_value';
    END IF;

    SELECT format('event %s %s', number, problem) INTO wrong
    FROM (
        SELECT number, CASE
            WHEN jsonb_typeof(event) <> 'object' THEN 'is not a JSON object'
            WHEN octet_length(event::text) > 65536 THEN 'is longer than 65536 bytes'
            ELSE (
                SELECT 'needs a non-empty string as ' || string_agg(field, ', ')
                FROM unnest(ARRAY['type', 'source', 'reference']) AS f (field)
                WHERE jsonb_typeof(event -> field) IS DISTINCT FROM 'string'
                    OR event ->> field = ''
            ) END AS problem
        FROM jsonb_array_elements(enqueue.events) WITH ORDINALITY AS e (event, number)
    ) checked
    WHERE problem IS NOT NULL ORDER BY number LIMIT 1;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION '%', wrong USING ERRCODE = 'invalid_parameter_value';
    END IF;

    -- Before the first position: who reads an event knows then which database transactions can
    -- still add one before it.
    PERFORM pg_current_xact_id();
    WITH written AS (
        INSERT INTO enqueued_events
            (id, lane, source, reference, event, size, enqueued_by, enqueued_at)
        -- A random UUID, with a bit that keeps it from a reserved ending.
        SELECT encode(set_bit(uuid_send(gen_random_uuid()), 115, 1), 'hex')::uuid, lane_number,
            event ->> 'source', event ->> 'reference', event, octet_length(event::text),
            session_user, clock_timestamp()
        FROM jsonb_array_elements(enqueue.events) WITH ORDINALITY AS e (event, number)
        ORDER BY number
        RETURNING position
    )
    SELECT min(position) INTO first FROM written;

    IF EXISTS (
        SELECT FROM enqueued_events
        WHERE lane = lane_number AND position BETWEEN first - 1000999 AND first - 1000000
    ) THEN
        RAISE EXCEPTION 'more than 1000000 events wait for the workers'
            USING ERRCODE = 'configuration_limit_exceeded',
                HINT = 'Enqueue again when the workers have caught up; cardledger doctor says'
                    ' whether they run.';
    END IF;
    -- While events wait the workers are awake: a notification would make all commits that notify
    -- wait for each other.
    IF NOT EXISTS (
        SELECT FROM enqueued_events
        WHERE lane = lane_number AND position BETWEEN first - 1000 AND first - 1
    ) THEN
        PERFORM pg_notify('cardledger_enqueued', '');
    END IF;
    RETURN event_count;
END $body$;
COMMENT ON FUNCTION enqueue(jsonb, text) IS 'Enqueues network events, an array, in the database transaction of the caller; returns their number.';

CREATE FUNCTION card_transaction_json(key uuid) RETURNS jsonb LANGUAGE sql STABLE AS $body$
    SELECT jsonb_strip_nulls(jsonb_build_object(
        'type', 'CARD',
        'id', 'CardTransaction:' || t.id,
        'cardId', 'Card:' || t.card_id,
        'customerId', 'Customer:' || t.customer_id,
        'platformCustomerId', u.platform_customer_id,
        'accountId', 'InternalAccount:' || t.account_id,
        'issuerTransactionToken', t.issuer_transaction_token,
        'status', t.status,
        'statusReason', CASE
            WHEN t.status <> 'VOIDED' THEN NULL
            WHEN t.closed_by IN ('EXPIRED', 'CARD_CLOSED') THEN t.closed_by
            ELSE 'REVERSED' END,
        'declineReason', t.decline_reason,
        'direction',
            CASE WHEN t.authorizations > 0 OR t.settlement_count > 0 THEN 'DEBIT' ELSE 'CREDIT' END,
        'merchant', jsonb_build_object(
            'descriptor', coalesce(nullif(t.descriptor, ''), 'UNKNOWN'),
            'mcc', t.mcc,
            'country', t.country),
        'authorizedAmount', jsonb_build_object(
            'amount', CASE WHEN t.authorized <> 0 THEN t.authorized ELSE t.declined END,
            'currency', c.info),
        'settledAmount', CASE WHEN t.settlement_count > 0
            THEN jsonb_build_object('amount', t.settled, 'currency', c.info) END,
        'refundedAmount', CASE WHEN r.refunded <> 0
            THEN jsonb_build_object('amount', r.refunded, 'currency', c.info) END,
        'creditedAmount', CASE WHEN r.credited <> 0
            THEN jsonb_build_object('amount', r.credited, 'currency', c.info) END,
        'heldAmount', jsonb_build_object(
            'amount', greatest(t.pulled - t.released - t.settled, 0), 'currency', c.info),
        'owedAmount', jsonb_build_object(
            'amount', greatest(t.settled - t.pulled + t.released, 0) + t.unpaid,
            'currency', c.info),
        'pullSummary', jsonb_build_object(
            'count', t.pull_count, 'totalAmount', t.pulled, 'pendingCount', t.pending_count),
        'settlementSummary', jsonb_build_object(
            'count', t.settlement_count, 'totalAmount', t.settled),
        'refundSummary', jsonb_build_object(
            'count', CASE WHEN r.refunded <> 0 THEN t.refund_count ELSE 0 END,
            'totalAmount', r.refunded),
        'releaseSummary', jsonb_build_object(
            'count', t.release_count, 'totalAmount', t.released),
        'sequence', t.sequence,
        'authorizedAt', z.created_at,
        'expiresAt', z.expires_at,
        'lastEventAt', z.last_event_at,
        'createdAt', z.created_at,
        'updatedAt', z.updated_at
    ))
    FROM card_transactions t
    JOIN customers u ON u.id = t.customer_id
    CROSS JOIN LATERAL (
        SELECT '__CURRENCIES__'::jsonb -> t.currency AS info
    ) c
    CROSS JOIN LATERAL (
        SELECT CASE WHEN t.closed_by = 'CREDITED' THEN 0 ELSE t.refunded END AS refunded,
            CASE WHEN t.closed_by = 'CREDITED' THEN t.refunded ELSE 0 END AS credited
    ) r
    CROSS JOIN LATERAL (
        SELECT to_char(t.created_at AT TIME ZONE 'UTC', f.format) AS created_at,
            to_char(t.expires_at AT TIME ZONE 'UTC', f.format) AS expires_at,
            to_char(t.last_event_at AT TIME ZONE 'UTC', f.format) AS last_event_at,
            to_char(t.updated_at AT TIME ZONE 'UTC', f.format) AS updated_at
        FROM (SELECT 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS f (format)
    ) z
    WHERE t.id = card_transaction_json.key
$body$;

-- STABLE: all queries see one moment, in which an event is in one place.
CREATE FUNCTION outcome(source text, reference text) RETURNS jsonb
LANGUAGE plpgsql STABLE SECURITY DEFINER SET enable_seqscan = off SET jit = off AS $body$
#variable_conflict use_column
DECLARE
    decided outcomes[];
    first outcomes;
    explanation text;
    rejected record;
BEGIN
    decided := ARRAY(
        SELECT o FROM outcomes o
        WHERE o.reference = outcome.reference AND o.source = outcome.source LIMIT 2
    );
    IF cardinality(decided) > 1 THEN
        RAISE EXCEPTION 'several cardholders have an event with this source and reference'
            USING ERRCODE = 'cardinality_violation';
    END IF;
    first := decided[1];
    IF first.message_id IS NOT NULL THEN
        IF first.outcome = 'APPLIED' AND EXISTS (
            SELECT FROM outcomes o
            WHERE o.reference = encode(first.body_hash, 'hex') AND o.source = 'decision-timeout'
                AND o.platform_id = first.platform_id AND o.customer_id = first.customer_id
        ) THEN
            first.outcome := 'DECLINED';
            first.reason := 'DECISION_TIMEOUT';
            explanation := '__TIMED_OUT__';
        END IF;
        RETURN jsonb_strip_nulls(jsonb_build_object(
            'reference', first.reference,
            'outcome', first.outcome,
            'reason', first.reason,
            'detail', explanation,
            'cardTransaction', CASE WHEN first.subject_id IS NOT NULL AND first.sequence > 0
                THEN card_transaction_json(first.subject_id) END));
    END IF;

    SELECT r.reason, r.detail INTO rejected
    FROM (
        SELECT id FROM platforms UNION ALL SELECT '00000000-0000-0000-0000-000000000000'
    ) AS p (id)
    CROSS JOIN LATERAL (
        SELECT r.id, r.reason, r.detail FROM rejections r
        WHERE r.platform_id = p.id AND md5(r.reference) = md5(left(outcome.reference, 255))
            AND r.reference = left(outcome.reference, 255)
            AND r.source = left(outcome.source, 255)
        ORDER BY r.id DESC LIMIT 1
    ) r
    ORDER BY r.id DESC LIMIT 1;
    IF FOUND THEN
        RETURN jsonb_strip_nulls(jsonb_build_object(
            'reference', outcome.reference, 'outcome', 'REJECTED', 'reason', rejected.reason,
            'detail', rejected.detail));
    END IF;

    -- The inbox has no index by reference, and is mostly empty: the look at it has a limit.
    IF EXISTS (
        SELECT FROM enqueued_events e
        WHERE md5(e.reference) = md5(outcome.reference)
            AND e.reference = outcome.reference AND e.source = outcome.source
    ) OR EXISTS (
        SELECT FROM (SELECT i.source, i.reference FROM inbox i LIMIT 100000) AS w
        WHERE w.reference = outcome.reference AND w.source = outcome.source
    ) THEN
        RETURN jsonb_build_object(
            'reference', outcome.reference, 'outcome', 'ACCEPTED', 'detail', 'not decided yet');
    END IF;
    RETURN NULL;
END $body$;
COMMENT ON FUNCTION outcome(text, text) IS 'The outcome of the event with this source and reference, ACCEPTED while it waits; null: no such event is known.';
