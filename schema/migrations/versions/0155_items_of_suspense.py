"""Items of suspense are in the way of closing a period also where they add up to zero."""

import importlib
from typing import Final

from cardledger.schema.migrations import finance

revision = "0155"
down_revision = "0154"

_BEFORE: Final = importlib.import_module(
    "cardledger.schema.migrations.versions.0145_book_verification_runs"
)

_NET: Final = """
    SELECT 'SUSPENSE', 1, format('%s %s of platform %s', s.currency,
        (sum(m.amount) * ('1e-' || y.decimals)::numeric)::text, s.platform_id)
    FROM (
        SELECT e.credit_account_id AS id, e.amount FROM entries e WHERE e.posted_on <= to_day
        UNION ALL
        SELECT e.debit_account_id, -e.amount FROM entries e WHERE e.posted_on <= to_day
    ) m
    JOIN system_accounts s ON s.id = m.id AND s.kind = 'SUSPENSE'
    LEFT JOIN currencies y ON y.code = s.currency
    GROUP BY s.platform_id, s.currency, y.decimals HAVING sum(m.amount) <> 0
"""
# The entry that takes an item back has its subject.
_OF_ITEMS: Final = """
    SELECT 'SUSPENSE', count(*), format('%s %s of platform %s', i.currency,
        (sum(i.amount) * ('1e-' || y.decimals)::numeric)::text, i.platform_id)
    FROM (
        SELECT s.platform_id, s.currency, sum(m.amount) AS amount
        FROM (
            SELECT e.credit_account_id AS id, e.subject_id, e.amount
            FROM entries e WHERE e.posted_on <= to_day
            UNION ALL
            SELECT e.debit_account_id, e.subject_id, -e.amount
            FROM entries e WHERE e.posted_on <= to_day
        ) m
        JOIN system_accounts s ON s.id = m.id AND s.kind = 'SUSPENSE'
        GROUP BY s.platform_id, s.currency, m.subject_id HAVING sum(m.amount) <> 0
    ) i
    LEFT JOIN currencies y ON y.code = i.currency
    GROUP BY i.platform_id, i.currency, y.decimals
"""


def upgrade() -> None:
    """Count the items; what they add up to stays in the words."""
    before = _findings()
    assert before.count(_NET) == 1
    finance.run(f"CREATE OR REPLACE {before.replace(_NET, _OF_ITEMS)}")


def downgrade() -> None:
    """Look at what they add up to."""
    finance.run(f"CREATE OR REPLACE {_findings()}")


def _findings() -> str:
    """Return what revision 0145 has made of the function that says what is in the way."""
    before = vars(_BEFORE)
    findings: str = before["_findings"]().removesuffix(before["_END"])
    return f"{findings}{before['_WITH_DIFFERENCES']}"
