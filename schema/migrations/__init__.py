"""Alembic migrations; run them with `cardledger migrate` or `cardledger.schema.migrate`."""
