"""Audit of acceptances: each accepted message is decided, rejected or waiting, and is one of them.

A trigger of the inbox writes `acceptances`, whichever client inserts. A decided message has its
id in `outcomes`, `rejections` or `duplicates`, a forged one in `forged_messages`. The application
role can delete from the inbox, as the engine does when it has decided; from those append-only
tables it cannot.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from psycopg import Connection

from cardledger.ledger.messaging.inbox import CANARIES_FROM

_ROWS_PER_FETCH: Final = 2000

# Each message is counted where it is recorded: `accepted`, `decided`, `waiting` and `rejected`
# times. A submission that could not be parsed is rejected without having been accepted. What was
# decided before the first acceptance, when nothing was recorded, is not `expected` to have one.
# PostgreSQL groups in the memory of `work_mem`, and on disk beyond it.
_COUNTED: Final = """
    SELECT id, sum(accepted) AS accepted, sum(decided) AS decided, sum(waiting) AS waiting,
        sum(rejected) AS rejected, max(accepted_at) AS accepted_at,
        sum(expected) > sum(accepted) OR sum(accepted) > 0
            AND sum(accepted) <> sum(decided) + sum(waiting) + sum(rejected) AS is_different
    FROM (
        SELECT unnest(ids) AS id, 1 AS accepted, 0 AS decided, 0 AS waiting, 0 AS rejected,
            0 AS expected, recorded_at AS accepted_at
        FROM acceptances
        UNION ALL SELECT message_id, 0, 1, 0, 0,
            (recorded_at >= (SELECT min(recorded_at) FROM acceptances))::int, NULL
        FROM outcomes
        UNION ALL SELECT unnest(ids), 0, 1, 0, 0, 1, NULL FROM duplicates
        UNION ALL SELECT id, 0, 0, 1, 0, 1, NULL FROM inbox WHERE customer_id < %s
        UNION ALL SELECT id, 0, 0, 0, 1, 0, NULL FROM rejections
        UNION ALL SELECT message_id, 0, 0, 0, 1, 0, NULL FROM forged_messages
    ) message
    GROUP BY id
"""
_TOTALS: Final = f"""
    SELECT coalesce(bool_or(is_different), false),
        coalesce(sum(accepted) FILTER (WHERE accepted > 0), 0)::bigint,
        coalesce(sum(decided) FILTER (WHERE accepted > 0), 0)::bigint,
        coalesce(sum(waiting) FILTER (WHERE accepted > 0), 0)::bigint,
        coalesce(sum(rejected) FILTER (WHERE accepted > 0), 0)::bigint
    FROM ({_COUNTED}) counted
"""
_DIFFERENT: Final = f"""
    SELECT id, accepted::bigint, decided::bigint, waiting::bigint, rejected::bigint, accepted_at
    FROM ({_COUNTED}) counted WHERE is_different ORDER BY id
"""


@dataclass(slots=True)
class Totals:
    """Numbers of accepted messages: as many were accepted as are decided, waiting and rejected."""

    accepted: int = 0
    decided: int = 0  # The first ones with their idempotency keys, and duplicates.
    waiting: int = 0
    rejected: int = 0  # Quarantined and forged ones included.


def differences(connection: Connection[Any], totals: Totals | None = None) -> Iterator[str]:
    """Yield a description of every message that is missing, or that was not accepted as often.

    The numbers of messages are written to `totals`. Differences take a second look at all messages.
    """
    row = connection.execute(_TOTALS, [CANARIES_FROM]).fetchone()
    assert row is not None, "an aggregate has a row"
    are_different, *numbers = row
    if totals is not None:
        totals.accepted, totals.decided, totals.waiting, totals.rejected = numbers
    if are_different:
        yield from _descriptions(connection)


def _descriptions(connection: Connection[Any]) -> Iterator[str]:
    with connection.cursor(name="verify_acceptances") as cursor:
        cursor.itersize = _ROWS_PER_FETCH
        for key, accepted, decided, waiting, rejected, at in cursor.execute(
            _DIFFERENT, [CANARIES_FROM]
        ):
            if not accepted:
                yield f"Message {key}: decided or waiting, but never accepted"
            elif accepted > decided + waiting + rejected:
                yield f"Message {key}: accepted at {at}, but neither decided nor waiting"
            else:
                yield (
                    f"Message {key}: recorded more often than accepted (accepted {accepted},"
                    f" decided {decided}, waiting {waiting}, rejected {rejected})"
                )
