"""Measurements of a real PostgreSQL with `fsync` on; not part of the wheel."""
