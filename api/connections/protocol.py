"""uvicorn's HTTP protocol with limits of time and size, and the envelope for malformed requests.

uvicorn waits without limit for the rest of a head or a body and for a client that does not read,
accepts a head of any size, and parses every pipelined request that it has received. `routing`
limits the size of a body. What happens for each request is a few attributes; the registry looks at
the connections twice a second (docs/decisions/0040-connections.md).
"""

import asyncio
import socket
from asyncio import AbstractEventLoop
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

from cardledger.api.connections.limits import ConnectionLimits
from cardledger.api.connections.lingering import Lingering
from cardledger.api.connections.registry import Admission, ConnectionRegistry
from cardledger.api.connections.request_head import (
    BAD_REQUEST,
    FULL,
    LARGE_HEAD,
    MALFORMED,
    MAX_HEAD,
    host_error,
    is_form,
    is_one_request,
    length_of_body,
    piece_end,
    size_of,
)
from cardledger.api.connections.response_transport import Flow, ResponseTransport
from cardledger.api.http.errors import TOO_SLOW, ApiError, error_response
from cardledger.api.http.middleware import PROBES, REQUEST_ID
from cardledger.api.http.routing import MAX_BODY
from cardledger.api.ingestion.bodies import MAX_BODY as MAX_EVENTS_BODY
from cardledger.api.ingestion.bodies import PATH as EVENTS_PATH
from cardledger.api.uploads.limits import form_limit
from cardledger.schema.wire.errors import Code

MAX_REQUEST: Final = 16 * MAX_BODY
"""The limit for a request with its chunk extensions and trailers.

More than the loop reads at once: a body above `MAX_BODY` gets a response before it is cut off.
"""

_EVENTS_REQUEST: Final = MAX_EVENTS_BODY + MAX_REQUEST
"""The same for a request with many network events."""

_SOCKET_BUFFER: Final = 128 * 1024
"""What the kernel keeps for a client that reads slowly, in bytes; Linux doubles it.

The kernel takes more only when a third of it is free, so a client is seen to read after it has read
that much. The kernel's own 4 MB would let a client at 1 Mbit/s look as if it had stopped for 10 s.
"""

_PIECES_AT_ONCE: Final = 64
"""Pieces that are parsed before the event loop has its turn; a client chooses their size."""

_PROBE_PATHS: Final = frozenset(path.encode() for path in PROBES)

_JOINED: Final = 16 * 1024
"""The greatest body that is copied behind its head; files are sent from one buffer for everyone."""


def bounded(limits: ConnectionLimits) -> type[asyncio.Protocol]:
    """Return a protocol for one uvicorn server, whose connections are within `limits`."""

    class Bounded(BoundedProtocol):
        registry = ConnectionRegistry(limits)

    return Bounded


class BoundedProtocol(HttpToolsProtocol):
    """One connection; implements `registry.Connection`."""

    registry: ConnectionRegistry
    flow: Flow

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
        self.address = ""
        self._is_in_head = True
        self._head_size = 0
        self._size = 0
        self._body_left = 0  # Bytes of the body that are to come, by its Content-Length.
        self._size_limit = MAX_REQUEST  # Of the request that is being received.
        self._problem = MALFORMED
        # What the parser stopped at; sent after the responses to the requests before it.
        self._refusal: ApiError | None = None
        self._lingering: Lingering | None = None  # Once the last byte is written.
        # `Connection: close` was chosen only because the body may never be read to its end.
        self._is_kept_once_read = False
        self._is_for_health_only = False
        # Pipelined requests that are not parsed yet, from `_held_at` on.
        self._held = b""
        self._held_at = 0
        # By the registry's clock: since when the client is expected to send, or was idle; when it
        # last sent something; what it had not read at the last look, and since when.
        self._since = 0.0
        self._received_at = 0.0
        self._unread = 0
        self._head: bytes | bytearray | memoryview | None = None  # Of a response; not sent yet.
        self._unread_since = 0.0

    # --- of the registry -------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether it is between two requests, and its client has read the last response."""
        return self.timeout_keep_alive_task is not None and not self._unread

    def waiting_since(self) -> float | None:
        """Return since when its client has had something to do; None while a request is processed.

        For a head or a body that is since the request began, not since its last byte: a client that
        sends a byte now and then is as slow as one that sends none.
        """
        if self._unread or self._lingering:
            return self._since
        return self._since if self._has_responded() or self._awaits_body() else None

    def check(self, now: float) -> None:
        """Close it if its client took too long to send, or to read."""
        if self._does_not_read(now) or self._lingering or self.transport.is_closing():
            return
        limits = self.registry.limits
        if self._has_responded():
            # uvicorn closes an idle connection; what is not idle has sent a part of a request, or
            # of a body that was not needed for the response.
            limit_s = limits.head_timeout_s if self._is_in_head else limits.body_timeout_s
            if not self.is_idle and self._has_passed(limit_s, self._since, now):
                self.transport.close()
        elif not self._awaits_body():
            self._received_at = now  # This process is behind, not the client.
        elif self._has_passed(limits.stall_timeout_s, self._received_at, now):
            message = f"Request body timed out: nothing arrived for {limits.stall_timeout_s:g} s."
            self._end_body(ApiError(Code.INVALID_INPUT, message, status=TOO_SLOW))

    def evict(self) -> None:
        """Close it at once, without waiting for a client that does not read."""
        self.transport.abort()

    # --- of uvicorn ------------------------------------------------------------------------

    @override
    def shutdown(self) -> None:
        self._send_head()
        self._is_kept_once_read = False
        self.registry.is_ending = True
        if self._lingering:
            self.transport.close()
        super().shutdown()

    def keep_head(self, head: bytes | bytearray | memoryview) -> None:
        """Send the head of a response together with its body, if that follows at once.

        A head on its own would be a system call more for each request, and would wake the client
        twice. A body that comes later does not keep its head back.
        """
        self._head = head
        self.loop.call_soon(self._send_head)

    def write_body(self, data: bytes | bytearray | memoryview) -> None:
        """Send a part of a body, after the head that was kept for it."""
        if self._head is not None and len(data) <= _JOINED:
            data, self._head = b"".join((self._head, data)), None
        self._send_head()
        self.transport.write(data)

    def _send_head(self) -> None:
        head, self._head = self._head, None
        if head is not None:
            self.transport.write(head)

    def close_after_response(self) -> None:
        """Close it: at once only if its client is not known to be sending anything more."""
        self._send_head()
        if self.transport.is_closing() or self._lingering:
            return
        if self._is_in_head and not (self._held or self.pipeline or self.flow.read_paused):
            self.transport.close()
        else:
            self._end()

    # --- of asyncio ------------------------------------------------------------------------

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # As uvicorn has it.
        super().connection_made(transport)
        self.flow = Flow(transport)
        accepted = transport.get_extra_info("socket")
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER)
        self._since = self._received_at = self.registry.now
        self.address = self.registry.address_of(self.client[0] if self.client else "")
        admission = self.registry.admit(self, self.loop)
        self._is_for_health_only = admission is Admission.HEALTH_ONLY
        if admission is Admission.REFUSED:
            transport.abort()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.registry.remove(self)
        if self._lingering:
            self._lingering.end()
        self._let_go()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn cancels it only after a clean end.
        if self.cycle is not None:
            self.cycle.transport = self.transport  # Ends the circle of references.

    @override
    def data_received(self, data: bytes) -> None:
        if self._lingering:
            self._lingering.discard(len(data))
            return
        if self._is_stopped():
            self.flow.pause_reading()  # The refusal waits for its turn.
            return
        self._received_at = self.registry.now
        if self._held or self._must_wait():
            self._hold(self._held[self._held_at :] + data, 0)
        elif len(data) <= self._body_left or is_one_request(data):
            self._parse(data)
        else:
            self._parse_pieces(data, 0)

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        self._continue_soon()

    # --- of the parser ---------------------------------------------------------------------

    @override
    def on_message_begin(self) -> None:
        self._unset_keepalive_if_required()  # Set since these bytes arrived: see `_rest_read`.
        super().on_message_begin()

    @override
    def on_headers_complete(self) -> None:
        problem = self._head_problem()
        if problem is not None:
            self._problem = problem
            raise _RefusedHeadError
        super().on_headers_complete()
        self._is_in_head = False
        self._head_size = 0
        length = length_of_body(self.headers)
        self._body_left = length or 0
        if self.scope["path"] == EVENTS_PATH:
            self._size_limit = _EVENTS_REQUEST
        elif is_form(self.headers):
            self._size_limit = MAX_REQUEST + form_limit(self.scope["path"])
        cycle = self.cycle
        cycle.transport = ResponseTransport(self)
        if self._is_for_health_only:
            cycle.keep_alive = False
        # A response that is sent before such a body has arrived ends the connection, and says so:
        # the body may be too long to be discarded, or never come after a refused `100-continue`.
        is_short = length is not None and length <= MAX_BODY
        is_read_anyway = is_short and not self.expect_100_continue
        self._is_kept_once_read = cycle.keep_alive and not is_read_anyway
        if not is_read_anyway:
            cycle.keep_alive = False

    @override
    def on_body(self, body: bytes) -> None:
        self._body_left -= len(body)
        super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        self._is_in_head = True
        self._body_left = 0
        self._size, self._size_limit = 0, MAX_REQUEST
        super().on_message_complete()
        if self.cycle.response_complete:
            self._rest_read()
        elif self._is_kept_once_read and not self.cycle.response_started:
            self.cycle.keep_alive = True

    @override
    def on_response_complete(self) -> None:
        self._send_head()  # Of a response without a body.
        self._since = self.registry.now
        super().on_response_complete()
        if self._lingering or not self._is_in_head:
            self._unset_keepalive_if_required()  # It is not idle: a body is still arriving.
        self._continue_soon()

    @override
    def send_400_response(self, msg: str) -> None:
        if not self._is_stopped():
            self._refuse_in_turn(LARGE_HEAD if self._is_too_large() else self._problem)

    # --- one request at a time -------------------------------------------------------------

    def _is_stopped(self) -> bool:
        """Whether no more is parsed on this connection."""
        return (
            self._lingering is not None or self._refusal is not None or self.transport.is_closing()
        )

    def _has_responded(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # None is missing in uvicorn's types.
        return cycle is None or cycle.response_complete

    def _awaits_body(self) -> bool:
        """Whether the request that is being answered lacks a part of its body."""
        return (
            not self.pipeline
            and self.cycle.more_body
            and not (self.flow.read_paused or self.cycle.waiting_for_100_continue)
        )

    def _must_wait(self) -> bool:
        """Whether no more may be parsed before a request is answered, and its answer read.

        One request is parsed ahead where its head arrived with the end of a body. uvicorn keeps it
        in `pipeline`, and `cycle` is the newest: the one being answered while `pipeline` is empty.
        """
        if self.flow.write_paused or self.pipeline:
            return True
        return not (self._has_responded() or self.cycle.more_body)

    def _rest_read(self) -> None:
        """Begin to wait for the next request: the body was answered before it had arrived."""
        self._since = self.registry.now
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def _parse(self, data: bytes) -> None:
        if self.timeout_keep_alive_task is not None:
            self._since = self.registry.now  # It was idle.
        # The parser reports a header only when it is complete, so raw bytes are counted.
        if self._is_in_head:
            self._head_size += len(data)
        self._size += len(data)
        super().data_received(data)
        if self._size > self._size_limit:
            self.transport.close()
        if self._is_in_head and self._head_size > MAX_HEAD and self._refusal is None:
            self._refuse_in_turn(LARGE_HEAD)

    def _parse_pieces(self, data: bytes, start: int) -> None:
        """Parse `data` from `start` on, until a request is complete; hold the rest."""
        for _ in range(_PIECES_AT_ONCE):
            # What is surely a part of a body has no end of a head, and is one piece.
            rest = min(start + self._body_left, len(data))
            end = rest if rest > start else piece_end(data, start)
            self._parse(data[start:end])
            start = end
            if start == len(data) or self._is_stopped():
                self._let_go()
                return
            if self._must_wait():
                self._hold(data, start)
                return
        self._hold(data, start)
        self._continue_soon()

    def _hold(self, data: bytes, start: int) -> None:
        """Keep `data` from `start` on, and read no more, until the response has been read."""
        self.flow.is_holding = True
        self.flow.pause_reading()
        is_within_limit = self.registry.hold(self.address, len(data) - len(self._held))
        self._held, self._held_at = data, start
        if not is_within_limit:
            self.transport.abort()

    def _let_go(self) -> None:
        if self._held:
            self.registry.hold(self.address, -len(self._held))
            self._held, self._held_at = b"", 0
        self.flow.is_holding = False

    def _continue_soon(self) -> None:
        has_work = self._held or self._refusal is not None
        if has_work and not self._lingering and not self.transport.is_closing():
            self.loop.call_soon(self._continue)

    def _continue(self) -> None:
        if self._lingering or self.transport.is_closing() or self._must_wait():
            return
        if self._refusal is not None:
            self._refuse_when_due(self._refusal)
        elif self._held:
            self._parse_pieces(self._held, self._held_at)
            if not self._held and not self._is_stopped():
                self.flow.resume_reading()

    # --- refusals --------------------------------------------------------------------------

    def _head_problem(self) -> ApiError | None:
        if self._is_for_health_only and self.url not in _PROBE_PATHS:
            return FULL
        if self._is_too_large():
            return LARGE_HEAD
        message = host_error(self.headers, self.parser.get_http_version())
        if message is None:
            return None
        details = {"header": "Host"}
        return ApiError(Code.INVALID_INPUT, message, details=details, status=BAD_REQUEST)

    def _is_too_large(self) -> bool:
        if self._head_size <= MAX_HEAD:  # At least the size of the head.
            return False
        return size_of(self.url, self.headers) > MAX_HEAD

    def _has_passed(self, limit_s: float, since: float, now: float) -> bool:
        # `since` may be one tick too early.
        return now - since >= limit_s + self.registry.tick_s

    def _does_not_read(self, now: float) -> bool:
        """Note what the client has left unread; close the connection when it reads nothing."""
        unread = self.transport.get_write_buffer_size()
        if unread and self._unread and unread >= self._unread:
            if self._has_passed(self.registry.limits.stall_timeout_s, self._unread_since, now):
                self.transport.abort()
        else:
            self._unread_since = now
        self._unread = unread
        return unread > 0

    def _refuse_in_turn(self, error: ApiError) -> None:
        """Refuse what the parser stopped at, after the responses to the requests before it."""
        self._refusal = error
        self._let_go()
        self.flow.pause_reading()
        self._refuse_when_due(error)

    def _refuse_when_due(self, error: ApiError) -> None:
        if self._must_wait():
            return
        if self._is_in_head:
            self._refuse(error)
        else:
            self._end_body(error)

    def _end_body(self, error: ApiError) -> None:
        """Refuse a request for its body, unless it has a response; its route finds itself alone."""
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        if cycle.response_started:
            self._end()
        else:
            self._refuse(error)

    def _refuse(self, error: ApiError) -> None:
        self._send_head()
        response = error_response(error)
        headers = [*response.raw_headers, (REQUEST_ID.lower().encode(), str(uuid4()).encode())]
        lines = [b"%b: %b\r\n" % header for header in headers]
        head = [STATUS_LINE[error.status], *lines, b"connection: close\r\n\r\n"]
        self.transport.write(b"".join([*head, bytes(response.body)]))
        self._end()

    def _end(self) -> None:
        """Write nothing more, and close when nothing more arrives."""
        self._send_head()
        self._since = self.registry.now
        self.pipeline.clear()
        self._let_go()
        self._unset_keepalive_if_required()
        self._lingering = Lingering(
            self.transport, self.flow, self.registry, self.loop, size_limit=self._size_limit
        )


class _RefusedHeadError(httptools.HttpParserError):
    """Stops the parser on this connection; uvicorn treats the request as malformed."""
