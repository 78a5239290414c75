"""The open connections of a server: how many there are, which one makes room, and their clock."""

from asyncio import AbstractEventLoop, TimerHandle
from collections import Counter
from enum import Enum, auto
from typing import Final

import structlog

from cardledger.api.addresses import counted_as, is_within
from cardledger.api.connections.crowd import Connection, Crowd
from cardledger.api.connections.limits import RESERVE, ConnectionLimits
from cardledger.workers.metrics import counted

_TICK_S: Final = 0.5
_TICKS_PER_LIMIT: Final = 8
_LOG_INTERVAL_S: Final = 10.0
_HELD_LIMIT: Final = 64 * 1024 * 1024
_DISCARD_S: Final = 0.15
_DISCARDS_A_SECOND: Final = 110
_MANY_SHARE: Final = 4  # An address has many connections from a quarter of its limit on.
_ROOM_A_SECOND: Final = 20
_ROOM_LIMIT: Final = 100

_log = structlog.get_logger()


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
        self._admitted: Final = Crowd()
        self._by_address: Final[dict[str, Crowd]] = {}  # Those of `_admitted`.
        self._reserved: Final = Crowd()
        self._searched: Final[set[Crowd]] = set()  # Since the last look.
        # How many more connections are closed for new ones of an address that has many.
        self._room: Final[dict[str, float]] = {}
        # One address may hold the same share of all bytes as of all connections.
        share = min(limits.per_address, limits.connections)
        self._held_limit_per_address: Final = _HELD_LIMIT * share // limits.connections
        self._held = 0
        self._held_by: Final[Counter[str]] = Counter()
        self.discarding = 0  # Connections from which is read what is discarded.
        self.is_ending = False  # The server: none of these is waited for.
        self._evicted = 0
        self._refused = 0
        self._logged_at = -_LOG_INTERVAL_S

    def __len__(self) -> int:
        return len(self._admitted) + len(self._reserved)

    def address_of(self, host: str) -> str:
        """Return under which address a connection from `host` is counted: a proxy under none."""
        return "" if is_within(host, self.limits.proxies) else counted_as(host)

    def admit(self, connection: Connection, loop: AbstractEventLoop) -> Admission:
        """Add `connection`, unless it is refused; another may be closed to make room.

        For an address with many connections, only so many are closed a second: a client that opens
        again at once what was closed would take the time of the event loop with its requests.
        """
        if self._timer is None:
            self._ticked_at = loop.time()
            self._timer = loop.call_later(self.tick_s, self._tick, loop)
        crowd = self._full_crowd(connection.address)
        if crowd is None or self._make_room_for(connection.address, crowd):
            self._admitted.add(connection)
            if connection.address:
                self._by_address.setdefault(connection.address, Crowd()).add(connection)
            return Admission.ADMITTED
        if len(self._reserved) < RESERVE or self._make_room(self._reserved):
            self._reserved.add(connection)
            return Admission.HEALTH_ONLY
        self._refused += 1
        counted.refuse(counted.Refusal.CONNECTIONS)
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

    def hold(self, address: str, size: int) -> bool:
        """Count `size` bytes of `address` that wait to be parsed; negative when they have been.

        Returns whether neither the address, if there is one, nor all together hold too much.
        """
        self._held += size
        if not address:
            return self._held <= _HELD_LIMIT
        held = self._held_by[address] = self._held_by[address] + size
        if not held:
            del self._held_by[address]
        return held <= self._held_limit_per_address and self._held <= _HELD_LIMIT

    @property
    def discard_s(self) -> float:
        """How long a connection waits before more of a refused request is read from it.

        One of a few is read at about 1.5 MB a second. Refused files of however many clients take
        little time from the requests of others.
        """
        return max(_DISCARD_S, self.discarding / _DISCARDS_A_SECOND)

    def _full_crowd(self, address: str) -> Crowd | None:
        """Return the connections of which one makes room for another from `address`, if needed."""
        peers = self._by_address.get(address)
        if peers is not None and len(peers) >= self.limits.per_address:
            return peers
        return self._admitted if len(self._admitted) >= self.limits.connections else None

    def _make_room_for(self, address: str, crowd: Crowd) -> bool:
        """Close a connection of `crowd` for one from `address`; return whether it was done."""
        if len(self._by_address.get(address, ())) * _MANY_SHARE < self.limits.per_address:
            return self._make_room(crowd)  # Also behind a proxy.
        room = self._room.get(address, _ROOM_LIMIT)
        if room < 1 or not self._make_room(crowd):
            return False
        self._room[address] = room - 1
        return True

    def _make_room(self, crowd: Crowd) -> bool:
        """Close the connection of `crowd` that needs it least; return whether there was one."""
        self._searched.add(crowd)
        victim = crowd.victim(self.now)
        if victim is None:
            return False
        self.remove(victim)
        victim.evict()
        self._evicted += 1
        return True

    def _tick(self, loop: AbstractEventLoop) -> None:
        at = loop.time()
        passed_s, self._ticked_at = at - self._ticked_at, at
        self.now += min(passed_s, 2 * self.tick_s)
        for connection in [*self._admitted, *self._reserved]:
            connection.check(self.now)
        for crowd in self._searched:
            crowd.forget()
        self._searched.clear()
        for address, room in list(self._room.items()):
            self._room[address] = room + _ROOM_A_SECOND * passed_s
            if self._room[address] >= _ROOM_LIMIT:
                del self._room[address]
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
