CREATE VIEW finance.adjustments AS
SELECT a.id AS adjustment_id, a.platform_id, a.kind, a.state, a.from_kind, a.to_kind, a.amount,
    a.amount * ('1e-' || m.decimals)::numeric AS amount_decimal, a.currency,
    a.card_transaction_id, a.suspense_id, a.reason, a.prepared_by, a.prepared_at, a.decided_by,
    a.decided_at, a.booked_at, a.refusal
FROM adjustments a LEFT JOIN currencies m ON m.code = a.currency;
COMMENT ON VIEW finance.adjustments IS 'Corrections of the books: prepared by one person, approved or rejected by another, then booked.';
COMMENT ON COLUMN finance.adjustments.adjustment_id IS 'The adjustment; the subject of the entries of a MOVE.';
COMMENT ON COLUMN finance.adjustments.platform_id IS 'The platform.';
COMMENT ON COLUMN finance.adjustments.kind IS 'WRITE_OFF, MOVE or RESOLVE_SUSPENSE.';
COMMENT ON COLUMN finance.adjustments.state IS 'PREPARED; then REJECTED, or APPROVED; then BOOKED or REFUSED.';
COMMENT ON COLUMN finance.adjustments.from_kind IS 'Of a MOVE: account of the chart that is debited.';
COMMENT ON COLUMN finance.adjustments.to_kind IS 'Of a MOVE: account of the chart that is credited.';
COMMENT ON COLUMN finance.adjustments.amount IS 'Amount, minor units of the currency; always positive.';
COMMENT ON COLUMN finance.adjustments.amount_decimal IS 'The same amount in units of the currency, exact.';
COMMENT ON COLUMN finance.adjustments.currency IS 'Currency code, ISO 4217.';
COMMENT ON COLUMN finance.adjustments.card_transaction_id IS 'Of a WRITE_OFF: the card transaction that owes the amount.';
COMMENT ON COLUMN finance.adjustments.suspense_id IS 'Of a RESOLVE_SUSPENSE: the item of the suspense account.';
COMMENT ON COLUMN finance.adjustments.reason IS 'Why, in the words of the person who prepared it.';
COMMENT ON COLUMN finance.adjustments.prepared_by IS 'The login that prepared it.';
COMMENT ON COLUMN finance.adjustments.prepared_at IS 'When it was prepared.';
COMMENT ON COLUMN finance.adjustments.decided_by IS 'The login that approved or rejected it, never the one that prepared it; null: not decided.';
COMMENT ON COLUMN finance.adjustments.decided_at IS 'When it was approved or rejected.';
COMMENT ON COLUMN finance.adjustments.booked_at IS 'When it was booked; null: it is not.';
COMMENT ON COLUMN finance.adjustments.refusal IS 'Why it was not booked: what the person who rejected it wrote, or what the ledger found.';

-- People act by functions alone. These write with the rights of their owner what they say here, and
-- session_user is who called them.
CREATE FUNCTION finance.prepare_move(
    platform_id uuid, from_account text, to_account text, amount bigint, currency text, reason text
) RETURNS uuid
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    INSERT INTO adjustments (kind, platform_id, from_kind, to_kind, amount, currency, reason)
    VALUES ('MOVE', prepare_move.platform_id, prepare_move.from_account, prepare_move.to_account,
        prepare_move.amount, prepare_move.currency, prepare_move.reason)
    RETURNING id;
END;
COMMENT ON FUNCTION finance.prepare_move(uuid, text, text, bigint, text, text) IS 'Prepare a move: debit one account of the chart of a platform and credit another, by an amount in minor units. Returns the adjustment, to be approved by another person.';

CREATE FUNCTION finance.prepare_write_off(card_transaction_id uuid, amount bigint, reason text)
RETURNS uuid
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    INSERT INTO adjustments (kind, card_transaction_id, amount, reason)
    VALUES ('WRITE_OFF', prepare_write_off.card_transaction_id, prepare_write_off.amount,
        prepare_write_off.reason)
    RETURNING id;
END;
COMMENT ON FUNCTION finance.prepare_write_off(uuid, bigint, text) IS 'Prepare to give up an amount, in minor units, that a card transaction owes. Returns the adjustment, to be approved by another person.';

CREATE FUNCTION finance.prepare_suspense_resolution(suspense_id uuid, reason text) RETURNS uuid
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    INSERT INTO adjustments (kind, suspense_id, reason)
    VALUES ('RESOLVE_SUSPENSE', prepare_suspense_resolution.suspense_id,
        prepare_suspense_resolution.reason)
    RETURNING id;
END;
COMMENT ON FUNCTION finance.prepare_suspense_resolution(uuid, text) IS 'Prepare to take an item of the suspense account back. Returns the adjustment, to be approved by another person.';

CREATE FUNCTION finance.approve_adjustment(adjustment_id uuid) RETURNS text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    UPDATE adjustments SET state = 'APPROVED' WHERE id = approve_adjustment.adjustment_id
    RETURNING state;
END;
COMMENT ON FUNCTION finance.approve_adjustment(uuid) IS 'Approve an adjustment that another person has prepared; the ledger books it. Returns its state; null: there is no such adjustment.';

CREATE FUNCTION finance.reject_adjustment(adjustment_id uuid, reason text) RETURNS text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    UPDATE adjustments SET state = 'REJECTED', refusal = reject_adjustment.reason
    WHERE id = reject_adjustment.adjustment_id
    RETURNING state;
END;
COMMENT ON FUNCTION finance.reject_adjustment(uuid, text) IS 'Reject an adjustment that another person has prepared; it is never booked. Returns its state; null: there is no such adjustment.';

-- What stands in SUSPENSE is of the day and network of its message, and is taken back there by the
-- message that takes its place. What a person resolves the network settles on the day of that.
CREATE OR REPLACE VIEW finance.network_days AS
SELECT n.settlement_date, n.network, n.cycle, n.currency, n.platform_id,
    sum(CASE WHEN n.kind = 'CLEARED' THEN n.due ELSE 0 END) AS presentments,
    -sum(CASE WHEN n.kind IN ('REFUNDED', 'CREDITED') THEN n.due ELSE 0 END) AS credits,
    -sum(CASE WHEN n.kind IN ('CLEARING_REVERSED', 'REFUND_REVERSED') THEN n.due ELSE 0
        END) AS reversals,
    sum(CASE WHEN n.other = 'NETWORK_FEES' THEN n.due ELSE 0 END) AS fees,
    trim_scale(sum(n.interchange)) AS interchange,
    sum(CASE WHEN n.other = 'SETTLEMENT_BANK' THEN 0 ELSE n.due END) AS net,
    -sum(CASE WHEN n.other = 'SETTLEMENT_BANK' THEN n.due ELSE 0 END) AS paid,
    sum(n.due) AS open
FROM (
    SELECT coalesce(x.settlement_date,
            CASE WHEN e.sequence = 0 OR j.id IS NULL THEN coalesce(i.settlement_date, i.posted_on)
                END,
            e.posted_on) AS settlement_date,
        coalesce(x.network, i.network) AS network, x.cycle, a.currency, a.platform_id,
        coalesce(f.kind, CASE i.type WHEN 'CLEARING' THEN 'CLEARED' WHEN 'RETURN' THEN 'REFUNDED'
            WHEN 'FINANCIAL_CREDIT_AUTHORIZATION' THEN 'CREDITED'
            WHEN 'CLEARING_REVERSAL' THEN 'CLEARING_REVERSED'
            WHEN 'RETURN_REVERSAL' THEN 'REFUND_REVERSED' END) AS kind,
        CASE WHEN a.id = c.id THEN d.kind ELSE c.kind END AS other,
        CASE WHEN a.id = c.id THEN e.amount ELSE -e.amount END AS due,
        0::numeric AS interchange
    FROM entries e
    LEFT JOIN system_accounts d ON d.id = e.debit_account_id
    LEFT JOIN system_accounts c ON c.id = e.credit_account_id
    JOIN system_accounts a ON a.kind = 'NETWORK_SETTLEMENT'
        AND a.id = CASE WHEN c.kind = 'NETWORK_SETTLEMENT' THEN c.id ELSE d.id END
    LEFT JOIN card_transaction_events f ON f.card_transaction_id = e.subject_id
        AND f.sequence = e.sequence AND f.customer_id = e.customer_id
    LEFT JOIN settlement_details x ON x.card_transaction_id = e.subject_id
        AND x.customer_id = e.customer_id AND x.message_id = f.message_id
    LEFT JOIN suspense_items i ON i.id = e.subject_id AND i.customer_id = e.customer_id
    LEFT JOIN adjustments j ON j.id = i.resolved_by
    UNION ALL
    SELECT x.settlement_date, x.network, x.cycle, t.currency, x.platform_id, NULL, NULL, 0,
        x.interchange * ('1e' || m.decimals)::numeric
    FROM settlement_details x
    JOIN card_transactions t ON t.id = x.card_transaction_id AND t.customer_id = x.customer_id
    JOIN currencies m ON m.code = t.currency
    WHERE x.interchange IS NOT NULL
) n
GROUP BY n.settlement_date, n.network, n.cycle, n.currency, n.platform_id;
COMMENT ON COLUMN finance.network_days.presentments IS 'Clearings, also those in SUSPENSE: due to the network.';
COMMENT ON COLUMN finance.network_days.credits IS 'Refunds and credits, also those in SUSPENSE: due from the network.';
COMMENT ON COLUMN finance.network_days.reversals IS 'Reversed clearings less reversed refunds, also those in SUSPENSE: due from the network.';
