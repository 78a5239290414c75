"""Seals are computed in the database, and what is in the way of closing is what can be cleared."""

import re
from pathlib import Path
from typing import Final

from alembic import op

from cardledger.schema.migrations import finance, functions

revision = "0108"
down_revision = "0107"

_VERSIONS: Final = Path(__file__).parent
_DEFINITION: Final = re.compile(r"FUNCTION closing_findings\(.*?\nEND;", re.DOTALL)

# What two people have resolved does not wait any more; its message is applied if its event comes.
_PARKED: Final = (
    "finance.json_or_null(p.body::text) FROM parked p\n",
    """finance.json_or_null(p.body::text) FROM parked p
        WHERE NOT EXISTS (
            SELECT FROM suspense_items i
            WHERE i.id = p.id AND i.customer_id = p.customer_id AND i.resolved_at IS NOT NULL
        )
""",
)
# The events of a day name its cycles; a file without one is of the whole day.
_MISSING: Final = (
    (
        "SELECT 'MISSING_FILE', count(*), format(",
        "SELECT 'MISSING_FILE', count(DISTINCT n.day), format(",
    ),
    (
        "to_char(min(n.day), 'YYYY-MM-DD'))\n",
        (
            "to_char(min(n.day), 'YYYY-MM-DD'))\n        || coalesce("
            "', cycle ' || (array_agg(n.cycle ORDER BY n.day, n.cycle NULLS FIRST))[1], '')\n"
        ),
    ),
    ("d.day::date AS day\n", "d.day::date AS day, NULL::text AS cycle\n"),
    (
        "SELECT x.platform_id, x.network, x.settlement_date\n",
        "SELECT x.platform_id, x.network, x.settlement_date, x.cycle\n",
    ),
    (
        "            AND f.settlement_date = n.day\n    )",
        "            AND f.settlement_date = n.day AND coalesce(f.cycle = n.cycle, true)\n    )",
    ),
)

_CLOSED: Final = "    ELSIF to_day < open_day THEN\n"
_BEFORE: Final = """    ELSIF to_day < open_day AND NOT EXISTS (
        SELECT FROM closings c
        WHERE c.kind = 'CLOSE' AND c.state IN ('APPROVED', 'SEALED') AND c.last_day >= to_day
    ) THEN
        RAISE EXCEPTION '% is before the first day of the books, %: there is nothing to close',
            period, (SELECT least(min(c.first_day), open_day) FROM closings c
                WHERE c.kind = 'CLOSE' AND c.state IN ('APPROVED', 'SEALED'))
            USING ERRCODE = 'CL002';
"""
_PREPARING: Final = "prepare_closing(date, date, jsonb)"

_COUNTED: Final = "    INSERT INTO seals (closing_id,"
_CHECKED: Final = """    IF columns_version <> 1 THEN
        RAISE EXCEPTION 'a seal has version 1 of its columns' USING ERRCODE = 'CL002';
    ELSIF counted <= 250000 AND digest IS DISTINCT FROM entries_sha256(c.first_day, c.last_day) THEN
        RAISE EXCEPTION 'the SHA-256 is not that of the entries of % to %', c.first_day, c.last_day
            USING ERRCODE = 'CL002';
    END IF;
"""
_SEALING: Final = "seal_closing(uuid, integer, text, bigint)"


def upgrade() -> None:
    """Create and change the functions."""
    finance.run(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    functions.protect("entries_sha256(date, date)")
    functions.change(_PREPARING, _CLOSED, _BEFORE + _CLOSED)
    functions.change(_SEALING, _COUNTED, _CHECKED + _COUNTED)
    finance.run(f"CREATE OR REPLACE {_findings(is_changed=True)}")


def downgrade() -> None:
    """Put back what was."""
    finance.run(f"CREATE OR REPLACE {_findings(is_changed=False)}")
    functions.change(_SEALING, _CHECKED, "")
    functions.change(_PREPARING, _BEFORE, "")
    op.execute("DROP FUNCTION entries_sha256(date, date)")


def _findings(*, is_changed: bool) -> str:
    """Return the newest definition before this revision, with its changes or as it was."""
    texts = (
        path.read_text(encoding="utf-8")
        for path in sorted(_VERSIONS.glob("*.sql"), reverse=True)
        if path.name < revision
    )
    found = next(match[0] for match in map(_DEFINITION.search, texts) if match)
    if is_changed:
        for was, becomes in (_PARKED, *_MISSING):
            assert was in found, was
            found = found.replace(was, becomes)
    return found
