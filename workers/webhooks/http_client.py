"""HTTP to URLs that customers choose: one request, one time budget, a capped response.

The SSRF guard resolves a name once for each connection, checks every address of it against the
forbidden ranges, and connects to an address that was checked: DNS rebinding changes nothing. TLS
still sends the name and verifies it. Proxies of the environment are not used, for they would
resolve the name again. Any port is allowed: outside a sandbox the first bytes sent are those of
a TLS handshake.

urllib3 limits each read from a socket, so a response of one byte a second would never end. Here
every read, and every address that is tried, gets the time that is left. Redirects are responses
like any other, and nothing is sent twice.
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

import structlog
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

from cardledger.ledger.webhooks.retry_policy import NO_CONNECTION, NO_RESPONSE
from cardledger.schema import ssrf
from cardledger.schema.ssrf import Address

MAX_HEAD: Final = 4096
"""Bytes of a response body that are read and kept."""

KEPT_S: Final = 4.0
"""How long a connection is kept for the next request, in seconds.

Many receivers close theirs after five, and firewalls forget a connection after minutes without a
word: a request on it would be lost, or wait until its time is over, and a request for an approval
is sent once.
"""

# Far more than a status and headers need. A response of nothing but "100 Continue" would otherwise
# keep a processor busy for as long as an attempt may take.
_RESPONSE_LIMIT: Final = 128 * 1024
_CONNECT_TIMEOUT_S: Final = 10.0
_SHORTEST_S: Final = 0.001  # Without time, a socket would not wait at all.
_ERROR_LENGTH: Final = 300
_NOT_IN_A_URL: Final = re.compile(r"[\x00-\x20\x7f]")

# Of a name that is not known as well as of one in our network: a platform must not learn which of
# these there are.
_NO_PUBLIC_ADDRESS: Final = "the host name does not resolve to a public address"

_log = structlog.get_logger()

Resolve = Callable[[str, int], Sequence[str]]
"""Returns every address of a host name. Raises: OSError; UnicodeError for an invalid name."""


def look_up(host: str, port: int) -> list[str]:
    """Return the addresses of `host` from the system's resolver."""
    results = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in results]


class ForbiddenError(HTTPError):
    """The SSRF guard refused the connection; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResult:
    """A response; without a status, `error` says why there was none."""

    status: int | None = None
    error: str | None = None
    head: str | None = None
    retry_after: str | None = None  # As the receiver wrote it.


class HttpClient:
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
            # There is a pool for each receiver: with fewer pools than receivers at a time, each
            # request would close the connection of another.
            num_pools=connections,
            maxsize=connections,
            retries=False,
        )
        self._pools.pool_classes_by_scheme = _pool_classes(
            _SsrfGuard(allow_loopback=allow_loopback, resolve=resolve)
        )

    def post(
        self, url: str, body: bytes, headers: dict[str, str], *, timeout_s: float | None = None
    ) -> HttpResult:
        """Send `body` to `url` once and return the response, within the time budget.

        A `timeout_s` is for this request, and at most the budget of the client.
        """
        # urllib3 would escape some of these characters, and so send to another URL than this one.
        if _NOT_IN_A_URL.search(url):
            return HttpResult(error="the URL contains blanks or control characters")
        limit_s = self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s)
        budget = urllib3.Timeout(total=limit_s, connect=min(limit_s, _CONNECT_TIMEOUT_S))
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
            return HttpResult(error=_reason(error, limit_s))
        head = _read_head(response)
        # A connection whose response was read to its end is back in the pool already; any other
        # is closed here, because the rest of a response could be of any length.
        response.close()
        return HttpResult(
            status=response.status, head=head, retry_after=response.headers.get("Retry-After")
        )

    def close(self) -> None:
        """Close every connection that is not in use."""
        self._pools.clear()


def _reason(error: Exception, limit_s: float) -> str:
    match error:
        case ForbiddenError():
            return f"forbidden: {error}"
        case LocationValueError():
            # The message of urllib3 repeats the URL, which may contain a token.
            return f"{type(error).__name__}: the URL cannot be used"
        case NameResolutionError():
            return f"forbidden: {_NO_PUBLIC_ADDRESS}"
        case NewConnectionError():
            return f"cannot connect: {error.__cause__}"[:_ERROR_LENGTH]
        case ConnectTimeoutError():
            return NO_CONNECTION
        case ReadTimeoutError():
            return f"{NO_RESPONSE} {limit_s:g} s"
        case SSLError():
            return f"TLS: {error}"[:_ERROR_LENGTH]
        case _:
            return f"{type(error).__name__}: {error}"[:_ERROR_LENGTH]


def _read_head(response: urllib3.BaseHTTPResponse) -> str:
    """Return the first bytes of a response; the status counts, whatever happens to the rest."""
    head = b""
    try:
        while len(head) < MAX_HEAD:
            chunk = response.read1(MAX_HEAD - len(head))
            if not chunk:
                break
            head += chunk
    except (HTTPError, OSError):
        pass
    # U+0000 is the one character that a `text` column cannot keep.
    return head.decode(errors="replace").replace("\x00", "\ufffd")


class _TimedReader(io.RawIOBase):
    """Reads from a socket until its current timeout, as a total, or the size limit is exceeded."""

    def __init__(self, sock: socket.socket) -> None:
        timeout = sock.gettimeout()
        assert timeout is not None, "every request has a time budget"
        self._deadline = time.monotonic() + timeout
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)
        self._left = _RESPONSE_LIMIT

    @override
    def readable(self) -> bool:
        return True

    @override
    def readinto(self, buffer: Buffer) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the response took too long")
        if self._left <= 0:
            raise OSError("the response is too long")
        self._sock.settimeout(left)
        count = self._raw.readinto(buffer)
        self._left -= count or 0
        return count

    @override
    def close(self) -> None:
        self._raw.close()
        super().close()


class _TimedSocket:
    """As much of a socket as `HTTPResponse` needs."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self._sock))


class _TimedResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:  # noqa: ANN401
        super().__init__(_TimedSocket(sock), *arguments, **named)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SsrfGuard:
    """Connects to allowed addresses only."""

    allow_loopback: bool
    resolve: Resolve

    def connect(self, connection: HTTPConnection) -> socket.socket:
        """Connect to the first address that accepts; all addresses share one time budget.

        Raises: ForbiddenError when any of the addresses is forbidden: a name with a public and a
        private address is an attack.
        """
        assert isinstance(connection.timeout, int | float)
        deadline = time.monotonic() + connection.timeout
        addresses = self._addresses(connection, deadline)
        failure: OSError = OSError("no address")
        for address in addresses:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            try:
                connected = _connect(address, connection.port, timeout_s=left)
            except OSError as error:
                failure = error
            else:
                connected.settimeout(max(deadline - time.monotonic(), _SHORTEST_S))  # For TLS.
                return connected
        if isinstance(failure, TimeoutError):
            raise ConnectTimeoutError(connection, "no connection in time") from failure
        raise NewConnectionError(connection, str(failure)) from failure

    def _addresses(self, connection: HTTPConnection, deadline: float) -> list[Address]:
        """Return the addresses of a host, all of which are allowed.

        Raises: ForbiddenError, NameResolutionError, LocationParseError, ConnectTimeoutError.
        """
        host, has_tls = connection.host, isinstance(connection, HTTPSConnection)
        if not has_tls and not self.allow_loopback:
            raise ForbiddenError("webhook URLs must use https://")
        try:
            literal = ssrf.literal(host)
        except ValueError as error:
            raise ForbiddenError(str(error)) from None
        addresses = [literal] if literal else _looked_up(self.resolve, connection, deadline)
        for address in addresses:
            purpose = ssrf.why_forbidden(address, allow_loopback=self.allow_loopback)
            if purpose is not None:
                if literal:
                    raise ForbiddenError(f"this address is not public ({purpose})")
                _log.info("host name of a webhook is of an address that is not public", host=host)
                raise ForbiddenError(_NO_PUBLIC_ADDRESS)
            if not has_tls and not ssrf.is_loopback(address):
                raise ForbiddenError("http:// is allowed for loopback addresses only")
        return addresses


def _looked_up(resolve: Resolve, connection: HTTPConnection, deadline: float) -> list[Address]:
    """Return the addresses of a host, if `resolve` returns before `deadline`.

    The system's resolver has a time limit of its own, half a minute and more when the receiver's
    name servers do not respond. So it runs in a thread, which is left behind.
    """
    addresses: Future[Sequence[str]] = Future()

    def look() -> None:
        try:
            addresses.set_result(resolve(connection.host, connection.port))
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            addresses.set_exception(error)

    threading.Thread(target=look, name="webhook look-up", daemon=True).start()
    try:
        remaining_s = max(deadline - time.monotonic(), 0)
        return [ip_address(address) for address in addresses.result(remaining_s)]
    except TimeoutError as error:
        raise ConnectTimeoutError(connection, "the host name was not resolved in time") from error
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


class _KeptConnection(HTTPConnection):
    """A connection that is used again only soon after its last response."""

    response_class = _TimedResponse
    kept_since: float | None = None  # By the monotonic clock; None: it has not been used.

    @property
    @override
    def is_connected(self) -> bool:
        is_old = self.kept_since is not None and time.monotonic() - self.kept_since > KEPT_S
        return super().is_connected and not is_old


class _KeepingPool(urllib3.HTTPConnectionPool):
    @override
    def _put_conn(self, conn: Any) -> None:  # Of a type that urllib3 keeps to itself.
        if isinstance(conn, _KeptConnection):
            conn.kept_since = time.monotonic()
        super()._put_conn(conn)


def _pool_classes(guard: _SsrfGuard) -> dict[str, type[urllib3.HTTPConnectionPool]]:
    class HttpConnection(_KeptConnection):
        @override
        def _new_conn(self) -> socket.socket:
            return guard.connect(self)

    class HttpsConnection(_KeptConnection, HTTPSConnection):
        @override
        def _new_conn(self) -> socket.socket:
            return guard.connect(self)

    class HttpPool(_KeepingPool):
        ConnectionCls = HttpConnection

    class HttpsPool(_KeepingPool, urllib3.HTTPSConnectionPool):
        ConnectionCls = HttpsConnection

    return {"http": HttpPool, "https": HttpsPool}
