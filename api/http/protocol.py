"""uvicorn's HTTP protocol with limits of time and size, and the envelope for malformed requests.

uvicorn waits without limit for the rest of a head or a body, and accepts a head of any size.
`routing` limits the size of a body.
"""

import asyncio
from asyncio import AbstractEventLoop, TimerHandle
from typing import Any, Final
from uuid import uuid4

import httptools
from typing_extensions import override
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from cardledger.api.http.errors import ApiError, error_response
from cardledger.api.http.middleware import REQUEST_ID
from cardledger.api.http.routing import MAX_BODY
from cardledger.schema.wire.errors import Code

MAX_HEAD: Final = 64 * 1024
MAX_REQUEST: Final = 4 * MAX_BODY
"""The limit for a request with its chunk extensions and trailers."""

_LINGER_S: Final = 1.0
_AROUND: Final = len(": \r\n")
_BAD_REQUEST: Final = 400
_HEAD_TOO_LARGE: Final = 431


def bounded(*, patience_s: float) -> type[asyncio.Protocol]:
    """Return a protocol for uvicorn whose requests must arrive within `patience_s`."""

    class Bounded(_BoundedProtocol):
        patience: float = patience_s

    return Bounded


class _BoundedProtocol(HttpToolsProtocol):
    patience: float

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.url = b""  # uvicorn sets both when a request begins, which a malformed one never does.
        self.headers = []
        self._deadline: TimerHandle | None = None
        self._is_in_head = True
        self._head_size = 0
        self._size = 0
        self._is_refused = False

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # As uvicorn has it.
        super().connection_made(transport)
        self._start_timer()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        # The parser reports a header only when it is complete, so raw bytes are counted.
        if self._is_in_head:
            self._head_size += len(data)
        self._size += len(data)
        super().data_received(data)
        if self._size > MAX_REQUEST:
            self.transport.close()
        if self._is_in_head and self._head_size > MAX_HEAD and not self._is_refused:
            self._refuse_head()

    @override
    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._deadline is None:
            self._start_timer()

    @override
    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._head_size = 0
        if self._is_too_large():
            raise _HeadTooLargeError
        super().on_headers_complete()

    @override
    def on_message_complete(self) -> None:
        self._is_in_head = True
        self._size = 0
        self._stop_timer()
        super().on_message_complete()

    @override
    def send_400_response(self, msg: str) -> None:
        if self.transport.is_closing() or self._is_refused:
            return
        cycle: RequestResponseCycle | None = self.cycle  # None is missing in uvicorn's types.
        if cycle is not None and not cycle.response_complete and not cycle.more_body:
            # A complete request came before, whose response has not been sent yet.
            cycle.keep_alive = False
            return
        if self._is_too_large():
            self._refuse_head()
            return
        message = "Malformed HTTP/1.1 request; check the request line and the headers."
        self._refuse(_BAD_REQUEST, message)

    def _is_too_large(self) -> bool:
        lines = sum(len(name) + len(value) + _AROUND for name, value in self.headers)
        return len(self.url) + lines > MAX_HEAD

    def _refuse_head(self) -> None:
        message = f"Request line and headers too large; send at most {MAX_HEAD} bytes."
        self._refuse(_HEAD_TOO_LARGE, message)

    def _refuse(self, status: int, message: str) -> None:
        response = error_response(ApiError(Code.INVALID_INPUT, message, status=status))
        headers = [*response.raw_headers, (REQUEST_ID.lower().encode(), str(uuid4()).encode())]
        lines = [b"%b: %b\r\n" % header for header in headers]
        head = [STATUS_LINE[status], *lines, b"connection: close\r\n\r\n"]
        self.transport.write(b"".join([*head, bytes(response.body)]))
        # Closed at once, the connection would be reset by bytes still in transit, and the client
        # could lose the response. So they are read for a moment and discarded.
        self._is_refused = True
        self.transport.write_eof()
        self.loop.call_later(_LINGER_S, self.transport.close)

    # --- time ------------------------------------------------------------------------------

    def _start_timer(self) -> None:
        self._deadline = self.loop.call_later(self.patience, self._time_out)

    def _stop_timer(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _time_out(self) -> None:
        self._deadline = None
        if self.transport.is_closing():
            return
        if self._is_in_head or self.cycle.response_complete:
            self.transport.close()
        else:
            # `routing` reads the body, responds and closes, unless this process is slow.
            self._start_timer()


class _HeadTooLargeError(httptools.HttpParserError):
    """Stops the parser on this connection; uvicorn treats the request as malformed."""
