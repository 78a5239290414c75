"""When what an entry books happened, and the business day in whose books the entry counts."""

from typing import Final

from alembic import op

revision = "0038"
down_revision = "0037"

# First without a default, so that entries from before the columns have none and can be found;
# then with one, for the workers of the previous release, which do not know the columns.
_UP: Final = (
    (
        "ALTER TABLE entries ADD COLUMN occurred_at TIMESTAMP WITH TIME ZONE,"
        " ADD COLUMN posted_on DATE"
    ),
    (
        "ALTER TABLE entries ALTER COLUMN occurred_at SET DEFAULT now(),"
        " ALTER COLUMN posted_on SET DEFAULT (now() AT TIME ZONE 'UTC')::date"
    ),
    (
        "ALTER TABLE entries ADD CONSTRAINT entries_dates_check"
        " CHECK (num_nulls(occurred_at, posted_on) = 0) NOT VALID"
    ),
    (
        "COMMENT ON COLUMN entries.occurred_at IS"
        " 'When what the entry books happened, at the network where it happened there.'"
    ),
    ("COMMENT ON COLUMN entries.posted_on IS 'The business day in whose books the entry counts.'"),
)


def upgrade() -> None:
    """Add the columns; revision 0039 fills them in for older entries."""
    for statement in _UP:
        op.execute(statement)


def downgrade() -> None:
    """Remove them."""
    op.execute("ALTER TABLE entries DROP CONSTRAINT entries_dates_check")
    op.execute("ALTER TABLE entries DROP COLUMN occurred_at, DROP COLUMN posted_on")
