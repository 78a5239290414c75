"""Webhook receivers for a loopback address; they are not for the internet.

`Listener` passes requests on, for `cardledger listen`. `Receiver` verifies and keeps webhooks, and
misbehaves on demand, for the demo and the tests.
"""

import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self

from typing_extensions import override

from cardledger.ledger.webhooks import signatures
from cardledger.ledger.webhooks.signatures import SignatureError

_MAX_LENGTH_DIGITS: Final = 7  # Below 10 MB, a hundred times the largest webhook.


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The response to one request."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    delay_s: float = 0.0  # Before the response.


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A webhook as it arrived; `problem` is None when both signatures verify."""

    headers: dict[str, str]  # Names in lower case.
    body: bytes
    problem: str | None
    status: int  # Of the response.
    content: dict[str, Any] = field(default_factory=dict)  # The envelope; empty when not JSON.

    @property
    def webhook_id(self) -> str:
        """The id, the same in every attempt."""
        return self.headers.get(signatures.WEBHOOK_ID, "")

    @property
    def type(self) -> str:
        """The event type."""
        return str(self.content.get("type", ""))


class Listener:
    """Listens on a port of the loopback address and responds to each POST with the reply of `take`.

    `take` gets the headers, with names in lower case, and the body; it is called in threads.
    Raises: OSError when the port is in use.
    """

    def __init__(self, take: Callable[[dict[str, str], bytes], Reply], *, port: int = 0) -> None:
        self._server: Final = _Server(("127.0.0.1", port), _handler(take))
        self._thread: Final = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="webhook receiver", daemon=True
        )

    @property
    def url(self) -> str:
        """Where to send webhooks."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/webhooks"

    def start(self) -> Self:
        """Listen."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop listening and close every connection."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.close()

    def __enter__(self) -> Self:
        """Listen for the length of a block."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()


class Receiver:
    """Listens on a free port of the loopback address; thread-safe.

    Without keys (they may be unknown before the system runs) nothing can be verified, and every
    webhook is rejected; `trust` sets them later. A verified webhook gets 200 and any other 401,
    unless `reply` or `reply_always` sets another response.
    """

    def __init__(
        self,
        public_key: str | None = None,
        secret: str | None = None,
        *,
        fail_first: int = 0,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._clock: Final = clock
        self._keys: tuple[Any, str] | None = None
        self._changed: Final = threading.Condition()
        self._arrivals: Final[list[Arrival]] = []
        self._replies: Final[deque[Reply]] = deque([Reply(status=503)] * fail_first)
        self._always: Reply | None = None
        self._stopping: Final = threading.Event()
        self._listener: Final = Listener(self.take)
        if public_key is not None and secret is not None:
            self.trust(public_key, secret)

    @property
    def url(self) -> str:
        """Where to send webhooks."""
        return self._listener.url

    @property
    def received(self) -> list[Arrival]:
        """Everything that arrived so far, in order, whatever the response was."""
        with self._changed:
            return list(self._arrivals)

    def trust(self, public_key: str, secret: str) -> None:
        """Verify with these keys from now on."""
        self._keys = signatures.load_public_key(public_key), secret

    def reply(self, *replies: Reply) -> None:
        """Respond to the next requests with `replies`, one each, after those set before."""
        with self._changed:
            self._replies.extend(replies)

    def reply_always(self, reply: Reply | None) -> None:
        """Respond with `reply` to every request without a reply of its own; None: as usual."""
        with self._changed:
            self._always = reply

    def wait_for(
        self, enough: Callable[[Sequence[Arrival]], bool], *, timeout_s: float = 10.0
    ) -> list[Arrival]:
        """Wait until `enough` is true of the webhooks that arrived, and return them.

        Raises: TimeoutError with the number that arrived.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: enough(self._arrivals), timeout_s):
                raise TimeoutError(f"only {len(self._arrivals)} webhooks after {timeout_s} s")
            return list(self._arrivals)

    def start(self) -> Self:
        """Listen."""
        self._listener.start()
        return self

    def stop(self) -> None:
        """Stop listening and close every connection; the webhooks that arrived are kept."""
        self._stopping.set()
        self._listener.stop()

    def __enter__(self) -> Self:
        """Listen for the length of a block."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def take(self, headers: dict[str, str], body: bytes) -> Reply:
        """Keep a webhook and return the response; called by the server's threads."""
        problem = self._problem(headers, body)
        with self._changed:
            reply = self._replies.popleft() if self._replies else self._always
            reply = reply or Reply(status=401 if problem else 200)
            self._arrivals.append(
                Arrival(
                    headers=headers,
                    body=body,
                    problem=problem,
                    status=reply.status,
                    content=_content(body),
                )
            )
            self._changed.notify_all()
        self._stopping.wait(reply.delay_s)
        return reply

    def _problem(self, headers: dict[str, str], body: bytes) -> str | None:
        if self._keys is None:
            return "no keys to verify with"
        public_key, secret = self._keys
        try:
            signatures.verify(
                body, headers, public_key=public_key, secret=secret, now=self._clock()
            )
        except SignatureError as error:
            return str(error)
        return None


def _content(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: Final[set[Any]] = set()
        super().__init__(address, handler)

    @override
    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    @override
    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: a sender may close its connection at any time."""

    def close(self) -> None:
        """Close the listening socket, and the connections that senders keep open."""
        self.server_close()
        for request in list(self._open):
            self.shutdown_request(request)


def _handler(take: Callable[[dict[str, str], bytes], Reply]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # Keeps connections open.
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            length = self.headers.get("content-length", "0")
            is_number = length.isascii() and length.isdigit()
            if not is_number or len(length) > _MAX_LENGTH_DIGITS:
                self.close_connection = True
                self._respond(Reply(status=413))
                return
            body = self.rfile.read(int(length))
            self._respond(take({name.lower(): value for name, value in self.headers.items()}, body))

        def _respond(self, reply: Reply) -> None:
            self.send_response_only(reply.status)
            for name, value in reply.headers:
                self.send_header(name, value)
            self.send_header("content-length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

        @override
        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: webhooks that arrived are kept."""

    return Handler
