"""The MAC of each rejection, without which it is not retried."""

from typing import Final

from alembic import op

revision = "0021"
down_revision = "0020"

_UP: Final = (
    "ALTER TABLE rejections ADD COLUMN mac BYTEA",
    (
        "COMMENT ON COLUMN rejections.mac IS"
        " 'MAC of all other columns by the process that rejected the message; null: written by a"
        " release before schema 0021. Without one it is not retried.'"
    ),
)


def upgrade() -> None:
    """Add the column; roles that insert rejections may write it."""
    for statement in _UP:
        op.execute(statement)


def downgrade() -> None:
    """Remove the column; every rejection is retried as it stands."""
    op.execute("ALTER TABLE rejections DROP COLUMN mac")
