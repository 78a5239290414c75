"""PostgreSQL and Redis on a machine without servers."""
