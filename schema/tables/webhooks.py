"""Webhooks: endpoints, keys, outbox, deliveries, attempts."""

from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    Uuid,
)
from sqlalchemy.dialects.postgresql import JSON

from cardledger.schema.tables.columns import count, key, metadata, text_column, timestamp
from cardledger.schema.tables.platforms import platforms

APPROVALS_BEFORE: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""`next_attempt_at` before this is of a request for approval, which has a lane of its own.

A payment waits for it, so it does not wait behind what else is due at its endpoint. A sender of a
release that knows no such lane finds it before all others.
"""

APPROVALS_EARLIER_BY: Final = timedelta(days=36_525)
"""How far before the time from which on such a request is due its `next_attempt_at` is."""

webhook_endpoints = Table(
    "webhook_endpoints",
    metadata,
    Column("id", Uuid, primary_key=True, comment="The endpoint."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="The platform."),
    Column(
        "is_default",
        Boolean,
        nullable=False,
        comment="Whether it is the `webhookEndpoint` of the platform configuration.",
    ),
    text_column("url", "URL that receives the webhooks."),
    text_column("description", "Description chosen by the platform.", nullable=True),
    Column(
        "event_types",
        ARRAY(Text),
        nullable=False,
        comment="Subscribed event types, such as CARD_TRANSACTION.*; empty: all.",
    ),
    text_column("mode", "FIFO: strictly in order for each resource; PARALLEL: no order."),
    text_column(
        "state",
        "ENABLED or DISABLED; a disabled endpoint misses new webhooks, pending deliveries wait.",
    ),
    text_column("disabled_reason", "PLATFORM, GONE or FAILING; null: enabled.", nullable=True),
    Column(
        "secret",
        LargeBinary,
        comment="HMAC secret, encrypted with the server key; null: the platform's.",
    ),
    Column(
        "former_secret",
        LargeBinary,
        comment="Previous secret; also signs until `former_secret_until`.",
    ),
    timestamp("former_secret_until", "Until when the previous secret also signs.", nullable=True),
    timestamp("failing_since", "First failure since the last successful delivery.", nullable=True),
    timestamp("created_at", "Time of creation."),
    timestamp("updated_at", "Time of the last change."),
    timestamp("deleted_at", "When the platform deleted it; null: not deleted.", nullable=True),
    timestamp(
        "discarded_at",
        "When no delivery to it was pending any more after its deletion; null: not yet.",
        nullable=True,
    ),
    timestamp(
        "collects_until",
        "Until when webhooks wait for it although it is disabled; null: it misses them.",
        nullable=True,
    ),
    CheckConstraint("mode IN ('FIFO', 'PARALLEL')", name="mode"),
    CheckConstraint("state IN ('ENABLED', 'DISABLED')", name="state"),
    CheckConstraint(
        "disabled_reason IS NULL OR disabled_reason IN ('PLATFORM', 'GONE', 'FAILING')",
        name="disabled_reason",
    ),
    CheckConstraint(
        "(state = 'DISABLED') = (disabled_reason IS NOT NULL)", name="disabled_has_reason"
    ),
    CheckConstraint(
        "(former_secret IS NULL) = (former_secret_until IS NULL)", name="former_secret_ends"
    ),
    comment="Webhook endpoints; deleted ones are retained for their deliveries.",
)
Index(
    "webhook_endpoints_platform_id_idx",
    webhook_endpoints.c.platform_id,
    webhook_endpoints.c.id,
)
# The deleted endpoints whose pending deliveries are to be ended.
Index(
    "webhook_endpoints_discard_idx",
    webhook_endpoints.c.deleted_at,
    postgresql_where=webhook_endpoints.c.deleted_at.isnot(None)
    & webhook_endpoints.c.discarded_at.is_(None),
)
# The endpoints that count against the platform's cap.
Index(
    "webhook_endpoints_live_idx",
    webhook_endpoints.c.platform_id,
    postgresql_where=webhook_endpoints.c.deleted_at.is_(None),
)
Index(
    "webhook_endpoints_default_key",
    webhook_endpoints.c.platform_id,
    unique=True,
    postgresql_where=webhook_endpoints.c.is_default,
)

webhook_signing_keys = Table(
    "webhook_signing_keys",
    metadata,
    Column("id", Uuid, primary_key=True, comment="The key."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="The platform."),
    Column(
        "private_key",
        LargeBinary,
        nullable=False,
        comment="P-256 private key, encrypted with the server key.",
    ),
    text_column("public_key", "Public key, PEM."),
    timestamp("signs_from", "When it replaces the previous key."),
    timestamp("former_until", "Until when the previous key is published too."),
    timestamp("created_at", "Time of creation and publication."),
    comment="Signing keys of X-Grid-Signature after the first one of a platform; deleted an hour"
    " after they have ended.",
)
Index(
    "webhook_signing_keys_platform_id_idx",
    webhook_signing_keys.c.platform_id,
    webhook_signing_keys.c.id,
)

outbox = Table(
    "outbox",
    metadata,
    key("id", "Webhook id sent to receivers."),
    key("customer_id", "The cardholder."),
    key("platform_id", "The platform to notify."),
    text_column("type", "Webhook event type."),
    key("subject_id", "The resource concerned."),
    Column(
        "sequence",
        BigInteger,
        comment="Sequence of the card transaction, or version of the account, that the"
        " webhook reports.",
    ),
    Column(
        "data", JSON, comment="The resource at that time; null: folded from its events on dispatch."
    ),
    timestamp("recorded_at", "When the change was recorded."),
    timestamp("retry_at", "When to retry a failed rendering.", nullable=True),
    PrimaryKeyConstraint("id", "customer_id"),
    postgresql_with={
        "fillfactor": "70",
        "autovacuum_vacuum_scale_factor": "0.01",
        "autovacuum_vacuum_cost_delay": "0",
    },
    comment="Webhooks to dispatch, written in the commit of the event; dispatching moves them"
    " to webhook_deliveries.",
)

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    key("id", "The delivery of one webhook to one endpoint."),
    key("customer_id", "The cardholder."),
    key("platform_id", "The platform to notify."),
    text_column("type", "Webhook event type."),
    key("subject_id", "The resource concerned."),
    Column("sequence", BigInteger, comment="As in `outbox`."),
    text_column("body", "The exact bytes of the request body, UTF-8."),
    text_column("state", "PENDING, DELIVERED, FAILED or NO_ENDPOINT."),
    count("attempts", "Number of attempts."),
    timestamp(
        "next_attempt_at",
        "When the next attempt is due; from the year 9999 on: waits for an earlier delivery; before"
        " 1970: a request for approval, due 36,525 days later; null: none.",
        nullable=True,
    ),
    Column("last_status", SmallInteger, comment="HTTP status of the last attempt."),
    timestamp("created_at", "When the webhook was dispatched."),
    timestamp("delivered_at", "When the receiver accepted it.", nullable=True),
    key("webhook_id", "Webhook id sent to receivers, the same for all endpoints and attempts."),
    key(
        "endpoint_id",
        "The endpoint; null: stored for replays, because endpoints missed it or there was none.",
        nullable=True,
    ),
    count("attempts_before", "Number of attempts before the last retry or replay request."),
    timestamp(
        "lease_ends_at",
        "End of the lease of the last attempt; while `next_attempt_at` equals it, that attempt is"
        " under way.",
        nullable=True,
    ),
    PrimaryKeyConstraint("id", "customer_id"),
    CheckConstraint("state IN ('PENDING', 'DELIVERED', 'FAILED', 'NO_ENDPOINT')", name="state"),
    CheckConstraint("(state = 'PENDING') = (next_attempt_at IS NOT NULL)", name="pending_is_due"),
    postgresql_with={
        "autovacuum_vacuum_scale_factor": "0.01",
        "autovacuum_vacuum_cost_delay": "0",
    },
    comment="Deliveries of webhooks to endpoints.",
)
# The endpoint first: one with a long backlog must not hide the others from a claim.
Index(
    "webhook_deliveries_due_idx",
    webhook_deliveries.c.endpoint_id,
    webhook_deliveries.c.next_attempt_at,
    webhook_deliveries.c.webhook_id,
    postgresql_where=webhook_deliveries.c.next_attempt_at.isnot(None),
)
# What is next about a resource, where order is promised.
Index(
    "webhook_deliveries_next_idx",
    webhook_deliveries.c.endpoint_id,
    webhook_deliveries.c.subject_id,
    webhook_deliveries.c.next_attempt_at,
    webhook_deliveries.c.webhook_id,
    postgresql_where=webhook_deliveries.c.next_attempt_at.isnot(None),
)
Index(
    "webhook_deliveries_platform_id_idx",
    webhook_deliveries.c.platform_id,
    webhook_deliveries.c.id,
)
# For lists by these filters.
Index(
    "webhook_deliveries_endpoint_id_idx", webhook_deliveries.c.endpoint_id, webhook_deliveries.c.id
)
Index(
    "webhook_deliveries_by_state_idx",
    webhook_deliveries.c.platform_id,
    webhook_deliveries.c.state,
    webhook_deliveries.c.id,
)
Index(
    "webhook_deliveries_subject_id_idx",
    webhook_deliveries.c.platform_id,
    webhook_deliveries.c.subject_id,
    webhook_deliveries.c.id,
)

webhook_attempts = Table(
    "webhook_attempts",
    metadata,
    key("delivery_id", "The delivery."),
    Column("number", Integer, nullable=False, comment="1, 2, 3, ..."),
    key("customer_id", "The cardholder."),
    timestamp("attempted_at", "When the request was sent."),
    Column("duration_ms", Integer, nullable=False, comment="Duration in milliseconds."),
    Column("status", SmallInteger, comment="HTTP status; null: no response."),
    text_column("error", "Error, when there was no response.", nullable=True),
    text_column("response_head", "First bytes of the response.", nullable=True),
    PrimaryKeyConstraint("delivery_id", "number", "customer_id"),
    comment="Attempts to deliver a webhook; never changed, deleted with their delivery.",
)
