CREATE OR REPLACE VIEW finance.network_days AS
SELECT n.settlement_date, n.network, n.cycle, n.currency, n.platform_id,
    sum(CASE WHEN n.kind = 'CLEARED' THEN n.due ELSE 0 END) AS presentments,
    -sum(CASE WHEN n.kind IN ('REFUNDED', 'CREDITED') THEN n.due ELSE 0 END) AS credits,
    -sum(CASE WHEN n.kind IN ('CLEARING_REVERSED', 'REFUND_REVERSED') THEN n.due ELSE 0
        END) AS reversals,
    sum(CASE WHEN n.other = 'NETWORK_FEES' THEN n.due ELSE 0 END) AS fees,
    coalesce(-sum(n.due) FILTER (WHERE n.other = 'INTERCHANGE'), 0)
        + trim_scale(sum(n.interchange)) AS interchange,
    sum(CASE WHEN n.other = 'SETTLEMENT_BANK' THEN 0 ELSE n.due END) AS net,
    -sum(CASE WHEN n.other = 'SETTLEMENT_BANK' THEN n.due ELSE 0 END) AS paid,
    sum(n.due) AS open
FROM (
    SELECT coalesce(x.settlement_date,
            CASE WHEN e.sequence = 0 OR j.id IS NULL THEN coalesce(i.settlement_date, i.posted_on)
                END,
            g.settlement_date, e.posted_on) AS settlement_date,
        coalesce(x.network, i.network, b.network) AS network, coalesce(x.cycle, g.cycle) AS cycle,
        a.currency, a.platform_id,
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
    LEFT JOIN settlement_bookings b ON b.id = e.subject_id
    LEFT JOIN network_files g ON g.id = b.file_id
    UNION ALL
    SELECT x.settlement_date, x.network, x.cycle, t.currency, x.platform_id, NULL, NULL, 0,
        x.interchange * ('1e' || m.decimals)::numeric
    FROM settlement_details x
    JOIN card_transactions t ON t.id = x.card_transaction_id AND t.customer_id = x.customer_id
    JOIN currencies m ON m.code = t.currency
    WHERE x.interchange IS NOT NULL AND NOT EXISTS (
        -- What the file says of it is booked.
        SELECT FROM network_files g
        WHERE g.platform_id = x.platform_id AND g.network = x.network
            AND g.settlement_date = x.settlement_date AND g.books
            AND coalesce(g.cycle = x.cycle, true)
    )
) n
GROUP BY n.settlement_date, n.network, n.cycle, n.currency, n.platform_id;
COMMENT ON COLUMN finance.network_days.fees IS 'Fees of the network, less those that it took back, as its file says: due to it.';
COMMENT ON COLUMN finance.network_days.interchange IS 'Interchange, minor units: booked from the file, whole; before there is a file what the events say, exact. Due from the network once it is booked.';
COMMENT ON COLUMN finance.network_days.net IS 'Presentments less credits and reversals, plus fees, less interchange that is booked: due to the network.';

CREATE VIEW finance.bookings AS
SELECT b.id AS booking_id, b.platform_id, b.kind, b.from_kind, b.to_kind, b.amount,
    b.amount * ('1e-' || m.decimals)::numeric AS amount_decimal, b.currency, b.posted_for,
    b.file_id AS network_file_id, b.statement_id, b.line, b.made_at, b.booked_at
FROM settlement_bookings b
LEFT JOIN currencies m ON m.code = b.currency;
COMMENT ON VIEW finance.bookings IS 'What files of networks and statements of the bank book beside events, each once.';
COMMENT ON COLUMN finance.bookings.booking_id IS 'The booking; `subject_id` of its entry in the journal.';
COMMENT ON COLUMN finance.bookings.platform_id IS 'The platform.';
COMMENT ON COLUMN finance.bookings.kind IS 'INTERCHANGE, NETWORK_FEES or BANK_LINE.';
COMMENT ON COLUMN finance.bookings.from_kind IS 'Account that is debited.';
COMMENT ON COLUMN finance.bookings.to_kind IS 'Account that is credited.';
COMMENT ON COLUMN finance.bookings.amount IS 'Amount, minor units of the currency.';
COMMENT ON COLUMN finance.bookings.amount_decimal IS 'Amount, in units of the currency.';
COMMENT ON COLUMN finance.bookings.currency IS 'Currency, ISO 4217.';
COMMENT ON COLUMN finance.bookings.posted_for IS 'The day on which it is posted, if that is open: settlement date of the file, booking date of the line.';
COMMENT ON COLUMN finance.bookings.network_file_id IS 'The settlement file; null: of a statement.';
COMMENT ON COLUMN finance.bookings.statement_id IS 'The statement of the bank; null: of a file.';
COMMENT ON COLUMN finance.bookings.line IS 'The line of the statement.';
COMMENT ON COLUMN finance.bookings.made_at IS 'When the file or statement was matched.';
COMMENT ON COLUMN finance.bookings.booked_at IS 'When it was booked; null: not yet.';
COMMENT ON COLUMN finance.journal.event IS 'What happened: CLEARED, PULLED, RELEASED, REFUNDED, DEPOSITED, TRANSFERRED, SUSPENDED, SUSPENSE_RESOLVED, ADJUSTED, INTERCHANGE, NETWORK_FEES, BANK_LINE, ...';
COMMENT ON COLUMN finance.journal.subject_id IS 'The card transaction, deposit, transfer, suspended message, adjustment or settlement booking.';
