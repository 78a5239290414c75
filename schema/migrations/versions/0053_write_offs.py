"""What the operator has written off of the amount that a card transaction owes."""

from typing import Final

from alembic import op

from cardledger.schema.migrations.views import add_to_table_and_view, change_table_below_view

revision = "0053"
down_revision = "0052"

_COLUMNS: Final = "written_off, debits_written_off"

_COMMENTS: Final = {
    "written_off": "Written off as a loss of what was owed, less what came back, minor units.",
    "debits_written_off": "Part of `written_off` that was of `unpaid`, minor units.",
}

_GRANT: Final = f"""
DO $$ DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['worker', 'app'] LOOP
        EXECUTE format('GRANT UPDATE ({_COLUMNS}) ON card_transactions TO %I',
            current_database() || '_' || role);
    END LOOP;
END $$
"""

# The release before cannot read these events, and would collect again what is written off.
_NONE_IS_WRITTEN_OFF: Final = """
DO $$ BEGIN
    IF EXISTS (SELECT FROM card_transaction_events WHERE kind = 'WRITTEN_OFF') THEN
        RAISE EXCEPTION 'amounts were written off, which earlier releases cannot read';
    END IF;
END $$
"""


def upgrade() -> None:
    """Add the columns; a worker of the previous release leaves them 0."""
    add_to_table_and_view(
        "card_transactions",
        "ADD COLUMN written_off BIGINT DEFAULT 0 NOT NULL,"
        " ADD COLUMN debits_written_off BIGINT DEFAULT 0 NOT NULL,"
        " ADD CONSTRAINT card_transactions_written_off_check"
        " CHECK (debits_written_off BETWEEN 0 AND written_off) NOT VALID",
    )
    for column, comment in _COMMENTS.items():
        op.execute(f"COMMENT ON COLUMN card_transactions.{column} IS '{comment}'")
    op.execute(_GRANT)


def downgrade() -> None:
    """Remove them, unless an amount was ever written off."""
    op.execute(_NONE_IS_WRITTEN_OFF)
    change_table_below_view(
        "card_transactions",
        "DROP CONSTRAINT card_transactions_written_off_check,"
        " DROP COLUMN written_off, DROP COLUMN debits_written_off",
    )
