"""When an external account was trusted by its customer."""

from alembic import op

from cardledger.schema.migrations.views import add_to_table_and_view, change_table_below_view

revision = "0068"
down_revision = "0067"


def upgrade() -> None:
    """Add the column to the table and to its view, and let the API change it."""
    add_to_table_and_view("external_accounts", "ADD COLUMN trusted_at TIMESTAMP WITH TIME ZONE")
    op.execute(
        "COMMENT ON COLUMN external_accounts.trusted_at IS"
        " 'When its customer trusted it by strong authentication; null: it is not trusted.'"
    )
    op.execute("""
        DO $$ DECLARE
            views_in text := current_schema() || '_api';
            api text := current_database() || '_api';
            app text := current_database() || '_app';
            reader text := current_database() || '_reader';
        BEGIN
            EXECUTE format('GRANT UPDATE (trusted_at) ON %I.external_accounts TO %I, %I',
                views_in, api, app);
            EXECUTE format('GRANT UPDATE (trusted_at) ON external_accounts TO %I', app);
            EXECUTE format('GRANT SELECT (trusted_at) ON external_accounts TO %I', reader);
        END $$
    """)


def downgrade() -> None:
    """Remove the column: no account is trusted any more."""
    change_table_below_view("external_accounts", "DROP COLUMN trusted_at")
