"""Rotation of the server key: a table of the keys, and rights to seal secrets again."""

from typing import Final

from alembic import op

revision = "0018"
down_revision = "0017"

_TABLE: Final = """
CREATE TABLE server_keys (
    header BYTEA NOT NULL,
    card_key BYTEA NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT server_keys_pkey PRIMARY KEY (header)
);
COMMENT ON TABLE server_keys IS
    'Server keys to which the secrets of this installation were rotated, append-only.';
COMMENT ON COLUMN server_keys.header IS
    'The first five bytes of what this server key seals: the format and the id of the key.';
COMMENT ON COLUMN server_keys.card_key IS
    'Key that card numbers are derived from, encrypted with this server key.';
COMMENT ON COLUMN server_keys.created_at IS 'Time of the rotation.';
"""

# What a rotation seals again. Values are authenticated with the server key, so a change by the
# application's role is noticed.
_SEALED: Final = {"platforms": "signing_key, webhook_secret", "webhook_signing_keys": "private_key"}


def upgrade() -> None:
    """Create the table; let the commands' role seal what it could only insert so far."""
    op.execute(_TABLE)
    grants = ["GRANT SELECT, INSERT ON server_keys"]
    grants += [f"GRANT UPDATE ({columns}) ON {table}" for table, columns in _SEALED.items()]
    _for_role("app", *(f"{grant} TO %I" for grant in grants))
    _for_role("api", "GRANT SELECT ON server_keys TO %I")  # It shows card numbers.
    _for_role("reader", "GRANT SELECT (header, created_at) ON server_keys TO %I")


def downgrade() -> None:
    """Remove both. The card numbers of a sandbox change if the server key has been rotated."""
    columns = [f"REVOKE UPDATE ({columns}) ON {table}" for table, columns in _SEALED.items()]
    _for_role("app", *(f"{revoke} FROM %I" for revoke in columns))
    op.execute("DROP TABLE server_keys")


def _for_role(suffix: str, *statements: str) -> None:
    lines = " ".join(f"EXECUTE format('{statement}', role);" for statement in statements)
    op.execute(
        f"DO $$ DECLARE role text := current_database() || '_{suffix}'; BEGIN {lines} END $$"
    )
