"""HTTP for every route: protocol limits, authentication, idempotency, rate limits, errors."""
