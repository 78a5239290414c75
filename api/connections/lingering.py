"""The end of a connection whose client may still be sending a request that has its response."""

from asyncio import AbstractEventLoop, Transport
from typing import Final

from cardledger.api.connections.registry import ConnectionRegistry
from cardledger.api.connections.response_transport import Flow

_SILENCE_S: Final = 1.0


class Lingering:
    """Discards what still arrives, and closes the connection when no more does.

    Closed at once, it would be reset by bytes in transit, and the client could lose the response.
    """

    def __init__(
        self,
        transport: Transport,
        flow: Flow,
        registry: ConnectionRegistry,
        loop: AbstractEventLoop,
        *,
        size_limit: int,
    ) -> None:
        """Discard up to `size_limit` bytes, for as long as a body may take to arrive."""
        self._transport: Final = transport
        self._flow: Final = flow
        self._registry: Final = registry
        self._loop: Final = loop
        self._size_limit: Final = size_limit
        self._size = 0
        self._is_counted = not transport.is_closing()
        registry.discarding += self._is_counted
        flow.resume_reading()
        transport.write_eof()
        until = loop.time() + registry.limits.body_timeout_s
        loop.call_later(_SILENCE_S, self._look, until, 0)

    def discard(self, size: int) -> None:
        """Note that `size` bytes have arrived, and read more in a moment."""
        self._size += size
        self._flow.pause_reading()
        if self._size <= self._size_limit:
            self._loop.call_later(self._registry.discard_s, self._read_on)

    def end(self) -> None:
        """Count no longer: the connection is closed."""
        self._registry.discarding -= self._is_counted
        self._is_counted = False

    def _read_on(self) -> None:
        if not self._transport.is_closing():
            self._flow.resume_reading()

    def _look(self, until: float, size: int) -> None:
        """Close it `until` then, or when nothing has arrived since it had been `size` bytes.

        While it waits to be read, what has arrived is not known.
        """
        is_silent = self._size == size and not self._flow.read_paused
        is_over = self._size > self._size_limit or self._loop.time() >= until
        if is_silent or is_over or self._registry.is_ending:
            self._transport.close()
        else:
            self._loop.call_later(_SILENCE_S, self._look, until, self._size)
