"""Alembic migrations; run them with `cardledger migrate` or `schema.migrate`."""
