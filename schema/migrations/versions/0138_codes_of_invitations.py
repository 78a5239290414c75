"""The reader does not read the codes of invitations: who has one may claim it."""

from typing import Final

from alembic import op

revision = "0138"
down_revision = "0137"

_CODES: Final = """
DO $$ DECLARE
    reader text := current_database() || '_reader';
BEGIN
    EXECUTE format('REVOKE SELECT ON invitations FROM %I', reader);
    EXECUTE format('GRANT SELECT (id, platform_id, customer_id, inviter_uma, first_name, amount,'
        ' currency, status, invitee_uma, created_at, expires_at, claimed_at) ON invitations TO %I',
        reader);
END $$
"""

_WHOLE: Final = """
DO $$ DECLARE
    reader text := current_database() || '_reader';
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = reader) THEN
        EXECUTE format('REVOKE SELECT (id, platform_id, customer_id, inviter_uma, first_name,'
            ' amount, currency, status, invitee_uma, created_at, expires_at, claimed_at)'
            ' ON invitations FROM %I', reader);
        EXECUTE format('GRANT SELECT ON invitations TO %I', reader);
    END IF;
END $$
"""


def upgrade() -> None:
    """Grant it the other columns only."""
    op.execute(_CODES)


def downgrade() -> None:
    """Grant it the table again."""
    op.execute(_WHOLE)
