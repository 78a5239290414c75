"""Fan-out of webhooks: the endpoints that receive each, and how many a dispatch has of a platform.

Source: docs/decisions/0043-webhook-tests.md, 0050-fair-shares.md
"""

import heapq
import itertools
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import psycopg

from cardledger.ledger.webhooks.backlogs import Backlogs
from cardledger.ledger.webhooks.outbox_claims import Row, Turns
from cardledger.schema.ids import Id
from cardledger.schema.wire.webhooks.envelope import APPROVAL, WebhookType

_DELIVERY_SIZE: Final = 16 * 1024
"""Octets from which on a delivery counts as several: 500 of this size are 8 MiB."""


class Endpoint(NamedTuple):
    """The columns of an endpoint that decide what it receives."""

    id: Id
    platform_id: Id
    event_types: list[str]
    is_fifo: bool
    is_enabled: bool
    collects: bool  # Although it is disabled: a replay has named it (`replays.collect`).
    is_default: bool


def wants(event_types: Collection[str], kind: str) -> bool:
    """Return whether `event_types` selects `kind`: by name, by `<GROUP>.*`, or by being empty."""
    return not event_types or kind in event_types or f"{kind.partition('.')[0]}.*" in event_types


_ENDPOINTS: Final = """
    SELECT id, platform_id, event_types, mode = 'FIFO', state = 'ENABLED',
        coalesce(collects_until > %(at)s, false), is_default
    FROM webhook_endpoints
    WHERE platform_id = ANY (%(platforms)s::uuid[]) AND deleted_at IS NULL ORDER BY platform_id, id
"""


FannedOut = list[tuple[Row, list[Endpoint | None]]]


def fan_out(  # noqa: PLR0913 - what the process remembers, by name
    driver: psycopg.Connection[Any],
    rows: Sequence[Row],
    limit: int,
    at: datetime,
    *,
    turns: Turns,
    backlogs: Backlogs,
) -> FannedOut:
    """Return the first of `rows` with their endpoints: one row, or more within `limit` deliveries.

    An ordered delivery takes an advisory lock, and PostgreSQL has some thousands of locks in all.
    Shape: as many deliveries of each platform, unless it has fewer, or there is no room for its
    next row; in the order of `rows`.
    """
    by_platform = _endpoints(driver, {row.platform_id for row in rows}, at)
    endpoints = {platform: [one.id for one in own] for platform, own in by_platform.items()}
    backlogs.look(driver, endpoints)
    fanned_out: FannedOut = []
    size = 0
    queues = _Queues(rows, turns)
    while (row := queues.next()) is not None:
        receivers = _receivers(by_platform[row.platform_id], row, backlogs)
        count = len(receivers) * _count_of(row)
        if fanned_out and size + count > limit:
            queues.leave(row)  # Its turn comes, before those that are served now (`Turns`).
            continue
        size += count
        fanned_out.append((row, receivers))
        queues.note(row, count)
        for endpoint in receivers:
            if endpoint is not None:
                backlogs.add(row.platform_id, endpoint.id)
    return sorted(fanned_out, key=_key)


def _count_of(row: Row) -> int:
    """Return as how many deliveries one of `row` counts."""
    return max(-(-row.size // _DELIVERY_SIZE), 1)


def _key(fanned_out: tuple[Row, Sequence[Endpoint | None]]) -> tuple[Id, Id]:
    return fanned_out[0].id, fanned_out[0].customer_id


def _endpoints(
    driver: psycopg.Connection[Any], platforms: Collection[Id], at: datetime
) -> dict[Id, list[Endpoint]]:
    """Return the endpoints of each of `platforms`."""
    by_platform: dict[Id, list[Endpoint]] = {platform: [] for platform in platforms}
    arguments = {"platforms": list(platforms), "at": at}
    with driver.cursor(binary=True) as cursor:
        for columns in cursor.execute(_ENDPOINTS, arguments):
            endpoint = Endpoint._make(columns)
            by_platform[endpoint.platform_id].append(endpoint)
    return by_platform


class _Queues:
    """Rows by platform: next is the oldest of the platform with the fewest deliveries so far.

    At first, of the one whose last dispatch is longest ago: a dispatch may have room for few.
    """

    def __init__(self, rows: Iterable[Row], turns: Turns) -> None:
        self._rows: Final[dict[Id, deque[Row]]] = defaultdict(deque)
        for row in rows:
            self._rows[row.platform_id].append(row)
        # Of platforms with as many, the one whose last turn is longest ago.
        self._turn: Final = itertools.count()
        longest_ago_first = sorted(self._rows, key=turns.last)
        self._heap: Final = [(0, next(self._turn), platform) for platform in longest_ago_first]

    def next(self) -> Row | None:
        return self._rows[self._heap[0][2]][0] if self._heap else None

    def note(self, row: Row, deliveries: int) -> None:
        """Remove `row`, the next one, which has that many deliveries."""
        size, _, platform = heapq.heappop(self._heap)
        queue = self._rows[platform]
        queue.popleft()
        if queue:
            heapq.heappush(self._heap, (size + deliveries, next(self._turn), row.platform_id))

    def leave(self, row: Row) -> None:
        """Remove `row`, the next one, and all rows behind it of its platform."""
        heapq.heappop(self._heap)
        del self._rows[row.platform_id]


def _receivers(
    endpoints: Sequence[Endpoint], row: Row, backlogs: Backlogs
) -> list[Endpoint | None]:
    """Return the endpoints that receive `row`; None among them: it is stored for replays."""
    subscribers = [endpoint for endpoint in endpoints if _subscribes(endpoint, row)]
    if row.type == WebhookType.TEST:
        receivers: list[Endpoint | None] = [one for one in subscribers if one.is_enabled]
        return receivers if endpoints else [None]
    receivers = [
        endpoint
        for endpoint in subscribers
        if (endpoint.is_enabled or endpoint.collects)
        and (
            row.type == APPROVAL  # Its answer decides on a payment.
            or backlogs.has_room(row.platform_id, endpoint.id)
        )
    ]
    is_missed = len(receivers) < len(subscribers)
    return [*receivers, None] if is_missed or not endpoints else receivers


def _subscribes(endpoint: Endpoint, row: Row) -> bool:
    match row.type:
        case WebhookType.TEST:
            return endpoint.id == row.subject_id
        case WebhookType.WEBHOOK_ENDPOINT_DISABLED if endpoint.id == row.subject_id:
            return False  # The platform's other endpoints receive it.
        case _:
            return wants(endpoint.event_types, row.type)
