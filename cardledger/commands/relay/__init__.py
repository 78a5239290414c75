"""`cardledger relay`: enqueue the events of an outbox table in another database."""
