"""The beginning of the books for people who may approve; it and adjustments in the audit."""

import re
from pathlib import Path
from typing import Final

from cardledger.schema.migrations import finance

revision = "0064"
down_revision = "0063"

_BEFORE: Final = Path(__file__).with_name("0060_finance_periods.sql")


def upgrade() -> None:
    """Create the function, for exactly the people who may, and replace the view."""
    finance.run(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    finance.grant()
    finance.grant_to_people("approve", ["begin_books(date)"])


def downgrade() -> None:
    """Remove the function, and show the view as before."""
    statements = _BEFORE.read_text(encoding="utf-8")
    found = re.search(r"CREATE OR REPLACE VIEW finance\.audit .*?;", statements, re.DOTALL)
    assert found is not None
    finance.run(f"DROP FUNCTION finance.begin_books(date); {found[0]}")
