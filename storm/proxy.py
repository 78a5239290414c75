"""A TCP proxy between our processes and their servers: faults delay, hold or cut its traffic.

Each process reaches PostgreSQL and Redis over a link of its own: a port of the loopback address in
front of one server. A link passes bytes on, delays them, holds them back (the kernel goes on
acknowledging them, as it does for a host that hangs), or cuts its connections: at once, after a
number of bytes, or around a COMMIT. Links count what they did, so that a fault can prove that it
struck.
"""

import asyncio
import secrets
import socket
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from enum import Enum
from typing import Any, Final, Self, TypeVar

_CHUNK: Final = 1 << 16
_CLOSE_AGAIN_S: Final = 0.02
_CALL_TIMEOUT_S: Final = 10.0
_PORTS: Final = range(15_000, 32_000)

Result = TypeVar("Result")

Address = tuple[str, int] | str
"""A host with its port, or the path of a Unix socket."""


class Trap(Enum):
    """Where a connection is cut when its client sends a marked message."""

    BEFORE = "before"  # The message never reaches the server.
    AFTER = "after"  # The server gets the message; its answer is lost.


class _Session:
    """One connection of a client with the one to the server that belongs to it."""

    def __init__(self, client: StreamWriter, server: StreamWriter) -> None:
        self.client: Final = client
        self.server: Final = server
        self.passing: Final = asyncio.Event()  # Cleared: it is frozen.
        self.passing.set()
        self.used_at = 0.0
        self.held = 0  # Bytes that arrived since it is frozen.
        self.answer_is_lost = False
        self.has_ended = False

    def abort(self) -> None:
        """End both connections; what is under way is lost."""
        self._end()
        for writer in (self.client, self.server):
            writer.transport.abort()

    def close(self) -> None:
        """End both connections; what is under way arrives."""
        self._end()
        for writer in (self.client, self.server):
            writer.close()

    def _end(self) -> None:
        self.has_ended = True
        self.passing.set()


class Link:
    """One port in front of one server. Every method may be called from any thread."""

    def __init__(self, name: str, target: Address, loop: asyncio.AbstractEventLoop) -> None:
        """Describe a link; `Network.link` opens it."""
        self.name: Final = name
        self._target: Final = target
        self._loop: Final = loop
        self._sessions: Final[set[_Session]] = set()
        self._entry: Final = asyncio.Event()  # Cleared: new connections are frozen.
        self._entry.set()
        self._delay_s = 0.0
        self._budget: int | None = None  # Bytes until all connections are cut.
        self._trap: tuple[Trap, bytes] | None = None
        self.port = 0
        self.held_bytes = 0
        self.held_chunks = 0
        self.delayed_bytes = 0
        self.cut_connections = 0
        self.trapped = 0

    # --- what a fault does ---------------------------------------------------------------------

    def freeze(self) -> None:
        """Forward nothing more, in either direction, and answer no new connection.

        Everything is accepted and acknowledged, as by a host or a pooler that hangs.
        """
        self._call(self._freeze)

    def freeze_present(self) -> int:
        """Freeze the connections that exist, as a moved address does; return how many."""
        return self._call(self._freeze_present)

    def freeze_one(self) -> bool:
        """Freeze the connection that was used last; return whether there was one."""
        return self._call(self._freeze_one)

    def thaw(self) -> None:
        """Forward what was held back, and go on."""
        self._call(self._thaw)

    def cut_frozen(self) -> int:
        """Cut the frozen connections; return how many bytes waited on them."""
        return self._call(self._cut_frozen)

    def delay(self, seconds: float) -> None:
        """Keep every piece of data for `seconds` in each direction; 0 ends the delay."""
        self._call(lambda: setattr(self, "_delay_s", seconds))

    def cut(self) -> int:
        """Cut every connection at once; return how many there were."""
        return self._call(self._cut)

    def cut_after(self, size: int) -> None:
        """Cut every connection, in the middle of a message, once `size` more bytes have passed."""
        self._call(lambda: setattr(self, "_budget", size))

    def cut_at(self, marker: bytes, trap: Trap) -> None:
        """Cut the next connection whose client sends `marker`."""
        self._call(lambda: setattr(self, "_trap", (trap, marker)))

    def disarm(self) -> None:
        """Forget `cut_after` and `cut_at`."""
        self._call(self._disarm)

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return self._call(lambda: len(self._sessions))

    # --- in the loop -----------------------------------------------------------------------------

    async def open(self) -> asyncio.Server:
        """Listen on a free port."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    def close(self) -> None:
        """Cut what is open; only in the loop."""
        self._entry.set()
        self._cut()

    def _call(self, work: Callable[[], Result]) -> Result:
        async def run() -> Result:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(_CALL_TIMEOUT_S)

    def _freeze(self) -> None:
        self._entry.clear()
        self._freeze_present()

    def _freeze_present(self) -> int:
        for session in self._sessions:
            session.passing.clear()
        return len(self._sessions)

    def _thaw(self) -> None:
        self._entry.set()
        for session in self._sessions:
            session.passing.set()

    def _cut(self) -> int:
        count = len(self._sessions)
        for session in list(self._sessions):
            session.abort()
        self.cut_connections += count
        return count

    def _disarm(self) -> None:
        self._budget = None
        self._trap = None

    def _freeze_one(self) -> bool:
        latest = max(self._sessions, key=lambda session: session.used_at, default=None)
        if latest is not None:
            latest.passing.clear()
        return latest is not None

    def _cut_frozen(self) -> int:
        frozen = [session for session in self._sessions if not session.passing.is_set()]
        for session in frozen:
            session.abort()
        return sum(session.held for session in frozen)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        await self._entry.wait()  # The kernel has accepted the connection; no process answers.
        try:
            upstream, downstream = await self._connect()
        except OSError:
            writer.transport.abort()
            return
        session = _Session(writer, downstream)
        self._sessions.add(session)
        try:
            await asyncio.gather(
                self._pump(session, reader, downstream, is_request=True),
                self._pump(session, upstream, writer, is_request=False),
            )
        except (OSError, EOFError):
            pass
        finally:
            self._sessions.discard(session)
            session.close()

    async def _connect(self) -> tuple[StreamReader, StreamWriter]:
        if isinstance(self._target, str):
            return await asyncio.open_unix_connection(self._target)
        return await asyncio.open_connection(*self._target)

    async def _pump(
        self, session: _Session, reader: StreamReader, writer: StreamWriter, *, is_request: bool
    ) -> None:
        while data := await reader.read(_CHUNK):
            await self._hold(session, len(data))
            if self._is_trapped(session, data, is_request=is_request):
                return
            rest = self._spend(len(data))
            writer.write(data[:rest])
            await writer.drain()
            if rest < len(data):
                self._budget = None
                self._cut()
                return
        # A half-closed connection sends nothing more. The end of a frozen one is not passed on.
        await session.passing.wait()
        session.close()

    async def _hold(self, session: _Session, size: int) -> None:
        session.used_at = self._loop.time()
        if not session.passing.is_set():
            session.held += size
            self.held_bytes += size
            self.held_chunks += 1
            await session.passing.wait()
        if session.has_ended:
            raise EOFError
        if self._delay_s:
            self.delayed_bytes += size
            await asyncio.sleep(self._delay_s)

    def _is_trapped(self, session: _Session, data: bytes, *, is_request: bool) -> bool:
        """Say whether the session ends here, because of a trap."""
        if not is_request:
            if session.answer_is_lost:
                self._cut_one(session)
            return session.answer_is_lost
        if self._trap is None or self._trap[1] not in data:
            return False
        trap, _ = self._trap
        self._trap = None
        self.trapped += 1
        if trap is Trap.BEFORE:
            self._cut_one(session)
            return True
        session.answer_is_lost = True
        return False

    def _cut_one(self, session: _Session) -> None:
        self.cut_connections += 1
        session.abort()

    def _spend(self, size: int) -> int:
        """Return how many of `size` bytes may pass before the connections are cut."""
        if self._budget is None:
            return size
        allowed = min(size, self._budget)
        self._budget -= allowed
        return allowed if self._budget == 0 else size


class Network:
    """The links of one storm, in an event loop and a thread of their own."""

    def __init__(self) -> None:
        """Start the thread."""
        self._loop: Final = asyncio.new_event_loop()
        self._servers: Final[list[asyncio.Server]] = []
        self._links: Final[list[Link]] = []
        self._thread: Final = threading.Thread(
            target=self._loop.run_forever, name="proxy", daemon=True
        )

    def __enter__(self) -> Self:
        """Run until the end of the block."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close every link and end the thread."""
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_TIMEOUT_S)
        self._loop.close()

    def link(self, name: str, target: Address) -> Link:
        """Open and return a link to `target`."""
        link = Link(name, target, self._loop)
        self._servers.append(self._run(link.open()))
        self._links.append(link)
        return link

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_TIMEOUT_S)

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        until = self._loop.time() + _CALL_TIMEOUT_S / 2
        while (others := asyncio.all_tasks() - {asyncio.current_task()}) and (
            self._loop.time() < until
        ):
            for link in self._links:
                link.close()  # Also of connections that were only being opened before.
            await asyncio.wait(others, timeout=_CLOSE_AGAIN_S)


def free_port() -> int:
    """Return a port of the loopback address that is free now.

    It is below the ports that a kernel gives to links and to outgoing connections, one of which
    would hold it for as long as it lives.
    """
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
