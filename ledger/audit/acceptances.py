"""Audit of acceptances: each accepted message is decided, rejected or waiting.

A trigger of the inbox writes `acceptances`, whichever client inserts. A decided message has its
id in `outcomes`, `rejections` or `duplicates`, a forged one in `forged_messages`. The application
role can delete from the inbox, as the engine does when it has decided; from those append-only
tables it cannot.
"""

from collections.abc import Iterator
from typing import Any, Final

from psycopg import Connection

from cardledger.ledger.messaging.inbox import CANARIES_FROM

_ROWS_PER_FETCH: Final = 2000

# Each message is counted where it is recorded: `accepted`, `decided` (or waiting) and `rejected`
# times. A submission that could not be parsed is rejected without having been accepted. What was
# decided before the first acceptance, when nothing was recorded, is not `expected` to have one.
# PostgreSQL groups in the memory of `work_mem`, and on disk beyond it.
_UNBALANCED: Final = """
    SELECT id, sum(accepted), max(accepted_at) FROM (
        SELECT unnest(ids) AS id, 1 AS accepted, 0 AS decided, 0 AS rejected, 0 AS expected,
            recorded_at AS accepted_at
        FROM acceptances
        UNION ALL SELECT message_id, 0, 1, 0,
            (recorded_at >= (SELECT min(recorded_at) FROM acceptances))::int, NULL
        FROM outcomes
        UNION ALL SELECT unnest(ids), 0, 1, 0, 1, NULL FROM duplicates
        UNION ALL SELECT id, 0, 1, 0, 1, NULL FROM inbox WHERE customer_id < %s
        UNION ALL SELECT id, 0, 0, 1, 0, NULL FROM rejections
        UNION ALL SELECT message_id, 0, 0, 1, 0, NULL FROM forged_messages
    ) message
    GROUP BY id
    HAVING sum(accepted) > sum(decided) + sum(rejected) OR sum(expected) > sum(accepted)
    ORDER BY id
"""


def differences(connection: Connection[Any]) -> Iterator[str]:
    """Yield a description of every message that is missing, or that was never accepted."""
    with connection.cursor(name="verify_acceptances") as cursor:
        cursor.itersize = _ROWS_PER_FETCH
        for key, accepted, at in cursor.execute(_UNBALANCED, [CANARIES_FROM]):
            if accepted:
                yield f"Message {key}: accepted at {at}, but neither decided nor waiting"
            else:
                yield f"Message {key}: decided or waiting, but never accepted"


_TOTALS: Final = """
    SELECT (SELECT coalesce(sum(cardinality(ids)), 0)::bigint FROM acceptances),
        (SELECT count(*) FROM inbox WHERE customer_id < %s)
"""


def totals(connection: Connection[Any]) -> tuple[int, int]:
    """Return how many messages were accepted, and how many of them wait."""
    row = connection.execute(_TOTALS, [CANARIES_FROM]).fetchone()
    assert row is not None, "a SELECT without FROM has a row"
    accepted, waiting = row
    return accepted, waiting
