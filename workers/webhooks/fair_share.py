"""How the sender's threads are shared among platforms and endpoints, and whose turn it is."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from cardledger.ledger.webhooks.claims import Capacity, PlatformCapacity, PlatformShare
from cardledger.ledger.webhooks.leases import Delivery
from cardledger.ledger.webhooks.ordering import Queue
from cardledger.schema.ids import Id

SLOW_S: Final = 1.0
"""An endpoint that responds within this time may have several attempts at once."""

_SHARED_S: Final = 1.0

_REMEMBERED: Final = 1_000
"""Platforms and endpoints of which something is remembered; others count as new."""


Value = TypeVar("Value")


class Share(Protocol):
    """How many deliveries may be sent at a time, and of which endpoints."""

    def capacity(self, now: float) -> Capacity | PlatformCapacity:
        """Return how many attempts may start now."""

    def start(self, deliveries: Sequence[Delivery], now: float) -> None:
        """Note that attempts of `deliveries` start."""

    def finish(self, delivery: Delivery) -> None:
        """Note that the attempt of `delivery` has ended."""

    def note_response(self, endpoint_id: Id, *, is_quick: bool) -> None:
        """Note whether an endpoint responded quickly."""


class FairShare:
    """Shares the sender's threads among platforms and endpoints.

    An endpoint that responds quickly may have a quarter of the threads; any other endpoint has one
    attempt at a time. Slow and unknown endpoints may use half of the threads together; those that
    have only failed until now may use another quarter. So failing endpoints delay no others, and
    quick endpoints always find a thread. Of each of these a platform may have three quarters, so
    that the endpoints of another find one however many the platform has.
    """

    def __init__(self, concurrency: int) -> None:
        """Share `concurrency` threads."""
        self._concurrency: Final = concurrency
        self._quick_limit: Final = max(concurrency // 4, 1)  # Of each quick endpoint.
        # The rest is for quick endpoints only.
        self._others_limit: Final = max(concurrency // 2, 1)
        self._failing_limit: Final = max(concurrency // 4, 1)
        self._platform: Final = PlatformShare(
            _most_of(concurrency), _most_of(self._others_limit), _most_of(self._failing_limit)
        )
        # Attempts under way, with their start, by endpoint; the platforms of these endpoints.
        self._sending: Final[dict[Id, dict[Id, float]]] = defaultdict(dict)
        self._platform_of: Final[dict[Id, Id]] = {}
        self._busy: Final[Counter[Queue]] = Counter()
        self._failing: Final[set[Id]] = set()  # Only endpoints with an attempt under way.
        # Each in the order in which they were noted, oldest first.
        self._quick: Final[dict[Id, None]] = {}
        self._turns: Final[dict[Id, int]] = {}  # The last turn of each endpoint.
        self._platform_turns: Final[dict[Id, int]] = {}
        self._turn = 0
        # The last start of each platform lately; replaced, because other threads read it.
        self._started_at: Mapping[Id, float] = {}

    def capacity(self, now: float) -> Capacity:
        """Return how many attempts may start now, and for which endpoints."""
        quick = {endpoint for endpoint in self._quick if not self._is_stuck(endpoint, now)}
        others = [endpoint for endpoint in self._sending if endpoint not in quick]
        failing = self._count([one for one in others if one in self._failing])
        not_failing = self._count([one for one in others if one not in self._failing])
        # Quick endpoints that hang are others from then on, with all of their attempts: not with
        # more than their platform may have, or nothing would be left for those of another.
        left = self._others_limit - _at_most(self._platform.others, not_failing)
        left_for_failing = self._failing_limit - _at_most(self._platform.failing, failing)
        total = self._concurrency - sum(map(len, self._sending.values()))
        shares = {
            endpoint: max(self._quick_limit - len(self._sending.get(endpoint, ())), 0)
            for endpoint in quick
        }
        return Capacity(
            total=total,
            # Of endpoints that are not known to be quick and have no attempt under way.
            share=int(left > 0 or left_for_failing > 0),
            shares=dict.fromkeys(others, 0) | shares,
            others=max(left, 0),
            failing=max(left_for_failing, 0),
            busy=frozenset(self._busy),
            turns=dict(self._turns),
            platform=self._platform,
            platforms=self._platforms(quick),
            platform_turns=dict(self._platform_turns),
        )

    def is_shared(self, now: float) -> bool:
        """Return whether attempts of several platforms have started within a second.

        For any thread.
        """
        return sum(now - at < _SHARED_S for at in self._started_at.values()) > 1

    def _count(self, endpoints: Iterable[Id]) -> Counter[Id]:
        """Return the attempts under way of `endpoints`, by platform."""
        counts: Counter[Id] = Counter()
        for endpoint in endpoints:
            counts[self._platform_of[endpoint]] += len(self._sending[endpoint])
        return counts

    def _platforms(self, quick: Collection[Id]) -> dict[Id, PlatformShare]:
        """Return what platforms with attempts under way may have besides."""
        left = dict.fromkeys(self._platform_of.values(), self._platform)
        for endpoint, attempts in self._sending.items():
            platform, count = self._platform_of[endpoint], len(attempts)
            total, others, failing = left[platform]
            if endpoint in quick:
                left[platform] = PlatformShare(total - count, others, failing)
            elif endpoint in self._failing:
                left[platform] = PlatformShare(total - count, others, failing - count)
            else:
                left[platform] = PlatformShare(total - count, others - count, failing)
        return left

    def start(self, deliveries: Sequence[Delivery], now: float) -> None:
        """Note that attempts of `deliveries` start."""
        self._turn += 1
        for delivery in deliveries:
            endpoint_id = delivery.endpoint_id
            self._sending[endpoint_id][delivery.id] = now
            self._platform_of[endpoint_id] = delivery.platform_id
            self._busy[delivery.queue] += 1
            if delivery.failing_since is not None:
                self._failing.add(endpoint_id)
            _remember(self._turns, endpoint_id, self._turn)
            _remember(self._platform_turns, delivery.platform_id, self._turn)
        started = {delivery.platform_id: now for delivery in deliveries}
        lately = {key: at for key, at in self._started_at.items() if now - at < _SHARED_S}
        self._started_at = lately | started

    def finish(self, delivery: Delivery) -> None:
        """Note that the attempt of `delivery` has ended."""
        self._busy[delivery.queue] -= 1
        if not self._busy[delivery.queue]:
            del self._busy[delivery.queue]
        sending = self._sending[delivery.endpoint_id]
        sending.pop(delivery.id, None)
        if not sending:
            del self._sending[delivery.endpoint_id]
            self._platform_of.pop(delivery.endpoint_id, None)
            self._failing.discard(delivery.endpoint_id)

    def note_response(self, endpoint_id: Id, *, is_quick: bool) -> None:
        """Note whether an endpoint responded quickly."""
        if is_quick:
            _remember(self._quick, endpoint_id, None)
        else:
            self._quick.pop(endpoint_id, None)

    def _is_stuck(self, endpoint_id: Id, now: float) -> bool:
        # A quick endpoint that has become slow gets no more attempts until it responds.
        return any(now - since > SLOW_S for since in self._sending.get(endpoint_id, {}).values())


def _at_most(limit: int, counts: Mapping[Id, int]) -> int:
    """Return the sum of `counts`, of each `limit` at most."""
    return sum(min(count, limit) for count in counts.values())


def _most_of(threads: int) -> int:
    """Return how many of `threads` one platform may have."""
    return max(threads * 3 // 4, 1)


def _remember(values: dict[Id, Value], key: Id, value: Value) -> None:
    """Set the value of `key` as the last one; the first of too many is forgotten."""
    values.pop(key, None)
    values[key] = value
    if len(values) > _REMEMBERED:
        del values[next(iter(values))]


class ApartShare:
    """Shares the threads of a lane for tests that a request waits for, or for approvals.

    A platform has few of them at a time, and of those that wait the one of the platform with the
    fewest is next, so that there is no need for turns. They are counted here until their attempts
    have ended: the record of a test may end before, with its endpoint.
    """

    def __init__(
        self, what: type[PlatformCapacity], concurrency: int, *, platform_limit: int
    ) -> None:
        """Share `concurrency` threads among `what`, `platform_limit` at most for one platform."""
        self._what: Final = what
        self._concurrency: Final = concurrency
        self._platform_limit: Final = platform_limit
        self._sending: Final[Counter[Id]] = Counter()  # By platform.

    def capacity(self, _now: float) -> PlatformCapacity:
        """Return how many attempts may start now."""
        return self._what(
            total=self._concurrency - self._sending.total(),
            share=self._platform_limit,
            shares={
                platform: max(self._platform_limit - count, 0)
                for platform, count in self._sending.items()
            },
        )

    def start(self, deliveries: Sequence[Delivery], _now: float) -> None:
        """Note that `deliveries` are being sent."""
        self._sending.update(delivery.platform_id for delivery in deliveries)

    def finish(self, delivery: Delivery) -> None:
        """Note that the attempt of `delivery` has ended."""
        self._sending[delivery.platform_id] -= 1
        if not self._sending[delivery.platform_id]:
            del self._sending[delivery.platform_id]

    def note_response(self, _endpoint_id: Id, *, is_quick: bool) -> None:
        """Take no notice: those of slow endpoints are sent like others."""
