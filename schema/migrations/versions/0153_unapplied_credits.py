"""Finance finds the item of a repeated clearing of a credit, which is booked as a refund."""

import re
from pathlib import Path
from typing import Final

from alembic import op

from cardledger.schema.migrations import finance

revision = "0153"
down_revision = "0152"

_BEFORE: Final = Path(__file__).parent / "0052_finance_suspense.sql"
_SENT: Final = "(i.type, i.amount::text) = (r.body ->> 'type', r.body ->> 'amount')"
_MEANT: Final = """i.amount::text = r.body ->> 'amount' AND (i.type = r.body ->> 'type'
                    OR (i.type, r.body ->> 'type') IN (('RETURN', 'CLEARING'),
                        ('RETURN_REVERSAL', 'CLEARING_REVERSAL')))"""
_TYPE: Final = (
    "Type of the event: CLEARING, CLEARING_REVERSAL, RETURN, RETURN_REVERSAL or"
    " FINANCIAL_CREDIT_AUTHORIZATION;{} or PAYOUT_RETURN: a payout was returned."
)
_OF_CREDIT: Final = " of a clearing of a credit RETURN, of its reversal RETURN_REVERSAL;"


def upgrade() -> None:
    """Compare what a repetition under a used key means, too."""
    _comment(_OF_CREDIT)
    before = _view()
    assert before.count(_SENT) == 1
    finance.run(before.replace(_SENT, _MEANT))


def downgrade() -> None:
    """Compare what it says only."""
    _comment("")
    finance.run(_view())


def _comment(of_credit: str) -> None:
    op.execute(f"COMMENT ON COLUMN suspense_items.type IS '{_TYPE.format(of_credit)}'")


def _view() -> str:
    statements = _BEFORE.read_text(encoding="utf-8")
    found = re.search(r"CREATE OR REPLACE VIEW finance\.unapplied .*?;\n", statements, re.DOTALL)
    assert found is not None
    return found[0]
