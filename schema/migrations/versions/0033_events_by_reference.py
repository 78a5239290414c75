"""Rejections are found by the reference of their event; tokens have the permission INGEST."""

from typing import Final

from cardledger.schema.migrations.steps import (
    create_index_concurrently,
    drop_index_concurrently,
    execute_alone,
)

revision = "0033"
down_revision = "0032"

_NAME: Final = "rejections_reference_idx"
_SCOPES: Final = "COMMENT ON COLUMN api_tokens.scopes IS '{}'"
_BEFORE: Final = (
    "VIEW, TRANSACT, MANAGE, TOKENS, AGENTS; null: a token of an earlier release, for which"
    " permissions counts: each token has VIEW, and MANAGE includes TOKENS and AGENTS."
)
_AFTER: Final = _BEFORE.replace("AGENTS;", "AGENTS, INGEST;")


def upgrade() -> None:
    """Build the index."""
    create_index_concurrently(_NAME, "rejections (platform_id, md5(reference))")
    execute_alone(_SCOPES.format(_AFTER))


def downgrade() -> None:
    """Drop the index."""
    execute_alone(_SCOPES.format(_BEFORE))
    drop_index_concurrently(_NAME)
