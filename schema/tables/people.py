"""Who may do what beside the processes: people, who are logins of PostgreSQL."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Identity,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, TIMESTAMP

from cardledger.schema.tables.columns import metadata, text_column

person_changes = Table(
    "person_changes",
    metadata,
    text_column("name", "The person: a role of PostgreSQL."),
    Column("id", BigInteger, Identity(always=True), nullable=False, comment="Ids rise with time."),
    text_column("change", "ADDED or REMOVED."),
    Column(
        "may",
        ARRAY(Text),
        nullable=False,
        comment="What the person may do, or could do before: prepare, approve.",
    ),
    Column(
        "changed_at",
        TIMESTAMP(timezone=True),
        nullable=False,
        server_default=text("now()"),
        comment="When it was changed, by the clock of PostgreSQL.",
    ),
    Column(
        "changed_by",
        Text,
        nullable=False,
        server_default=text("SESSION_USER"),
        comment="The login that changed it; written by the database.",
    ),
    PrimaryKeyConstraint("id"),
    CheckConstraint("change IN ('ADDED', 'REMOVED')", name="change"),
    comment="Who became a person with a login, and who ceased to be; append-only.",
)
