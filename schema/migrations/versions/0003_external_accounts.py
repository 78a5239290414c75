"""External accounts: bank accounts and wallets outside the service."""

from pathlib import Path

from alembic import op

revision = "0003"
down_revision = "0002"

# Never whose account it is or which one: another account is another row.
UPDATABLE = (
    "status, default_uma_deposit_account, beneficiary_verification_status,"
    " beneficiary_verified_name, updated_at, deleted_at"
)


def upgrade() -> None:
    """Create the table and give the application its rights."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    op.execute(
        "DO $$ DECLARE role text := current_database() || '_app'; BEGIN"
        " EXECUTE format('GRANT SELECT, INSERT ON external_accounts TO %I', role);"
        f" EXECUTE format('GRANT UPDATE ({UPDATABLE}) ON external_accounts TO %I', role);"
        " END $$"
    )


def downgrade() -> None:
    """Remove the table, and the rights with it."""
    op.execute("DROP TABLE external_accounts")
