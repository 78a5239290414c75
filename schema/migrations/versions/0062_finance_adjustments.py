"""Adjustments for finance: a view, and the functions by which people prepare and approve them."""

from pathlib import Path
from typing import Final

from cardledger.schema.migrations import finance

revision = "0062"
down_revision = "0061"

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
    finance.run("DROP VIEW finance.adjustments")
