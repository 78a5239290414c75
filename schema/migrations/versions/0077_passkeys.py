"""Passkeys of customers, and the challenge of a passkey that is open."""

from pathlib import Path
from typing import Final

from alembic import op

from cardledger.schema.migrations.views import create_view

revision = "0077"
down_revision = "0076"

_CHANGED: Final = (
    "credential_id, credential, sign_count, enrolled_at, challenge_id, challenge,"
    " challenge_purpose, challenge_subject, challenge_expires_at, updated_at"
)
_RIGHTS: Final = f"SELECT, INSERT, DELETE, UPDATE ({_CHANGED})"


def upgrade() -> None:
    """Create the table, and the view by which the API sees one platform."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    create_view("authentication_passkeys", _RIGHTS)
    op.execute(
        "DO $$ BEGIN"
        " EXECUTE format('GRANT SELECT ON authentication_passkeys TO %I',"
        " current_database() || '_reader');"
        f" EXECUTE format('GRANT {_RIGHTS} ON authentication_passkeys TO %I',"
        " current_database() || '_app');"
        " END $$"
    )


def downgrade() -> None:
    """Drop them: passkeys have to be enrolled again."""
    op.execute(
        "DO $$ BEGIN"
        " EXECUTE format('DROP VIEW %I.authentication_passkeys', current_schema() || '_api');"
        " END $$"
    )
    op.execute("DROP TABLE authentication_passkeys")
