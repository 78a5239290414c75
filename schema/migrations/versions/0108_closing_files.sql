-- The SHA-256 of the text that COPY writes of the entries of a period (ledger/books/seals.py), whose
-- columns need no escapes. It is one value in memory, so it is for periods of some size.
CREATE FUNCTION entries_sha256(from_day date, to_day date) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET datestyle = 'ISO' SET jit = off AS $body$
BEGIN
    RETURN (
        SELECT encode(sha256(convert_to(coalesce(string_agg(
            concat_ws(E'\t', j.subject_id, j.sequence, j.line, coalesce(j.customer_id::text, '\N'),
                coalesce(j.platform_id::text, '\N'), j.posted_on, j.occurred_at AT TIME ZONE 'UTC',
                j.recorded_at AT TIME ZONE 'UTC', coalesce(j.late_from::text, '\N'),
                j.debit_account_id, j.debit_kind, j.credit_account_id, j.credit_kind, j.amount,
                coalesce(j.currency, '\N')) || E'\n',
            '' ORDER BY j.subject_id, j.sequence, j.line), ''), 'UTF8')), 'hex')
        FROM finance.journal j WHERE j.posted_on BETWEEN from_day AND to_day
    );
END $body$;
