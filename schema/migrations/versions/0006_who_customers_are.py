"""Who customers are: tax numbers, owners of businesses, verifications; more platform settings."""

from pathlib import Path

from alembic import op

revision = "0006"
down_revision = "0005"

PLATFORM_COLUMNS = (
    "currency_settings",
    "uma_domain",
    "embedded_wallet_config",
    "card_tokenization_2fa_config",
    "fee_configs",
)
CUSTOMER_COLUMNS = (
    "id_type",
    "identifier",
    "country_of_issuance",
    "due_diligence",
    "end_user_terms_consent",
)
# Never whose they are: another owner is another row. What was decided stays decided only by rule.
UPDATABLE = {
    "platforms": PLATFORM_COLUMNS,
    "customers": CUSTOMER_COLUMNS,
    "beneficial_owners": (
        "roles",
        "ownership_percentage",
        "personal_info",
        "identifier",
        "kyc_status",
        "updated_at",
    ),
    "verifications": ("status", "errors", "updated_at"),
}


def upgrade() -> None:
    """Create tables and columns, and give the application its rights."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    op.execute(
        "DO $$ DECLARE role text := current_database() || '_app'; BEGIN"
        " EXECUTE format('GRANT SELECT, INSERT ON beneficial_owners, verifications TO %I', role);"
        + "".join(
            f" EXECUTE format('GRANT UPDATE ({', '.join(columns)}) ON {table} TO %I', role);"
            for table, columns in UPDATABLE.items()
        )
        + " END $$"
    )


def downgrade() -> None:
    """Remove them, and the rights with them."""
    op.execute("DROP TABLE beneficial_owners, verifications")
    for table, columns in {"platforms": PLATFORM_COLUMNS, "customers": CUSTOMER_COLUMNS}.items():
        drops = ", ".join(f"DROP COLUMN {column}" for column in columns)
        op.execute(f"ALTER TABLE {table} {drops}")
