"""HTTP to addresses that others have chosen: one request, one time budget, a capped answer.

urllib3 limits each read from a socket, so an answer of one byte a second could go on for ever.
Here the time left is given to every single read, and to every address that is tried. Redirects
are answers like any other, and nothing is sent twice.
"""

import http.client
import io
import socket
import time
from dataclasses import dataclass
from typing import Any, Final

import urllib3
from typing_extensions import Buffer, override
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationParseError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

MAX_HEAD: Final = 4096
"""How many bytes of an answer are read and kept."""

_CONNECT_TIMEOUT_S: Final = 10.0
_MAX_ERROR: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back; without a status, `error` says in words why none came."""

    status: int | None = None
    error: str | None = None
    head: str | None = None


class Egress:
    """Connections to receivers, kept open between requests; for many threads."""

    def __init__(self, *, timeout_s: float, connections: int) -> None:
        self._timeout_s: Final = timeout_s
        self._pools: Final = urllib3.PoolManager(maxsize=connections, retries=False)
        self._pools.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}

    def post(self, url: str, body: bytes, headers: dict[str, str]) -> Answer:
        """Send `body` to `url` once and return what came back, within the time budget."""
        budget = urllib3.Timeout(
            total=self._timeout_s, connect=min(self._timeout_s, _CONNECT_TIMEOUT_S)
        )
        try:
            response = self._pools.urlopen(
                "POST",
                url,
                body=body,
                headers=headers,
                timeout=budget,
                redirect=False,
                retries=False,
                preload_content=False,
                decode_content=False,
            )
        except (HTTPError, OSError, ValueError) as error:
            return Answer(error=self._reason(error))
        head = _read_head(response)
        # A connection whose answer was read to its end is back in the pool already; any other is
        # closed here, because reading on would be work that the receiver gives us.
        response.close()
        return Answer(status=response.status, head=head)

    def close(self) -> None:
        """Close every connection that is not in use."""
        self._pools.clear()

    def _reason(self, error: Exception) -> str:
        match error:
            case NameResolutionError():
                return "the host name cannot be resolved"
            case NewConnectionError():
                return f"cannot connect: {error.__cause__}"[:_MAX_ERROR]
            case ConnectTimeoutError():
                return "no connection in time"
            case ReadTimeoutError():
                return f"no answer within {self._timeout_s:g} s"
            case SSLError():
                return f"TLS: {error}"[:_MAX_ERROR]
            case _:
                return f"{type(error).__name__}: {error}"[:_MAX_ERROR]


def _read_head(response: urllib3.BaseHTTPResponse) -> str:
    """Return the first bytes of an answer; the status stands, whatever becomes of the rest."""
    head = b""
    try:
        while len(head) < MAX_HEAD:
            piece = response.read1(MAX_HEAD - len(head))
            if not piece:
                break
            head += piece
    except (HTTPError, OSError):
        pass
    # U+0000 is the one character that a `text` column cannot keep.
    return head.decode(errors="replace").replace("\x00", "\ufffd")


class _TimedReader(io.RawIOBase):
    """What a socket receives, until the time is up that its timeout says now."""

    def __init__(self, sock: socket.socket) -> None:
        timeout = sock.gettimeout()
        assert timeout is not None, "every request has a time budget"
        self._deadline = time.monotonic() + timeout
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)

    @override
    def readable(self) -> bool:
        return True

    @override
    def readinto(self, buffer: Buffer) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer took too long")
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    @override
    def close(self) -> None:
        self._raw.close()
        super().close()


class _TimedSocket:
    """As much of a socket as an answer needs."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self._sock))


class _TimedResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:  # noqa: ANN401
        super().__init__(_TimedSocket(sock), *arguments, **named)  # type: ignore[arg-type]


def _connect(connection: HTTPConnection) -> socket.socket:
    """Connect to the first address that answers; all of them together have one time budget."""
    assert isinstance(connection.timeout, int | float)
    deadline = time.monotonic() + connection.timeout
    try:
        found = socket.getaddrinfo(connection.host, connection.port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise NameResolutionError(connection.host, connection, error) from error
    except UnicodeError:
        raise LocationParseError(f"{connection.host!r} is not a host name") from None
    refused: OSError = OSError("no address")
    for family, kind, protocol, _, address in found:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(left)
            sock.connect(address)
        except OSError as error:
            sock.close()
            refused = error
        else:
            return sock
    if isinstance(refused, TimeoutError):
        raise ConnectTimeoutError(connection, "no connection in time") from refused
    raise NewConnectionError(connection, str(refused)) from refused


class _HttpConnection(HTTPConnection):
    response_class = _TimedResponse

    @override
    def _new_conn(self) -> socket.socket:
        return _connect(self)


class _HttpsConnection(HTTPSConnection):
    response_class = _TimedResponse

    @override
    def _new_conn(self) -> socket.socket:
        return _connect(self)


class _HttpPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _HttpConnection


class _HttpsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _HttpsConnection
