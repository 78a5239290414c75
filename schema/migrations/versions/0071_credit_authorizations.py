"""What is authorized of a credit that the network has not moved yet."""

from typing import Final

from alembic import op

from cardledger.schema.migrations.views import add_to_table_and_view, change_table_below_view

revision = "0071"
down_revision = "0070"

_COMMENT: Final = "Authorized total of a credit, minor units; null: none was ever authorized."

_GRANT: Final = """
DO $$ DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['worker', 'app'] LOOP
        EXECUTE format('GRANT UPDATE (credit_authorized) ON card_transactions TO %I',
            current_database() || '_' || role);
    END LOOP;
END $$
"""

# The release before cannot read these events.
_NONE_IS_AUTHORIZED: Final = """
DO $$ BEGIN
    IF EXISTS (SELECT FROM card_transactions WHERE credit_authorized IS NOT NULL) THEN
        RAISE EXCEPTION 'credits were authorized, which earlier releases cannot read';
    END IF;
END $$
"""


def upgrade() -> None:
    """Add the column; a worker of the previous release leaves it null."""
    add_to_table_and_view(
        "card_transactions",
        "ADD COLUMN credit_authorized BIGINT,"
        " ADD CONSTRAINT card_transactions_credit_authorized_check"
        " CHECK (credit_authorized >= 0) NOT VALID",
    )
    op.execute(f"COMMENT ON COLUMN card_transactions.credit_authorized IS '{_COMMENT}'")
    op.execute(_GRANT)


def downgrade() -> None:
    """Remove it, unless a credit was ever authorized."""
    op.execute(_NONE_IS_AUTHORIZED)
    change_table_below_view(
        "card_transactions",
        "DROP CONSTRAINT card_transactions_credit_authorized_check, DROP COLUMN credit_authorized",
    )
