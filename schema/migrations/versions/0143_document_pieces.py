"""The rest of a large file of a document is in pieces, each of which one statement writes."""

from typing import Final

from alembic import op

from cardledger.schema.migrations.views import create_view

revision = "0143"
down_revision = "0142"

_TABLE: Final = "document_pieces"
_FORGET: Final = "delete_document_pieces"

# A file that is encrypted cannot be compressed. A document is deleted with its pieces by every
# release, and by a role that cannot delete a piece alone.
_CREATE: Final = f"""
CREATE TABLE {_TABLE} (
    document_id uuid NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    number integer NOT NULL,
    platform_id uuid NOT NULL REFERENCES platforms (id),
    content bytea NOT NULL,
    CONSTRAINT document_pieces_pkey PRIMARY KEY (document_id, number),
    CONSTRAINT document_pieces_number_check CHECK (number > 0)
);
ALTER TABLE {_TABLE} ALTER COLUMN content SET STORAGE EXTERNAL;
COMMENT ON TABLE {_TABLE} IS
    'What follows the beginning of a large file, which is in document_contents.';
COMMENT ON COLUMN {_TABLE}.document_id IS 'The document.';
COMMENT ON COLUMN {_TABLE}.number IS 'Its place in the file, from 1 on.';
COMMENT ON COLUMN {_TABLE}.platform_id IS 'The platform.';
COMMENT ON COLUMN {_TABLE}.content IS
    'A part of the file, which is encrypted as a whole with the key of its document.';

-- The release before replaces a file without knowing of pieces.
CREATE FUNCTION {_FORGET}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    DELETE FROM {_TABLE} WHERE document_id = NEW.document_id;
    RETURN NULL;
END $$;
REVOKE EXECUTE ON FUNCTION {_FORGET}() FROM PUBLIC;
CREATE TRIGGER {_FORGET} AFTER UPDATE ON document_contents
    FOR EACH ROW EXECUTE FUNCTION {_FORGET}();
"""

# Names in a function with the rights of its owner must not be looked up where its caller says.
_RIGHTS: Final = f"""
DO $$ BEGIN
    EXECUTE format('ALTER FUNCTION {_FORGET}() SET search_path = %I, pg_temp', current_schema());
    EXECUTE format('GRANT INSERT ON {_TABLE} TO %I', current_database() || '_app');
    EXECUTE format('GRANT SELECT (document_id, number, platform_id) ON {_TABLE} TO %I',
        current_database() || '_reader');
END $$
"""

_CONTENT: Final = "COMMENT ON COLUMN document_contents.content IS '{}'"
_BEFORE: Final = "The file, encrypted with the key of its document; null: it is in the directory."
_NOW: Final = (
    "The file, encrypted with the key of its document, or the beginning of a large one;"
    " null: it is in the directory."
)

# A statement of one platform adds no piece to a document of another one.
_PLATFORM: Final = (
    "(SELECT d.platform_id FROM documents d"
    " WHERE d.id = t.document_id AND d.platform_id = t.platform_id)"
)

_REFUSE: Final = f"""
DO $$ BEGIN
    IF EXISTS (SELECT FROM {_TABLE}) THEN
        RAISE EXCEPTION 'large files of documents are in pieces, which the release before does not'
            ' know: put them together first (docs/documents.md)';
    END IF;
END $$
"""


def upgrade() -> None:
    """Create the table, and its view for one platform."""
    op.execute(_CREATE)
    create_view(_TABLE, "INSERT", platform=_PLATFORM)
    op.execute(_RIGHTS)
    op.execute(_CONTENT.format(_NOW))


def downgrade() -> None:
    """Remove the table, unless a part of a file would be lost."""
    op.execute(f"DROP TRIGGER {_FORGET} ON document_contents")  # From now on no file changes.
    op.execute(_REFUSE)
    op.execute(f"DROP FUNCTION {_FORGET}()")
    op.execute(_CONTENT.format(_BEFORE))
    op.execute(
        f"DO $$ BEGIN EXECUTE format('DROP VIEW %I.{_TABLE}', current_schema() || '_api'); END $$"
    )
    op.execute(f"DROP TABLE {_TABLE}")
