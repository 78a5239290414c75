CREATE VIEW finance.events AS
SELECT f.card_transaction_id, f.sequence, t.platform_id, f.customer_id, t.currency,
    f.kind AS event, f.amount, f.unfunded, f.final, f.reason,
    (
        SELECT o.source FROM outcomes o
        WHERE o.message_id = f.message_id AND o.customer_id = f.customer_id LIMIT 1
    ) AS source,
    (
        SELECT o.reference FROM outcomes o
        WHERE o.message_id = f.message_id AND o.customer_id = f.customer_id LIMIT 1
    ) AS reference,
    f.occurred_at, f.recorded_at
FROM card_transaction_events f
JOIN card_transactions t ON t.id = f.card_transaction_id AND t.customer_id = f.customer_id;
COMMENT ON VIEW finance.events IS 'Events of card transactions, those without an entry included.';
COMMENT ON COLUMN finance.events.card_transaction_id IS 'The card transaction.';
COMMENT ON COLUMN finance.events.sequence IS 'Position of the event in the card transaction, from 1.';
COMMENT ON COLUMN finance.events.platform_id IS 'The platform.';
COMMENT ON COLUMN finance.events.customer_id IS 'The cardholder.';
COMMENT ON COLUMN finance.events.currency IS 'Currency of its amounts.';
COMMENT ON COLUMN finance.events.event IS 'What happened: AUTHORIZED, PULLED, CLEARED, RELEASED, ...';
COMMENT ON COLUMN finance.events.amount IS 'Amount, minor units of the currency.';
COMMENT ON COLUMN finance.events.unfunded IS 'Part of the amount that the funding account could not cover, minor units; null: does not apply.';
COMMENT ON COLUMN finance.events.final IS 'Whether no further clearing is expected; null: does not apply.';
COMMENT ON COLUMN finance.events.reason IS 'Why it was declined; null: it was not.';
COMMENT ON COLUMN finance.events.source IS 'Sender of the message that caused the event; null: the ledger itself.';
COMMENT ON COLUMN finance.events.reference IS 'Identifier of the message at its sender; null: the ledger itself.';
COMMENT ON COLUMN finance.events.occurred_at IS 'When it happened, by the clock of the network or of the sender.';
COMMENT ON COLUMN finance.events.recorded_at IS 'When the ledger recorded it.';
