"""Every platform and currency has the system accounts of payments and conversions.

What an API of the previous release opens after this revision, the engine completes.
"""

from typing import Final

from cardledger.schema.migrations.steps import change_in_pages

revision = "0082"
down_revision = "0081"

_KINDS: Final = "ARRAY['OUTBOUND_CLEARING', 'INBOUND_CLEARING', 'FX']"

# A random UUID, with a bit that keeps it from a reserved ending.
_OPEN_ACCOUNTS: Final = f"""
    INSERT INTO system_accounts (id, platform_id, currency, kind)
    SELECT encode(set_bit(uuid_send(gen_random_uuid()), 115, 1), 'hex')::uuid,
        c.platform_id, c.currency, k.kind
    FROM (SELECT DISTINCT platform_id, currency FROM system_accounts) c
    CROSS JOIN unnest({_KINDS}) AS k (kind)
    WHERE NOT EXISTS (
        SELECT FROM system_accounts s
        WHERE (s.platform_id, s.currency, s.kind) = (c.platform_id, c.currency, k.kind)
    )
    LIMIT 1000
    ON CONFLICT DO NOTHING
"""


_CLOSE_ACCOUNTS: Final = f"""
    DELETE FROM system_accounts WHERE id IN (
        SELECT id FROM system_accounts WHERE kind = ANY({_KINDS}) LIMIT 1000
    )
"""


def upgrade() -> None:
    """Open the accounts that are missing."""
    change_in_pages(_OPEN_ACCOUNTS)


def downgrade() -> None:
    """Remove them: revision 0081 is taken back only while they have no entries."""
    change_in_pages(_CLOSE_ACCOUNTS)
