"""Adjustments for finance: a view, and the functions by which people prepare and approve them."""

from pathlib import Path
from typing import Final

from cardledger.schema.migrations import finance

revision = "0062"
down_revision = "0061"

_BEFORE: Final = Path(__file__).with_name("0046_finance_on_totals.sql")

_ACTS: Final = {
    "prepare": (
        "prepare_move(uuid, text, text, bigint, text, text)",
        "prepare_write_off(uuid, bigint, text)",
        "prepare_suspense_resolution(uuid, text)",
    ),
    "approve": ("approve_adjustment(uuid)", "reject_adjustment(uuid, text)"),
}
"""What people with a right (`roles.Right`) may call."""


def upgrade() -> None:
    """Create the view and the functions, each for exactly the people who may."""
    finance.run(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    finance.grant()
    for right, functions in _ACTS.items():
        finance.grant_to_people(right, functions)


def downgrade() -> None:
    """Remove them."""
    for functions in _ACTS.values():
        for function in functions:
            finance.run(f"DROP FUNCTION finance.{function}")
    finance.run(_network_days_before())
    finance.run("DROP VIEW finance.adjustments")


def _network_days_before() -> str:
    """Return the statements that replace the view by what revision 0046 made."""
    statements = _BEFORE.read_text(encoding="utf-8")
    return statements[statements.index("CREATE VIEW finance.network_days") :].replace(
        "CREATE VIEW", "CREATE OR REPLACE VIEW", 1
    )
