"""Connections under one limit, and which of them makes room for another."""

from collections import deque
from collections.abc import Iterator
from operator import itemgetter
from typing import Final, Protocol

FRESH_S: Final = 1.0
"""So long a client has had no time to send its request; then it is slow."""

_MISSES_SHARE: Final = 64

# Which connection makes room first.
_SLOW, _IDLE, _FRESH = range(3)


class Connection(Protocol):
    """What the registry knows of a connection."""

    address: str  # Under which it is counted; empty: under none.

    @property
    def is_idle(self) -> bool:
        """Whether it is between two requests, and its client has read the last response."""

    def waiting_since(self) -> float | None:
        """Return since when its client has had something to do, or nothing when it is idle.

        Bytes that arrive meanwhile do not change it. None while a request is processed.
        """

    def check(self, now: float) -> None:
        """Close it if its client took too long."""

    def evict(self) -> None:
        """Close it at once."""


class Crowd:
    """The connections under one limit.

    Looking at all takes milliseconds when there are thousands. So one look queues all that can make
    room, and the queues serve every new connection until the registry's next tick.
    """

    def __init__(self) -> None:
        """Begin without connections."""
        self._members: Final[set[Connection]] = set()
        self._queues: tuple[deque[Connection], ...] | None = None  # By rank; None: not looked yet.
        self._misses = 0

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._members)

    def add(self, connection: Connection) -> None:
        """Add `connection`, which has just been opened."""
        self._members.add(connection)
        if self._queues is not None:
            self._queues[_FRESH].append(connection)

    def discard(self, connection: Connection) -> None:
        """Remove `connection` if it is there."""
        self._members.discard(connection)

    def forget(self) -> None:
        """Look anew at the next search."""
        self._queues = None

    def victim(self, now: float) -> Connection | None:
        """Return the connection that needs its place least; None while all are busy."""
        if self._queues is None:
            self._queues = self._look(now)
        found = self._next(self._queues, now)
        if found is None:
            # A busy connection may have become idle since: worth another look now and then.
            self._misses += 1
            if self._misses * _MISSES_SHARE >= len(self._members):
                self._queues = self._look(now)
                found = self._next(self._queues, now)
        return found

    def _look(self, now: float) -> tuple[deque[Connection], ...]:
        self._misses = 0
        ranked = [(rank, each) for each in self._members if (rank := _rank(each, now))]
        ranked.sort(key=itemgetter(0))
        queues: tuple[deque[Connection], ...] = (deque(), deque(), deque())
        for (kind, _), connection in ranked:
            queues[kind].append(connection)
        return queues

    def _next(self, queues: tuple[deque[Connection], ...], now: float) -> Connection | None:
        for queued_as, queue in enumerate(queues):
            while queue:
                connection = queue.popleft()
                rank = _rank(connection, now) if connection in self._members else None
                if rank is None:
                    continue
                if rank[0] <= queued_as:
                    return connection
                queues[rank[0]].append(connection)  # It needs its place more than at the look.
        return None


def _rank(connection: Connection, now: float) -> tuple[int, float] | None:
    """Return which kind of connection it is, and since when; None while it is busy."""
    since = connection.waiting_since()
    if since is None:
        return None
    if connection.is_idle:
        return _IDLE, since
    return (_FRESH if now - since < FRESH_S else _SLOW), since
