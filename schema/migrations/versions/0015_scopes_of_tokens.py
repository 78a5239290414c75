"""Permissions of tokens in a column of their own, which earlier releases do not read."""

from alembic import op

revision = "0015"
down_revision = "0013"


def upgrade() -> None:
    """Add the column; null keeps what a token of an earlier release may do."""
    op.execute("ALTER TABLE api_tokens ADD COLUMN scopes TEXT[]")
    op.execute(
        "COMMENT ON COLUMN api_tokens.scopes IS"
        " 'VIEW, TRANSACT, MANAGE, TOKENS, AGENTS; null: a token of an earlier release, for which"
        " permissions counts: each token has VIEW, and MANAGE includes TOKENS and AGENTS.'"
    )
    op.execute(
        "COMMENT ON COLUMN api_tokens.permissions IS"
        " 'VIEW, TRANSACT, MANAGE: what releases before scopes read.'"
    )


def downgrade() -> None:
    """Remove the column; tokens keep what earlier releases know of their permissions."""
    op.execute("ALTER TABLE api_tokens DROP COLUMN scopes")
    op.execute("COMMENT ON COLUMN api_tokens.permissions IS 'VIEW, TRANSACT, MANAGE.'")
