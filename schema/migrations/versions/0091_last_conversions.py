"""The last conversion of a card transaction, beside its totals."""

from typing import Final

from alembic import op

from cardledger.schema.migrations.views import add_to_table_and_view, change_table_below_view

revision = "0091"
down_revision = "0090"

_COMMENTS: Final = {
    "merchant_amount": "Of its last conversion (`conversion_details`); null: it has none.",
    "merchant_currency": "Of its last conversion.",
    "billing_amount": "Of its last conversion.",
    "conversion_rate": "Of its last conversion.",
}

_GRANT: Final = f"""
DO $$ DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['worker', 'app'] LOOP
        EXECUTE format('GRANT UPDATE ({", ".join(_COMMENTS)}) ON card_transactions TO %I',
            current_database() || '_' || role);
    END LOOP;
END $$
"""


def upgrade() -> None:
    """Add the columns; a worker of the previous release leaves them null."""
    add_to_table_and_view(
        "card_transactions",
        "ADD COLUMN merchant_amount BIGINT, ADD COLUMN merchant_currency TEXT,"
        " ADD COLUMN billing_amount BIGINT, ADD COLUMN conversion_rate NUMERIC(24, 12),"
        " ADD CONSTRAINT card_transactions_conversion_check CHECK (num_nulls(merchant_amount,"
        " merchant_currency, billing_amount, conversion_rate) IN (0, 4)) NOT VALID",
    )
    for column, comment in _COMMENTS.items():
        op.execute(f"COMMENT ON COLUMN card_transactions.{column} IS '{comment}'")
    op.execute(_GRANT)


def downgrade() -> None:
    """Remove them."""
    columns = ", ".join(f"DROP COLUMN {column}" for column in _COMMENTS)
    change_table_below_view(
        "card_transactions", f"DROP CONSTRAINT card_transactions_conversion_check, {columns}"
    )
