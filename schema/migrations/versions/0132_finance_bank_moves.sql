CREATE OR REPLACE VIEW finance.adjustments AS
SELECT a.id AS adjustment_id, a.platform_id, a.kind, a.state, a.from_kind, a.to_kind, a.amount,
    a.amount * ('1e-' || m.decimals)::numeric AS amount_decimal, a.currency,
    a.card_transaction_id, a.suspense_id, a.reason, a.prepared_by, a.prepared_at, a.decided_by,
    a.decided_at, a.booked_at, a.refusal, a.break_id
FROM adjustments a LEFT JOIN currencies m ON m.code = a.currency;
COMMENT ON COLUMN finance.adjustments.break_id IS 'Of a MOVE of SETTLEMENT_BANK: the break BANK_ONLY whose line it books.';

CREATE OR REPLACE VIEW finance.bank_lines WITH (security_barrier) AS
SELECT l.statement_id, l.line, s.platform_id, s.account, l.booking_date, l.value_date, l.amount,
    s.currency, l.bank_reference, l.description, (
        SELECT p.rule FROM bank_payments p WHERE p.statement_id = l.statement_id AND p.line = l.line
        LIMIT 1
    ) AS rule, b.id AS booking_id, (
        SELECT sum(CASE j.from_kind WHEN 'SETTLEMENT_BANK' THEN j.amount ELSE -j.amount END)
        FROM breaks k JOIN adjustments j ON j.break_id = k.id AND j.state = 'BOOKED'
        WHERE (k.statement_id, k.line, k.kind) = (l.statement_id, l.line, 'BANK_ONLY')
    ) AS moved
FROM bank_lines l
JOIN bank_statements s ON s.id = l.statement_id
LEFT JOIN settlement_bookings b ON b.statement_id = l.statement_id AND b.line = l.line;
COMMENT ON COLUMN finance.bank_lines.moved IS 'What moves of two people have booked of it, minor units, signed as amount; null: nothing.';

CREATE FUNCTION finance.prepare_bank_move(
    platform_id uuid, from_account text, to_account text, amount bigint, currency text, reason text,
    break_id uuid
) RETURNS uuid
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    INSERT INTO adjustments (kind, platform_id, from_kind, to_kind, amount, currency, reason,
        break_id)
    VALUES ('MOVE', prepare_bank_move.platform_id, prepare_bank_move.from_account,
        prepare_bank_move.to_account, prepare_bank_move.amount, prepare_bank_move.currency,
        prepare_bank_move.reason, prepare_bank_move.break_id)
    RETURNING id;
END;
COMMENT ON FUNCTION finance.prepare_bank_move(uuid, text, text, bigint, text, text, uuid) IS 'Prepare a move that books what a line of the bank is, which pays no day of a network: as prepare_move, with the break BANK_ONLY of the line. Returns the adjustment, to be approved by another person.';
