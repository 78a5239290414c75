"""Periods for finance: what is in the way of closing one, who closed it, and late entries."""

import re
from pathlib import Path
from typing import Final

from alembic import op

from cardledger.schema.migrations import finance

revision = "0060"
down_revision = "0059"

_VIEWS_BEFORE: Final = Path(__file__).with_name("0041_finance_views.sql")

_RIGHTS: Final = """
    REVOKE EXECUTE ON FUNCTION closing_findings(date, date), closing_trial_balance(date)
        FROM PUBLIC;
"""
_PEOPLE: Final = {
    "prepare": ("prepare_closing(date, date, jsonb)", "prepare_reopening(uuid, text)"),
    "approve": (
        "approve_closing(uuid)",
        "seal_closing(uuid, integer, text, bigint)",
        "reject_closing(uuid, text)",
    ),
}


def upgrade() -> None:
    """Create views and functions; each function that changes something is for one right."""
    finance.run(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    op.execute(_RIGHTS)
    finance.grant()
    for right, functions in _PEOPLE.items():
        finance.grant_to_people(right, functions)


def downgrade() -> None:
    """Remove them, and show the views as before."""
    finance.run(f"""
        DROP FUNCTION {", ".join(f"finance.{name}" for name in sum(_PEOPLE.values(), ()))},
            finance.in_the_way(date, date), finance.first_open_day();
        {_before("journal")} {_before("audit")}
        DROP VIEW finance.periods, finance.reopenings;
        DROP FUNCTION closing_findings(date, date), closing_trial_balance(date);
    """)


def _before(view: str) -> str:
    """Return the statement that replaces `view` by what it was."""
    found = re.search(
        rf"CREATE (VIEW finance\.{view} .*?;)", _VIEWS_BEFORE.read_text(encoding="utf-8"), re.DOTALL
    )
    assert found is not None, view
    return f"CREATE OR REPLACE {found[1]}"
