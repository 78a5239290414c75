"""The PostgreSQL schema of views and functions for finance, which has no personal data.

It is `finance`. Where a schema of that name is not ours when the first revision comes (the user's
own, or of another installation in the database), it is named after the schema of the tables.
Source: docs/decisions/0063-finance-schema.md
"""

from typing import Final

NAME: Final = "finance"
"""The schema, unless there is the other one (`beside`)."""

VERSION: Final = 2
"""What its function `version` returns: it rises when a column goes or changes its meaning."""

SINCE: Final = "0040"
"""The revision that created the schema."""

_SUFFIX: Final = "_finance"


def beside(tables: str) -> str:
    """Return the other name of the schema, for `tables` in the PostgreSQL schema of that name."""
    return tables + _SUFFIX


def find(tables: str) -> str:
    """Return the name of the schema as an expression of SQL, not quoted as an identifier.

    `tables`: the schema of the tables, as `location.name_in` reads it from a URL.
    """
    own = beside(tables)
    return f"CASE WHEN to_regnamespace('\"{own}\"') IS NULL THEN '{NAME}' ELSE '{own}' END"
