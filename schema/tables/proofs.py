"""Proofs that customers give: links to a hosted verification, challenges of external accounts."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    LargeBinary,
    Table,
    Uuid,
)

from cardledger.schema.tables.columns import count, metadata, text_column, timestamp
from cardledger.schema.tables.customers import customers, external_accounts
from cardledger.schema.tables.platforms import platforms

kyc_links = Table(
    "kyc_links",
    metadata,
    Column("token_hash", LargeBinary, primary_key=True, comment="Hash of the token in the URL."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="The platform."),
    Column("customer_id", ForeignKey(customers.c.id), nullable=False, comment="The customer."),
    text_column("redirect_uri", "Where the page leads to after its end.", nullable=True),
    timestamp("created_at", "Time of creation."),
    timestamp("expires_at", "Time from which it does not work any more."),
    timestamp("used_at", "When its page was submitted; null: not yet.", nullable=True),
    comment="Links to a hosted page on which a customer is verified, once.",
)
Index("kyc_links_customer_id_idx", kyc_links.c.customer_id)
Index("kyc_links_expires_at_idx", kyc_links.c.expires_at)

external_account_challenges = Table(
    "external_account_challenges",
    metadata,
    Column("id", Uuid, primary_key=True, comment="The challenge."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="The platform."),
    Column(
        "external_account_id",
        ForeignKey(external_accounts.c.id),
        nullable=False,
        comment="The account.",
    ),
    Column(
        "amounts",
        ARRAY(BigInteger),
        nullable=False,
        comment="Amounts that were paid to it, minor units, ascending.",
    ),
    count("attempts", "Wrong answers."),
    timestamp("created_at", "Time of the request."),
    timestamp("expires_at", "Time from which no answer counts."),
    CheckConstraint("attempts >= 0", name="attempts"),
    comment="Challenges of external accounts: who can name two amounts receives its payments.",
)
Index(
    "external_account_challenges_account_idx",
    external_account_challenges.c.external_account_id,
    external_account_challenges.c.id,
)
