"""What tests of the HTTP client need: requests, and receivers that follow a script."""

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from cardledger.workers.webhooks.http_client import (
    HttpClient,
    HttpResult,
    Resolve,
    look_up,
)
from tests.waiting import limit_s

BODY = b'{"id":"Webhook:1"}'


def post(  # noqa: PLR0913 - what differs between tests, by name
    url: str,
    *,
    resolve: Resolve = look_up,
    allow_loopback: bool = True,
    timeout_s: float | None = None,
    headers: dict[str, str] | None = None,
    times: int = 1,
) -> HttpResult:
    """Post `times` through one client and return the last result."""
    client = HttpClient(
        timeout_s=timeout_s or limit_s(5),
        connections=2,
        allow_loopback=allow_loopback,
        resolve=resolve,
    )
    result = HttpResult()
    with closing(client):
        for _ in range(times):
            result = client.post(url, BODY, headers or {})
    return result


def timed(work: Callable[[], HttpResult]) -> tuple[HttpResult, float]:
    began = time.monotonic()
    result = work()
    return result, time.monotonic() - began


def always(*addresses: str) -> Resolve:
    return lambda _host, _port: addresses


class Rebinding:
    """A resolver whose results change from one query to the next."""

    def __init__(self, *results: Sequence[str]) -> None:
        self._results = results
        self.queries = 0

    def __call__(self, _host: str, _port: int) -> Sequence[str]:
        addresses = self._results[min(self.queries, len(self._results) - 1)]
        self.queries += 1
        return addresses


@dataclass
class Script:
    """A receiver that reads each request, then lets `respond` do anything with the connection."""

    respond: Callable[[socket.socket], None]
    context: ssl.SSLContext | None = None
    requests: list[bytes] = field(default_factory=list)
    names: list[str | None] = field(default_factory=list)  # The server names of TLS.
    connections: int = 0
    ended: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    @contextmanager
    def listening(self) -> Iterator["Script"]:
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        if self.context is not None:
            self.context.sni_callback = lambda _sock, name, _context: self.names.append(name)
        open_connections: list[socket.socket] = []

        def serve(raw: socket.socket) -> None:
            connection = raw
            try:
                if self.context is not None:
                    connection = self.context.wrap_socket(raw, server_side=True)
                    open_connections.append(connection)
                while self._request(connection):
                    self.respond(connection)
            except OSError:
                pass
            finally:
                connection.close()
                self.ended.set()

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                self.connections += 1
                open_connections.append(connection)
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield self
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            for connection in open_connections:
                connection.close()

    def _request(self, connection: socket.socket) -> bool:
        request = b""
        while not request.endswith(BODY):
            chunk = connection.recv(65536)
            if not chunk:
                return False
            request += chunk
        self.requests.append(request)
        return True

    @property
    def url(self) -> str:
        scheme = "http" if self.context is None else "https"
        return f"{scheme}://127.0.0.1:{self.port}/hook"


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def says(sent: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(sent)


def says_and_closes(sent: bytes) -> Callable[[socket.socket], None]:
    def respond(connection: socket.socket) -> None:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_RDWR)

    return respond


def drips(start: bytes, drop: bytes = b"a") -> Callable[[socket.socket], None]:
    def respond(connection: socket.socket) -> None:
        connection.sendall(start)
        pause = threading.Event()
        while True:
            connection.sendall(drop)
            pause.wait(0.1)

    return respond


def resets(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
