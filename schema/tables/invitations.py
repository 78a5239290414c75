"""Invitations by which a customer invites a person to get a UMA address."""

from sqlalchemy import BigInteger, CheckConstraint, Column, ForeignKey, Index, Table, Text, Uuid

from cardledger.schema.tables.columns import metadata, text_column, timestamp
from cardledger.schema.tables.customers import customers
from cardledger.schema.tables.platforms import platforms

invitations = Table(
    "invitations",
    metadata,
    Column("id", Uuid, primary_key=True, comment="The invitation."),
    Column(
        "platform_id",
        ForeignKey(platforms.c.id),
        nullable=False,
        comment="Platform of the inviter.",
    ),
    Column("customer_id", ForeignKey(customers.c.id), nullable=False, comment="The inviter."),
    Column(
        "code",
        Text,
        nullable=False,
        unique=True,
        comment="What the invitee presents; it cannot be guessed.",
    ),
    text_column("url", "Page of the invitation."),
    text_column("inviter_uma", "UMA address of the inviter."),
    text_column("first_name", "First name of the inviter, as its platform says it.", nullable=True),
    Column(
        "amount",
        BigInteger,
        comment="Amount that the inviter means to send after the claim, minor units; nothing is"
        " reserved.",
    ),
    text_column("currency", "Currency of the amount.", nullable=True),
    text_column("status", "PENDING, CLAIMED or CANCELLED; a PENDING one expires at `expires_at`."),
    text_column("invitee_uma", "UMA address of the invitee; null: not claimed.", nullable=True),
    timestamp("created_at", "Time of creation."),
    timestamp("expires_at", "Time from which it cannot be claimed."),
    timestamp("claimed_at", "When it was claimed; null: not claimed.", nullable=True),
    CheckConstraint(
        "num_nulls(amount, currency) IN (0, 2) AND amount > 0 IS NOT FALSE", name="amount"
    ),
    CheckConstraint("status IN ('PENDING', 'CLAIMED', 'CANCELLED')", name="status"),
    CheckConstraint(
        "(status = 'CLAIMED') = (claimed_at IS NOT NULL)"
        " AND (status = 'CLAIMED') = (invitee_uma IS NOT NULL)",
        name="claimed",
    ),
    comment="Invitations by which a customer invites a person to get a UMA address.",
)
Index("invitations_platform_id_idx", invitations.c.platform_id, invitations.c.id)
