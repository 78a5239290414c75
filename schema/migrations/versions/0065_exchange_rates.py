"""Exchange rates: of the installation, by its operator; of a platform, in a sandbox."""

from pathlib import Path
from typing import Final

from alembic import op

revision = "0065"
down_revision = "0064"

_TABLES: Final = ("exchange_rates", "platform_exchange_rates")
_EVERY_PLATFORM: Final = "00000000-0000-0000-0000-000000000000"
_QUOTA: Final = 1_000_000

# Who recorded a rate of the installation, and when, is written by the database.
_RIGHTS: Final = """
DO $$ DECLARE
    db text := current_database();
    tables_in text := current_schema();
    views_in text := current_schema() || '_api';
BEGIN
    EXECUTE format('GRANT SELECT ON exchange_rates TO %I, %I, %I, %I',
        db || '_app', db || '_api', db || '_worker', db || '_reader');
    EXECUTE format('GRANT INSERT (id, source_currency, destination_currency, numerator,'
        ' denominator, source) ON exchange_rates TO %I', db || '_app');
    EXECUTE format('GRANT SELECT ON platform_exchange_rates TO %I, %I, %I',
        db || '_app', db || '_worker', db || '_reader');
    EXECUTE format('GRANT INSERT ON platform_exchange_rates TO %I', db || '_app');
    EXECUTE format('CREATE VIEW %I.platform_exchange_rates AS SELECT t.id, t.platform_id,'
        ' t.source_currency, t.destination_currency, t.numerator, t.denominator, t.recorded_at'
        ' FROM %I.platform_exchange_rates t WHERE t.platform_id ='
        ' (SELECT nullif(current_setting(''cardledger.platform_id'', true), '''')::uuid)'
        ' WITH LOCAL CHECK OPTION', views_in, tables_in);
    EXECUTE format('COMMENT ON VIEW %I.platform_exchange_rates IS %L', views_in,
        'The rows of the platform in the setting cardledger.platform_id.');
    EXECUTE format('GRANT SELECT, INSERT ON %I.platform_exchange_rates TO %I, %I',
        views_in, db || '_api', db || '_app');
END $$
"""

_DROP_VIEW: Final = """
DO $$ BEGIN
    EXECUTE format('DROP VIEW %I.platform_exchange_rates', current_schema() || '_api');
END $$
"""


def upgrade() -> None:
    """Create the tables, append-only, and the view of one for one platform."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    for table in _TABLES:
        op.execute(
            f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
        )
        op.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER append_only")
    op.execute(
        "CREATE TRIGGER row_count AFTER INSERT ON platform_exchange_rates"
        " REFERENCING NEW TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION count_rows()"
    )
    op.execute(
        "INSERT INTO row_quotas (platform_id, resource, rows)"
        f" VALUES ('{_EVERY_PLATFORM}', 'platform_exchange_rates', {_QUOTA})"
        " ON CONFLICT DO NOTHING"
    )
    op.execute(_RIGHTS)


def downgrade() -> None:
    """Remove them; what a platform has set counts against its quota all the same."""
    op.execute(_DROP_VIEW)
    op.execute("DROP TABLE platform_exchange_rates")
    op.execute("DROP TABLE exchange_rates")
