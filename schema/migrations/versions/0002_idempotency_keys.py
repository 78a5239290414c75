"""Keys of requests with the answers they got, and what a business says of itself."""

from alembic import op

revision = "0002"
down_revision = "0001"

_TABLE = """
CREATE TABLE idempotency_keys (
    platform_id UUID NOT NULL,
    key TEXT NOT NULL,
    request_hash BYTEA NOT NULL,
    event JSON,
    status SMALLINT,
    answer BYTEA,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT idempotency_keys_pkey PRIMARY KEY (platform_id, key),
    CONSTRAINT idempotency_keys_answer_whole_check CHECK (num_nulls(status, answer) IN (0, 2)),
    CONSTRAINT idempotency_keys_platform_id_fkey FOREIGN KEY(platform_id) REFERENCES platforms (id)
)
"""
_COMMENTS = {
    "TABLE idempotency_keys": "First response to every POST with an Idempotency-Key; permanent.",
    "COLUMN idempotency_keys.platform_id": "Who sent the key.",
    "COLUMN idempotency_keys.key": "The header Idempotency-Key, as it was sent.",
    "COLUMN idempotency_keys.request_hash": "SHA-256 of method, path and body: tells a repetition"
    " from a reuse.",
    "COLUMN idempotency_keys.event": "The event that the request sends, to be sent again while"
    " there is no answer; null: it sends none.",
    "COLUMN idempotency_keys.status": "Status of the answer; null: not answered yet.",
    "COLUMN idempotency_keys.answer": "Body of the answer, encrypted with the server key.",
    "COLUMN idempotency_keys.created_at": "When the key was first used.",
    "COLUMN customers.business_info": "What a business says of itself, as it was sent.",
}


def upgrade() -> None:
    """Create the table and the column, with the application's rights to them."""
    op.execute(_TABLE)
    op.execute("ALTER TABLE customers ADD COLUMN business_info JSONB")
    for what, comment in _COMMENTS.items():
        op.execute(f"COMMENT ON {what} IS '{comment}'")
    # No right to delete, and none to change what a key stands for: only to answer.
    op.execute(
        "DO $$ DECLARE role text := current_database() || '_app'; BEGIN"
        " EXECUTE format('GRANT SELECT, INSERT, UPDATE (status, answer) ON idempotency_keys"
        " TO %I', role);"
        " EXECUTE format('GRANT UPDATE (business_info) ON customers TO %I', role);"
        " END $$"
    )


def downgrade() -> None:
    """Remove both; the rights to them go with them."""
    op.execute("ALTER TABLE customers DROP COLUMN business_info")
    op.execute("DROP TABLE idempotency_keys")
