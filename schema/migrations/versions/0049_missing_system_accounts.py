"""Every platform and currency has all system accounts, whichever release has opened them.

An API of a release before schema 0039 that runs beside the new schema opens a platform with the
kinds that it knows. What such an API opens after this revision, the engine completes.
"""

from typing import Final

from cardledger.schema.migrations.steps import change_in_pages

revision = "0049"
down_revision = "0047"

_KINDS: Final = "ARRAY['SETTLEMENT_BANK', 'SUSPENSE', 'INTERCHANGE', 'NETWORK_FEES']"

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


def upgrade() -> None:
    """Open the accounts that are missing."""
    change_in_pages(_OPEN_ACCOUNTS)


def downgrade() -> None:
    """Leave them: revision 0039 has opened others of their kinds."""
