"""Statements of the bank are imported and matched with the days of networks by functions."""

import re
from pathlib import Path
from typing import Final

from alembic import op

revision = "0103"
down_revision = "0102"

_MATCHING: Final = Path(__file__).with_name("0075_network_matching.sql")

_FUNCTIONS: Final = (
    "begin_bank_statement(uuid, text, text, text, date, date, bigint, bigint)",
    f"add_bank_lines(uuid{', text' * 6})",
    "finish_bank_statement(uuid, text)",
    "expected_at_bank(uuid, text)",
    "is_named(text, text)",
    "match_bank(uuid, text)",
    "runs_named(text)",
    "pay_days(text, uuid, integer, bigint, integer, integer, text)",
    "book_bank_line(uuid, integer)",
    "pay_rests(text)",
    "open_bank_breaks(uuid, text)",
    "prove_statements(uuid, text)",
    "rematch_bank()",
)
_INLINED: Final = ("is_named(text, text)",)  # It names nothing of ours.

# A file says what the bank has to bring: lines that came before it are matched again.
_FINISH_BEFORE: Final = """    PERFORM book_network_file(file);
    PERFORM match_network_file(file, true);
    PERFORM match_again(file);
"""
_FINISH: Final = f"""{_FINISH_BEFORE}    PERFORM match_bank(f.platform_id, t.currency)
    FROM network_files f JOIN network_file_totals t ON t.file_id = f.id WHERE f.id = file;
"""
_OF_0075: Final = "    PERFORM match_network_file(file, true);\n    PERFORM match_again(file);\n"


def upgrade() -> None:
    """Create the functions; the import of a file matches the bank, too."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    for function in _FUNCTIONS:
        _protect(function)
    _finish(_FINISH)


def downgrade() -> None:
    """Remove them."""
    _finish(_FINISH_BEFORE)
    op.execute(f"DROP FUNCTION {', '.join(reversed(_FUNCTIONS))}")


def _finish(steps: str) -> None:
    statements = _MATCHING.read_text(encoding="utf-8")
    found = re.search(
        r"CREATE FUNCTION finish_network_file\(.*?END \$body\$;\n", statements, re.DOTALL
    )
    assert found is not None
    assert _OF_0075 in found[0]
    created = found[0].replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1)
    op.execute(created.replace(_OF_0075, steps, 1))
    _protect("finish_network_file(uuid, text, jsonb)")


def _protect(signature: str) -> None:
    path = (
        ""
        if signature in _INLINED
        else f"EXECUTE format('ALTER FUNCTION {signature} SET search_path = %I, pg_temp',"
        " current_schema());"
    )
    op.execute(f"DO $$ BEGIN REVOKE EXECUTE ON FUNCTION {signature} FROM PUBLIC; {path} END $$")
