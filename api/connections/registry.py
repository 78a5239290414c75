"""The open connections of a server: how many there are, which one makes room, and their clock."""

import heapq
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Collection
from enum import Enum, auto
from operator import itemgetter
from typing import Final, Protocol

import structlog

from cardledger.api.connections.addresses import counted_as, is_within
from cardledger.api.connections.limits import RESERVE, ConnectionLimits

_TICK_S: Final = 0.5
_TICKS_PER_LIMIT: Final = 8
_FRESH_S: Final = 1.0
_BATCH_SHARE: Final = 64
_LOG_INTERVAL_S: Final = 10.0
_HELD_LIMIT: Final = 64 * 1024 * 1024

# Which connection makes room first.
_SLOW, _IDLE, _FRESH = range(3)

_log = structlog.get_logger()


class Connection(Protocol):
    """What the registry knows of a connection."""

    address: str  # Under which it is counted; empty: under none.

    @property
    def is_idle(self) -> bool:
        """Whether it is between two requests, and its client has read the last response."""

    def waiting_since(self) -> float | None:
        """Return when its client had to do something next; None while a request is processed."""

    def check(self, now: float) -> None:
        """Close it if its client took too long."""

    def evict(self) -> None:
        """Close it at once."""


class Admission(Enum):
    """What becomes of a new connection."""

    ADMITTED = auto()
    HEALTH_ONLY = auto()  # Within the reserve.
    REFUSED = auto()


class ConnectionRegistry:
    """The connections of one server. Its clock ticks at most twice as fast as it looks.

    A process that was suspended, or whose event loop was busy, could not read what its clients had
    sent: such a time counts as two ticks, however long it was.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        """Admit connections within `limits`."""
        shortest = min(limits.head_timeout_s, limits.body_timeout_s, limits.stall_timeout_s)
        self.limits: Final = limits
        self.tick_s: Final = min(_TICK_S, shortest / _TICKS_PER_LIMIT)
        self.now = 0.0
        self._ticked_at = 0.0
        self._timer: TimerHandle | None = None
        self._admitted: Final[set[Connection]] = set()
        self._by_address: Final[dict[str, set[Connection]]] = {}  # Those of `_admitted`.
        self._reserved: Final[set[Connection]] = set()
        self._held = 0
        self._evicted = 0
        self._refused = 0
        self._logged_at = -_LOG_INTERVAL_S

    def __len__(self) -> int:
        return len(self._admitted) + len(self._reserved)

    def address_of(self, host: str) -> str:
        """Return under which address a connection from `host` is counted: a proxy under none."""
        return "" if is_within(host, self.limits.proxies) else counted_as(host)

    def admit(self, connection: Connection, loop: AbstractEventLoop) -> Admission:
        """Add `connection`, unless it is refused; another may be closed to make room."""
        if self._timer is None:
            self._ticked_at = loop.time()
            self._timer = loop.call_later(self.tick_s, self._tick, loop)
        peers = self._by_address.get(connection.address, ()) if connection.address else ()
        crowd: Collection[Connection] = ()
        if len(peers) >= self.limits.per_address:
            crowd = peers
        elif len(self._admitted) >= self.limits.connections:
            crowd = self._admitted
        if not crowd or self._make_room(crowd):
            self._admitted.add(connection)
            if connection.address:
                self._by_address.setdefault(connection.address, set()).add(connection)
            return Admission.ADMITTED
        if len(self._reserved) < RESERVE or self._make_room(self._reserved):
            self._reserved.add(connection)
            return Admission.HEALTH_ONLY
        self._refused += 1
        return Admission.REFUSED

    def remove(self, connection: Connection) -> None:
        """Remove `connection`, which has been closed."""
        self._admitted.discard(connection)
        self._reserved.discard(connection)
        peers = self._by_address.get(connection.address)
        if peers is not None:
            peers.discard(connection)
            if not peers:
                del self._by_address[connection.address]

    def hold(self, size: int) -> bool:
        """Count `size` bytes that wait to be parsed; negative when they have been.

        Returns whether all connections together hold no more than they may.
        """
        self._held += size
        return self._held <= _HELD_LIMIT

    def _make_room(self, crowd: Collection[Connection]) -> bool:
        """Close the connections of `crowd` that need it least; return whether there was one.

        Looking at all takes milliseconds when there are thousands, so several are closed at once.
        """
        ranked = [(rank, each) for each in crowd if (rank := self._rank(each)) is not None]
        count = max(1, len(crowd) // _BATCH_SHARE)
        for _, victim in heapq.nsmallest(count, ranked, key=itemgetter(0)):
            self.remove(victim)
            victim.evict()
            self._evicted += 1
        return bool(ranked)

    def _rank(self, connection: Connection) -> tuple[int, float] | None:
        since = connection.waiting_since()
        if since is None:
            return None
        if connection.is_idle:
            return _IDLE, since
        # A connection that has just been opened has had no time to send its request.
        return (_FRESH if self.now - since < _FRESH_S else _SLOW), since

    def _tick(self, loop: AbstractEventLoop) -> None:
        at = loop.time()
        self.now += min(at - self._ticked_at, 2 * self.tick_s)
        self._ticked_at = at
        for connection in [*self._admitted, *self._reserved]:
            connection.check(self.now)
        self._log_full()
        self._timer = loop.call_later(self.tick_s, self._tick, loop) if len(self) else None

    def _log_full(self) -> None:
        has_news = self._evicted or self._refused
        if not has_news or self.now - self._logged_at < _LOG_INTERVAL_S:
            return
        _log.warning(
            "connection limit reached",
            connections=len(self),
            evicted=self._evicted,
            refused=self._refused,
        )
        self._logged_at, self._evicted, self._refused = self.now, 0, 0
