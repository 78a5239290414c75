"""The API sees the journal entries of one platform at a time, for statements and the journal."""

from typing import Final

from alembic import op

from cardledger.schema.migrations.views import create_view

revision = "0125"
down_revision = "0120"

# Scalar subqueries, so that each row costs a look-up by key: PostgreSQL would turn EXISTS into a
# hash of all customers. An entry of the platform alone has no customer but a system account; one
# between accounts of the platform is owned by its id.
_PLATFORM: Final = (
    "coalesce((SELECT p.platform_id FROM customers p WHERE p.id = t.customer_id),"
    " (SELECT p.platform_id FROM system_accounts p WHERE p.id = t.debit_account_id),"
    " (SELECT p.platform_id FROM system_accounts p WHERE p.id = t.credit_account_id),"
    " t.customer_id)"
)

_DROP: Final = """
DO $$ BEGIN
    EXECUTE format('DROP VIEW %I.entries', current_schema() || '_api');
END $$
"""


def upgrade() -> None:
    """Create the view."""
    create_view("entries", "SELECT", platform=_PLATFORM)


def downgrade() -> None:
    """Drop it."""
    op.execute(_DROP)
