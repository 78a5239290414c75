"""Messages in and out of the engine: inbox, outbox, idempotency keys."""
