"""Settlement files for finance: views, and the functions by which people work on them."""

import re
from pathlib import Path
from typing import Final

from alembic import op

from cardledger.schema.migrations import finance

revision = "0076"
down_revision = "0075"

_AUDIT_BEFORE: Final = Path(__file__).with_name("0064_finance_beginning.sql")
_FINDINGS_BEFORE: Final = Path(__file__).with_name("0060_finance_periods.sql")

_PEOPLE: Final = {
    "prepare": (
        "begin_file(uuid, text, text, date, text)",
        f"add_lines(uuid{', text' * 14})",
        "finish_file(uuid, text, jsonb)",
        "rematch()",
        "refuse_file(text, integer, text, text)",
        "assign_break(uuid, text, text)",
        "note_break(uuid, text)",
    ),
    "approve": ("resolve_break(uuid, text, text)",),
}

_VIEWS: Final = ("files", "lines", "breaks", "break_history", "proofs")

_KINDS: Final = {
    "AMOUNT_DIFFERS": "a line of a file and its event have different amounts",
    "CURRENCY_DIFFERS": "a line of a file and its event have different currencies",
    "TYPE_DIFFERS": "a line of a file and its event have different types",
    "DUPLICATE_LINE": "a line was in a file before",
    "IN_FILE_ONLY": "a line of a file has no event",
    "IN_LEDGER_ONLY": "an event is in no file",
    "AMBIGUOUS": "a line of a file may be one of several events",
}
_REMEDY: Final = (
    "`cardledger breaks list`; submit what is missing and `cardledger reconcile"
    " --rematch`, or resolve them"
)


def upgrade() -> None:
    """Create views and functions; breaks and missing files are in the way of closing a period."""
    finance.run(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    rows = ", ".join(
        f"('{kind}', '{meaning}', '{_REMEDY}', true)" for kind, meaning in _KINDS.items()
    )
    op.execute(
        "INSERT INTO closing_kinds (kind, meaning, remedy, is_lasting)"
        f" VALUES {rows} ON CONFLICT (kind) DO NOTHING"
    )
    finance.grant()
    for right, functions in _PEOPLE.items():
        finance.grant_to_people(right, functions)


def downgrade() -> None:
    """Remove them; the kinds stay: a closing may have allowed some, and nothing finds them."""
    findings = _found(_FINDINGS_BEFORE, r"FUNCTION closing_findings.*?\nEND;")
    audit = _found(_AUDIT_BEFORE, r"CREATE OR REPLACE VIEW finance\.audit .*?;")
    functions = ", ".join(f"finance.{name}" for name in sum(_PEOPLE.values(), ()))
    views = ", ".join(f"finance.{name}" for name in _VIEWS)
    finance.run(f"""
        DROP FUNCTION {functions};
        CREATE OR REPLACE {findings}
        {audit}
        DROP VIEW {views};
    """)


def _found(path: Path, pattern: str) -> str:
    found = re.search(pattern, path.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None, pattern
    return found[0]
