"""The MAC of each row of the inbox, what becomes of forged rows, and whether each needs a MAC."""

from typing import Final

from alembic import op

revision = "0019"
down_revision = "0018"

# Where platforms exist, processes of an earlier release may run, which write no MAC.
_UP: Final = (
    "ALTER TABLE inbox ADD COLUMN mac BYTEA",
    (
        "COMMENT ON COLUMN inbox.mac IS"
        " 'MAC of all other columns by the process that accepted the message; null: written by a"
        " release before schema 0019.'"
    ),
    (
        "CREATE TABLE inbox_macs (is_required BOOLEAN NOT NULL,"
        " CONSTRAINT inbox_macs_pkey PRIMARY KEY (is_required))"
    ),
    (
        "COMMENT ON TABLE inbox_macs IS"
        " 'One row: whether a message without a MAC is refused; written by migrations and by"
        " cardledger migrate --finish.'"
    ),
    (
        "COMMENT ON COLUMN inbox_macs.is_required IS"
        " 'False while processes of a release before schema 0019 may write to the inbox.'"
    ),
    "INSERT INTO inbox_macs SELECT NOT EXISTS (SELECT FROM platforms)",
    """
    CREATE TABLE forged_messages (
        id UUID NOT NULL,
        lane SMALLINT NOT NULL,
        shard SMALLINT NOT NULL,
        message_id UUID NOT NULL,
        customer_id UUID NOT NULL,
        platform_id UUID NOT NULL,
        source TEXT NOT NULL,
        reference TEXT NOT NULL,
        body TEXT NOT NULL,
        body_hash BYTEA NOT NULL,
        reply_to TEXT,
        received_at TIMESTAMP WITH TIME ZONE NOT NULL,
        mac BYTEA,
        refused_at TIMESTAMP WITH TIME ZONE NOT NULL,
        CONSTRAINT forged_messages_pkey PRIMARY KEY (id)
    )
    """,
    (
        "COMMENT ON TABLE forged_messages IS 'Messages taken out of the inbox undecided, because"
        " their MAC was wrong or missing; append-only.'"
    ),
    "COMMENT ON COLUMN forged_messages.id IS 'The refusal; ids rise with time.'",
    (
        "COMMENT ON COLUMN forged_messages.message_id IS"
        " 'The message; another message may have the same id.'"
    ),
    "COMMENT ON COLUMN forged_messages.customer_id IS 'The cardholder that it named.'",
    "COMMENT ON COLUMN forged_messages.platform_id IS 'The platform that it named.'",
    "COMMENT ON COLUMN forged_messages.source IS 'The sender that it named.'",
    "COMMENT ON COLUMN forged_messages.reference IS 'Its identifier at that sender.'",
    "COMMENT ON COLUMN forged_messages.body IS 'The message, as it was written.'",
    "COMMENT ON COLUMN forged_messages.lane IS '0: live, 1: bulk.'",
    "COMMENT ON COLUMN forged_messages.shard IS 'The queue that it was in.'",
    "COMMENT ON COLUMN forged_messages.body_hash IS 'The hash that it named.'",
    "COMMENT ON COLUMN forged_messages.reply_to IS 'The Redis list that it named.'",
    "COMMENT ON COLUMN forged_messages.received_at IS 'The time that it named.'",
    "COMMENT ON COLUMN forged_messages.mac IS 'Its MAC, which was wrong; null: it had none.'",
    "COMMENT ON COLUMN forged_messages.refused_at IS 'When it was taken out.'",
    (
        "CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON forged_messages"
        " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
    ),
    "ALTER TABLE forged_messages ENABLE ALWAYS TRIGGER append_only",
)
_RIGHTS: Final = {
    "app": ("SELECT ON inbox_macs", "SELECT, INSERT ON forged_messages"),
    "api": ("SELECT ON inbox_macs, forged_messages",),  # For readiness.
    "worker": ("SELECT ON inbox_macs", "SELECT, INSERT ON forged_messages"),
    "reader": ("SELECT ON inbox_macs, forged_messages",),
}


def upgrade() -> None:
    """Add the column and the tables; no role of a process can change what is in them."""
    for statement in _UP:
        op.execute(statement)
    for suffix, rights in _RIGHTS.items():
        given = " ".join(f"EXECUTE format('GRANT {right} TO %I', role);" for right in rights)
        op.execute(
            f"DO $$ DECLARE role text := current_database() || '_{suffix}'; BEGIN {given} END $$"
        )


def downgrade() -> None:
    """Remove them; what waits is decided without its MAC."""
    op.execute("DROP TABLE forged_messages, inbox_macs")
    op.execute("ALTER TABLE inbox DROP COLUMN mac")
