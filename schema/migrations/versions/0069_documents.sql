CREATE TABLE documents (
    id UUID NOT NULL,
    platform_id UUID NOT NULL,
    customer_id UUID NOT NULL,
    beneficial_owner_id UUID,
    document_type TEXT NOT NULL,
    side TEXT,
    country TEXT NOT NULL,
    document_number BYTEA,
    issuing_authority TEXT,
    file_name TEXT NOT NULL,
    media_type TEXT NOT NULL,
    size BIGINT NOT NULL,
    content_key BYTEA NOT NULL,
    submitted_at TIMESTAMP WITH TIME ZONE,
    delete_after TIMESTAMP WITH TIME ZONE,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT documents_pkey PRIMARY KEY (id),
    CONSTRAINT documents_size_check CHECK (size > 0),
    CONSTRAINT documents_side_check CHECK (side IN ('FRONT', 'BACK')),
    CONSTRAINT documents_media_type_check CHECK (media_type IN ('application/pdf', 'image/jpeg', 'image/png')),
    CONSTRAINT documents_platform_id_fkey FOREIGN KEY(platform_id) REFERENCES platforms (id),
    CONSTRAINT documents_customer_id_fkey FOREIGN KEY(customer_id) REFERENCES customers (id),
    CONSTRAINT documents_beneficial_owner_id_fkey FOREIGN KEY(beneficial_owner_id) REFERENCES beneficial_owners (id)
);
CREATE INDEX documents_beneficial_owner_id_idx ON documents (beneficial_owner_id, id) WHERE beneficial_owner_id IS NOT NULL;
CREATE INDEX documents_customer_id_idx ON documents (customer_id, id);
CREATE INDEX documents_delete_after_idx ON documents (delete_after) WHERE delete_after IS NOT NULL;
CREATE INDEX documents_platform_id_idx ON documents (platform_id, id);
COMMENT ON TABLE documents IS 'Documents that prove who customers and beneficial owners are; files are apart.';
COMMENT ON COLUMN documents.id IS 'The document.';
COMMENT ON COLUMN documents.platform_id IS 'The platform.';
COMMENT ON COLUMN documents.customer_id IS 'The customer that holds it, or the business whose owner does.';
COMMENT ON COLUMN documents.beneficial_owner_id IS 'The beneficial owner that holds it; null: the customer itself.';
COMMENT ON COLUMN documents.document_type IS 'Its type, such as PASSPORT, as submitted.';
COMMENT ON COLUMN documents.side IS 'FRONT or BACK; null: not stated.';
COMMENT ON COLUMN documents.country IS 'Country that issued it, ISO 3166-1 alpha-2.';
COMMENT ON COLUMN documents.document_number IS 'Its number, encrypted with the server key.';
COMMENT ON COLUMN documents.issuing_authority IS 'Authority that issued it.';
COMMENT ON COLUMN documents.file_name IS 'Name of its file, without folders and invisible characters.';
COMMENT ON COLUMN documents.media_type IS 'application/pdf, image/jpeg or image/png, by its content.';
COMMENT ON COLUMN documents.size IS 'Bytes of its file.';
COMMENT ON COLUMN documents.content_key IS 'Key of its file, encrypted with the server key.';
COMMENT ON COLUMN documents.submitted_at IS 'When a verification first relied on it: it cannot be changed any more; null: never.';
COMMENT ON COLUMN documents.delete_after IS 'When it is deleted, because its customer was deleted; null: the customer is there.';
COMMENT ON COLUMN documents.created_at IS 'Time of the upload.';
COMMENT ON COLUMN documents.updated_at IS 'Time of the last change.';

CREATE TABLE document_contents (
    document_id UUID NOT NULL,
    platform_id UUID NOT NULL,
    content BYTEA NOT NULL,
    CONSTRAINT document_contents_pkey PRIMARY KEY (document_id),
    CONSTRAINT document_contents_document_id_fkey FOREIGN KEY(document_id) REFERENCES documents (id),
    CONSTRAINT document_contents_platform_id_fkey FOREIGN KEY(platform_id) REFERENCES platforms (id)
);
COMMENT ON TABLE document_contents IS 'Files of documents, which no list reads.';
COMMENT ON COLUMN document_contents.document_id IS 'The document.';
COMMENT ON COLUMN document_contents.platform_id IS 'The platform.';
COMMENT ON COLUMN document_contents.content IS 'The file, encrypted with the key of its document.';

CREATE TABLE document_usage (
    platform_id UUID NOT NULL,
    bytes BIGINT NOT NULL,
    CONSTRAINT document_usage_pkey PRIMARY KEY (platform_id),
    CONSTRAINT document_usage_platform_id_fkey FOREIGN KEY(platform_id) REFERENCES platforms (id)
);
COMMENT ON TABLE document_usage IS 'How much of its room for documents each platform uses.';
COMMENT ON COLUMN document_usage.platform_id IS 'The platform.';
COMMENT ON COLUMN document_usage.bytes IS 'Bytes of the files of its documents, at least 4096 for each.';

-- Encrypted: it cannot be compressed.
ALTER TABLE document_contents ALTER COLUMN content SET STORAGE EXTERNAL;
