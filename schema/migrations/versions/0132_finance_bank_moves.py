"""Moves of bank lines for finance: which line a move books, and what of a line is booked."""

import importlib
import re
from pathlib import Path
from typing import Final

from alembic import op

from cardledger.schema.migrations import finance, functions

revision = "0132"
down_revision = "0131"

_VERSIONS: Final = Path(__file__).parent
_BEFORE: Final = importlib.import_module("cardledger.schema.migrations.versions.0108_closing_files")
_PEOPLE: Final = (
    "prepare_bank_move(uuid, text, text, bigint, text, text, uuid)",
    "prepare_reversal(uuid, text)",
)
_FINDINGS: Final = "bank_findings(date)"
_END: Final = ";\nEND;"
_WITH_BANK: Final = f"""
    UNION ALL
    SELECT b.kind, b.found, b.detail FROM bank_findings(to_day) b{_END}"""

_KINDS: Final = {
    "MOVE_WITHOUT_LINE": (
        "a move of SETTLEMENT_BANK names no line, and a statement has lines of its days",
        "`cardledger adjust reverse`, and book the line; or allow it, if no statement has it",
    ),
    "UNBOOKED_LINE": (
        "a line of the bank is written off, or resolved, and moves have not booked all of it",
        "`cardledger adjust move --break`; or allow it",
    ),
}
_AUDIT: Final = "0104_finance_bank.sql"
_PREPARED: Final = "'suspense', a.suspense_id,\n"
_NAMED: Final = "'suspense', a.suspense_id, 'break', a.break_id, 'reverses', a.reverses_id,\n"
_VIEWS: Final = {
    "bank_lines": "0104_finance_bank.sql",
    "adjustments": "0062_finance_adjustments.sql",
}


def upgrade() -> None:
    """Add columns to the views, and functions by which people prepare moves of the bank."""
    finance.run(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    finance.run(_audit().replace(_PREPARED, _NAMED, 1))
    functions.protect(_FINDINGS)
    rows = ", ".join(
        f"('{kind}', '{meaning}', '{remedy}', true)" for kind, (meaning, remedy) in _KINDS.items()
    )
    op.execute(
        "INSERT INTO closing_kinds (kind, meaning, remedy, is_lasting)"
        f" VALUES {rows} ON CONFLICT (kind) DO NOTHING"
    )
    findings = _findings()
    assert findings.endswith(_END)
    finance.run(f"CREATE OR REPLACE {findings.removesuffix(_END)}{_WITH_BANK}")
    finance.grant()
    finance.grant_to_people("prepare", _PEOPLE)


def downgrade() -> None:
    """Remove them; the kinds stay: a closing may have allowed some, and nothing finds them."""
    finance.run(f"{_audit()} CREATE OR REPLACE {_findings()}")
    op.execute(f"DROP FUNCTION {_FINDINGS}")
    finance.run(f"DROP FUNCTION {', '.join(f'finance.{name}' for name in _PEOPLE)}")
    for view, file in _VIEWS.items():
        statements = (_VERSIONS / file).read_text(encoding="utf-8")
        found = re.search(rf"CREATE VIEW finance\.{view}\b.*?;\n", statements, re.DOTALL)
        assert found is not None, view
        comments = re.findall(
            rf"COMMENT ON (?:VIEW|COLUMN) finance\.{view}\b.*?;\n", statements, re.DOTALL
        )
        finance.run(f"DROP VIEW finance.{view}; {found[0]} {' '.join(comments)}")
    finance.grant_again()


def _audit() -> str:
    statements = (_VERSIONS / _AUDIT).read_text(encoding="utf-8")
    found = re.search(r"CREATE OR REPLACE VIEW finance\.audit .*?;", statements, re.DOTALL)
    assert found is not None, _AUDIT
    assert found[0].count(_PREPARED) == 1
    return found[0]


def _findings() -> str:
    """Return what revision 0108 has made of the function that says what is in the way."""
    found: str = vars(_BEFORE)["_findings"](is_changed=True)
    return found
