"""Statements of the bank: lines, the days of networks that they pay, and proofs."""

from pathlib import Path
from typing import Final

from alembic import op

revision = "0099"
down_revision = "0098"

_APPEND_ONLY: Final = ("bank_lines", "bank_payments", "statement_proofs")
_TABLES: Final = "bank_payments, bank_lines, statement_proofs, bank_statements"

# Names in a function with the rights of its owner must not be looked up where its caller says.
_RIGHTS: Final = f"""
DO $$ BEGIN
    REVOKE EXECUTE ON FUNCTION refuse_unfinished_statement() FROM PUBLIC;
    EXECUTE format('ALTER FUNCTION refuse_unfinished_statement() SET search_path = %I, pg_temp',
        current_schema());
    EXECUTE format('GRANT SELECT ON {_TABLES} TO %I, %I', current_database() || '_app',
        current_database() || '_reader');
END $$
"""

# Lines and payments prove what was booked.
_NOTHING_WAS_BOOKED: Final = """
DO $$ BEGIN
    IF EXISTS (SELECT FROM settlement_bookings WHERE statement_id IS NOT NULL) THEN
        RAISE EXCEPTION 'bank statements have moved money: their entries stay, so do they';
    END IF;
END $$
"""


def upgrade() -> None:
    """Create the tables with their guards."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    for table in _APPEND_ONLY:
        op.execute(
            f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
        )
        op.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER append_only")
    op.execute(_RIGHTS)


def downgrade() -> None:
    """Remove them; refused once a statement books anything."""
    op.execute(_NOTHING_WAS_BOOKED)
    op.execute(f"DROP TABLE {_TABLES}")
    op.execute("DROP FUNCTION refuse_unfinished_statement()")
