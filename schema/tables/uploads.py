"""Uploads of many customers: jobs, and what is left of their files."""

from sqlalchemy import (
    ARRAY,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from cardledger.schema.tables.columns import count, metadata, text_column, timestamp
from cardledger.schema.tables.platforms import platforms

customer_uploads = Table(
    "customer_uploads",
    metadata,
    Column("id", Uuid, primary_key=True, comment="The job."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="The platform."),
    text_column("status", "PENDING, PROCESSING, COMPLETED or FAILED; the last two are final."),
    Column(
        "columns",
        ARRAY(Text),
        nullable=False,
        comment="Columns of the file; none: it cannot be read.",
    ),
    count("total", "Rows of the file."),
    count("processed", "Rows that were processed."),
    count("successful", "Rows that made a customer."),
    count("failed", "Rows that made none."),
    Column(
        "errors",
        JSONB,
        nullable=False,
        server_default=text("'[]'"),
        comment="The first errors, as the API returns them.",
    ),
    timestamp("completed_at", "When it ended; null: not yet.", nullable=True),
    timestamp("created_at", "When the file was accepted."),
    timestamp("updated_at", "Time of the last change."),
    CheckConstraint("status IN ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED')", name="status"),
    CheckConstraint(
        "processed = successful + failed AND processed <= total AND least(successful, failed) >= 0",
        name="progress",
    ),
    CheckConstraint(
        "(completed_at IS NULL) = (status IN ('PENDING', 'PROCESSING'))", name="completed_at"
    ),
    comment="Jobs that create a customer for each row of a file.",
)
Index("customer_uploads_platform_id_idx", customer_uploads.c.platform_id, customer_uploads.c.id)
Index(
    "customer_uploads_unfinished_idx",
    customer_uploads.c.id,
    postgresql_where=customer_uploads.c.completed_at.is_(None),
)
Index("customer_uploads_completed_at_idx", customer_uploads.c.completed_at)

customer_upload_parts = Table(
    "customer_upload_parts",
    metadata,
    Column("upload_id", ForeignKey(customer_uploads.c.id), primary_key=True, comment="The job."),
    Column("number", Integer, primary_key=True, comment="Its place in the file."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="The platform."),
    text_column("rows", "Rows of the file that are not processed yet, as JSON."),
    comment="What is left of uploaded files; a part is deleted with the commit of its customers.",
)
