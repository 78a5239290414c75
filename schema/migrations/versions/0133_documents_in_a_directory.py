"""Files of documents may be in a directory: the row then has name and digest of the file."""

from typing import Final

from alembic import op

from cardledger.schema.migrations.views import add_to_table_and_view, change_table_below_view

revision = "0133"
down_revision = "0132"

_COMMENTS: Final = {
    "content": "The file, encrypted with the key of its document; null: it is in the directory.",
    "file_id": "The file in the directory of documents, which counts where `content` is null.",
    "file_sha256": "SHA-256 of the file as it is in the directory.",
}

# The API still reads no file: it looks for the file of a row to remove it.
_GRANT: Final = """
DO $$ DECLARE
    api text := current_database() || '_api';
    app text := current_database() || '_app';
    reader text := current_database() || '_reader';
    views_in text := current_schema() || '_api';
BEGIN
    EXECUTE format('GRANT SELECT (file_id), UPDATE (file_id, file_sha256)'
        ' ON %I.document_contents TO %I, %I', views_in, api, app);
    EXECUTE format('GRANT SELECT (file_id, file_sha256), UPDATE (file_id, file_sha256)'
        ' ON document_contents TO %I', app);
    EXECUTE format('GRANT SELECT (file_id, file_sha256) ON document_contents TO %I', reader);
END $$
"""

_REFUSE: Final = """
DO $$ BEGIN
    IF EXISTS (SELECT FROM document_contents WHERE content IS NULL) THEN
        RAISE EXCEPTION 'files of documents are in a directory, which the release before does not'
            ' read: upload them again without CARDLEDGER_DOCUMENTS_DIR, or delete the documents';
    END IF;
END $$
"""


def upgrade() -> None:
    """Add the columns; the release before leaves them as they are, and fills `content`."""
    add_to_table_and_view(
        "document_contents",
        "ADD COLUMN file_id UUID, ADD COLUMN file_sha256 BYTEA,"
        " ALTER COLUMN content DROP NOT NULL,"
        " ADD CONSTRAINT document_contents_place_check CHECK (num_nulls(file_id, file_sha256)"
        " IN (0, 2) AND num_nonnulls(content, file_id) > 0) NOT VALID",
    )
    for column, comment in _COMMENTS.items():
        op.execute(f"COMMENT ON COLUMN document_contents.{column} IS '{comment}'")
    op.execute(_GRANT)


def downgrade() -> None:
    """Remove them, unless a file would be lost."""
    op.execute(_REFUSE)
    change_table_below_view(
        "document_contents",
        "DROP CONSTRAINT document_contents_place_check, DROP COLUMN file_id,"
        " DROP COLUMN file_sha256, ALTER COLUMN content SET NOT NULL",
    )
    op.execute(
        "COMMENT ON COLUMN document_contents.content IS"
        " 'The file, encrypted with the key of its document.'"
    )
