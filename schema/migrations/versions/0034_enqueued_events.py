"""Events that a program enqueues in its own database transaction, and their outcomes, by SQL."""

import json
from pathlib import Path
from typing import Final

from alembic import op

from cardledger.schema.wire.common import CURRENCIES

revision = "0034"
down_revision = "0033"

# The detail of a repetition, as `ledger.messaging.timeout_reversals` has it.
_TIMED_OUT: Final = (
    "The authorization was approved, and reversed because the approval could not be reported"
    " before decideBy."
)

# Names in a function with the rights of its owner must not be looked up where its caller says.
_RIGHTS: Final = """
DO $$
DECLARE
    submit text := current_database() || '_submit';
    app text := current_database() || '_app';
    path text := format('SET search_path = %I, pg_temp', current_schema());
BEGIN
    REVOKE EXECUTE ON FUNCTION refuse_loss(), enqueue(jsonb, text), outcome(text, text),
        card_transaction_json(uuid) FROM PUBLIC;
    EXECUTE format('ALTER FUNCTION refuse_loss() %s', path);
    EXECUTE format('ALTER FUNCTION enqueue(jsonb, text) %s', path);
    EXECUTE format('ALTER FUNCTION outcome(text, text) %s', path);
    EXECUTE format('GRANT EXECUTE ON FUNCTION enqueue(jsonb, text), outcome(text, text) TO %I, %I',
        submit, app);
    EXECUTE format('GRANT SELECT ON enqueued_events TO %I, %I, %I', app,
        current_database() || '_worker', current_database() || '_reader');
    -- For readiness: how many wait, and since when.
    EXECUTE format('GRANT SELECT (lane, position, enqueued_at) ON enqueued_events TO %I',
        current_database() || '_api');
    EXECUTE format('GRANT SELECT ON enqueued_events_progress TO %I, %I, %I, %I', app,
        current_database() || '_worker', current_database() || '_reader',
        current_database() || '_api');
    EXECUTE format('GRANT UPDATE (begins_at, last_position, mark, settled_by, updated_at)'
        ' ON enqueued_events_progress TO %I, %I', app, current_database() || '_worker');
    EXECUTE format('GRANT SELECT ON SEQUENCE enqueued_events_position_seq TO %I, %I', app,
        current_database() || '_worker');
    EXECUTE format('GRANT DELETE ON enqueued_events TO %I, %I', app,
        current_database() || '_worker');
END $$
"""

# The former way to submit, which a new database does not give any more.
_FORMER_RIGHT: Final = """
DO $$ BEGIN
    EXECUTE format('GRANT INSERT ON inbox TO %I', current_database() || '_submit');
END $$
"""

_NONE_WAITS: Final = """
DO $$ BEGIN
    IF EXISTS (SELECT FROM enqueued_events) THEN
        RAISE EXCEPTION 'events wait in enqueued_events; downgrade when workers have moved them';
    END IF;
END $$
"""


def upgrade() -> None:
    """Create the table, its guards and the functions, and grant their use."""
    statements = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    currencies = json.dumps({code: info.wire() for code, info in CURRENCIES.items()})
    op.execute(
        statements.replace("__CURRENCIES__", currencies).replace("__TIMED_OUT__", _TIMED_OUT)
    )
    op.execute(_RIGHTS)


def downgrade() -> None:
    """Remove them, once nothing waits."""
    # It waits for programs that have enqueued events and not committed them, and keeps others out.
    op.execute("DROP TRIGGER loss ON enqueued_events")
    op.execute(_NONE_WAITS)
    op.execute("DROP FUNCTION outcome(text, text)")
    op.execute("DROP FUNCTION card_transaction_json(uuid)")
    op.execute("DROP FUNCTION enqueue(jsonb, text)")
    op.execute("DROP TABLE enqueued_events, enqueued_events_progress")
    op.execute("DROP FUNCTION refuse_loss()")
    op.execute(_FORMER_RIGHT)
