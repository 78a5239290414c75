"""Clients that stop reading, bodies that never end, and more connections than there may be."""

import asyncio
import itertools
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Final

import psutil

from attack.arena import Arena, Attack
from attack.judge import Measure, Strike
from attack.probes import answered, probes
from cardledger.api.connections.limits import ADDRESS_SHARE, DEFAULT_CONNECTIONS, RESERVE

_STALL_S: Final = 10.0
"""How long a client may read nothing."""

_BODY_S: Final = 30.0
"""How long a client may take for a body."""

_MARGIN_S: Final = 10.0
"""What a busy machine may take longer than a limit of time, and to look for those above it."""

_READERS: Final = 300
_BODIES: Final = 1200
_MANY: Final = 5000
_MANY_OF_ONE: Final = 1200
_AT_ONCE: Final = 100  # Connections that are opened at a time.
_PARTS: Final = 20  # Of so many, before those that were closed are looked for again.
_OPEN_S: Final = 45.0
_RECEIVE_BUFFER: Final = 4096  # Bytes: the rest of a file stays with the server.
_LOOK_S: Final = 1.0
_FILE: Final = b"GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: x\r\n\r\n"

Place = tuple[str, int]
"""Address and port of a client."""


class _Idlers:
    """Connections that send `hello`, then `more` each second, and read nothing.

    One that the server has closed is opened again while the attack goes on.
    """

    def __init__(
        self, arena: Arena, sources: Iterator[str], size: int, hello: bytes, more: bytes = b""
    ) -> None:
        self._arena: Final = arena
        self._sources: Final = sources
        self._size: Final = size
        self._hello: Final = hello
        self._more: Final = more
        self._members: Final[dict[Place, tuple[socket.socket, float]]] = {}
        self.opened = 0
        self.refused = 0
        self.longest_s = 0.0
        self.most = 0

    async def open_all(self) -> None:
        """Open as many as there should be before the attack begins, if there is the time."""
        deadline = time.monotonic() + _OPEN_S
        while self.opened < self._size and time.monotonic() < deadline:
            await self._fill()

    async def play(self) -> None:
        """Keep as many as there should be, until the time is over."""
        while self._arena.is_on:
            await self._fill()
            self._look()
            await asyncio.sleep(_LOOK_S)

    async def outlast(self, limit_s: float) -> None:
        """Return when the server has closed all of them, or had the time to."""
        deadline = time.monotonic() + limit_s + _MARGIN_S
        while self._members and time.monotonic() < deadline:
            self._look()
            await asyncio.sleep(_LOOK_S)

    def close(self) -> None:
        """Close what is left."""
        for member, _ in self._members.values():
            member.close()
        self._members.clear()

    async def _fill(self) -> None:
        """Open a part of those that are missing."""
        for _ in range(_PARTS):
            missing = min(_AT_ONCE, self._size - len(self._members))
            fresh = await asyncio.gather(*(self._open() for _ in range(missing)))
            if not any(fresh):
                return

    async def _open(self) -> bool:
        member = socket.socket()
        member.setblocking(False)  # noqa: FBT003 - the only form
        member.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        loop = asyncio.get_running_loop()
        to = (self._arena.address.host, self._arena.address.port)
        try:
            member.bind((next(self._sources), 0))
            await asyncio.wait_for(loop.sock_connect(member, to), 5)
            member.send(self._hello)
        except (OSError, TimeoutError):
            member.close()
            self.refused += 1
            return False
        self._members[member.getsockname()] = member, time.monotonic()
        self.opened += 1
        return True

    def _look(self) -> None:
        """Note how long each connection has lasted, and forget those that the server has closed."""
        now, served = time.monotonic(), _served(self._arena.address.port)
        self.most = max(self.most, sum(served.get(place, False) for place in self._members))
        for place, (member, opened_at) in list(self._members.items()):
            if place in served and self._trickle(member):
                self.longest_s = max(self.longest_s, now - opened_at)
                continue
            member.close()
            del self._members[place]

    def _trickle(self, member: socket.socket) -> bool:
        try:
            if self._more:
                member.send(self._more)
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True


def _served(port: int) -> dict[Place, bool]:
    """Return the clients whose connections to `port` are not closed by the server.

    Of each, whether it has been accepted: more may wait in the queue of the kernel.
    """
    return {
        (one.raddr[0], one.raddr[1]): one.pid is not None
        for one in psutil.net_connections("inet4")
        if one.raddr and one.laddr[1:] == (port,) and one.status == psutil.CONN_ESTABLISHED
    }


def _addresses(network: str, count: int = 8) -> Iterator[str]:
    """Return addresses of this machine, in turn."""
    return itertools.cycle(f"{network}.{number}" for number in range(1, count + 1))


async def _held(arena: Arena, idlers: _Idlers, limit_s: float) -> Strike:
    """Hold connections, each of which the server has to close within `limit_s`."""
    arena.begin()
    with closing(idlers):
        found, _ = await asyncio.gather(probes(arena), idlers.play())
        arena.end()
        await idlers.outlast(limit_s)
    return Strike(
        struck=idlers.opened,
        proof=f"{idlers.opened:,} connections opened, {idlers.most:,} at once",
        measures=[
            *answered(found),
            Measure(
                name="a connection lasts",
                value=idlers.longest_s,
                limit=limit_s + _MARGIN_S,
                unit="s",
            ),
        ],
    )


async def _stopped_readers(arena: Arena) -> Strike:
    idlers = _Idlers(arena, _addresses("127.0.4"), _READERS, _FILE)
    return await _held(arena, idlers, _STALL_S)


async def _slow_bodies(arena: Arena) -> Strike:
    head = arena.request("POST", "/customers", b"{").replace(
        b"Content-Length: 1\r\n", b"Content-Length: 60000\r\n"
    )
    idlers = _Idlers(arena, _addresses("127.0.5"), _BODIES, head, b" ")
    return await _held(arena, idlers, _BODY_S)


async def _too_many(arena: Arena) -> Strike:
    """Open more connections than there may be, in all and from one address."""
    # After a first request a connection may be idle for longer than a head may take.
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    many = _Idlers(arena, _addresses("127.0.6"), _MANY, request)
    one = _Idlers(arena, _addresses("127.0.7", 1), _MANY_OF_ONE, request)
    with closing(many), closing(one):
        await asyncio.gather(many.open_all(), one.open_all())
        arena.begin()
        found, *_ = await asyncio.gather(probes(arena), many.play(), one.play())
        arena.end()
    most_of_one = DEFAULT_CONNECTIONS // ADDRESS_SHARE + RESERVE
    return Strike(
        struck=min(many.opened, one.opened),
        proof=f"{many.opened + one.opened:,} connections opened, {many.most:,} and {one.most:,} at"
        " once",
        measures=[
            *answered(found),
            Measure(
                name="connections at once", value=many.most, limit=DEFAULT_CONNECTIONS + RESERVE
            ),
            Measure(name="connections of an address", value=one.most, limit=most_of_one),
            Measure(
                name="limits that were not met",
                value=(many.opened <= DEFAULT_CONNECTIONS) + (one.opened <= most_of_one),
                limit=0,
            ),
        ],
    )


ATTACKS: Final = (
    Attack(
        item="A3",
        name="readers that stop",
        aim=f"{_READERS} connections that ask for a file and do not read it are held for good",
        run=_stopped_readers,
    ),
    Attack(
        item="A3",
        name="slow bodies",
        aim=f"{_BODIES:,} connections that never finish a body are held for good",
        run=_slow_bodies,
    ),
    Attack(
        item="A3",
        name="too many connections",
        aim=f"{_MANY:,} connections, and {_MANY_OF_ONE:,} of one address, shut others out",
        run=_too_many,
    ),
)
