"""Statements of the bank for finance: views, functions for people, and what a closing looks for."""

import re
from pathlib import Path
from typing import Final

from alembic import op

from cardledger.schema.migrations import finance

revision = "0104"
down_revision = "0103"

_VERSIONS: Final = Path(__file__).parent

_PEOPLE: Final = (
    "begin_statement(uuid, text, text, text, date, date, bigint, bigint)",
    f"add_statement_lines(uuid{', text' * 6})",
    "finish_statement(uuid, text)",
    "rematch_bank()",
)
_VIEWS: Final = ("bank_statements", "bank_lines", "bank_payments", "statement_proofs")

_KINDS: Final = {
    "BANK_DIFFERS": "a line of the bank pays days of a network with another amount",
    "BANK_ONLY": "a line of the bank pays no day of a network",
    "NOT_PAID": "a day of a network is not paid, and a later one is, or five days have gone by",
}
_REMEDY: Final = (
    "`cardledger breaks list`; import the statement or file that is missing, or resolve them"
)


def upgrade() -> None:
    """Create views and functions; breaks of the bank and unpaid days are in the way of closing."""
    finance.run(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    rows = ", ".join(
        f"('{kind}', '{meaning}', '{_REMEDY}', true)" for kind, meaning in _KINDS.items()
    )
    op.execute(
        "INSERT INTO closing_kinds (kind, meaning, remedy, is_lasting)"
        f" VALUES {rows} ON CONFLICT (kind) DO NOTHING"
    )
    _unpaid_day("that are not paid", "import the statement of the bank")
    finance.grant()
    finance.grant_to_people("prepare", _PEOPLE)


def downgrade() -> None:
    """Remove them; the kinds stay: a closing may have allowed some, and nothing finds them."""
    findings = _found(
        "0076_finance_files.sql", r"CREATE OR REPLACE FUNCTION closing_findings.*?\nEND;"
    )
    audit = _found("0076_finance_files.sql", r"CREATE OR REPLACE VIEW finance\.audit .*?;")
    breaks = _found("0076_finance_files.sql", r"CREATE VIEW finance\.breaks AS.*?;")
    days = _found("0098_finance_bookings.sql", r"CREATE OR REPLACE VIEW finance\.network_days.*?;")
    comments = re.findall(
        r"COMMENT ON (?:VIEW|COLUMN) finance\.breaks\b.*?;\n",
        (_VERSIONS / "0076_finance_files.sql").read_text(encoding="utf-8"),
    )
    functions = ", ".join(f"finance.{name}" for name in _PEOPLE)
    views = ", ".join(f"finance.{name}" for name in (*_VIEWS, "breaks"))
    finance.run(
        f"DROP FUNCTION {functions}; {findings} {audit} {days} DROP VIEW {views}; {breaks}"
        f" {' '.join(comments)}"
    )
    _unpaid_day("that the network was not paid for", "book the payments of the bank")
    finance.grant_again()


def _unpaid_day(meaning: str, remedy: str) -> None:
    op.execute(f"""
DO $$ BEGIN
    UPDATE closing_kinds SET meaning = 'days of settlement {meaning}', remedy = '{remedy}'
    WHERE kind = 'UNPAID_DAY';  -- One row.
END $$
""")


def _found(name: str, pattern: str) -> str:
    found = re.search(pattern, (_VERSIONS / name).read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None, pattern
    return found[0]
