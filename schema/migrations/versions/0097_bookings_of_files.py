"""Interchange and fees of a settlement file are booked, once, in its import."""

import re
from pathlib import Path
from typing import Final

from alembic import op

revision = "0097"
down_revision = "0096"

_MATCHING: Final = Path(__file__).with_name("0075_network_matching.sql")

_COMMENT: Final = (
    "Whether its interchange and fees are booked: false of files that an earlier release imported."
)

_FUNCTIONS: Final = (
    "duplicate_fees(uuid)",
    "rounded_half_even(numeric)",
    "book_network_file(uuid)",
)
_INLINED: Final = ("rounded_half_even(numeric)",)  # It names nothing of ours.

_BOOKED: Final = (
    "    PERFORM match_network_file(file, true);\n",
    "    PERFORM book_network_file(file);\n    PERFORM match_network_file(file, true);\n",
)

# What is booked of a file is in the ledger: a fee is a break only where it was not booked.
_FEES: Final = (
    "    FROM network_lines n WHERE n.file_id = f.id AND n.type IN ('FEE', 'FEE_REVERSAL');\n",
    """    FROM network_lines n WHERE n.file_id = f.id AND n.type IN ('FEE', 'FEE_REVERSAL')
        AND (NOT f.books OR n.line IN (SELECT d.line FROM duplicate_fees(f.id) d));
""",
)
_DUPLICATES: Final = (
    "        LEFT JOIN duplicate_lines(file) d ON d.line = l.line\n",
    """        LEFT JOIN (
            SELECT x.line FROM duplicate_lines(file) x
            UNION SELECT x.line FROM duplicate_fees(file) x
        ) d ON d.line = l.line
""",
)
_LEDGER: Final = (
    "        UNION ALL\n        -- Events that an import has matched",
    """        UNION ALL
        SELECT b.currency,
            CASE b.from_kind WHEN 'NETWORK_FEES' THEN b.amount ELSE -b.amount END::numeric
        FROM settlement_bookings b WHERE b.file_id = file AND b.kind = 'NETWORK_FEES'
        UNION ALL
        -- Events that an import has matched""",
)

_REPLACED: Final = (
    ("finish_network_file", "finish_network_file(uuid, text, jsonb)", (_BOOKED,)),
    ("open_breaks_of_lines", "open_breaks_of_lines(uuid)", (_FEES, _DUPLICATES)),
    ("ledger_of_file", "ledger_of_file(uuid, boolean)", (_LEDGER,)),
)

# `network_files.books` says which files they are of.
_NOTHING_WAS_BOOKED: Final = """
DO $$ BEGIN
    IF EXISTS (SELECT FROM settlement_bookings WHERE file_id IS NOT NULL) THEN
        RAISE EXCEPTION 'settlement files have moved money: their entries stay, so do they';
    END IF;
END $$
"""


def upgrade() -> None:
    """Add the column, create and replace the functions."""
    # Of the files that are there it is false, of those to come true.
    op.execute("ALTER TABLE network_files ADD COLUMN books BOOLEAN DEFAULT false NOT NULL")
    op.execute("ALTER TABLE network_files ALTER COLUMN books SET DEFAULT true")
    op.execute(f"COMMENT ON COLUMN network_files.books IS '{_COMMENT}'")
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    for function in _FUNCTIONS:
        _protect(function)
    for name, signature, changes in _REPLACED:
        statement = _function(name)
        for before, after in changes:
            assert before in statement, before
            statement = statement.replace(before, after)
        op.execute(statement)
        _protect(signature)


def downgrade() -> None:
    """Put back the functions of revision 0075; refused once a file books anything."""
    op.execute(_NOTHING_WAS_BOOKED)
    for name, signature, _ in _REPLACED:
        op.execute(_function(name))
        _protect(signature)
    op.execute(f"DROP FUNCTION {', '.join(reversed(_FUNCTIONS))}")
    op.execute("ALTER TABLE network_files DROP COLUMN books")


def _function(name: str) -> str:
    statements = _MATCHING.read_text(encoding="utf-8")
    found = re.search(rf"CREATE FUNCTION {name}\(.*?END \$body\$;\n", statements, re.DOTALL)
    assert found is not None, name
    return found[0].replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1)


def _protect(signature: str) -> None:
    path = (
        ""
        if signature in _INLINED
        else f"EXECUTE format('ALTER FUNCTION {signature} SET search_path = %I, pg_temp',"
        " current_schema());"
    )
    op.execute(f"DO $$ BEGIN REVOKE EXECUTE ON FUNCTION {signature} FROM PUBLIC; {path} END $$")
