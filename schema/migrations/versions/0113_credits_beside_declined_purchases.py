"""An approved credit stands beside a declined purchase with its token, also in older rows.

Earlier releases counted the declined purchase, and stored the credit as declined. Corrected are the
rows without another event; of any other, `cardledger verify` shows the columns that differ.
"""

from typing import Final

from cardledger.schema.migrations.steps import change_in_pages

revision = "0113"
down_revision = "0112"

# The windows of ledger/core/expiry_windows.toml, for a credit of `credit_authorized`.
_DAYS: Final = """
    CASE WHEN k.mcc IN (5541, 5542, 5552) AND c.credit_authorized <= 100 THEN 1
        WHEN k.mcc BETWEEN 3351 AND 3999 OR k.mcc IN (4411, 7011, 7512, 7513)
            OR k.mcc BETWEEN 5960 AND 5969 THEN 30
        ELSE 7 END
"""

# What a worker changes meanwhile has another sequence, and is found by the next page or by none.
_CORRECT: Final = f"""
    UPDATE card_transactions t
    SET status = 'AUTHORIZED', authorizations = 0, declined = 0, decline_reason = NULL,
        expires_at = page.expires_at
    FROM (
        SELECT c.id, c.customer_id, c.sequence,
            h.approved_at + make_interval(hours => 24 * {_DAYS}) AS expires_at
        FROM card_transactions c
        CROSS JOIN LATERAL (
            SELECT CASE WHEN c.mcc ~ '^[0-9]{{1,4}}$' THEN c.mcc::int ELSE 0 END AS mcc
        ) k
        CROSS JOIN LATERAL (
            SELECT bool_and(e.kind IN ('DECLINED', 'CREDIT_AUTHORIZED', 'CREDIT_DECLINED')) AS only,
                (array_agg(e.recorded_at ORDER BY e.sequence DESC)
                    FILTER (WHERE e.kind = 'CREDIT_AUTHORIZED'))[1] AS approved_at
            FROM card_transaction_events e WHERE e.card_transaction_id = c.id
        ) h
        WHERE c.credit_authorized > 0 AND c.authorizations > 0 AND c.decline_reason IS NOT NULL
            AND h.only AND h.approved_at IS NOT NULL
        LIMIT 1000
    ) page
    WHERE t.id = page.id AND t.customer_id = page.customer_id AND t.sequence = page.sequence
        AND t.authorizations > 0
"""


def upgrade() -> None:
    """Write what the events give, a page at a time."""
    change_in_pages(_CORRECT)


def downgrade() -> None:
    """Leave it: an earlier release reads it as a credit."""
