"""Settlement files are imported, matched with events and worked on by functions."""

from pathlib import Path
from typing import Final

from alembic import op

revision = "0075"
down_revision = "0074"

_FUNCTIONS: Final = (
    "line_sign(text)",
    "folded(text)",
    "begin_network_file(uuid, text, text, date, text)",
    f"add_network_lines(uuid{', text' * 14})",
    "finish_network_file(uuid, text, jsonb)",
    "match_round(uuid, text, text, text, text, boolean, boolean)",
    "add_events(text)",
    "match_cards(uuid)",
    "set_card_keys()",
    "rewrite_open()",
    "network_file(uuid)",
    "match_network_file(uuid, boolean)",
    "ledger_of_file(uuid, boolean)",
    "explain_breaks(uuid)",
    "explain_break(uuid, text, numeric)",
    "open_breaks(uuid)",
    "open_breaks_of_lines(uuid)",
    "duplicate_lines(uuid)",
    "match_again(uuid)",
    "rematch_network_files()",
    "refuse_network_file(text, integer, text, text)",
    "find_break(uuid)",
    "work_on_break(uuid, text, text)",
    "close_break(uuid, text, text)",
)
_INLINED: Final = ("line_sign(text)", "folded(text)")  # They name nothing of ours.

# Names in a function with the rights of its owner must not be looked up where its caller says.
_RIGHTS: Final = f"""
DO $$
DECLARE
    path text := format('SET search_path = %I, pg_temp', current_schema());
    name text;
BEGIN
    REVOKE EXECUTE ON FUNCTION {", ".join(_FUNCTIONS)} FROM PUBLIC;
    FOREACH name IN ARRAY
        ARRAY[{", ".join(f"'{name}'" for name in _FUNCTIONS if name not in _INLINED)}]
    LOOP
        EXECUTE format('ALTER FUNCTION %s %s', name, path);
    END LOOP;
END $$
"""


def upgrade() -> None:
    """Create the functions."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    op.execute(_RIGHTS)


def downgrade() -> None:
    """Remove them."""
    op.execute(f"DROP FUNCTION {', '.join(reversed(_FUNCTIONS))}")
