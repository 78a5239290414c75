"""Messages to and from the engine: inbox, outbox, idempotency keys."""
