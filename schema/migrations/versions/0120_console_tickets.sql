CREATE TABLE console_tickets (
    ticket_hash BYTEA NOT NULL,
    api_token_id UUID NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT console_tickets_pkey PRIMARY KEY (ticket_hash)
);
CREATE INDEX console_tickets_expires_at_idx ON console_tickets (expires_at);
COMMENT ON TABLE console_tickets IS 'Tickets that open a session of the console, each once; a used one is deleted.';
COMMENT ON COLUMN console_tickets.ticket_hash IS 'HMAC-SHA-256 of the ticket under the server key; the ticket itself is not stored.';
COMMENT ON COLUMN console_tickets.api_token_id IS 'The API token of the session; the token may have been deleted since.';
COMMENT ON COLUMN console_tickets.created_at IS 'When it was made.';
COMMENT ON COLUMN console_tickets.expires_at IS 'Time from which it opens no session.';
