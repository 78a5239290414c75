CREATE TABLE adjustments (
    id UUID NOT NULL,
    kind TEXT NOT NULL,
    platform_id UUID NOT NULL,
    currency TEXT NOT NULL,
    amount BIGINT NOT NULL,
    from_kind TEXT,
    to_kind TEXT,
    card_transaction_id UUID,
    suspense_id UUID,
    reason TEXT NOT NULL,
    state TEXT DEFAULT 'PREPARED' NOT NULL,
    prepared_by TEXT DEFAULT SESSION_USER NOT NULL,
    prepared_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    decided_by TEXT,
    decided_at TIMESTAMP WITH TIME ZONE,
    booked_at TIMESTAMP WITH TIME ZONE,
    refusal TEXT,
    CONSTRAINT adjustments_pkey PRIMARY KEY (id),
    CONSTRAINT adjustments_target_check CHECK (CASE kind WHEN 'MOVE' THEN num_nonnulls(card_transaction_id, suspense_id) = 0 AND from_kind <> to_kind AND from_kind IN ('INTERCHANGE', 'NETWORK_FEES', 'NETWORK_SETTLEMENT', 'OPERATOR_LOSS', 'SETTLEMENT_BANK') AND to_kind IN ('INTERCHANGE', 'NETWORK_FEES', 'NETWORK_SETTLEMENT', 'OPERATOR_LOSS', 'SETTLEMENT_BANK') AND num_nulls(from_kind, to_kind) = 0 WHEN 'WRITE_OFF' THEN num_nonnulls(suspense_id, from_kind, to_kind) = 0 AND card_transaction_id IS NOT NULL WHEN 'RESOLVE_SUSPENSE' THEN num_nonnulls(card_transaction_id, from_kind, to_kind) = 0 AND suspense_id IS NOT NULL ELSE false END),
    CONSTRAINT adjustments_amount_positive_check CHECK (amount > 0),
    CONSTRAINT adjustments_reason_check CHECK (length(btrim(reason)) > 0 AND length(reason) <= 1000),
    CONSTRAINT adjustments_state_check CHECK (state IN ('PREPARED', 'APPROVED', 'REJECTED', 'BOOKED', 'REFUSED')),
    CONSTRAINT adjustments_two_people_check CHECK (decided_by <> prepared_by),
    CONSTRAINT adjustments_decision_check CHECK (num_nulls(decided_by, decided_at) = CASE state WHEN 'PREPARED' THEN 2 ELSE 0 END),
    CONSTRAINT adjustments_booking_check CHECK ((state = 'BOOKED') = (booked_at IS NOT NULL)),
    CONSTRAINT adjustments_refusal_check CHECK ((state IN ('REJECTED', 'REFUSED')) = (refusal IS NOT NULL))
);
CREATE INDEX adjustments_approved_idx ON adjustments (decided_at, id) WHERE state = 'APPROVED';
COMMENT ON TABLE adjustments IS 'Corrections of the books: a person prepares one, another approves or rejects it, the engine books it. States only go forward, and nothing is deleted.';
COMMENT ON COLUMN adjustments.id IS 'The adjustment; `entries.subject_id` of a MOVE.';
COMMENT ON COLUMN adjustments.kind IS 'WRITE_OFF, MOVE or RESOLVE_SUSPENSE.';
COMMENT ON COLUMN adjustments.platform_id IS 'The platform.';
COMMENT ON COLUMN adjustments.currency IS 'Its currency.';
COMMENT ON COLUMN adjustments.amount IS 'Amount, minor units; always positive.';
COMMENT ON COLUMN adjustments.from_kind IS 'Of a MOVE: account of the chart that is debited.';
COMMENT ON COLUMN adjustments.to_kind IS 'Of a MOVE: account of the chart that is credited.';
COMMENT ON COLUMN adjustments.card_transaction_id IS 'Of a WRITE_OFF: the card transaction that owes the amount.';
COMMENT ON COLUMN adjustments.suspense_id IS 'Of a RESOLVE_SUSPENSE: the item of the suspense account.';
COMMENT ON COLUMN adjustments.reason IS 'Why, in the words of the person who prepared it.';
COMMENT ON COLUMN adjustments.state IS 'PREPARED; then REJECTED, or APPROVED; then BOOKED or REFUSED.';
COMMENT ON COLUMN adjustments.prepared_by IS 'The login that prepared it; written by the database.';
COMMENT ON COLUMN adjustments.prepared_at IS 'When it was prepared, by the clock of PostgreSQL.';
COMMENT ON COLUMN adjustments.decided_by IS 'The login that approved or rejected it; written by the database.';
COMMENT ON COLUMN adjustments.decided_at IS 'When it was approved or rejected.';
COMMENT ON COLUMN adjustments.booked_at IS 'When the engine booked it: `entries.recorded_at` of its entries.';
COMMENT ON COLUMN adjustments.refusal IS 'Why it was not booked: what the person who rejected it wrote, or what the engine found.';

-- It writes what a person must not choose, and says what is wrong before a constraint does. A
-- function in plpgsql finds tables when it runs, here by the search path that is set below.
CREATE FUNCTION prepare_adjustment() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    movable text[] := ARRAY['INTERCHANGE', 'NETWORK_FEES', 'NETWORK_SETTLEMENT', 'OPERATOR_LOSS',
        'SETTLEMENT_BANK'];
    account text;
    resolved timestamptz;
BEGIN
    IF NEW.state <> 'PREPARED' OR NEW.prepared_by <> session_user::text THEN
        RAISE EXCEPTION 'an adjustment begins as PREPARED, by the login of the session'
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    -- Random, with a bit that keeps it from a reserved ending.
    NEW.id := encode(set_bit(uuid_send(gen_random_uuid()), 115, 1), 'hex')::uuid;
    IF NEW.reason IS NULL OR length(btrim(NEW.reason)) = 0 OR length(NEW.reason) > 1000 THEN
        RAISE EXCEPTION 'the reason must have 1 to 1000 characters'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    CASE NEW.kind
    WHEN 'WRITE_OFF' THEN
        SELECT t.platform_id, t.currency INTO NEW.platform_id, NEW.currency
        FROM card_transactions t WHERE t.id = NEW.card_transaction_id;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'there is no card transaction %', NEW.card_transaction_id
                USING ERRCODE = 'invalid_parameter_value';
        END IF;
    WHEN 'RESOLVE_SUSPENSE' THEN
        SELECT s.platform_id, s.currency, s.amount, s.resolved_at
        INTO NEW.platform_id, NEW.currency, NEW.amount, resolved
        FROM suspense_items s WHERE s.id = NEW.suspense_id;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'there is no suspense item %', NEW.suspense_id
                USING ERRCODE = 'invalid_parameter_value';
        END IF;
        IF resolved IS NOT NULL THEN
            RAISE EXCEPTION 'suspense item % is resolved already', NEW.suspense_id
                USING ERRCODE = 'object_not_in_prerequisite_state';
        END IF;
    ELSE
        FOREACH account IN ARRAY ARRAY[NEW.from_kind, NEW.to_kind] LOOP
            IF account IS NULL OR account <> ALL (movable) THEN
                RAISE EXCEPTION 'account % cannot be moved by hand: its balance is proved from'
                    ' card transactions, deposits, transfers and suspense items; %', account,
                    'accounts that can be moved are ' || array_to_string(movable, ', ')
                    USING ERRCODE = 'invalid_parameter_value';
            END IF;
            IF NOT EXISTS (
                SELECT FROM system_accounts s
                WHERE (s.platform_id, s.currency, s.kind)
                    = (NEW.platform_id, NEW.currency, account)
            ) THEN
                RAISE EXCEPTION 'platform % has no account % in %',
                    NEW.platform_id, account, NEW.currency
                    USING ERRCODE = 'invalid_parameter_value';
            END IF;
        END LOOP;
        IF NEW.from_kind = NEW.to_kind THEN
            RAISE EXCEPTION 'nothing is moved from account % to itself', NEW.from_kind
                USING ERRCODE = 'invalid_parameter_value';
        END IF;
    END CASE;
    IF NEW.amount IS NULL OR NEW.amount <= 0 THEN
        RAISE EXCEPTION 'the amount must be 1 to 9223372036854775807 minor units'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN NEW;
END $body$;
CREATE TRIGGER preparation BEFORE INSERT ON adjustments
    FOR EACH ROW EXECUTE FUNCTION prepare_adjustment();

-- Only functions with the rights of the owner approve and reject; the engine books and refuses.
CREATE FUNCTION guard_adjustment() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    changeable text[] := ARRAY['state', 'refusal', 'booked_at'];
BEGIN
    IF NEW.state IN ('APPROVED', 'REJECTED') THEN
        IF OLD.state <> 'PREPARED' THEN
            RAISE EXCEPTION 'adjustment % is % already: it was % by % at %', OLD.id, OLD.state,
                CASE OLD.state WHEN 'REJECTED' THEN 'rejected' ELSE 'approved' END, OLD.decided_by,
                to_char(OLD.decided_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
                USING ERRCODE = 'object_not_in_prerequisite_state';
        END IF;
        IF NOT pg_has_role(
            current_user, (SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'USAGE'
        ) THEN
            RAISE EXCEPTION 'an adjustment is approved and rejected by the functions for it'
                USING ERRCODE = 'insufficient_privilege';
        END IF;
        IF NEW.state = 'REJECTED' AND length(btrim(coalesce(NEW.refusal, '')))
            NOT BETWEEN 1 AND 1000
        THEN
            RAISE EXCEPTION 'the reason must have 1 to 1000 characters'
                USING ERRCODE = 'invalid_parameter_value';
        END IF;
        NEW.decided_by := session_user;
        NEW.decided_at := clock_timestamp();
        changeable := ARRAY['state', 'refusal', 'decided_by', 'decided_at'];
    ELSIF NEW.state NOT IN ('BOOKED', 'REFUSED') OR OLD.state <> 'APPROVED' THEN
        RAISE EXCEPTION 'adjustment % is %, and cannot become %', OLD.id, OLD.state, NEW.state
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF to_jsonb(NEW) - changeable <> to_jsonb(OLD) - changeable THEN
        RAISE EXCEPTION 'what adjustment % is about cannot be changed', OLD.id
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $body$;
CREATE TRIGGER history BEFORE UPDATE ON adjustments
    FOR EACH ROW EXECUTE FUNCTION guard_adjustment();
ALTER TABLE adjustments ENABLE ALWAYS TRIGGER history;
CREATE TRIGGER no_loss BEFORE DELETE OR TRUNCATE ON adjustments
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE adjustments ENABLE ALWAYS TRIGGER no_loss;
