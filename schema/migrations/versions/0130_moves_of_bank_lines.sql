-- Refuses a move of SETTLEMENT_BANK that does not book a line of the bank, or books one again: from
-- the first statement on the account has what statements say. A line is taken from when the move is
-- prepared on, until it is rejected or refused.
CREATE FUNCTION check_bank_move(
    adjustment uuid, wanted uuid, platform uuid, currency_code text, from_account text,
    to_account text, amount bigint
) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    l record;
    taken numeric;
    moved numeric := CASE from_account WHEN 'SETTLEMENT_BANK' THEN amount ELSE -amount END;
BEGIN
    -- An import that runs has another snapshot: it could match the line meanwhile.
    IF NOT pg_try_advisory_xact_lock_shared(hashtext('cardledger settlement files')) THEN
        RAISE EXCEPTION 'a settlement file or a statement of the bank is being imported: % the move'
            ' when that has ended', CASE WHEN EXISTS (
                SELECT FROM adjustments j WHERE j.id = adjustment
            ) THEN 'approve' ELSE 'prepare' END USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    IF wanted IS NULL THEN
        IF EXISTS (
            SELECT FROM bank_statements s
            WHERE s.platform_id = platform AND s.currency = currency_code
        ) THEN
            RAISE EXCEPTION 'statements say what SETTLEMENT_BANK has in %: a move of it names the'
                ' break BANK_ONLY of the line that it books', currency_code
                USING ERRCODE = 'invalid_parameter_value';
        END IF;
        RETURN;
    END IF;
    SELECT k.id, k.state, b.amount, s.platform_id, s.currency INTO l
    FROM breaks k
    JOIN bank_statements s ON s.id = k.statement_id
    JOIN bank_lines b ON b.statement_id = k.statement_id AND b.line = k.line
    WHERE k.id = wanted AND k.kind = 'BANK_ONLY'
    FOR UPDATE OF k;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no break BANK_ONLY %', wanted
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF coalesce('SETTLEMENT_BANK' NOT IN (from_account, to_account), true)
        OR (l.platform_id, l.currency) <> (platform, currency_code)
    THEN
        RAISE EXCEPTION 'the line of break % is booked by a move of SETTLEMENT_BANK of platform % in %',
            l.id, l.platform_id, l.currency USING ERRCODE = 'invalid_parameter_value';
    ELSIF l.state = 'explained' THEN
        RAISE EXCEPTION 'the line of break % pays days of a network, and is booked', l.id
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    SELECT coalesce(sum(CASE j.from_kind WHEN 'SETTLEMENT_BANK' THEN j.amount ELSE -j.amount END), 0)
    INTO taken
    FROM adjustments j WHERE j.break_id = l.id AND j.state NOT IN ('REJECTED', 'REFUSED');
    IF sign(moved) <> sign(l.amount) THEN
        RAISE EXCEPTION 'the line of break % %: SETTLEMENT_BANK is %', l.id,
            CASE WHEN l.amount > 0 THEN 'arrived at the bank' ELSE 'left the bank' END,
            CASE WHEN l.amount > 0 THEN 'debited, --from' ELSE 'credited, --to' END
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF abs(taken + moved) > abs(l.amount) THEN
        RAISE EXCEPTION 'the line of break % moved % minor units of %, and moves of it have %', l.id,
            abs(l.amount), l.currency, abs(taken) USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    INSERT INTO break_history (break_id, action, note)
    VALUES (l.id, 'NOTED', format('adjustment %s books it', adjustment));
    -- The row changes in any case: a matching with an older snapshot must fail on it.
    UPDATE breaks SET state = CASE l.state WHEN 'open' THEN 'investigating' ELSE l.state END
    WHERE id = l.id;
END $body$;

-- The move that is to be taken back: one of SETTLEMENT_BANK that names no line, which a statement may
-- say as well. The whole of it, once; a move that books a line is as its line is.
CREATE FUNCTION reversed_move(wanted uuid) RETURNS adjustments LANGUAGE plpgsql AS $body$
DECLARE
    j adjustments;
    other uuid;
BEGIN
    SELECT * INTO j FROM adjustments a WHERE a.id = wanted FOR UPDATE;
    IF j.id IS NULL THEN
        RAISE EXCEPTION 'there is no adjustment %', wanted USING ERRCODE = 'invalid_parameter_value';
    ELSIF j.kind <> 'MOVE' OR 'SETTLEMENT_BANK' NOT IN (j.from_kind, j.to_kind)
        OR num_nonnulls(j.break_id, j.reverses_id) > 0
    THEN
        RAISE EXCEPTION 'adjustment % is no move of SETTLEMENT_BANK without a line of the bank: only'
            ' such a move is reversed', j.id USING ERRCODE = 'invalid_parameter_value';
    ELSIF j.state <> 'BOOKED' THEN
        RAISE EXCEPTION 'adjustment % is %: nothing is booked that could be reversed', j.id, j.state
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    SELECT a.id INTO other FROM adjustments a
    WHERE a.reverses_id = j.id AND a.state NOT IN ('REJECTED', 'REFUSED');
    IF FOUND THEN
        RAISE EXCEPTION 'adjustment % is reversed by adjustment % already', j.id, other
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN j;
END $body$;

-- What moves have booked of the line of a break, minor units.
CREATE FUNCTION moved_of_break(wanted uuid) RETURNS numeric LANGUAGE plpgsql STABLE AS $body$
BEGIN
    RETURN coalesce((
        SELECT sum(j.amount) FROM adjustments j WHERE j.break_id = wanted AND j.state = 'BOOKED'
    ), 0);
END $body$;
