"""Documents: evidence for the verification of customers and beneficial owners."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Uuid,
)

from cardledger.schema.tables.columns import metadata, text_column, timestamp
from cardledger.schema.tables.customers import beneficial_owners, customers
from cardledger.schema.tables.platforms import platforms

documents = Table(
    "documents",
    metadata,
    Column("id", Uuid, primary_key=True, comment="The document."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="The platform."),
    Column(
        "customer_id",
        ForeignKey(customers.c.id),
        nullable=False,
        comment="The customer that holds it, or the business whose owner does.",
    ),
    Column(
        "beneficial_owner_id",
        ForeignKey(beneficial_owners.c.id),
        comment="The beneficial owner that holds it; null: the customer itself.",
    ),
    text_column("document_type", "Its type, such as PASSPORT, as submitted."),
    text_column("side", "FRONT or BACK; null: not stated.", nullable=True),
    text_column("country", "Country that issued it, ISO 3166-1 alpha-2."),
    Column("document_number", LargeBinary, comment="Its number, encrypted with the server key."),
    text_column("issuing_authority", "Authority that issued it.", nullable=True),
    text_column("file_name", "Name of its file, without folders and invisible characters."),
    text_column("media_type", "application/pdf, image/jpeg or image/png, by its content."),
    Column("size", BigInteger, nullable=False, comment="Bytes of its file."),
    Column(
        "content_key",
        LargeBinary,
        nullable=False,
        comment="Key of its file, encrypted with the server key.",
    ),
    timestamp(
        "submitted_at",
        "When a verification first relied on it: it cannot be changed any more; null: never.",
        nullable=True,
    ),
    timestamp(
        "delete_after",
        "When it is deleted, because its customer was deleted; null: the customer is there.",
        nullable=True,
    ),
    timestamp("created_at", "Time of the upload."),
    timestamp("updated_at", "Time of the last change."),
    CheckConstraint("size > 0", name="size"),
    CheckConstraint("side IN ('FRONT', 'BACK')", name="side"),
    CheckConstraint(
        "media_type IN ('application/pdf', 'image/jpeg', 'image/png')", name="media_type"
    ),
    comment="Documents that prove who customers and beneficial owners are; files are apart.",
)
Index("documents_platform_id_idx", documents.c.platform_id, documents.c.id)
Index("documents_customer_id_idx", documents.c.customer_id, documents.c.id)
Index(
    "documents_beneficial_owner_id_idx",
    documents.c.beneficial_owner_id,
    documents.c.id,
    postgresql_where=documents.c.beneficial_owner_id.isnot(None),
)
Index(
    "documents_delete_after_idx",
    documents.c.delete_after,
    postgresql_where=documents.c.delete_after.isnot(None),
)

document_contents = Table(
    "document_contents",
    metadata,
    Column("document_id", ForeignKey(documents.c.id), primary_key=True, comment="The document."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="The platform."),
    Column(
        "content",
        LargeBinary,
        comment="The file, encrypted with the key of its document, or the beginning of a large one;"
        " null: it is in the directory.",
    ),
    Column(
        "file_id",
        Uuid,
        comment="The file in the directory of documents, which counts where `content` is null.",
    ),
    Column("file_sha256", LargeBinary, comment="SHA-256 of the file as it is in the directory."),
    CheckConstraint(
        "num_nulls(file_id, file_sha256) IN (0, 2) AND num_nonnulls(content, file_id) > 0",
        name="place",
    ),
    comment="Files of documents, which no list reads.",
)

document_pieces = Table(
    "document_pieces",
    metadata,
    Column(
        "document_id",
        ForeignKey(documents.c.id, ondelete="CASCADE"),
        primary_key=True,
        comment="The document.",
    ),
    Column(
        "number",
        Integer,
        primary_key=True,
        autoincrement=False,
        comment="Its place in the file, from 1 on.",
    ),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="The platform."),
    Column(
        "content",
        LargeBinary,
        nullable=False,
        comment="A part of the file, which is encrypted as a whole with the key of its document.",
    ),
    CheckConstraint("number > 0", name="number"),
    comment="What follows the beginning of a large file, which is in document_contents.",
)

document_usage = Table(
    "document_usage",
    metadata,
    Column("platform_id", ForeignKey(platforms.c.id), primary_key=True, comment="The platform."),
    Column(
        "bytes",
        BigInteger,
        nullable=False,
        comment="Bytes of the files of its documents, at least 4096 for each.",
    ),
    comment="How much of its room for documents each platform uses.",
)
