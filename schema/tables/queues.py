"""Messages: the inbox, outcomes, rejections, and what waits."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Identity,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Uuid,
    func,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSON, JSONB

from cardledger.schema.tables.columns import key, metadata, text_column, timestamp

enqueued_events = Table(
    "enqueued_events",
    metadata,
    Column("lane", SmallInteger, nullable=False, comment="0: live, 1: bulk."),
    Column(
        "position",
        BigInteger,
        Identity(always=True),
        comment="Order in which the events were enqueued.",
    ),
    key("id", "The event; the message that it becomes has the last eight bytes of it."),
    text_column("source", "Sender."),
    text_column("reference", "Identifier of the event at the sender."),
    Column("event", JSONB, nullable=False, comment="The event as it was enqueued, not validated."),
    Column("size", Integer, nullable=False, comment="Bytes of the event as text."),
    text_column("enqueued_by", "The login that enqueued it."),
    timestamp(
        "enqueued_at", "When it was enqueued, before the commit, by the clock of PostgreSQL."
    ),
    PrimaryKeyConstraint("lane", "position"),
    postgresql_with={
        "autovacuum_vacuum_scale_factor": "0.01",
        "autovacuum_vacuum_cost_delay": "0",
    },
    comment="Events enqueued in database transactions of others, until a worker moves them to the"
    " inbox or to the rejections.",
)

# A hash, because a reference may be longer than an index can hold.
Index("enqueued_events_reference_idx", func.md5(enqueued_events.c.reference))

enqueued_events_progress = Table(
    "enqueued_events_progress",
    metadata,
    Column("is_only", Boolean, primary_key=True, comment="True."),
    Column(
        "begins_at",
        BigInteger,
        nullable=False,
        comment="No event is before this position, and none can be enqueued there any more.",
    ),
    Column(
        "last_position",
        BigInteger,
        nullable=False,
        comment="Highest position of any event, at the last update.",
    ),
    Column(
        "mark",
        BigInteger,
        nullable=False,
        comment="Position before which events can be enqueued until the database transaction"
        " settled_by.",
    ),
    Column(
        "settled_by",
        BigInteger,
        comment="Once all database transactions before it have ended, begins_at follows mark.",
    ),
    timestamp("updated_at", "When the row was updated."),
    CheckConstraint("is_only", name="is_only"),
    comment="One row; the worker that locks it moves enqueued events.",
)

inbox_shards = Table(
    "inbox_shards",
    metadata,
    Column("lane", SmallInteger, nullable=False, comment="0: live, 1: bulk."),
    Column("shard", SmallInteger, nullable=False, comment="0 .. 15."),
    text_column(
        "lock",
        "Never written: the right to update the column is the right to lock the row.",
        nullable=True,
    ),
    PrimaryKeyConstraint("lane", "shard"),
    comment="One row for each queue of the inbox; the worker that drains a queue holds its"
    " row lock.",
)

inbox = Table(
    "inbox",
    metadata,
    Column("lane", SmallInteger, nullable=False, comment="0: live, 1: bulk."),
    Column("shard", SmallInteger, nullable=False, comment="Hash of the cardholder."),
    key("id", "The message; ids rise in order of arrival."),
    key("customer_id", "The cardholder; the nil UUID when the card is unknown."),
    key("platform_id", "The platform of the sender."),
    text_column("source", "Sender."),
    text_column("reference", "Identifier of the message at the sender."),
    Column("body", JSON, nullable=False, comment="The message, parsed."),
    Column("body_hash", LargeBinary, nullable=False, comment="Hash of the body."),
    text_column("reply_to", "Redis list on which a caller waits for the outcome.", nullable=True),
    timestamp("received_at", "When the message was accepted."),
    Column(
        "mac",
        LargeBinary,
        comment="MAC of all other columns by the process that accepted the message; null: written"
        " by a release before schema 0019.",
    ),
    PrimaryKeyConstraint("lane", "shard", "id", "customer_id"),
    # PostgreSQL has times that Python has not, and a row that cannot be read stops its queue.
    CheckConstraint(
        "received_at BETWEEN '2000-01-01 00:00:00+00' AND '9999-01-01 00:00:00+00'",
        name="received_at_readable",
    ),
    postgresql_with={
        "fillfactor": "70",
        "autovacuum_vacuum_scale_factor": "0.01",
        "autovacuum_vacuum_cost_delay": "0",
    },
    comment="Messages accepted and not yet decided; the commit that decides a message deletes it.",
)

# Look-ups by the authorization that they settle; `timeout_reversals.SOURCE`.
Index(
    "inbox_timeout_reversals_idx",
    inbox.c.customer_id,
    inbox.c.reference,
    postgresql_where=inbox.c.source == "decision-timeout",
)

inbox_macs = Table(
    "inbox_macs",
    metadata,
    Column(
        "is_required",
        Boolean,
        nullable=False,
        comment="False while processes of a release before schema 0019 may write to the inbox.",
    ),
    PrimaryKeyConstraint("is_required"),
    comment="One row: whether a message without a MAC is refused; written by migrations and by"
    " cardledger migrate --finish.",
)

forged_messages = Table(
    "forged_messages",
    metadata,
    key("id", "The refusal; ids rise with time."),
    Column("lane", SmallInteger, nullable=False, comment="0: live, 1: bulk."),
    Column("shard", SmallInteger, nullable=False, comment="The queue that it was in."),
    key("message_id", "The message; another message may have the same id."),
    key("customer_id", "The cardholder that it named."),
    key("platform_id", "The platform that it named."),
    text_column("source", "The sender that it named."),
    text_column("reference", "Its identifier at that sender."),
    text_column("body", "The message, as it was written."),
    Column("body_hash", LargeBinary, nullable=False, comment="The hash that it named."),
    text_column("reply_to", "The Redis list that it named.", nullable=True),
    timestamp("received_at", "The time that it named."),
    Column("mac", LargeBinary, comment="Its MAC, which was wrong; null: it had none."),
    timestamp("refused_at", "When it was taken out."),
    PrimaryKeyConstraint("id"),
    comment="Messages taken out of the inbox undecided, because their MAC was wrong or missing;"
    " append-only.",
)

acceptances = Table(
    "acceptances",
    metadata,
    Column(
        "ids",
        ARRAY(Uuid),
        nullable=False,
        comment="The messages; in the first row, those that waited when the table was created.",
    ),
    timestamp("recorded_at", "When they were written, by the clock of PostgreSQL."),
    comment="Accepted messages, append-only: one row for each write to the inbox, made by its"
    " trigger.",
)

outcomes = Table(
    "outcomes",
    metadata,
    key("customer_id", "The cardholder."),
    key("platform_id", "The platform of the sender."),
    text_column("source", "Sender."),
    text_column(
        "reference", "Identifier at the sender; with the source, the permanent idempotency key."
    ),
    Column(
        "body_hash",
        LargeBinary,
        nullable=False,
        comment="Hash of the body: distinguishes a duplicate from a reuse of the key.",
    ),
    key("message_id", "The first message with this key."),
    text_column("outcome", "APPLIED, DECLINED, IGNORED or PARKED."),
    text_column("reason", "Reason code of the outcome, if any.", nullable=True),
    key("subject_id", "The card transaction or deposit.", nullable=True),
    Column("sequence", Integer, comment="Sequence of the card transaction after the message."),
    timestamp("recorded_at", "When the message was decided."),
    PrimaryKeyConstraint("reference", "source", "platform_id", "customer_id"),
    comment="Outcome of every message, retained permanently: no message is applied twice.",
)

# From an event back to the message that caused it, for explanations.
Index("outcomes_message_id_idx", outcomes.c.message_id)

duplicates = Table(
    "duplicates",
    metadata,
    Column("ids", ARRAY(Uuid), nullable=False, comment="The messages."),
    timestamp("recorded_at", "When they were decided."),
    comment="Messages whose idempotency key already had an outcome, append-only: one row for each"
    " batch with duplicates.",
)

rejections = Table(
    "rejections",
    metadata,
    key("id", "The message."),
    key("customer_id", "The cardholder; the nil UUID when the card is unknown."),
    key("platform_id", "The platform of the sender."),
    text_column("source", "Sender; null when unreadable.", nullable=True),
    text_column("reference", "Identifier at the sender; null when unreadable.", nullable=True),
    text_column(
        "body", "The message as received; of a large malformed one its fields and beginning."
    ),
    text_column("reason", "Rejection code."),
    text_column("detail", "Explanation: what to change.", nullable=True),
    timestamp("recorded_at", "When the message was rejected."),
    Column(
        "mac",
        LargeBinary,
        comment="MAC of all other columns by the process that rejected the message; null: written"
        " by a release before schema 0021. Without one it is not retried.",
    ),
    PrimaryKeyConstraint("id", "customer_id"),
    comment="Rejected messages with their reason, append-only.",
)

Index("rejections_platform_id_idx", rejections.c.platform_id, rejections.c.id)
Index("rejections_of_ledger_idx", rejections.c.id, postgresql_where=rejections.c.source == "engine")
# A hash, because a reference may be longer than an index can hold.
Index("rejections_reference_idx", rejections.c.platform_id, func.md5(rejections.c.reference))

rejection_retries = Table(
    "rejection_retries",
    metadata,
    key("rejection_id", "The rejection."),
    key("platform_id", "The platform of the sender."),
    key("message_id", "The message that was enqueued."),
    timestamp("retried_at", "When it was enqueued."),
    PrimaryKeyConstraint("rejection_id"),
    comment="Rejected messages that were enqueued again, each at most once; append-only.",
)

stalled_queues = Table(
    "stalled_queues",
    metadata,
    Column("lane", SmallInteger, nullable=False, comment="0: live, 1: bulk."),
    Column("shard", SmallInteger, nullable=False, comment="0 .. 15."),
    Column(
        "is_whole_queue",
        Boolean,
        nullable=False,
        comment="Whether the queue has stopped, not only the messages of one cardholder.",
    ),
    key(
        "customer_id",
        "The cardholder whose messages wait; the nil UUID for a whole queue.",
    ),
    key(
        "message_id",
        "The message that failed last; null: the queue could not be read.",
        nullable=True,
    ),
    text_column("error", "What failed last."),
    Column("attempts", Integer, nullable=False, comment="How often it was tried."),
    timestamp("since", "When it first failed."),
    timestamp("last_attempt_at", "When it failed last."),
    PrimaryKeyConstraint("lane", "shard", "is_whole_queue", "customer_id"),
    comment="Queues, and cardholders in them, whose messages fail for a reason that is not theirs;"
    " deleted when they move again.",
)

parked = Table(
    "parked",
    metadata,
    key("id", "The message."),
    key("customer_id", "The cardholder."),
    key("card_id", "The card."),
    text_column(
        "issuer_transaction_token",
        "Issuer transaction token of the card transaction that the message waits for.",
    ),
    Column("body", JSON, nullable=False, comment="The message, parsed."),
    timestamp("received_at", "When the message was accepted."),
    key("platform_id", "The platform of the card; written by a trigger.", nullable=True),
    PrimaryKeyConstraint("customer_id", "card_id", "issuer_transaction_token", "id"),
    comment="Reversals whose authorization, clearing or refund has not arrived yet; deleted"
    " when applied.",
)
Index("parked_platform_id_idx", parked.c.platform_id, parked.c.id)

pending_pulls = Table(
    "pending_pulls",
    metadata,
    key("card_transaction_id", "The card transaction."),
    Column("sequence", Integer, nullable=False, comment="The event that opened the pull."),
    key("customer_id", "The cardholder."),
    key("card_id", "The card."),
    text_column("issuer_transaction_token", "Issuer transaction token."),
    Column("amount", BigInteger, nullable=False, comment="Amount of the pull, minor units."),
    Column("succeeds", Boolean, nullable=False, comment="Whether the sandbox confirms the pull."),
    timestamp("due_at", "When the sandbox answers."),
    PrimaryKeyConstraint("card_transaction_id", "sequence", "customer_id"),
    comment="Pulls that await confirmation; deleted when the confirmation is submitted.",
)
Index("pending_pulls_due_at_idx", pending_pulls.c.due_at)
