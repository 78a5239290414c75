CREATE VIEW finance.currencies AS SELECT code, decimals FROM currencies;
COMMENT ON VIEW finance.currencies IS 'Currencies, and what one unit of an amount is.';
COMMENT ON COLUMN finance.currencies.code IS 'Currency code, ISO 4217.';
COMMENT ON COLUMN finance.currencies.decimals IS 'Decimals of an amount: 2 means that amounts are in hundredths.';

-- LEFT JOIN of what is unique: where no column of it is asked for, PostgreSQL does not read it.
CREATE VIEW finance.accounts AS
SELECT a.id AS account_id, a.platform_id, a.customer_id, c.kind, c.class, c.normal_side, a.currency,
    a.status, a.created_at AS opened_at
FROM internal_accounts a LEFT JOIN chart_of_accounts c ON c.kind = 'CUSTOMER'
UNION ALL
SELECT s.id, s.platform_id, NULL, s.kind, c.class, c.normal_side, s.currency, NULL, NULL
FROM system_accounts s LEFT JOIN chart_of_accounts c ON c.kind = s.kind;
COMMENT ON VIEW finance.accounts IS 'Accounts of the books: those of customers, and one of each other kind for each platform and currency.';
COMMENT ON COLUMN finance.accounts.account_id IS 'The account.';
COMMENT ON COLUMN finance.accounts.platform_id IS 'The platform.';
COMMENT ON COLUMN finance.accounts.customer_id IS 'The customer; null: an account of the platform.';
COMMENT ON COLUMN finance.accounts.kind IS 'Account of the chart.';
COMMENT ON COLUMN finance.accounts.class IS 'ASSET, LIABILITY, INCOME or EXPENSE.';
COMMENT ON COLUMN finance.accounts.normal_side IS 'Side that raises the balance: D (debit) or C (credit).';
COMMENT ON COLUMN finance.accounts.currency IS 'Its currency.';
COMMENT ON COLUMN finance.accounts.status IS 'PENDING, ACTIVE, CLOSED, FROZEN or FAILED; null: an account of the platform.';
COMMENT ON COLUMN finance.accounts.opened_at IS 'When it was opened; null: an account of the platform.';

-- At least one side is a system account, which has the platform and the currency. The message of an
-- entry has no unique index, and so a subquery, which costs nothing where it is not asked for.
CREATE VIEW finance.journal AS
SELECT e.subject_id || ':' || e.sequence || ':' || e.line AS entry_id,
    coalesce(d.platform_id, c.platform_id) AS platform_id,
    e.posted_on, e.occurred_at, e.recorded_at,
    coalesce(f.kind, CASE WHEN 'TRANSFERS' IN (d.kind, c.kind) THEN 'TRANSFERRED'
        WHEN p.id IS NOT NULL THEN 'DEPOSITED' ELSE 'BOOKED' END) AS event,
    e.debit_account_id, coalesce(d.kind, 'CUSTOMER') AS debit_kind, dc.class AS debit_class,
    e.credit_account_id, coalesce(c.kind, 'CUSTOMER') AS credit_kind, cc.class AS credit_class,
    e.amount, e.amount * ('1e-' || m.decimals)::numeric AS amount_decimal,
    coalesce(d.currency, c.currency) AS currency,
    nullif(e.customer_id, '00000000-0000-0000-0000-000000000000') AS customer_id,
    t.card_id, t.descriptor AS merchant,
    (
        SELECT o.source FROM outcomes o
        WHERE o.message_id = coalesce(f.message_id, p.message_id) AND o.customer_id = e.customer_id
        LIMIT 1
    ) AS source,
    coalesce(p.external_reference, (
        SELECT o.reference FROM outcomes o
        WHERE o.message_id = coalesce(f.message_id, p.message_id) AND o.customer_id = e.customer_id
        LIMIT 1
    )) AS reference,
    e.subject_id, e.sequence, e.line, NULL::date AS late_from
FROM entries e
LEFT JOIN system_accounts d ON d.id = e.debit_account_id
LEFT JOIN system_accounts c ON c.id = e.credit_account_id
LEFT JOIN chart_of_accounts dc ON dc.kind = coalesce(d.kind, 'CUSTOMER')
LEFT JOIN chart_of_accounts cc ON cc.kind = coalesce(c.kind, 'CUSTOMER')
LEFT JOIN currencies m ON m.code = coalesce(d.currency, c.currency)
LEFT JOIN card_transaction_events f ON f.card_transaction_id = e.subject_id
    AND f.sequence = e.sequence AND f.customer_id = e.customer_id
LEFT JOIN card_transactions t ON t.id = e.subject_id AND t.customer_id = e.customer_id
LEFT JOIN deposits p ON p.id = e.subject_id AND p.customer_id = e.customer_id;
COMMENT ON VIEW finance.journal IS 'The journal: each entry debits one account and credits another by one amount.';
COMMENT ON COLUMN finance.journal.entry_id IS 'The entry: subject, sequence and line, with colons between them.';
COMMENT ON COLUMN finance.journal.platform_id IS 'The platform.';
COMMENT ON COLUMN finance.journal.posted_on IS 'The day in whose books the entry counts.';
COMMENT ON COLUMN finance.journal.occurred_at IS 'When it happened, by the clock of the network or of the sender.';
COMMENT ON COLUMN finance.journal.recorded_at IS 'When the ledger recorded it.';
COMMENT ON COLUMN finance.journal.event IS 'What happened: CLEARED, PULLED, RELEASED, REFUNDED, DEPOSITED, TRANSFERRED, ...';
COMMENT ON COLUMN finance.journal.debit_account_id IS 'Debit account.';
COMMENT ON COLUMN finance.journal.debit_kind IS 'Debit account in the chart.';
COMMENT ON COLUMN finance.journal.debit_class IS 'Class of the debit account: ASSET, LIABILITY, INCOME or EXPENSE.';
COMMENT ON COLUMN finance.journal.credit_account_id IS 'Credit account.';
COMMENT ON COLUMN finance.journal.credit_kind IS 'Credit account in the chart.';
COMMENT ON COLUMN finance.journal.credit_class IS 'Class of the credit account: ASSET, LIABILITY, INCOME or EXPENSE.';
COMMENT ON COLUMN finance.journal.amount IS 'Amount, minor units of the currency; always positive.';
COMMENT ON COLUMN finance.journal.amount_decimal IS 'The same amount in units of the currency, exact.';
COMMENT ON COLUMN finance.journal.currency IS 'Currency code, ISO 4217.';
COMMENT ON COLUMN finance.journal.customer_id IS 'The customer; null: an entry of the platform alone.';
COMMENT ON COLUMN finance.journal.card_id IS 'The card; null: not of a card transaction.';
COMMENT ON COLUMN finance.journal.merchant IS 'Merchant descriptor that the network sent; null: none, or not of a card transaction.';
COMMENT ON COLUMN finance.journal.source IS 'Sender of the message that caused the entry; null: the ledger itself.';
COMMENT ON COLUMN finance.journal.reference IS 'External reference of a deposit, else the identifier of the message at its sender.';
COMMENT ON COLUMN finance.journal.subject_id IS 'The card transaction, deposit or transfer.';
COMMENT ON COLUMN finance.journal.sequence IS 'Event of the card transaction; 0 for a deposit or a transfer.';
COMMENT ON COLUMN finance.journal.line IS 'Position within the event.';
COMMENT ON COLUMN finance.journal.late_from IS 'The closed day in whose books it would have counted; null: it is not late.';

CREATE VIEW finance.postings AS
SELECT j.entry_id, s.side, s.account_id, s.kind, s.class, j.currency, j.amount, j.posted_on,
    j.occurred_at, j.recorded_at, j.platform_id
FROM finance.journal j CROSS JOIN LATERAL (VALUES
    ('D'::text, j.debit_account_id, j.debit_kind, j.debit_class),
    ('C', j.credit_account_id, j.credit_kind, j.credit_class)
) AS s (side, account_id, kind, class);
COMMENT ON VIEW finance.postings IS 'The journal with a row for each side of an entry.';
COMMENT ON COLUMN finance.postings.entry_id IS 'The entry; it has two rows.';
COMMENT ON COLUMN finance.postings.side IS 'D (debit) or C (credit).';
COMMENT ON COLUMN finance.postings.account_id IS 'The account.';
COMMENT ON COLUMN finance.postings.kind IS 'Account of the chart.';
COMMENT ON COLUMN finance.postings.class IS 'ASSET, LIABILITY, INCOME or EXPENSE.';
COMMENT ON COLUMN finance.postings.currency IS 'Currency code, ISO 4217.';
COMMENT ON COLUMN finance.postings.amount IS 'Amount, minor units of the currency; always positive.';
COMMENT ON COLUMN finance.postings.posted_on IS 'The day in whose books the entry counts.';
COMMENT ON COLUMN finance.postings.occurred_at IS 'When it happened, by the clock of the network or of the sender.';
COMMENT ON COLUMN finance.postings.recorded_at IS 'When the ledger recorded it.';
COMMENT ON COLUMN finance.postings.platform_id IS 'The platform.';

CREATE VIEW finance.card_transactions AS
SELECT t.id AS card_transaction_id, t.platform_id, t.customer_id, t.card_id, t.account_id,
    t.issuer_transaction_token, t.descriptor AS merchant, t.mcc, t.country, t.currency, t.status,
    t.decline_reason, t.authorized, t.settled, t.refunded, t.pulled, t.released,
    greatest(t.pulled - t.released - t.settled, 0) AS held,
    greatest(t.settled - t.pulled + t.released, 0) + t.unpaid AS owed,
    t.debt_since AS owed_since,
    (
        SELECT f.occurred_at FROM card_transaction_events f
        WHERE f.card_transaction_id = t.id AND f.customer_id = t.customer_id
            AND f.kind = 'AUTHORIZED'
        ORDER BY f.sequence LIMIT 1
    ) AS authorized_at,
    t.created_at AS recorded_at, t.expires_at, t.updated_at
FROM card_transactions t;
COMMENT ON VIEW finance.card_transactions IS 'Card transactions as they are now, one row for each purchase.';
COMMENT ON COLUMN finance.card_transactions.card_transaction_id IS 'The card transaction.';
COMMENT ON COLUMN finance.card_transactions.platform_id IS 'The platform.';
COMMENT ON COLUMN finance.card_transactions.customer_id IS 'The cardholder.';
COMMENT ON COLUMN finance.card_transactions.card_id IS 'The card.';
COMMENT ON COLUMN finance.card_transactions.account_id IS 'The funding account.';
COMMENT ON COLUMN finance.card_transactions.issuer_transaction_token IS 'Identifies the card transaction at the network.';
COMMENT ON COLUMN finance.card_transactions.merchant IS 'Merchant descriptor that the network sent.';
COMMENT ON COLUMN finance.card_transactions.mcc IS 'Merchant category code, ISO 18245.';
COMMENT ON COLUMN finance.card_transactions.country IS 'Merchant country, ISO 3166-1 alpha-2.';
COMMENT ON COLUMN finance.card_transactions.currency IS 'Currency of all amounts of the row.';
COMMENT ON COLUMN finance.card_transactions.status IS 'Its status.';
COMMENT ON COLUMN finance.card_transactions.decline_reason IS 'Why it was declined.';
COMMENT ON COLUMN finance.card_transactions.authorized IS 'Authorized, net of reversals, minor units.';
COMMENT ON COLUMN finance.card_transactions.settled IS 'Cleared, net of clearing reversals, minor units.';
COMMENT ON COLUMN finance.card_transactions.refunded IS 'Refunded, net of refund reversals, minor units.';
COMMENT ON COLUMN finance.card_transactions.pulled IS 'Gross total of pulls from the funding account, minor units.';
COMMENT ON COLUMN finance.card_transactions.released IS 'Gross total of releases to the funding account, minor units.';
COMMENT ON COLUMN finance.card_transactions.held IS 'Held for clearings to come, minor units.';
COMMENT ON COLUMN finance.card_transactions.owed IS 'Cleared and not funded: owed by the customer, minor units.';
COMMENT ON COLUMN finance.card_transactions.owed_since IS 'Since when an amount is due; null: none is.';
COMMENT ON COLUMN finance.card_transactions.authorized_at IS 'When the network authorized it first; null: never.';
COMMENT ON COLUMN finance.card_transactions.recorded_at IS 'When the ledger recorded its first event.';
COMMENT ON COLUMN finance.card_transactions.expires_at IS 'When the uncleared amount is released; null: it does not expire.';
COMMENT ON COLUMN finance.card_transactions.updated_at IS 'When the ledger recorded its last event.';

CREATE VIEW finance.open_holds AS
SELECT t.card_transaction_id, t.platform_id, t.customer_id, t.card_id, t.account_id, t.merchant,
    t.currency, t.held, t.authorized_at, t.recorded_at, t.expires_at,
    (now() AT TIME ZONE 'UTC')::date
        - (coalesce(t.authorized_at, t.recorded_at) AT TIME ZONE 'UTC')::date AS age_days
FROM finance.card_transactions t WHERE t.held > 0;
COMMENT ON VIEW finance.open_holds IS 'Card transactions with an amount held, as they are now; the sum is the balance of CARD_HOLDS.';
COMMENT ON COLUMN finance.open_holds.card_transaction_id IS 'The card transaction.';
COMMENT ON COLUMN finance.open_holds.platform_id IS 'The platform.';
COMMENT ON COLUMN finance.open_holds.customer_id IS 'The cardholder.';
COMMENT ON COLUMN finance.open_holds.card_id IS 'The card.';
COMMENT ON COLUMN finance.open_holds.account_id IS 'The funding account.';
COMMENT ON COLUMN finance.open_holds.merchant IS 'Merchant descriptor that the network sent.';
COMMENT ON COLUMN finance.open_holds.currency IS 'Currency code, ISO 4217.';
COMMENT ON COLUMN finance.open_holds.held IS 'Held for clearings to come, minor units.';
COMMENT ON COLUMN finance.open_holds.authorized_at IS 'When the network authorized it first; null: never.';
COMMENT ON COLUMN finance.open_holds.recorded_at IS 'When the ledger recorded its first event.';
COMMENT ON COLUMN finance.open_holds.expires_at IS 'When the held amount is released; null: it does not expire.';
COMMENT ON COLUMN finance.open_holds.age_days IS 'Days from the authorization, or else from the first record, until today (UTC).';

-- A debt has debt_id (a partial index).
CREATE VIEW finance.receivables AS
SELECT t.id AS card_transaction_id, t.platform_id, t.customer_id, t.card_id, t.account_id,
    t.descriptor AS merchant, t.currency,
    greatest(t.settled - t.pulled + t.released, 0) + t.unpaid AS owed, t.debt_since AS owed_since,
    (
        SELECT f.occurred_at FROM card_transaction_events f
        WHERE f.card_transaction_id = t.id AND f.customer_id = t.customer_id
            AND f.kind = 'AUTHORIZED'
        ORDER BY f.sequence LIMIT 1
    ) AS authorized_at,
    (now() AT TIME ZONE 'UTC')::date - (t.debt_since AT TIME ZONE 'UTC')::date AS age_days
FROM card_transactions t
WHERE t.debt_id IS NOT NULL
    AND greatest(t.settled - t.pulled + t.released, 0) + t.unpaid > 0;
COMMENT ON VIEW finance.receivables IS 'Card transactions that owe an amount, as they are now; the sum is the balance of RECEIVABLE.';
COMMENT ON COLUMN finance.receivables.card_transaction_id IS 'The card transaction.';
COMMENT ON COLUMN finance.receivables.platform_id IS 'The platform.';
COMMENT ON COLUMN finance.receivables.customer_id IS 'The cardholder, who owes it.';
COMMENT ON COLUMN finance.receivables.card_id IS 'The card.';
COMMENT ON COLUMN finance.receivables.account_id IS 'The funding account.';
COMMENT ON COLUMN finance.receivables.merchant IS 'Merchant descriptor that the network sent.';
COMMENT ON COLUMN finance.receivables.currency IS 'Currency code, ISO 4217.';
COMMENT ON COLUMN finance.receivables.owed IS 'Cleared and not funded, minor units.';
COMMENT ON COLUMN finance.receivables.owed_since IS 'Since when it is due.';
COMMENT ON COLUMN finance.receivables.authorized_at IS 'When the network authorized it first; null: never.';
COMMENT ON COLUMN finance.receivables.age_days IS 'Days since it is due, until today (UTC).';

-- What the network moved by the accounts on the other side; what it says about interchange has no
-- entry yet, and so is beside the net amount.
CREATE VIEW finance.network_days AS
SELECT n.settlement_date, n.network, n.cycle, n.currency, n.platform_id,
    sum(CASE WHEN n.kind = 'CLEARED' THEN n.due ELSE 0 END)::bigint AS presentments,
    -sum(CASE WHEN n.kind IN ('REFUNDED', 'CREDITED') THEN n.due ELSE 0 END)::bigint AS credits,
    -sum(CASE WHEN n.kind IN ('CLEARING_REVERSED', 'REFUND_REVERSED') THEN n.due ELSE 0
        END)::bigint AS reversals,
    sum(CASE WHEN n.other = 'NETWORK_FEES' THEN n.due ELSE 0 END)::bigint AS fees,
    trim_scale(sum(n.interchange)) AS interchange,
    sum(CASE WHEN n.other = 'SETTLEMENT_BANK' THEN 0 ELSE n.due END)::bigint AS net,
    -sum(CASE WHEN n.other = 'SETTLEMENT_BANK' THEN n.due ELSE 0 END)::bigint AS paid,
    sum(n.due)::bigint AS open
FROM (
    SELECT coalesce(x.settlement_date, e.posted_on) AS settlement_date, x.network, x.cycle,
        a.currency, a.platform_id, f.kind,
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
    UNION ALL
    SELECT x.settlement_date, x.network, x.cycle, t.currency, x.platform_id, NULL, NULL, 0,
        x.interchange * ('1e' || m.decimals)::numeric
    FROM settlement_details x
    JOIN card_transactions t ON t.id = x.card_transaction_id AND t.customer_id = x.customer_id
    JOIN currencies m ON m.code = t.currency
    WHERE x.interchange IS NOT NULL
) n
GROUP BY n.settlement_date, n.network, n.cycle, n.currency, n.platform_id;
COMMENT ON VIEW finance.network_days IS 'What the network settles, for each day, network, cycle, currency and platform; minor units. The sum of open is the balance of NETWORK_SETTLEMENT.';
COMMENT ON COLUMN finance.network_days.settlement_date IS 'The business day of the network; the day of the books where the network has not named one.';
COMMENT ON COLUMN finance.network_days.network IS 'The network; null: the events did not name one.';
COMMENT ON COLUMN finance.network_days.cycle IS 'The cycle of the day; null: the events did not name one.';
COMMENT ON COLUMN finance.network_days.currency IS 'Currency code, ISO 4217.';
COMMENT ON COLUMN finance.network_days.platform_id IS 'The platform.';
COMMENT ON COLUMN finance.network_days.presentments IS 'Clearings: due to the network.';
COMMENT ON COLUMN finance.network_days.credits IS 'Refunds and credits: due from the network.';
COMMENT ON COLUMN finance.network_days.reversals IS 'Reversed clearings less reversed refunds: due from the network.';
COMMENT ON COLUMN finance.network_days.fees IS 'Fees of the network: due to the network.';
COMMENT ON COLUMN finance.network_days.interchange IS 'Interchange that the events named, not rounded; positive: earned. Not part of net until it is booked.';
COMMENT ON COLUMN finance.network_days.net IS 'Due to the network; negative: due from it.';
COMMENT ON COLUMN finance.network_days.paid IS 'Paid to the network; negative: received from it.';
COMMENT ON COLUMN finance.network_days.open IS 'Not paid yet: net less paid.';

-- Of a rejected message only what follows is shown, never its text, which may hold anything.
CREATE FUNCTION finance.json_or_null(body text) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    RETURN body::jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $body$;
COMMENT ON FUNCTION finance.json_or_null(text) IS 'The text as JSON; null: it is not JSON.';

CREATE VIEW finance.unapplied WITH (security_barrier) AS
SELECT w.message_id, w.state, w.platform_id, w.source, w.reference, w.body ->> 'type' AS type,
    CASE WHEN jsonb_typeof(w.body -> 'amount') = 'number'
        AND w.body ->> 'amount' ~ '^[0-9]{1,18}$' THEN (w.body ->> 'amount')::bigint END AS amount,
    m.code AS currency,
    w.reason, w.recorded_at,
    (now() AT TIME ZONE 'UTC')::date - (w.recorded_at AT TIME ZONE 'UTC')::date AS age_days
FROM (
    SELECT r.id AS message_id, 'REJECTED'::text AS state, r.platform_id, r.source, r.reference,
        r.reason, finance.json_or_null(r.body) AS body, r.recorded_at
    FROM rejections r
    WHERE NOT EXISTS (SELECT FROM rejection_retries s WHERE s.rejection_id = r.id)
        -- Sent again, corrected, and decided. A reused key is another message: it stays.
        AND (r.reason = 'KEY_REUSED' OR NOT EXISTS (
            SELECT FROM outcomes o
            WHERE o.reference = r.reference AND o.source = r.source
                AND o.platform_id = r.platform_id
        ))
    UNION ALL
    SELECT p.id, 'PARKED', p.platform_id, p.body ->> 'source', p.body ->> 'reference', NULL,
        finance.json_or_null(p.body::text), p.received_at
    FROM parked p
) w
LEFT JOIN currencies m ON m.code = w.body ->> 'currency'
WHERE w.body ->> 'type' IN ('CLEARING', 'CLEARING_REVERSAL', 'RETURN', 'RETURN_REVERSAL',
    'FINANCIAL_AUTHORIZATION');
COMMENT ON VIEW finance.unapplied IS 'Messages of the network that moved money and are not in the books: rejected, or parked until the event comes that they reverse.';
COMMENT ON COLUMN finance.unapplied.message_id IS 'The message.';
COMMENT ON COLUMN finance.unapplied.state IS 'REJECTED or PARKED.';
COMMENT ON COLUMN finance.unapplied.platform_id IS 'The platform of the sender; null: not known.';
COMMENT ON COLUMN finance.unapplied.source IS 'The sender; null: not readable.';
COMMENT ON COLUMN finance.unapplied.reference IS 'Identifier at the sender; null: not readable.';
COMMENT ON COLUMN finance.unapplied.type IS 'Type of the event.';
COMMENT ON COLUMN finance.unapplied.amount IS 'Amount, minor units of the currency; null: not said, or not readable.';
COMMENT ON COLUMN finance.unapplied.currency IS 'Currency code; null: not said, or not readable.';
COMMENT ON COLUMN finance.unapplied.reason IS 'Why it was rejected; null: it is parked.';
COMMENT ON COLUMN finance.unapplied.recorded_at IS 'When it was rejected, or accepted and parked.';
COMMENT ON COLUMN finance.unapplied.age_days IS 'Days since then, until today (UTC).';

CREATE VIEW finance.audit WITH (security_barrier) AS
SELECT c.created_at AS recorded_at, c.created_by AS person, 'CALENDAR_SET'::text AS action,
    c.name AS subject,
    jsonb_build_object('validFrom', c.valid_from, 'timeZone', c.time_zone,
        'cutOff', to_char(c.cut_off, 'HH24:MI'), 'days', c.days, 'holidays', c.holidays) AS detail
FROM calendars c
UNION ALL
SELECT p.changed_at, p.changed_by, 'PERSON_' || p.change, p.name, jsonb_build_object('may', p.may)
FROM person_changes p;
COMMENT ON VIEW finance.audit IS 'Who changed what: calendars, and people with a login.';
COMMENT ON COLUMN finance.audit.recorded_at IS 'When it was changed.';
COMMENT ON COLUMN finance.audit.person IS 'The login that changed it.';
COMMENT ON COLUMN finance.audit.action IS 'CALENDAR_SET, PERSON_ADDED or PERSON_REMOVED.';
COMMENT ON COLUMN finance.audit.subject IS 'The calendar or the person.';
COMMENT ON COLUMN finance.audit.detail IS 'What it was changed to.';
