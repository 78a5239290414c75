CREATE TABLE customer_uploads (
    id UUID NOT NULL,
    platform_id UUID NOT NULL,
    status TEXT NOT NULL,
    columns TEXT[] NOT NULL,
    total INTEGER DEFAULT 0 NOT NULL,
    processed INTEGER DEFAULT 0 NOT NULL,
    successful INTEGER DEFAULT 0 NOT NULL,
    failed INTEGER DEFAULT 0 NOT NULL,
    errors JSONB DEFAULT '[]' NOT NULL,
    completed_at TIMESTAMP WITH TIME ZONE,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT customer_uploads_pkey PRIMARY KEY (id),
    CONSTRAINT customer_uploads_status_check CHECK (status IN ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED')),
    CONSTRAINT customer_uploads_progress_check CHECK (processed = successful + failed AND processed <= total AND least(successful, failed) >= 0),
    CONSTRAINT customer_uploads_completed_at_check CHECK ((completed_at IS NULL) = (status IN ('PENDING', 'PROCESSING'))),
    CONSTRAINT customer_uploads_platform_id_fkey FOREIGN KEY(platform_id) REFERENCES platforms (id)
);
CREATE INDEX customer_uploads_completed_at_idx ON customer_uploads (completed_at);
CREATE INDEX customer_uploads_platform_id_idx ON customer_uploads (platform_id, id);
CREATE INDEX customer_uploads_unfinished_idx ON customer_uploads (id) WHERE completed_at IS NULL;
COMMENT ON TABLE customer_uploads IS 'Jobs that create a customer for each row of a file.';
COMMENT ON COLUMN customer_uploads.id IS 'The job.';
COMMENT ON COLUMN customer_uploads.platform_id IS 'The platform.';
COMMENT ON COLUMN customer_uploads.status IS 'PENDING, PROCESSING, COMPLETED or FAILED; the last two are final.';
COMMENT ON COLUMN customer_uploads.columns IS 'Columns of the file; none: it cannot be read.';
COMMENT ON COLUMN customer_uploads.total IS 'Rows of the file.';
COMMENT ON COLUMN customer_uploads.processed IS 'Rows that were processed.';
COMMENT ON COLUMN customer_uploads.successful IS 'Rows that made a customer.';
COMMENT ON COLUMN customer_uploads.failed IS 'Rows that made none.';
COMMENT ON COLUMN customer_uploads.errors IS 'The first errors, as the API returns them.';
COMMENT ON COLUMN customer_uploads.completed_at IS 'When it ended; null: not yet.';
COMMENT ON COLUMN customer_uploads.created_at IS 'When the file was accepted.';
COMMENT ON COLUMN customer_uploads.updated_at IS 'Time of the last change.';

CREATE TABLE customer_upload_parts (
    upload_id UUID NOT NULL,
    number INTEGER NOT NULL,
    platform_id UUID NOT NULL,
    rows TEXT NOT NULL,
    CONSTRAINT customer_upload_parts_pkey PRIMARY KEY (upload_id, number),
    CONSTRAINT customer_upload_parts_upload_id_fkey FOREIGN KEY(upload_id) REFERENCES customer_uploads (id),
    CONSTRAINT customer_upload_parts_platform_id_fkey FOREIGN KEY(platform_id) REFERENCES platforms (id)
);
COMMENT ON TABLE customer_upload_parts IS 'What is left of uploaded files; a part is deleted with the commit of its customers.';
COMMENT ON COLUMN customer_upload_parts.upload_id IS 'The job.';
COMMENT ON COLUMN customer_upload_parts.number IS 'Its place in the file.';
COMMENT ON COLUMN customer_upload_parts.platform_id IS 'The platform.';
COMMENT ON COLUMN customer_upload_parts.rows IS 'Rows of the file that are not processed yet, as JSON.';

