"""HTTP to addresses that others have chosen: one request, one time budget, a capped answer.

A name is looked up once for a connection, every address that it has is held against the list of
forbidden ones, and the connection is made to an address that was: a name that means something
else a moment later changes nothing. TLS still asks for the name and checks it. Proxies of the
environment are not used, for they would look the name up again. Any port will do: outside a
sandbox the first thing that anybody is sent is the beginning of TLS.

urllib3 limits each read from a socket, so an answer of one byte a second could go on for ever.
Here the time left is given to every single read, and to every address that is tried. Redirects
are answers like any other, and nothing is sent twice.
"""

import http.client
import io
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Any, Final

import urllib3
from typing_extensions import Buffer, override
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationParseError,
    LocationValueError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

from cardledger.schema import ssrf
from cardledger.schema.ssrf import Address

MAX_HEAD: Final = 4096
"""How many bytes of an answer are read and kept."""

# Far more than a status and headers need. An answer of nothing but "100 Continue" would otherwise
# keep a processor busy for as long as an attempt may take.
_MAX_ANSWER: Final = 128 * 1024
_CONNECT_TIMEOUT_S: Final = 10.0
_MAX_ERROR: Final = 300
_NOT_IN_A_URL: Final = re.compile(r"[\x00-\x20\x7f]")

Resolve = Callable[[str, int], Sequence[str]]
"""Returns every address of a host name, as text. Raises: OSError, or UnicodeError for no name."""


def look_up(host: str, port: int) -> list[str]:
    """Return the addresses that the system's resolver knows for `host`."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class ForbiddenError(HTTPError):
    """Nothing was connected to; the message says why it must not be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back; without a status, `error` says in words why none came."""

    status: int | None = None
    error: str | None = None
    head: str | None = None
    retry_after: str | None = None  # As the receiver wrote it.


class Egress:
    """Connections to receivers, kept open between requests; for many threads.

    Only public addresses, and only with TLS; `allow_loopback`, which is for a sandbox, adds those
    of this machine, with TLS or without.
    """

    def __init__(
        self,
        *,
        timeout_s: float,
        connections: int,
        allow_loopback: bool = False,
        resolve: Resolve = look_up,
    ) -> None:
        self._timeout_s: Final = timeout_s
        self._pools: Final = urllib3.PoolManager(
            # A pool is of one receiver: with fewer of them than are sent to at once, each request
            # would end the connection of another.
            num_pools=connections,
            maxsize=connections,
            retries=False,
        )
        self._pools.pool_classes_by_scheme = _pool_classes(
            _Door(allow_loopback=allow_loopback, resolve=resolve)
        )

    def post(self, url: str, body: bytes, headers: dict[str, str]) -> Answer:
        """Send `body` to `url` once and return what came back, within the time budget."""
        # urllib3 would escape some of them, and so send to another URL than was asked for.
        if _NOT_IN_A_URL.search(url):
            return Answer(error="the URL has blanks or control characters in it")
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
        return Answer(
            status=response.status, head=head, retry_after=response.headers.get("Retry-After")
        )

    def close(self) -> None:
        """Close every connection that is not in use."""
        self._pools.clear()

    def _reason(self, error: Exception) -> str:
        match error:
            case ForbiddenError():
                return f"forbidden: {error}"
            case LocationValueError():
                # Its own words repeat the URL, which may hold a token.
                return f"{type(error).__name__}: the URL cannot be used"
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
    """What a socket receives, until the time is up that its timeout says now, or it is too much."""

    def __init__(self, sock: socket.socket) -> None:
        timeout = sock.gettimeout()
        assert timeout is not None, "every request has a time budget"
        self._deadline = time.monotonic() + timeout
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)
        self._left = _MAX_ANSWER

    @override
    def readable(self) -> bool:
        return True

    @override
    def readinto(self, buffer: Buffer) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer took too long")
        if self._left <= 0:
            raise OSError("the answer is too long")
        self._sock.settimeout(left)
        count = self._raw.readinto(buffer)
        self._left -= count or 0
        return count

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Door:
    """Who may be connected to, and how."""

    allow_loopback: bool
    resolve: Resolve

    def connect(self, connection: HTTPConnection) -> socket.socket:
        """Connect to the first address that answers; all of them together have one time budget.

        Raises: ForbiddenError when any of the addresses must not be connected to, for whoever
        answers with a public and a private one hopes for the second.
        """
        assert isinstance(connection.timeout, int | float)
        deadline = time.monotonic() + connection.timeout
        addresses = self._addresses(connection, deadline)
        refused: OSError = OSError("no address")
        for address in addresses:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            try:
                return _connect(address, connection.port, timeout_s=left)
            except OSError as error:
                refused = error
        if isinstance(refused, TimeoutError):
            raise ConnectTimeoutError(connection, "no connection in time") from refused
        raise NewConnectionError(connection, str(refused)) from refused

    def _addresses(self, connection: HTTPConnection, deadline: float) -> list[Address]:
        """Return the addresses of a host, all of them allowed.

        Raises: ForbiddenError, NameResolutionError, LocationParseError, ConnectTimeoutError.
        """
        host, has_tls = connection.host, isinstance(connection, HTTPSConnection)
        if not has_tls and not self.allow_loopback:
            raise ForbiddenError("webhooks go to https:// only")
        try:
            given = ssrf.literal(host)
        except ValueError as error:
            raise ForbiddenError(str(error)) from None
        addresses = [given] if given else _looked_up(self.resolve, connection, deadline)
        for address in addresses:
            purpose = ssrf.why_forbidden(address, allow_loopback=self.allow_loopback)
            if purpose is not None:
                # What a name means in our network is nobody else's business.
                raise ForbiddenError(
                    f"this address is not public ({purpose})"
                    if given
                    else "the host name leads to an address that is not public"
                )
            if not has_tls and not ssrf.is_loopback(address):
                raise ForbiddenError("http:// is for loopback addresses only")
        return addresses


def _looked_up(resolve: Resolve, connection: HTTPConnection, deadline: float) -> list[Address]:
    """Return what `resolve` knows, as long as it says so in time.

    The system's resolver has no time limit but its own, half a minute and more when the name
    servers of whoever chose the name keep silent. So it runs in a thread, which is left behind.
    """
    found: Future[Sequence[str]] = Future()

    def look() -> None:
        try:
            found.set_result(resolve(connection.host, connection.port))
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
            found.set_exception(error)

    threading.Thread(target=look, name="webhook look-up", daemon=True).start()
    try:
        return [ip_address(one) for one in found.result(max(deadline - time.monotonic(), 0))]
    except TimeoutError as error:
        raise ConnectTimeoutError(connection, "no look-up in time") from error
    except socket.gaierror as error:
        raise NameResolutionError(connection.host, connection, error) from error
    except UnicodeError:
        raise LocationParseError(f"{connection.host!r} is not a host name") from None


def _connect(address: Address, port: int, *, timeout_s: float) -> socket.socket:
    is_ipv6 = isinstance(address, IPv6Address)
    sock = socket.socket(socket.AF_INET6 if is_ipv6 else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(timeout_s)
        sock.connect((str(address), port))
    except OSError:
        sock.close()
        raise
    return sock


def _pool_classes(door: _Door) -> dict[str, type[urllib3.HTTPConnectionPool]]:
    class HttpConnection(HTTPConnection):
        response_class = _TimedResponse

        @override
        def _new_conn(self) -> socket.socket:
            return door.connect(self)

    class HttpsConnection(HTTPSConnection):
        response_class = _TimedResponse

        @override
        def _new_conn(self) -> socket.socket:
            return door.connect(self)

    class HttpPool(urllib3.HTTPConnectionPool):
        ConnectionCls = HttpConnection

    class HttpsPool(urllib3.HTTPSConnectionPool):
        ConnectionCls = HttpsConnection

    return {"http": HttpPool, "https": HttpsPool}
