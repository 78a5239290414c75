"""Claims of the outbox: a dispatch takes the oldest webhooks, or those of platforms in turn.

The oldest cost least, and are fair while every dispatch takes all there are. Only where webhooks
are left behind does it matter whose they are. So after a dispatch that left some, one claim in a
quarter of a second takes turns: the oldest webhook of each platform, then another of each. Those of
a platform stay in their order, and so those of a resource.
Source: docs/decisions/0018-webhook-ordering.md, 0050-fair-shares.md
"""

from collections import Counter
from collections.abc import Callable, Collection
from datetime import datetime
from time import monotonic
from typing import Any, Final, NamedTuple

import psycopg

from cardledger.ledger.webhooks.dispatch_lock import DISPATCH_LOCK
from cardledger.schema.ids import Id

TURN_INTERVAL_S: Final = 0.25
"""How long the webhooks of another platform may wait behind those of one that has many."""

TURN_DEPTH: Final = 20_000
"""Webhooks in which a claim that takes turns looks for those of other platforms."""

_STORED_LIMIT: Final = 1024 * 1024  # Octets of `data` as stored, which may be compressed.
_TEXT_LIMIT: Final = 4 * 1024 * 1024  # As text, which is parsed.


class Row(NamedTuple):
    """A row of the outbox."""

    id: Id
    customer_id: Id
    platform_id: Id
    type: str
    subject_id: Id
    sequence: int | None
    data: dict[str, Any] | None
    recorded_at: datetime
    size: int  # Octets of `data` as text.


class Claim(NamedTuple):
    """Rows of the outbox by their ids, and whether it has more."""

    rows: list[Row]
    has_more: bool


class Turns:
    """Whether the next claim of a process takes turns, and whose turn was when.

    From what its last dispatches have done and left behind.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Know of nothing that was left behind. `clock` counts seconds."""
        self._clock: Final = clock
        self._takes = False
        self._taken_at = float("-inf")
        self._is_behind = False
        self._are_several = False
        self._dispatches = 0
        self._last: dict[Id, int] = {}  # Dispatch of each platform that something was left of.

    def last(self, platform: Id) -> int:
        """Return the number of the last dispatch that had rows of `platform`; 0: long ago."""
        return self._last.get(platform, 0)

    def take(self) -> bool:
        """Return whether the claim that begins now takes turns."""
        is_due = self._are_several or self._clock() - self._taken_at >= TURN_INTERVAL_S
        self._takes = self._is_behind and is_due
        return self._takes

    def note(self, claimed: Collection[Row], done: Collection[Row], *, has_more: bool) -> None:
        """Note which rows were `claimed` and `done`, and whether the outbox has more."""
        left = Counter(row.platform_id for row in claimed)
        left.subtract(row.platform_id for row in done)
        if self._takes:  # From its end, so that those that take long are not one after the other.
            self._taken_at = self._clock()
        self._is_behind = has_more
        self._are_several = len(+left) > 1
        self._dispatches += 1
        served = {row.platform_id for row in done}
        self._last = {
            platform: self._dispatches if platform in served else self.last(platform)
            for platform in served | (+left).keys()
        }


_COLUMNS: Final = "id, customer_id, platform_id, type, subject_id, sequence, data, recorded_at"

# Postponed rows come last: enough of them would otherwise delay all new rows. The first half ends
# before the second begins, so no row is locked that is not claimed, unless its data is too large to
# be read with that of those before it. How large it is as text is known only once it is
# decompressed, so first a bound on what is stored says of how many that is done. `before` is null
# for the first row, which is claimed however large it is.
_CLAIM: Final = f"""
    SELECT {_COLUMNS}, size, found FROM (
        SELECT *, sum(size) OVER ({{before}}) AS before FROM (
            SELECT *, coalesce(octet_length(data::text), 0) AS size FROM (
                SELECT *, count(*) OVER () AS found,
                    sum(pg_column_size(data)) OVER ({{before}}) AS stored_before
                FROM (
                    SELECT * FROM (
                        {{fresh}}
                    ) fresh UNION ALL SELECT * FROM (
                        SELECT {_COLUMNS}
                        FROM outbox WHERE retry_at <= %(at)s
                        ORDER BY retry_at, id, customer_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
                    ) postponed LIMIT %(limit)s
                ) locked
            ) stored WHERE coalesce(stored_before, 0) < %(stored_limit)s
        ) sized
    ) summed WHERE coalesce(before, 0) < %(text_limit)s
"""
_BEFORE: Final = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"

_OLDEST: Final = _CLAIM.format(
    before=_BEFORE,
    fresh=f"""
        SELECT {_COLUMNS} FROM outbox WHERE retry_at IS NULL
        ORDER BY id, customer_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    """,
)

# Row by row, so that only those that are claimed are read whole and locked. A row takes the places
# of as many as it has kilobytes: what is large must not take the room of the others.
_IN_TURNS: Final = _CLAIM.format(
    before=_BEFORE,
    fresh=f"""
        SELECT o.* FROM (
            SELECT id, customer_id FROM (
                SELECT id, customer_id, coalesce(sum(1 + stored / 1024) OVER (
                    PARTITION BY platform_id ORDER BY id, customer_id {_BEFORE}), 0) AS place
                FROM (
                    SELECT id, customer_id, platform_id, coalesce(pg_column_size(data), 0) AS stored
                    FROM outbox WHERE retry_at IS NULL
                    ORDER BY id, customer_id LIMIT %(depth)s
                ) oldest
            ) placed
            ORDER BY place, id, customer_id LIMIT %(limit)s
        ) chosen
        CROSS JOIN LATERAL (
            SELECT {_COLUMNS} FROM outbox
            WHERE id = chosen.id AND customer_id = chosen.customer_id FOR UPDATE SKIP LOCKED
        ) o
    """,
)


def claim(driver: psycopg.Connection[Any], limit: int, at: datetime, *, in_turns: bool) -> Claim:
    """Wait for the turn to dispatch and lock rows of the outbox, at most `limit`.

    And at most some megabytes of their data, or a single row.
    """
    values = {
        "limit": limit,
        "at": at,
        "depth": TURN_DEPTH,
        "stored_limit": _STORED_LIMIT,
        "text_limit": _TEXT_LIMIT,
    }
    with driver.pipeline(), driver.cursor(binary=True) as cursor:
        driver.execute("SELECT pg_advisory_xact_lock(%s)", [DISPATCH_LOCK])
        cursor.execute(_IN_TURNS if in_turns else _OLDEST, values)
        found = cursor.fetchall()
    rows = sorted(Row._make(columns) for *columns, _ in found)
    locked = found[0][-1] if found else 0
    return Claim(rows, has_more=locked == limit or len(rows) < locked)
