"""Bookings of settlement files for finance: in days of networks, journal and statements."""

import re
from pathlib import Path
from typing import Final

from cardledger.schema.migrations import finance

revision = "0098"
down_revision = "0097"

_VERSIONS: Final = Path(__file__).parent

# What revisions 0060, 0046 and 0089 made, with one table more.
_KIND: Final = ("coalesce(f.kind, CASE", "coalesce(f.kind, y.kind, w.kind, CASE")
_KIND_BEFORE: Final = ("coalesce(f.kind, CASE", "coalesce(f.kind, y.kind, CASE")
_MESSAGE: Final = (
    "coalesce(f.message_id, p.message_id)",
    "coalesce(f.message_id, y.message_id, p.message_id)",
)
_PAYMENTS: Final = """
LEFT JOIN transfer_events y ON y.transfer_id = {0}.subject_id AND y.sequence = {0}.sequence
    AND y.customer_id = {0}.customer_id
"""
_BOOKINGS: Final = "LEFT JOIN settlement_bookings w ON w.id = {0}.subject_id"
_DEPOSITS: Final = "LEFT JOIN deposits p ON p.id = {0}.subject_id"


def upgrade() -> None:
    """Replace the views and the function, and create the view of bookings."""
    both = (_PAYMENTS, _BOOKINGS)
    journal = _with(_journal(), "e", both, _KIND, _MESSAGE)
    finance.run(f"{journal} {_with(_statement(), 'l', both, _KIND)}")
    finance.run(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    finance.grant()


def downgrade() -> None:
    """Put back what was there."""
    journal = _with(_journal(), "e", (_PAYMENTS,), _KIND_BEFORE, _MESSAGE)
    statement = _with(_statement(), "l", (_PAYMENTS,), _KIND_BEFORE)
    days = _found(
        "0062_finance_adjustments.sql", r"CREATE OR REPLACE VIEW finance\.network_days .*?;"
    )
    finance.run(f"{journal} {statement} {days} DROP VIEW finance.bookings;")


def _with(
    statement: str, entry: str, joins: tuple[str, ...], *replacements: tuple[str, str]
) -> str:
    for before, after in replacements:
        assert before in statement, before
        statement = statement.replace(before, after)
    deposits = _DEPOSITS.format(entry)
    assert deposits in statement, deposits
    added = " ".join(join.format(entry).strip() for join in joins)
    return statement.replace(deposits, f"{added} {deposits}", 1)


def _journal() -> str:
    return _found("0060_finance_periods.sql", r"CREATE OR REPLACE VIEW finance\.journal .*?;")


def _statement() -> str:
    created = _found("0046_finance_on_totals.sql", r"CREATE FUNCTION finance\.statement\(.*?\nEND;")
    return created.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1)


def _found(name: str, pattern: str) -> str:
    text = (_VERSIONS / name).read_text(encoding="utf-8")
    found = re.search(pattern, text, re.DOTALL)
    assert found is not None, pattern
    return found[0]
