"""The platform of each parked event, so that a platform sees its own.

A trigger fills it in, also for the workers of the previous release: they do not know the column.
"""

from typing import Final

from alembic import op

revision = "0030"
down_revision = "0029"

_UP: Final = (
    "ALTER TABLE parked ADD COLUMN platform_id UUID",
    "COMMENT ON COLUMN parked.platform_id IS 'The platform of the card; written by a trigger.'",
    """
    CREATE FUNCTION fill_platform() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        SELECT platform_id INTO NEW.platform_id FROM cards
        WHERE id = NEW.card_id AND customer_id = NEW.customer_id;
        RETURN NEW;
    END $$
    """,
    (
        "CREATE TRIGGER platform BEFORE INSERT ON parked"
        " FOR EACH ROW WHEN (NEW.platform_id IS NULL) EXECUTE FUNCTION fill_platform()"
    ),
)

_VIEW: Final = """
DO $$ DECLARE
    tables_in text := current_schema();
    views_in text := current_schema() || '_api';
BEGIN
    EXECUTE format('ALTER FUNCTION fill_platform() SET search_path = %I, pg_temp', tables_in);
    EXECUTE format('CREATE VIEW %I.parked AS SELECT t.id, t.customer_id, t.card_id,'
        ' t.issuer_transaction_token, t.body, t.received_at, t.platform_id FROM %I.parked t'
        ' WHERE t.platform_id ='
        ' (SELECT nullif(current_setting(''cardledger.platform_id'', true), '''')::uuid)'
        ' WITH LOCAL CHECK OPTION', views_in, tables_in);
    EXECUTE format('COMMENT ON VIEW %I.parked IS %L', views_in,
        'The rows of the platform in the setting cardledger.platform_id.');
    EXECUTE format('GRANT SELECT ON %I.parked TO %I, %I',
        views_in, current_database() || '_api', current_database() || '_app');
END $$
"""

_DROP_VIEW: Final = """
DO $$ BEGIN
    EXECUTE format('DROP VIEW %I.parked', current_schema() || '_api');
END $$
"""


def upgrade() -> None:
    """Add the column with its trigger, and the view for one platform."""
    for statement in (*_UP, _VIEW):
        op.execute(statement)


def downgrade() -> None:
    """Remove them."""
    op.execute(_DROP_VIEW)
    op.execute("DROP TRIGGER platform ON parked")
    op.execute("DROP FUNCTION fill_platform()")
    op.execute("ALTER TABLE parked DROP COLUMN platform_id")
