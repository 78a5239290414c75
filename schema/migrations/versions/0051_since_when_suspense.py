"""From when on `verify` expects each rejected or parked movement to be an item of SUSPENSE."""

from typing import Final

from alembic import op

revision = "0051"
down_revision = "0050"

# Workers of the previous release run on beside this schema for a while, and make no items. A new
# installation has none of them.
_ADD: Final = """
DO $$ BEGIN
    EXECUTE format('ALTER TABLE books ADD COLUMN suspense_since TIMESTAMP WITH TIME ZONE'
        ' DEFAULT %L NOT NULL',
        now() + CASE WHEN EXISTS (SELECT FROM outcomes) THEN interval '1 day' ELSE '0' END);
END $$
"""


def upgrade() -> None:
    """Add the time: a day from now where messages were decided before."""
    op.execute(_ADD)
    op.execute("ALTER TABLE books ALTER COLUMN suspense_since SET DEFAULT now()")
    op.execute(
        "COMMENT ON COLUMN books.suspense_since IS 'From when on each movement of the network that"
        " is rejected or parked has a row in suspense_items.'"
    )


def downgrade() -> None:
    """Remove it."""
    op.execute("ALTER TABLE books DROP COLUMN suspense_since")
