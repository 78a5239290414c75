-- The event that a line is, as its sender would have sent it. Its key is that of the line, so that
-- it is applied once while its sender repeats it under that key: with the source of the other events
-- of the file.
CREATE FUNCTION make_event_of_break(wanted uuid, words text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    b breaks := find_break(wanted);
    n network_lines;
    f network_files := network_file(b.file_id);
    card uuid;
    sender text;
BEGIN
    IF b.kind <> 'IN_FILE_ONLY' OR b.cause <> 'NO_EVENT' OR b.state NOT IN ('open', 'investigating')
    THEN
        RAISE EXCEPTION 'break % is % % %: an event is made of an open one that is IN_FILE_ONLY'
            ' NO_EVENT', b.id, b.state, b.kind, coalesce(b.cause, '')
            USING ERRCODE = 'object_not_in_prerequisite_state';
    ELSIF b.owner = session_user THEN
        RAISE EXCEPTION 'break % is assigned to %: another person must resolve it', b.id, b.owner
            USING ERRCODE = 'object_not_in_prerequisite_state';
    ELSIF coalesce(length(btrim(words)), 0) NOT BETWEEN 1 AND 1900 THEN
        RAISE EXCEPTION 'the note must have 1 to 1900 characters'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO n FROM network_lines l WHERE l.file_id = b.file_id AND l.line = b.line;
    IF n.type IN ('FEE', 'FEE_REVERSAL') THEN
        RAISE EXCEPTION 'line % is a fee: book it by an adjustment', n.line
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    SELECT c.id INTO card FROM cards c WHERE c.id = n.card_id AND c.platform_id = f.platform_id;
    IF n.card_id IS NULL AND n.token IS NOT NULL THEN
        SELECT CASE count(DISTINCT t.card_id) WHEN 1 THEN min(t.card_id::text)::uuid END INTO card
        FROM card_transactions t
        WHERE t.platform_id = f.platform_id AND t.issuer_transaction_token = n.token;
    END IF;
    IF card IS NULL OR n.token IS NULL THEN
        RAISE EXCEPTION 'line % does not say which card and card transaction it is of: submit its'
            ' event, then `cardledger reconcile --rematch`', n.line
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    IF EXISTS (
        SELECT FROM outcomes o WHERE o.reference = n.reference AND o.platform_id = f.platform_id
        UNION ALL
        SELECT FROM rejections r WHERE r.platform_id = f.platform_id
            AND md5(r.reference) = md5(n.reference) AND r.reference = n.reference
    ) THEN
        RAISE EXCEPTION 'an event with the reference of line % has come:'
            ' `cardledger reconcile --rematch`', n.line
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    SELECT o.source INTO sender
    FROM line_matches m
    JOIN card_transaction_events e ON e.card_transaction_id = m.card_transaction_id
        AND e.sequence = m.sequence AND e.customer_id = m.customer_id
    JOIN outcomes o ON o.message_id = e.message_id AND o.customer_id = e.customer_id
    WHERE m.file_id = b.file_id AND n.reference IS NOT NULL
    ORDER BY m.line LIMIT 1;
    PERFORM enqueue(jsonb_build_array(jsonb_strip_nulls(jsonb_build_object(
        'type', CASE n.type WHEN 'PRESENTMENT' THEN 'CLEARING'
            WHEN 'PRESENTMENT_REVERSAL' THEN 'CLEARING_REVERSAL'
            WHEN 'CREDIT' THEN 'RETURN' ELSE 'RETURN_REVERSAL' END,
        'source', coalesce(sender, 'network-file'),
        'reference', coalesce(n.reference, n.file_id || ':' || n.line),
        'issuerTransactionToken', n.token,
        'cardId', 'Card:' || card,
        'amount', n.amount,
        'currency', n.currency,
        'occurredAt', to_char(n.transaction_date, 'YYYY-MM-DD"T12:00:00Z"'),
        'merchant', CASE WHEN n.merchant IS NOT NULL
            THEN jsonb_build_object('descriptor', n.merchant, 'mcc', n.mcc) END,
        'settlement', jsonb_build_object(
            'network', f.network,
            'settlementDate', to_char(f.settlement_date, 'YYYY-MM-DD'),
            'cycle', f.cycle,
            'acquirerReference', CASE WHEN n.reference ~ '^[0-9]{23}$' THEN n.reference END,
            'networkReference', n.network_reference,
            'merchantAmount', CASE WHEN n.merchant_amount IS NOT NULL THEN jsonb_build_object(
                'amount', n.merchant_amount, 'currency', n.merchant_currency) END,
            'interchange', trim_scale(n.interchange)::text)
    ))));
    INSERT INTO break_history (break_id, action, note)
    VALUES (b.id, 'NOTED', 'event made: ' || btrim(words));
    UPDATE breaks SET state = 'investigating' WHERE id = b.id;
    RETURN 'investigating';
END $body$;
