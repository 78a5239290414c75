"""Rules are tried one after the other in all files, the nearest date wins, and causes are found."""

import re
from pathlib import Path
from typing import Final

from alembic import op

from cardledger.schema.migrations import finance, functions

revision = "0106"
down_revision = "0105"

_VERSIONS: Final = Path(__file__).parent
_BEFORE: Final = _VERSIONS / "0075_network_matching.sql"

_NEW: Final = (
    "match_files(uuid[])",
    "waiting_files(uuid, boolean)",
    "match_network_file(uuid, boolean, integer)",
    "prove_file(uuid, boolean)",
    "find_events(uuid, text)",
    "match_equal(uuid, boolean)",
    "match_references(uuid, text, boolean)",
    "match_tokens(uuid, text, boolean)",
    "find_card_events(uuid, text)",
    "find_causes(uuid)",
    "open_breaks_of_matches(uuid)",
)
_REPLACED: Final = (
    "match_again(uuid)",
    "rematch_network_files()",
    "match_cards(uuid)",
    "open_breaks(uuid)",
    "duplicate_lines(uuid)",
)
_MATCHING: Final = "match_network_file(uuid, boolean)"
_LINES: Final = "open_breaks_of_lines(uuid)"

# Another revision may have changed other parts of the function: only the cause is.
_CAUSE: Final = (
    "                ORDER BY r.recorded_at DESC LIMIT 1\n            ), 'NO_EVENT') END,",
    (
        "                ORDER BY r.recorded_at DESC LIMIT 1\n            ),"
        " (SELECT s.cause FROM line_causes s WHERE s.line = k.line), 'NO_EVENT') END,"
    ),
)


def upgrade() -> None:
    """Create and replace the functions."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    # A rejected text is read as the views for finance do.
    finance.run((_VERSIONS / "0106_causes.sql").read_text(encoding="utf-8"))
    for signature in (*_NEW, *_REPLACED, _MATCHING):
        functions.protect(signature)
    functions.change(_LINES, *_CAUSE)


def downgrade() -> None:
    """Put back those of revisions 0075 and 0094."""
    functions.change(_LINES, *reversed(_CAUSE))
    for signature in _REPLACED:
        op.execute(_function(signature.partition("(")[0]))
        functions.protect(signature)
    matching = _function("match_network_file")
    op.execute(matching.replace("add_events(zone)", "add_events(zone, f.network)"))
    functions.protect(_MATCHING)
    op.execute(f"DROP FUNCTION {', '.join(reversed(_NEW))}")


def _function(name: str) -> str:
    statements = _BEFORE.read_text(encoding="utf-8")
    found = re.search(rf"CREATE FUNCTION {name}\(.*?END \$body\$;\n", statements, re.DOTALL)
    assert found is not None, name
    return found[0].replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1)
