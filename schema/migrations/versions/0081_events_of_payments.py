"""Events of payments, and the system accounts that they use in the chart of accounts."""

from pathlib import Path
from typing import Final

from alembic import op

revision = "0081"
down_revision = "0080"

_RIGHTS: Final = """
DO $$ DECLARE
    app text := current_database() || '_app';
    worker text := current_database() || '_worker';
BEGIN
    EXECUTE format('GRANT SELECT, INSERT ON transfer_events TO %I, %I', app, worker);
    EXECUTE format('GRANT SELECT ON transfer_events TO %I', current_database() || '_reader');
END $$
"""

_COMMENTS: Final = {
    "system_accounts.kind": (
        "Account of the chart (`chart_of_accounts`, which has its class): CARD_HOLDS,"
        " NETWORK_SETTLEMENT, RECEIVABLE, SANDBOX_FUNDING, OPERATOR_LOSS, SETTLEMENT_BANK,"
        " SUSPENSE, INTERCHANGE, NETWORK_FEES; TRANSFERS: in transit between two accounts;"
        " OUTBOUND_CLEARING, INBOUND_CLEARING: payments in flight; FX: conversions."
    ),
    "entries.sequence": (
        "Event of the card transaction or payment; 0 for a deposit or a transfer between two"
        " accounts of one owner; of an item of suspense 0: booked, 1: taken back."
    ),
}
_FORMER_COMMENTS: Final = {
    "system_accounts.kind": (
        "Account of the chart (`chart_of_accounts`, which has its class): CARD_HOLDS,"
        " NETWORK_SETTLEMENT, RECEIVABLE, SANDBOX_FUNDING, OPERATOR_LOSS, SETTLEMENT_BANK,"
        " SUSPENSE, INTERCHANGE, NETWORK_FEES; TRANSFERS: clearing account, zero after every"
        " transfer."
    ),
    "entries.sequence": (
        "Event of the card transaction; 0 for a deposit or a transfer; of an item of suspense 0:"
        " booked, 1: taken back."
    ),
}

_NOTHING_WAS_BOOKED: Final = """
DO $$ BEGIN
    IF EXISTS (SELECT FROM transfer_events) THEN
        RAISE EXCEPTION 'payments have events: their entries stay, so do they';
    END IF;
END $$
"""


def upgrade() -> None:
    """Create the table, and add to the chart."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    op.execute(_RIGHTS)
    _comment(_COMMENTS)


def downgrade() -> None:
    """Remove the table; refused once a payment has an event. A chart may have unused kinds."""
    op.execute(_NOTHING_WAS_BOOKED)
    op.execute("DROP TABLE transfer_events")
    _comment(_FORMER_COMMENTS)


def _comment(comments: dict[str, str]) -> None:
    for column, text in comments.items():
        op.execute(f"COMMENT ON COLUMN {column} IS '{text}'")
