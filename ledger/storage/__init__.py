"""PostgreSQL: engines, arrays, ids, pages, secrets."""
