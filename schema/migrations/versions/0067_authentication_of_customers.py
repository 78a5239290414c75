"""Authentication of customers: verified contacts, factors, one-time codes, resets of factors."""

from pathlib import Path
from typing import Final

from alembic import op

from cardledger.schema.migrations.views import create_view

revision = "0067"
down_revision = "0066"

_STATE_COLUMNS: Final = (
    "verified_email, verified_phone, totp_secret, totp_enrolled_at, totp_step, recovery_hashes,"
    " failed_attempts, locked_until, session_expires_at, updated_at"
)

_CHANGED: Final = {
    "customer_authentication": _STATE_COLUMNS,
    "authentication_challenges": "attempts, ended_at",
    "authentication_resets": "status, completed_at",
}
"""The tables, and the columns that change."""

_READ: Final = {
    "customer_authentication": (
        "id, platform_id, verified_email, verified_phone, totp_enrolled_at, totp_step,"
        " failed_attempts, locked_until, session_expires_at, updated_at"
    ),
    "authentication_challenges": (
        "id, platform_id, customer_id, purpose, subject, factor, attempts, created_at, expires_at,"
        " ended_at"
    ),
    "authentication_resets": (
        "id, platform_id, customer_id, factor, status, created_at, expires_at, completed_at"
    ),
}
"""What the reader may see: everything but secrets."""


def upgrade() -> None:
    """Create the tables, and the view of each by which the API sees one platform."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    for table, columns in _CHANGED.items():
        create_view(table, f"SELECT, INSERT, DELETE, UPDATE ({columns})")
        op.execute(
            "DO $$ BEGIN"
            f" EXECUTE format('GRANT SELECT ({_READ[table]}) ON {table} TO %I',"
            " current_database() || '_reader');"
            f" EXECUTE format('GRANT SELECT, INSERT, DELETE, UPDATE ({columns}) ON {table} TO %I',"
            " current_database() || '_app');"
            " END $$"
        )


def downgrade() -> None:
    """Drop them: customers have to verify their contacts and to enrol factors again."""
    for table in reversed(_CHANGED):
        op.execute(
            "DO $$ BEGIN"
            f" EXECUTE format('DROP VIEW %I.{table}', current_schema() || '_api');"
            " END $$"
        )
        op.execute(f"DROP TABLE {table}")
