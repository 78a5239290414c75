"""How many deliveries of a platform may wait, so that no platform fills the disk of all.

Of a platform at its limit, only endpoints with few waiting deliveries have new ones, so that an
endpoint that has stopped responding takes no webhooks from the others. What an endpoint misses is
stored once for all of them, as it is for disabled endpoints (`dispatch`), and a replay sends it.
That ends when half of the limit waits: what was missed is then one span of time, not many.
Source: docs/decisions/0055-row-quotas.md
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

import psycopg
import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.storage import pg_arrays
from cardledger.ledger.storage.engines import driver_async
from cardledger.ledger.webhooks.endpoints import ENDPOINT_LIMIT
from cardledger.schema.ids import Id

WAITING_LIMIT: Final = 100_000
"""Waiting deliveries of a platform from which on its endpoints share what may wait besides."""

_RECOUNT_S: Final = 15.0  # Of a platform at its limit.
_ENDPOINTS_RECOUNT_S: Final = 0.5  # Of its endpoints that have had all that they may since.
_EXPIRY_S: Final = 60.0  # Other processes dispatch and replay too.
_MARGIN: Final = 20  # Part of the limit that is dispatched at least between two counts.
_REMEMBERED: Final = 10_000  # Platforms; others are counted when they have a webhook.

_log = structlog.get_logger()

# A page of an index for each platform; `LIMIT` bounds what is read of it.
_WAITING: Final = """
    SELECT p.id, (
        SELECT count(*) FROM (
            SELECT FROM webhook_deliveries w
            WHERE w.platform_id = p.id AND w.state = 'PENDING' LIMIT p.most
        ) counted)
    FROM unnest(%(platforms)s::uuid[], %(most)s::int4[]) AS p (id, most)
"""

_WAITING_BY_ENDPOINT: Final = """
    SELECT e.id, (
        SELECT count(*) FROM (
            SELECT FROM webhook_deliveries w
            WHERE w.endpoint_id = e.id AND w.next_attempt_at IS NOT NULL LIMIT %(share)s
        ) counted)
    FROM unnest(%(endpoints)s::uuid[]) AS e (id)
"""


@dataclass(slots=True)
class _Backlog:
    """What is known of the waiting deliveries of a platform."""

    waiting: int  # When they were counted, and those that were dispatched since.
    counted_at: float
    added: int = 0  # Dispatched since.
    is_full: bool = False
    # Of a full one only: the endpoints, when they were counted, and which have had their share.
    by_endpoint: dict[Id, int] = field(default_factory=dict)
    endpoints_counted_at: float | None = None
    had_share: set[Id] = field(default_factory=set)

    def note(self, waiting: Mapping[Id, int], share: int, at: float) -> None:
        """Note how many deliveries wait for endpoints, each of which may have a `share`."""
        self.by_endpoint.update(waiting)
        self.endpoints_counted_at = at
        self.had_share = {endpoint for endpoint, count in waiting.items() if count >= share}


class Backlogs:
    """What one process knows of the waiting deliveries of platforms; for one thread at a time.

    It adds what it dispatches to what it has counted, which is never too few beside what it
    dispatched itself. So it counts a platform again when that reaches the limit, and once a minute.
    Several processes together may exceed the limit, by what each dispatches in a minute.
    """

    def __init__(
        self, limit: int = WAITING_LIMIT, *, clock: Callable[[], float] = monotonic
    ) -> None:
        """Let `limit` deliveries of a platform wait. `clock` counts seconds."""
        self._limit: Final = limit
        self._share: Final = max(limit // ENDPOINT_LIMIT, 1)  # Of each endpoint beyond the limit.
        self._clock: Final = clock
        self._known: Final[dict[Id, _Backlog]] = {}

    def look(self, driver: psycopg.Connection[Any], endpoints: Mapping[Id, Collection[Id]]) -> None:
        """Count the waiting deliveries of platforms, with their `endpoints`, where it is due."""
        for platform in endpoints:
            if (backlog := self._known.pop(platform, None)) is not None:
                self._known[platform] = backlog  # As the last that may be forgotten.
        due = [platform for platform in endpoints if self._is_due(platform)]
        if due:
            self._count(driver, due)
        wanted = {
            platform: keys
            for platform, own in endpoints.items()
            if (keys := self._to_be_counted(platform, own))
        }
        if not wanted:
            return
        every = [key for keys in wanted.values() for key in keys]
        values = {"endpoints": pg_arrays.uuids(every), "share": self._share}
        waiting = dict(driver.execute(_WAITING_BY_ENDPOINT, values, binary=True).fetchall())
        for platform, keys in wanted.items():
            counts = {key: waiting[key] for key in keys}
            self._known[platform].note(counts, self._share, self._clock())

    def has_room(self, platform: Id, endpoint: Id) -> bool:
        """Return whether one more delivery may wait for `endpoint` of a `platform` looked at."""
        backlog = self._known[platform]
        return not backlog.is_full or backlog.by_endpoint.get(endpoint, 0) < self._share

    def add(self, platform: Id, endpoint: Id) -> None:
        """Note that one more delivery of a `platform` looked at waits for `endpoint`."""
        backlog = self._known[platform]
        backlog.waiting += 1
        backlog.added += 1
        if backlog.is_full:
            count = backlog.by_endpoint.get(endpoint, 0) + 1
            backlog.by_endpoint[endpoint] = count
            if count >= self._share:
                backlog.had_share.add(endpoint)

    def _is_due(self, platform: Id) -> bool:
        backlog = self._known.get(platform)
        if backlog is None:
            return True
        if backlog.is_full:
            return self._clock() - backlog.counted_at >= _RECOUNT_S
        # The margin: what is just below its limit is not counted at every dispatch.
        is_reached = backlog.waiting >= self._limit and backlog.added >= self._limit // _MARGIN
        return is_reached or self._clock() - backlog.counted_at >= _EXPIRY_S

    def _count(self, driver: psycopg.Connection[Any], due: Sequence[Id]) -> None:
        full = {platform for platform in due if self._is_full(platform)}
        most = [self._limit // 2 if platform in full else self._limit for platform in due]
        values = {"platforms": pg_arrays.uuids(due), "most": pg_arrays.integers(most)}
        counted = dict(driver.execute(_WAITING, values, binary=True).fetchall())
        for platform, bound in zip(due, most, strict=True):
            waiting = counted[platform]
            is_full = waiting >= bound
            if is_full != (platform in full):
                _log.warning(
                    "webhooks of a platform are stored for replays: too many deliveries wait"
                    if is_full
                    else "webhooks of a platform are delivered again",
                    platform=str(platform),
                    waiting=waiting,
                )
            self._known.pop(platform, None)
            self._known[platform] = _Backlog(waiting, self._clock(), is_full=is_full)
        while len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]

    def _is_full(self, platform: Id) -> bool:
        backlog = self._known.get(platform)
        return backlog is not None and backlog.is_full

    def _to_be_counted(self, platform: Id, endpoints: Collection[Id]) -> list[Id]:
        """Return those of the endpoints whose waiting deliveries are to be counted."""
        backlog = self._known[platform]
        if not backlog.is_full:
            return []
        if backlog.endpoints_counted_at is None:
            return list(endpoints)
        # These may have sent what they had.
        is_due = self._clock() - backlog.endpoints_counted_at >= _ENDPOINTS_RECOUNT_S
        return list(backlog.had_share) if is_due else []


async def is_full(connection: AsyncConnection, platform: Id, limit: int = WAITING_LIMIT) -> bool:
    """Return whether `limit` deliveries of `platform` wait, or more."""
    driver = await driver_async(connection)
    found = await driver.execute(_WAITING, {"platforms": [platform], "most": [limit]})
    row = await found.fetchone()
    assert row is not None
    return bool(row[1] >= limit)
