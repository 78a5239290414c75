CREATE OR REPLACE FUNCTION card_transaction_json(key uuid) RETURNS jsonb LANGUAGE sql STABLE AS $body$
    SELECT jsonb_strip_nulls(jsonb_build_object(
        'type', 'CARD',
        'id', 'CardTransaction:' || t.id,
        'cardId', 'Card:' || t.card_id,
        'customerId', 'Customer:' || t.customer_id,
        'platformCustomerId', u.platform_customer_id,
        'accountId', 'InternalAccount:' || t.account_id,
        'issuerTransactionToken', t.issuer_transaction_token,
        -- Earlier releases stored CREDITED for a settled credit.
        'status', CASE t.status WHEN 'CREDITED' THEN 'SETTLED' ELSE t.status END,
        'statusReason', CASE
            WHEN t.status <> 'VOIDED' THEN NULL
            WHEN t.closed_by IN ('EXPIRED', 'CARD_CLOSED') THEN t.closed_by
            ELSE 'REVERSED' END,
        'declineReason', t.decline_reason,
        'direction',
            CASE WHEN r.is_credit OR (t.authorizations = 0 AND t.settlement_count = 0)
                THEN 'CREDIT' ELSE 'DEBIT' END,
        'merchant', jsonb_build_object(
            'descriptor', coalesce(nullif(t.descriptor, ''), 'UNKNOWN'),
            'mcc', t.mcc,
            'country', t.country),
        'authorizedAmount', jsonb_build_object(
            'amount', CASE
                WHEN t.authorized <> 0 THEN t.authorized
                WHEN t.declined <> 0 OR NOT r.is_credit THEN t.declined
                ELSE coalesce(t.credit_authorized, t.refunded) END,
            'currency', c.info),
        'settledAmount', CASE WHEN r.settlement_count > 0
            THEN jsonb_build_object('amount', r.settled, 'currency', c.info) END,
        'refundedAmount', CASE WHEN r.refunded <> 0
            THEN jsonb_build_object('amount', r.refunded, 'currency', c.info) END,
        'conversion', CASE WHEN t.merchant_amount IS NOT NULL THEN jsonb_build_object(
            'merchantAmount', jsonb_build_object('amount', t.merchant_amount,
                'currency', '__CURRENCIES__'::jsonb -> t.merchant_currency),
            'billingAmount', jsonb_build_object('amount', t.billing_amount, 'currency', c.info),
            'rate', trim_scale(t.conversion_rate)::text) END,
        'heldAmount', jsonb_build_object(
            'amount', greatest(d.ahead, 0), 'currency', c.info),
        'owedAmount', jsonb_build_object(
            'amount', greatest(-d.ahead, 0) + t.unpaid,
            'currency', c.info),
        'writtenOffAmount', CASE WHEN t.written_off <> 0
            THEN jsonb_build_object('amount', t.written_off, 'currency', c.info) END,
        'pullSummary', jsonb_build_object(
            'count', t.pull_count, 'totalAmount', t.pulled, 'pendingCount', t.pending_count),
        'settlementSummary', jsonb_build_object(
            'count', r.settlement_count, 'totalAmount', r.settled),
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
        SELECT k.is_credit,
            CASE WHEN k.is_credit THEN 0 ELSE t.refunded END AS refunded,
            CASE WHEN k.is_credit THEN t.refunded ELSE t.settled END AS settled,
            CASE WHEN k.is_credit THEN t.refund_count ELSE t.settlement_count END
                AS settlement_count
        FROM (
            SELECT coalesce(t.closed_by = 'CREDITED', false)
                OR (t.credit_authorized IS NOT NULL AND t.authorizations = 0
                    AND t.settlement_count = 0) AS is_credit
        ) k
    ) r
    CROSS JOIN LATERAL (
        SELECT t.pulled - t.released - t.settled + (t.written_off - t.debits_written_off) AS ahead
    ) d
    CROSS JOIN LATERAL (
        SELECT to_char(t.created_at AT TIME ZONE 'UTC', f.format) AS created_at,
            to_char(t.expires_at AT TIME ZONE 'UTC', f.format) AS expires_at,
            to_char(t.last_event_at AT TIME ZONE 'UTC', f.format) AS last_event_at,
            to_char(t.updated_at AT TIME ZONE 'UTC', f.format) AS updated_at
        FROM (SELECT 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS f (format)
    ) z
    WHERE t.id = card_transaction_json.key
$body$;
