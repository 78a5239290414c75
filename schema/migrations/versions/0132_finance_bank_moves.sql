CREATE OR REPLACE VIEW finance.adjustments AS
SELECT a.id AS adjustment_id, a.platform_id, a.kind, a.state, a.from_kind, a.to_kind, a.amount,
    a.amount * ('1e-' || m.decimals)::numeric AS amount_decimal, a.currency,
    a.card_transaction_id, a.suspense_id, a.reason, a.prepared_by, a.prepared_at, a.decided_by,
    a.decided_at, a.booked_at, a.refusal, a.break_id, a.reverses_id
FROM adjustments a LEFT JOIN currencies m ON m.code = a.currency;
COMMENT ON COLUMN finance.adjustments.break_id IS 'Of a MOVE of SETTLEMENT_BANK: the break BANK_ONLY whose line it books.';
COMMENT ON COLUMN finance.adjustments.reverses_id IS 'Of a reversal: the MOVE of SETTLEMENT_BANK without a line that it takes back.';

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

CREATE FUNCTION finance.prepare_reversal(adjustment_id uuid, reason text) RETURNS uuid
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    INSERT INTO adjustments (kind, reverses_id, reason)
    VALUES ('MOVE', prepare_reversal.adjustment_id, prepare_reversal.reason)
    RETURNING id;
END;
COMMENT ON FUNCTION finance.prepare_reversal(uuid, text) IS 'Prepare to take back, as a whole and once, a move of SETTLEMENT_BANK that was booked without a line of the bank. Returns the adjustment, to be approved by another person.';

-- What is in the way of closing a period that ends on `to_day`, of what people have booked of lines of
-- the bank. What was there when a closing allowed it by name is not found again while that stands.
CREATE FUNCTION bank_findings(to_day date) RETURNS TABLE (kind text, found bigint, detail text)
LANGUAGE sql STABLE SET jit = off
BEGIN ATOMIC
    WITH allowed AS (
        SELECT x.kind, c.last_day, c.prepared_at
        FROM closings c JOIN closing_exceptions x ON x.closing_id = c.id
        WHERE c.kind = 'CLOSE' AND c.state IN ('APPROVED', 'SEALED')
    )
    SELECT 'MOVE_WITHOUT_LINE', count(*), format('moves of platform %s in %s, the first posted on %s',
        j.platform_id, j.currency, to_char(min(e.posted_on), 'YYYY-MM-DD'))
    FROM adjustments j
    JOIN entries e ON e.subject_id = j.id AND e.posted_on <= to_day
    CROSS JOIN LATERAL (
        SELECT min(b.imported_at) AS imported_at FROM bank_statements b
        WHERE b.platform_id = j.platform_id AND b.currency = j.currency
            AND b.first_day <= e.posted_on
    ) s
    WHERE j.kind = 'MOVE' AND j.state = 'BOOKED' AND num_nonnulls(j.break_id, j.reverses_id) = 0
        AND 'SETTLEMENT_BANK' IN (j.from_kind, j.to_kind) AND s.imported_at IS NOT NULL
        AND NOT EXISTS (
            SELECT FROM adjustments r WHERE r.reverses_id = j.id AND r.state = 'BOOKED'
        )
        AND NOT EXISTS (
            SELECT FROM allowed a WHERE a.kind = 'MOVE_WITHOUT_LINE' AND a.last_day >= e.posted_on
                AND a.prepared_at > greatest(s.imported_at, j.booked_at)
        )
    GROUP BY j.platform_id, j.currency
    UNION ALL
    SELECT 'UNBOOKED_LINE', count(*), format('lines of platform %s in %s, the oldest of %s',
        s.platform_id, s.currency, to_char(min(l.booking_date), 'YYYY-MM-DD'))
    FROM breaks k
    JOIN bank_statements s ON s.id = k.statement_id
    JOIN bank_lines l ON l.statement_id = k.statement_id AND l.line = k.line
    WHERE k.kind = 'BANK_ONLY' AND k.state IN ('resolved', 'written_off')
        AND l.booking_date <= to_day AND moved_of_break(k.id) <> abs(l.amount)
        AND NOT EXISTS (
            SELECT FROM allowed a WHERE a.kind = 'UNBOOKED_LINE' AND a.last_day >= l.booking_date
                AND a.prepared_at > k.closed_at
        )
    GROUP BY s.platform_id, s.currency;
END;
