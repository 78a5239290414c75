"""Limits of tokens: permissions, expiry, addresses; their last use and their former secret."""

from typing import Final

from alembic import op

revision = "0016"
down_revision = "0015"

_COLUMNS: Final = {
    "scopes": (
        "TEXT[]",
        (
            "VIEW, TRANSACT, MANAGE, TOKENS, AGENTS; null: a token of an earlier release, for which"
            " permissions counts: each token has VIEW, and MANAGE includes TOKENS and AGENTS."
        ),
    ),
    "expires_at": ("TIMESTAMP WITH TIME ZONE", "When the token ends; null: never."),
    "allowed_addresses": ("TEXT[]", "Networks of its callers, in CIDR notation; null: any."),
    "former_secret_hash": ("BYTEA", "Hash of the secret before the last rotation, if it counts."),
    "former_secret_until": ("TIMESTAMP WITH TIME ZONE", "Until when the former secret counts."),
    "updated_at": ("TIMESTAMP WITH TIME ZONE", "When its secret was rotated; null: never."),
    "last_used_at": ("TIMESTAMP WITH TIME ZONE", "When it was used, to about a minute."),
}

_UPDATABLE: Final = "secret_hash, former_secret_hash, former_secret_until, updated_at, last_used_at"


_REFUSE_LIMITS: Final = """
DO $$ BEGIN
    IF EXISTS (SELECT FROM api_tokens
               WHERE expires_at IS NOT NULL OR allowed_addresses IS NOT NULL) THEN
        RAISE EXCEPTION 'tokens have expiresAt or allowedAddresses, which earlier releases ignore'
            USING HINT = 'Delete them first with cardledger platform revoke.';
    END IF;
END $$
"""


def upgrade() -> None:
    """Add the columns; null keeps what a token of an earlier release may do."""
    for name, (kind, comment) in _COLUMNS.items():
        op.execute(f"ALTER TABLE api_tokens ADD COLUMN {name} {kind}")
        op.execute(f"COMMENT ON COLUMN api_tokens.{name} IS '{comment}'")
    op.execute(
        "COMMENT ON COLUMN api_tokens.permissions IS"
        " 'VIEW, TRANSACT, MANAGE: what releases before scopes read.'"
    )
    op.execute(
        "DO $$ DECLARE role text := current_database() || '_app'; BEGIN"
        f" EXECUTE format('GRANT UPDATE ({_UPDATABLE}) ON api_tokens TO %I', role); END $$"
    )


def downgrade() -> None:
    """Remove the columns; tokens keep what earlier releases know of their permissions.

    It is refused while there are tokens with limits, which earlier releases would not hold.
    """
    op.execute(_REFUSE_LIMITS)
    op.execute(
        "DO $$ DECLARE role text := current_database() || '_app'; BEGIN"
        " EXECUTE format('REVOKE UPDATE (secret_hash) ON api_tokens FROM %I', role); END $$"
    )
    for name in reversed(_COLUMNS):
        op.execute(f"ALTER TABLE api_tokens DROP COLUMN {name}")
    op.execute("COMMENT ON COLUMN api_tokens.permissions IS 'VIEW, TRANSACT, MANAGE.'")
