"""Moves of bank lines for finance: which line a move books, and what of a line is booked."""

import re
from pathlib import Path
from typing import Final

from cardledger.schema.migrations import finance

revision = "0132"
down_revision = "0131"

_VERSIONS: Final = Path(__file__).parent
_PREPARE: Final = "prepare_bank_move(uuid, text, text, bigint, text, text, uuid)"
_VIEWS: Final = {
    "bank_lines": "0104_finance_bank.sql",
    "adjustments": "0062_finance_adjustments.sql",
}


def upgrade() -> None:
    """Add a column to each view, and the function by which people prepare a move of a line."""
    finance.run(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    finance.grant()
    finance.grant_to_people("prepare", (_PREPARE,))


def downgrade() -> None:
    """Remove them."""
    finance.run(f"DROP FUNCTION finance.{_PREPARE}")
    for view, file in _VIEWS.items():
        statements = (_VERSIONS / file).read_text(encoding="utf-8")
        found = re.search(rf"CREATE VIEW finance\.{view}\b.*?;\n", statements, re.DOTALL)
        assert found is not None, view
        comments = re.findall(
            rf"COMMENT ON (?:VIEW|COLUMN) finance\.{view}\b.*?;\n", statements, re.DOTALL
        )
        finance.run(f"DROP VIEW finance.{view}; {found[0]} {' '.join(comments)}")
    finance.grant_again()
