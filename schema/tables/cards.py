"""Cards and the access log of their numbers."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Uuid,
    text,
)

from cardledger.schema.tables.columns import key, metadata, text_column, timestamp
from cardledger.schema.tables.customers import customers
from cardledger.schema.tables.platforms import platforms

cards = Table(
    "cards",
    metadata,
    Column("id", Uuid, primary_key=True, comment="The card."),
    Column("customer_id", ForeignKey(customers.c.id), nullable=False, comment="Its cardholder."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="The platform."),
    text_column("platform_card_id", "Identifier chosen by the platform."),
    text_column("state", "PENDING_KYC, PROCESSING, ACTIVE, FROZEN or CLOSED."),
    text_column("state_reason", "Reason of the closure; null unless CLOSED.", nullable=True),
    text_column("form", "VIRTUAL."),
    text_column("brand", "VISA or MASTERCARD; null until the issuer has issued it.", nullable=True),
    text_column("last4", "Last four digits of the card number; null until issued.", nullable=True),
    Column("exp_month", SmallInteger, comment="Month of expiry; null until issued."),
    Column("exp_year", SmallInteger, comment="Year of expiry; null until issued."),
    text_column("currency", "Currency of its funding sources."),
    Column(
        "funding_sources",
        ARRAY(Uuid),
        nullable=False,
        comment="Internal accounts by priority; pulls debit the first. A closed card keeps them"
        " for late clearings, and the API returns none.",
    ),
    Column(
        "max_spend_per_transaction",
        BigInteger,
        CheckConstraint("max_spend_per_transaction >= 1", name="max_spend_positive"),
        comment="Limit of one authorization, minor units of `currency`; null: no limit.",
    ),
    text_column("processor_ref", "Reference of the card processor."),
    text_column("issuer_ref", "Reference of the card issuer."),
    timestamp(
        "activate_at",
        "When the sandbox issuer activates it; null: already done, or never.",
        nullable=True,
    ),
    timestamp("created_at", "Time of the request."),
    timestamp("updated_at", "Time of the last change."),
)
Index("cards_customer_id_idx", cards.c.customer_id)
Index("cards_platform_id_idx", cards.c.platform_id, cards.c.id)
# The cards that count against the cap of a cardholder.
Index("cards_live_idx", cards.c.customer_id, postgresql_where=cards.c.state != "CLOSED")
# For lists by these filters.
Index("cards_platform_card_id_idx", cards.c.platform_id, cards.c.platform_card_id, cards.c.id)
Index("cards_state_idx", cards.c.platform_id, cards.c.state, cards.c.id)
Index("cards_funding_sources_idx", cards.c.funding_sources, postgresql_using="gin")
Index(
    "cards_platform_card_id_key",
    cards.c.platform_id,
    cards.c.platform_card_id,
    unique=True,
    postgresql_where=cards.c.state != "CLOSED",
)
Index(
    "cards_activate_at_idx", cards.c.activate_at, postgresql_where=cards.c.activate_at.isnot(None)
)

card_reveals = Table(
    "card_reveals",
    metadata,
    Column(
        "token_hash",
        LargeBinary,
        primary_key=True,
        comment="HMAC-SHA-256 of the token in the URL under the server key; the token itself"
        " is not stored.",
    ),
    Column("card_id", ForeignKey(cards.c.id), nullable=False, index=True, comment="The card."),
    key("api_token_id", "The API token of the request; the token may have been deleted since."),
    timestamp("created_at", "Time of the request."),
    timestamp("expires_at", "When the page expires."),
    timestamp("opened_at", "When the page was first opened; null: never.", nullable=True),
    Column(
        "view_count",
        Integer,
        nullable=False,
        server_default=text("0"),
        comment="How often the page was opened, always by the browser that opened it first.",
    ),
    comment="Access log of card numbers: who requested one and when it was viewed. Card"
    " numbers are not stored.",
)
Index("card_reveals_expires_at_idx", card_reveals.c.expires_at)
