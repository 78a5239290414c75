CREATE VIEW finance.conversions AS
SELECT f.card_transaction_id, f.sequence, f.sequence = k.sequence AS is_first, t.platform_id,
    k.customer_id, k.merchant_amount,
    k.merchant_amount * ('1e-' || m.decimals)::numeric AS merchant_amount_decimal,
    k.merchant_currency, k.billing_amount,
    k.billing_amount * ('1e-' || b.decimals)::numeric AS billing_amount_decimal,
    t.currency, k.rate, k.recorded_at
FROM conversion_details k
JOIN card_transactions t ON t.id = k.card_transaction_id AND t.customer_id = k.customer_id
JOIN card_transaction_events f ON f.card_transaction_id = k.card_transaction_id
    AND f.customer_id = k.customer_id AND f.message_id = k.message_id AND f.sequence >= k.sequence
LEFT JOIN currencies m ON m.code = k.merchant_currency
LEFT JOIN currencies b ON b.code = t.currency;
COMMENT ON VIEW finance.conversions IS 'How the network converted amounts, a row for each event of a message: `subject_id` and `sequence` of the journal find it.';
COMMENT ON COLUMN finance.conversions.card_transaction_id IS 'The card transaction: `subject_id` in the journal.';
COMMENT ON COLUMN finance.conversions.sequence IS 'Event of the card transaction.';
COMMENT ON COLUMN finance.conversions.is_first IS 'Whether it is the first event of its message: add up amounts of these only.';
COMMENT ON COLUMN finance.conversions.platform_id IS 'The platform.';
COMMENT ON COLUMN finance.conversions.customer_id IS 'The cardholder.';
COMMENT ON COLUMN finance.conversions.merchant_amount IS 'Amount of the message in the currency of the merchant, minor units.';
COMMENT ON COLUMN finance.conversions.merchant_amount_decimal IS 'The same in major units.';
COMMENT ON COLUMN finance.conversions.merchant_currency IS 'Currency of the merchant, ISO 4217.';
COMMENT ON COLUMN finance.conversions.billing_amount IS 'Amount of the message in the currency of the card transaction, minor units.';
COMMENT ON COLUMN finance.conversions.billing_amount_decimal IS 'The same in major units.';
COMMENT ON COLUMN finance.conversions.currency IS 'Currency of the card transaction.';
COMMENT ON COLUMN finance.conversions.rate IS 'Units of `currency` for one of `merchant_currency`, as the network said it.';
COMMENT ON COLUMN finance.conversions.recorded_at IS 'When the ledger recorded it.';
