"""Lines match events of their network; events are made by two people, with a known source."""

import re
from pathlib import Path
from typing import Final

from alembic import op

revision = "0094"
down_revision = "0093"

_VERSIONS: Final = Path(__file__).parent
_MATCHING: Final = (_VERSIONS / "0075_network_matching.sql").read_text(encoding="utf-8")
_MAKING: Final = (_VERSIONS / "0078_events_of_lines.sql").read_text(encoding="utf-8")

_ADDING: Final = (
    "        WHERE NOT EXISTS (\n",
    "        WHERE coalesce(x.network = add_events.network, true) AND NOT EXISTS (\n",
)

_NOTE: Final = "    ELSIF coalesce(length(btrim(words)), 0)"
_IMPORTER: Final = """    ELSIF f.imported_by = session_user THEN
        RAISE EXCEPTION 'an event is made of a line by another person than the one who imported'
            ' its file, %', f.imported_by USING ERRCODE = 'object_not_in_prerequisite_state';
"""
# A sample is enough to see that there are several: a million lines may be matched.
_SOURCE: Final = """    SELECT array_agg(DISTINCT o.source) INTO senders
    FROM (
        SELECT g.id FROM network_files g
        WHERE g.platform_id = f.platform_id AND g.network = f.network
        ORDER BY g.id <> f.id, abs(g.settlement_date - f.settlement_date), g.id LIMIT 10
    ) g
    CROSS JOIN LATERAL (
        SELECT s.* FROM line_matches s WHERE s.file_id = g.id ORDER BY s.line LIMIT 200
    ) m
    JOIN card_transaction_events e ON e.card_transaction_id = m.card_transaction_id
        AND e.sequence = m.sequence AND e.customer_id = m.customer_id
    JOIN outcomes o ON o.message_id = e.message_id AND o.customer_id = e.customer_id
    WHERE n.reference IS NOT NULL AND o.source <> 'network-file';
    IF n.reference IS NOT NULL AND coalesce(cardinality(senders), 0) <> 1 THEN
        RAISE EXCEPTION 'there are % of network % in files: the source of line % is not known,'
            ' and its event would be applied again when the sender repeats it; submit it, then'
            ' `cardledger reconcile --rematch`',
            CASE WHEN senders IS NULL THEN 'no events' ELSE 'events of several sources' END,
            f.network, n.line USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
"""


def upgrade() -> None:
    """Replace the functions."""
    adding = _function(_MATCHING, "add_events")
    adding = _changed(adding, "(zone text)", "(zone text, network text)")
    _create(_changed(adding, *_ADDING), "add_events(text, text)")
    matching = _function(_MATCHING, "match_network_file")
    _create(
        _changed(matching, "add_events(zone)", "add_events(zone, f.network)"),
        "match_network_file(uuid, boolean)",
    )
    # The function that matching used before stays, for a release that goes back to it.
    making = _function(_MAKING, "make_event_of_break")
    making = _changed(making, _NOTE, _IMPORTER + _NOTE)
    making = _changed(making, "    sender text;\n", "    senders text[];\n")
    making = _changed(making, "coalesce(sender, ", "coalesce(senders[1], ")
    finding = re.compile(r"    SELECT o\.source INTO sender\n.*?LIMIT 1;\n", re.DOTALL)
    making, count = finding.subn(lambda _: _SOURCE, making)
    assert count == 1
    _create(making, "make_event_of_break(uuid, text)")


def downgrade() -> None:
    """Put back those of revisions 0075 and 0078."""
    _create(_function(_MATCHING, "match_network_file"), "match_network_file(uuid, boolean)")
    op.execute("DROP FUNCTION add_events(text, text)")
    _create(_function(_MAKING, "make_event_of_break"), "make_event_of_break(uuid, text)")


def _function(statements: str, name: str) -> str:
    found = re.search(rf"CREATE FUNCTION {name}\(.*?END \$body\$;\n", statements, re.DOTALL)
    assert found is not None
    return found[0].replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1)


def _changed(text: str, before: str, after: str) -> str:
    assert before in text
    return text.replace(before, after)


def _create(statement: str, signature: str) -> None:
    op.execute(statement)
    op.execute(f"""
DO $$ BEGIN
    REVOKE EXECUTE ON FUNCTION {signature} FROM PUBLIC;
    EXECUTE format('ALTER FUNCTION {signature} SET search_path = %I, pg_temp', current_schema());
END $$
""")
