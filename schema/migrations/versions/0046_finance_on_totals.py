"""Balances of finance are totals and the entries that they lack; sums have any size."""

from pathlib import Path
from typing import Final

from cardledger.schema.migrations import finance

revision = "0046"
down_revision = "0045"

oldest_head = "0012"
"""What is dropped comes back at once, with sums of another type, which every reader converts."""

_VERSIONS: Final = Path(__file__).parent
_FUNCTIONS: Final = (
    "finance.statement(uuid, date, date, timestamptz)",
    "finance.balance(uuid, date, timestamptz)",
    "finance.trial_balance(date, timestamptz, uuid)",
)


def upgrade() -> None:
    """Replace the functions and the view whose sums were limited to 64 bits."""
    finance.run((_VERSIONS / "0046_finance_on_totals.sql").read_text(encoding="utf-8"))
    finance.grant()


def downgrade() -> None:
    """Put back what revisions 0041 and 0042 made."""
    functions = (_VERSIONS / "0042_finance_functions.sql").read_text(encoding="utf-8")
    views = (_VERSIONS / "0041_finance_views.sql").read_text(encoding="utf-8")
    for function in _FUNCTIONS:
        finance.run(f"DROP FUNCTION {function}")
    finance.run("DROP VIEW finance.network_days")
    finance.run("DROP FUNCTION finance.version()")
    for name in ("version", "trial_balance", "balance", "statement"):
        finance.run(_part(functions, f"CREATE FUNCTION finance.{name}("))
    finance.run(_part(views, "CREATE VIEW finance.network_days "))
    finance.grant_again()


def _part(statements: str, first: str) -> str:
    """Return the statement that begins with `first`, with its comments, up to the next CREATE."""
    begin = statements.index(first)
    end = statements.find("\nCREATE ", begin)
    return statements[begin : None if end < 0 else end]
