"""The seal of a period: SHA-256 over its entries, in a fixed order and a fixed text form.

The text is what PostgreSQL writes for `COPY (LINES) TO STDOUT`, so that an auditor gets the same
number with psql and sha256sum, by the login of a person.
Source: docs/decisions/0070-closing-a-period.md
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from psycopg import Connection

from cardledger.ledger.books.periods import Period

VERSION: Final = 1
"""Of `LINES`; an older seal is recomputed with the columns of its version."""

LINES: Final = """
SELECT subject_id, sequence, line, customer_id, platform_id, posted_on,
  occurred_at AT TIME ZONE 'UTC', recorded_at AT TIME ZONE 'UTC', late_from,
  debit_account_id, debit_kind, credit_account_id, credit_kind, amount, currency
FROM finance.journal WHERE posted_on BETWEEN {first} AND {last}
ORDER BY subject_id, sequence, line
"""
"""The entries of a period; `finance.` stands before the name of the view."""

# A sort of a large period is written to disk, whatever the server allows for others.
_SETTINGS: Final = """
    SELECT set_config(name, value, true) FROM (VALUES ('datestyle', 'ISO'), ('work_mem', '32MB'),
        ('jit', 'off'), ('statement_timeout', '0')) AS setting (name, value)
"""


@dataclass(frozen=True, slots=True)
class Digest:
    """The entries of a period: their SHA-256, hexadecimal, and their number."""

    sha256: str
    entries: int


def digest(connection: Connection[Any], schema: str, period: Period) -> Digest:
    """Return the digest of the entries of `period`, in an open database transaction.

    `schema` is that of the views of finance. Rows are streamed: memory does not grow with them.
    """
    lines = LINES.format(first="%(first)s", last="%(last)s")
    statement = f"COPY ({lines}) TO STDOUT".replace("finance.", f'"{schema}".')
    connection.execute(_SETTINGS)
    digested = sha256()
    with connection.cursor() as cursor:
        with cursor.copy(
            statement.encode(), {"first": str(period.first), "last": str(period.last)}
        ) as copy:
            for data in copy:
                digested.update(data)
        return Digest(digested.hexdigest(), cursor.rowcount)
