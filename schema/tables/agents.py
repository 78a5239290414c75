"""Agents: registry, device codes, actions."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Uuid,
)
from sqlalchemy.dialects.postgresql import JSONB

from cardledger.schema.tables.columns import key, metadata, text_column, timestamp
from cardledger.schema.tables.customers import customers
from cardledger.schema.tables.payments import transfers
from cardledger.schema.tables.platforms import platforms

agents = Table(
    "agents",
    metadata,
    Column("id", Uuid, primary_key=True, comment="The agent: a program that acts for a customer."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="The platform."),
    Column("customer_id", ForeignKey(customers.c.id), nullable=False, comment="The customer."),
    text_column("name", "Display name."),
    Column(
        "is_paused",
        Boolean,
        nullable=False,
        comment="Whether the agent is paused: only read operations are allowed.",
    ),
    Column("policy", JSONB, nullable=False, comment="Spending policy, as the API returns it."),
    Column(
        "access_token_hash",
        LargeBinary,
        unique=True,
        comment="HMAC-SHA-256 of its access token under the server key; the token itself is not"
        " stored; null: not connected.",
    ),
    timestamp("created_at", "Time of creation."),
    timestamp("updated_at", "Time of the last change."),
    timestamp("deleted_at", "When it was deleted; null: not deleted.", nullable=True),
    CheckConstraint("num_nulls(access_token_hash, deleted_at) >= 1", name="deleted_has_no_access"),
    comment="Programs that act for a customer, within a policy.",
)
Index("agents_platform_id_idx", agents.c.platform_id, agents.c.id)
Index("agents_customer_id_idx", agents.c.customer_id)
# The agents that count against the platform's cap.
Index("agents_live_idx", agents.c.platform_id, postgresql_where=agents.c.deleted_at.is_(None))

agent_device_codes = Table(
    "agent_device_codes",
    metadata,
    Column(
        "code_hash",
        LargeBinary,
        primary_key=True,
        comment="HMAC-SHA-256 of the code under the server key; the code itself is not stored.",
    ),
    Column(
        "agent_id",
        ForeignKey(agents.c.id),
        nullable=False,
        comment="The agent that the code connects.",
    ),
    Column(
        "agent_hash",
        LargeBinary,
        comment="HMAC-SHA-256 of code and agent under the server key, so that the code connects no"
        " other agent; null: of a release before 0151, which connects none.",
    ),
    timestamp("created_at", "Time of creation."),
    timestamp("expires_at", "When the code expires."),
    timestamp("redeemed_at", "When it was redeemed; null: not redeemed.", nullable=True),
    timestamp("replaced_at", "When a newer code replaced it; null: not replaced.", nullable=True),
    CheckConstraint("num_nulls(redeemed_at, replaced_at) >= 1", name="one_end"),
    comment="Device codes that connect a program to an agent: one open at a time, one"
    " redeemed at most.",
)
Index(
    "agent_device_codes_open_key",
    agent_device_codes.c.agent_id,
    unique=True,
    postgresql_where=agent_device_codes.c.redeemed_at.is_(None)
    & agent_device_codes.c.replaced_at.is_(None),
)
Index(
    "agent_device_codes_redeemed_key",
    agent_device_codes.c.agent_id,
    unique=True,
    postgresql_where=agent_device_codes.c.redeemed_at.isnot(None),
)

Index(
    "agent_device_codes_agent_id_idx",
    agent_device_codes.c.agent_id,
    agent_device_codes.c.expires_at,
)
Index(
    "agent_device_codes_unused_idx",
    agent_device_codes.c.expires_at,
    postgresql_where=agent_device_codes.c.redeemed_at.is_(None),
)

agent_actions = Table(
    "agent_actions",
    metadata,
    key("id", "The action; its transfer has the same id."),
    Column("agent_id", ForeignKey("agents.id"), nullable=False, comment="The agent."),
    Column("customer_id", ForeignKey(customers.c.id), nullable=False, comment="The customer."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="The platform."),
    text_column("type", "TRANSFER_OUT, TRANSFER_IN or EXECUTE_QUOTE."),
    text_column(
        "rejection_reason",
        "Reason given by the platform when it rejected the action.",
        nullable=True,
    ),
    timestamp("created_at", "Time of the request."),
    Column(
        "measured_amount",
        BigInteger,
        comment="What it spends in the currency of the limits of the agent, where that is another"
        " one: as it was converted at the request; null: in the currency of the transfer.",
    ),
    text_column("measured_currency", "Currency of `measured_amount`.", nullable=True),
    PrimaryKeyConstraint("id"),
    ForeignKeyConstraint(["id", "customer_id"], [transfers.c.id, transfers.c.customer_id]),
    CheckConstraint("type IN ('TRANSFER_OUT', 'TRANSFER_IN', 'EXECUTE_QUOTE')", name="type"),
    comment="Actions requested by agents; their status is that of the transfer.",
)
Index("agent_actions_agent_id_idx", agent_actions.c.agent_id, agent_actions.c.id)
