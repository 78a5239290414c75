"""Statements of an account have no day in common, unless their balances follow each other."""

import re
from pathlib import Path
from typing import Final

from alembic import op

from cardledger.schema.migrations import functions

revision = "0128"
down_revision = "0127"

_BEFORE: Final = Path(__file__).with_name("0103_bank_matching.sql")

_REPLACED: Final = "finish_bank_statement(uuid, text)"
_NEW: Final = ("repeats_lines(uuid, uuid)", "statement_of_namesake(uuid)")


def upgrade() -> None:
    """Replace the function that finishes an import."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    for signature in (*_NEW, _REPLACED):
        functions.protect(signature)


def downgrade() -> None:
    """Put back that of revision 0103."""
    op.execute(_function("finish_bank_statement"))
    functions.protect(_REPLACED)
    op.execute(f"DROP FUNCTION {', '.join(_NEW)}")


def _function(name: str) -> str:
    statements = _BEFORE.read_text(encoding="utf-8")
    found = re.search(rf"CREATE FUNCTION {name}\(.*?END \$body\$;\n", statements, re.DOTALL)
    assert found is not None, name
    return found[0].replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1)
