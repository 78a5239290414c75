"""Quotes, and the look-up of a UMA address among the customers of all platforms."""

from pathlib import Path
from typing import Final

from alembic import op

revision = "0086"
down_revision = "0085"

_EVERY_PLATFORM: Final = "00000000-0000-0000-0000-000000000000"
_QUOTA: Final = 50_000_000

# Names in a function with the rights of its owner must not be looked up where its caller says.
_RIGHTS: Final = """
DO $$ DECLARE
    db text := current_database();
    tables_in text := current_schema();
    views_in text := current_schema() || '_api';
    changed text := 'UPDATE (status, executed_at, updated_at)';
BEGIN
    EXECUTE format('GRANT SELECT ON quotes TO %I, %I, %I',
        db || '_app', db || '_worker', db || '_reader');
    EXECUTE format('GRANT INSERT, %s, DELETE ON quotes TO %I', changed, db || '_app');
    EXECUTE format('GRANT UPDATE (status, updated_at), DELETE ON quotes TO %I', db || '_worker');
    EXECUTE format('CREATE VIEW %I.quotes AS SELECT'
        ' t.id, t.platform_id, t.customer_id, t.agent_id, t.status, t.transaction_id,'
        ' t.source_account_id, t.is_funded, t.crypto_network, t.destination_account_id,'
        ' t.is_external, t.uma_address, t.peer_id, t.peer_platform_id, t.payment_rail,'
        ' t.rail_selection, t.sending_currency, t.receiving_currency, t.locked_side,'
        ' t.sending_amount, t.receiving_amount, t.fee_amount, t.fee_fixed, t.fee_bps,'
        ' t.rate_numerator, t.rate_denominator, t.executes_at_once, t.description,'
        ' t.remittance_information, t.purpose_of_payment, t.sender_information,'
        ' t.created_at, t.expires_at, t.executed_at, t.updated_at'
        ' FROM %I.quotes t WHERE t.platform_id ='
        ' (SELECT nullif(current_setting(''cardledger.platform_id'', true), '''')::uuid)'
        ' WITH LOCAL CHECK OPTION', views_in, tables_in);
    EXECUTE format('COMMENT ON VIEW %I.quotes IS %L', views_in,
        'The rows of the platform in the setting cardledger.platform_id.');
    EXECUTE format('GRANT SELECT, INSERT, %s ON %I.quotes TO %I, %I',
        changed, views_in, db || '_api', db || '_app');
    REVOKE EXECUTE ON FUNCTION uma_receiver(text) FROM PUBLIC;
    EXECUTE format('ALTER FUNCTION uma_receiver(text) SET search_path = %I, pg_temp', tables_in);
    EXECUTE format('GRANT EXECUTE ON FUNCTION uma_receiver(text) TO %I, %I',
        db || '_api', db || '_app');
END $$
"""

_DROP_VIEW: Final = """
DO $$ BEGIN
    EXECUTE format('DROP VIEW %I.quotes', current_schema() || '_api');
END $$
"""


def upgrade() -> None:
    """Create the table with its view for one platform, and the function."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    op.execute(
        "CREATE TRIGGER row_count AFTER INSERT ON quotes"
        " REFERENCING NEW TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION count_rows()"
    )
    op.execute(
        "INSERT INTO row_quotas (platform_id, resource, rows)"
        f" VALUES ('{_EVERY_PLATFORM}', 'quotes', {_QUOTA}) ON CONFLICT DO NOTHING"
    )
    op.execute(_RIGHTS)


def downgrade() -> None:
    """Remove them; the quotes of a platform count against its quota all the same."""
    op.execute("DROP FUNCTION uma_receiver(text)")
    op.execute(_DROP_VIEW)
    op.execute("DROP TABLE quotes")
