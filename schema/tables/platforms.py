"""Platforms, their API tokens and idempotency keys."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSON, JSONB

from cardledger.schema.tables.columns import key, metadata, text_column, timestamp

platforms = Table(
    "platforms",
    metadata,
    Column(
        "id",
        Uuid,
        primary_key=True,
        comment="The platform (tenant): a company that issues cards to its customers.",
    ),
    text_column("name", "Display name."),
    Column(
        "supported_currencies",
        ARRAY(Text),
        nullable=False,
        comment="Currencies in which its customers get an internal account.",
    ),
    Column(
        "currency_settings",
        JSONB,
        nullable=False,
        server_default=text("'{}'"),
        comment="Settings of a currency by its code; a currency without settings is absent.",
    ),
    text_column(
        "uma_domain",
        "Domain of its generated UMA addresses; null: the domain of this installation.",
        nullable=True,
    ),
    Column(
        "embedded_wallet_config",
        JSONB(none_as_null=True),
        comment="Appearance of its embedded wallets, as submitted.",
    ),
    Column(
        "card_tokenization_2fa_config",
        JSONB(none_as_null=True),
        comment="Appearance of the codes for adding a card to a mobile wallet, as submitted.",
    ),
    Column(
        "fee_configs",
        JSONB,
        nullable=False,
        server_default=text("'[]'"),
        comment="Its fees, one for each type and source currency.",
    ),
    Column(
        "signing_key",
        LargeBinary,
        nullable=False,
        comment="P-256 private key of X-Grid-Signature, encrypted with the server key.",
    ),
    text_column("public_key", "Public key of `signing_key`, PEM."),
    Column(
        "webhook_secret",
        LargeBinary,
        nullable=False,
        comment="HMAC secret of the Standard Webhooks headers, encrypted with the server key;"
        " used by its default endpoint until that has a secret of its own.",
    ),
    timestamp("created_at", "When the platform was set up."),
    timestamp("updated_at", "When its configuration last changed."),
)

Index("platforms_uma_domain_key", platforms.c.uma_domain, unique=True)

api_tokens = Table(
    "api_tokens",
    metadata,
    Column("id", Uuid, primary_key=True, comment="The token."),
    Column(
        "platform_id",
        ForeignKey(platforms.c.id),
        nullable=False,
        index=True,
        comment="The platform that the token authenticates.",
    ),
    text_column("name", "Display name."),
    Column(
        "client_id",
        Text,
        nullable=False,
        unique=True,
        comment="User name of HTTP Basic authentication.",
    ),
    Column(
        "secret_hash",
        LargeBinary,
        nullable=False,
        comment="HMAC-SHA-256 of the client secret under the server key; the secret itself is"
        " not stored.",
    ),
    Column(
        "permissions",
        ARRAY(Text),
        nullable=False,
        comment="VIEW, TRANSACT, MANAGE: what releases before scopes read.",
    ),
    Column(
        "scopes",
        ARRAY(Text),
        comment="VIEW, TRANSACT, MANAGE, TOKENS, AGENTS, INGEST; null: a token of an earlier"
        " release, for which permissions counts: each token has VIEW, and MANAGE includes TOKENS"
        " and AGENTS.",
    ),
    timestamp("expires_at", "When the token ends; null: never.", nullable=True),
    Column(
        "allowed_addresses",
        ARRAY(Text),
        comment="Networks of its callers, in CIDR notation; null: any.",
    ),
    Column(
        "former_secret_hash",
        LargeBinary,
        comment="Hash of the secret before the last rotation, if it counts.",
    ),
    timestamp("former_secret_until", "Until when the former secret counts.", nullable=True),
    timestamp("updated_at", "When its secret was rotated; null: never.", nullable=True),
    timestamp("last_used_at", "When it was used, to about a minute.", nullable=True),
    timestamp("created_at", "Time of creation."),
)

issued_client_ids = Table(
    "issued_client_ids",
    metadata,
    Column(
        "client_id", Text, primary_key=True, comment="The client id, which no other token gets."
    ),
    comment="Client ids of all API tokens, deleted ones included; written by a trigger.",
)

console_tickets = Table(
    "console_tickets",
    metadata,
    Column(
        "ticket_hash",
        LargeBinary,
        primary_key=True,
        comment="HMAC-SHA-256 of the ticket under the server key; the ticket itself is not stored.",
    ),
    key("api_token_id", "The API token of the session; the token may have been deleted since."),
    timestamp("created_at", "When it was made."),
    timestamp("expires_at", "Time from which it opens no session."),
    comment="Tickets that open a session of the console, each once; a used one is deleted.",
)
Index("console_tickets_expires_at_idx", console_tickets.c.expires_at)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column(
        "platform_id",
        ForeignKey(platforms.c.id),
        nullable=False,
        comment="The platform that sent the key.",
    ),
    text_column(
        "key",
        "The header Idempotency-Key; an agent's key is prefixed by its id and a line break.",
    ),
    Column(
        "request_hash",
        LargeBinary,
        nullable=False,
        comment="SHA-256 of method, path and body: distinguishes a retry from a reuse of the key.",
    ),
    Column(
        "event",
        JSON(none_as_null=True),
        comment="The network event that the request submits, submitted again while the request"
        " has no response; null: none.",
    ),
    Column("status", SmallInteger, comment="HTTP status of the response; null: no response yet."),
    Column("answer", LargeBinary, comment="Body of the response, encrypted with the server key."),
    timestamp("created_at", "Time of the first request with the key."),
    PrimaryKeyConstraint("platform_id", "key"),
    CheckConstraint("num_nulls(status, answer) IN (0, 2)", name="answer_whole"),
    comment="The first response to every POST with an Idempotency-Key; retained permanently.",
)

server_keys = Table(
    "server_keys",
    metadata,
    Column(
        "header",
        LargeBinary,
        primary_key=True,
        comment="The first five bytes of what this server key seals: the format and the id of the"
        " key.",
    ),
    Column(
        "card_key",
        LargeBinary,
        nullable=False,
        comment="Key that card numbers are derived from, encrypted with this server key.",
    ),
    timestamp("created_at", "Time of the rotation."),
    comment="Server keys to which the secrets of this installation were rotated, append-only.",
)

row_counts = Table(
    "row_counts",
    metadata,
    key("platform_id", "The platform."),
    text_column("resource", "The table that the rows are in."),
    Column(
        "slot",
        SmallInteger,
        nullable=False,
        comment="0 to 15: by the session that inserted; 16: rows older than schema 0029, less"
        " quotes deleted before 0139 and transfers that the engine inserted before 0149; 17 to 32:"
        " deleted rows, negative, by the session that deleted.",
    ),
    Column("rows", BigInteger, nullable=False, comment="Rows counted in this slot."),
    PrimaryKeyConstraint("platform_id", "resource", "slot"),
    comment="How many rows of a resource a platform has: the sum of its slots, so that concurrent"
    " requests do not wait for one row; written by a trigger.",
)

row_quotas = Table(
    "row_quotas",
    metadata,
    key("platform_id", "The platform; the nil UUID: every platform without a quota of its own."),
    text_column("resource", "The table that the rows are in."),
    Column(
        "rows",
        BigInteger,
        nullable=False,
        comment="The most rows, deleted resources included.",
    ),
    PrimaryKeyConstraint("platform_id", "resource"),
    CheckConstraint("rows >= 0", name="rows"),
    comment="How many rows of a resource a platform may have; written by cardledger platform"
    " quotas.",
)

schema_compatibility = Table(
    "schema_compatibility",
    metadata,
    text_column("oldest_head", "Newest revision that the oldest of them knows."),
    PrimaryKeyConstraint("oldest_head"),
    comment="One row: which releases may use this schema; written by migrations.",
)
