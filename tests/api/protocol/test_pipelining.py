"""Requests that are sent before the response to the request before."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from cardledger.api.connections.limits import ConnectionLimits
from tests.api.protocol.support import (
    PATIENCE_S,
    all_of,
    connection,
    head,
    numbers_of,
    one_of,
    send_in_parts,
    statuses_of,
)
from tests.api.support import TIMEOUT_S, LoopWatch, Tenant, serving, url_of


@pytest.mark.parametrize("size", [7, 1000, 10_000_000])
def test_pipelined_requests_are_answered_in_their_order(
    root: str, tenant: Tenant, size: int
) -> None:
    body = b'{"customerType": "INDIVIDUAL", "fullName": "Ada\\r\\n\\r\\n"}'
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    count = 60
    requests = []
    for number in range(0, count, 3):
        one, two, three = (f"X-Request-Id: {number + step}" for step in range(3))
        requests += [
            head(tenant, one, request="GET {}/config HTTP/1.1"),
            head(tenant, two, f"Content-Length: {len(body)}") + body,
            head(tenant, three, "Transfer-Encoding: chunked") + chunks,
        ]
    requests.append(head(tenant, f"X-Request-Id: {count}", "Connection: close"))
    data = b"".join(requests)

    with connection(root) as opened, ThreadPoolExecutor(1) as sender:
        sent = sender.submit(send_in_parts, opened, data, size)
        received = all_of(opened)
        sent.result()

    assert numbers_of(received) == list(range(count + 1))


# --- an application that shows what has been parsed --------------------------------------------


class Echo:
    """Sends back the id of a request, and counts the requests that are parsed ahead meanwhile.

    A request for /held is answered after `release`.
    """

    def __init__(self) -> None:
        self.watch = LoopWatch()
        self.release = threading.Event()
        self.parsed_ahead = 0
        self._server: uvicorn.Server | None = None
        routes = [Route(path, self._respond, methods=["POST"]) for path in ("/", "/held")]
        self._app = Starlette(routes=routes)

    @contextmanager
    def served(self, limits: ConnectionLimits | None = None) -> Iterator[str]:
        with serving(self.watch.wrap(self._app), limits) as self._server:
            try:
                yield url_of(self._server)
            finally:
                self.release.set()

    async def _respond(self, request: Request) -> Response:
        assert self._server is not None
        await request.body()
        # As a route does that notices when its client leaves.
        listening = asyncio.ensure_future(request.receive())
        await asyncio.sleep(0)
        opened = [
            each for each in self._server.server_state.connections if hasattr(each, "pipeline")
        ]
        self.parsed_ahead = max(self.parsed_ahead, *(len(each.pipeline) for each in opened))
        if request.url.path == "/held":
            await asyncio.to_thread(self.release.wait, TIMEOUT_S)
        listening.cancel()
        return Response(headers={"x-request-id": request.headers.get("x-request-id", "")})


def post(number: int, *headers: str, path: str = "/") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"X-Request-Id: {number}", *headers, "", ""]
    return "\r\n".join(lines).encode()


def test_requests_with_bodies_are_parsed_one_by_one() -> None:
    echo, count = Echo(), 3000
    requests = [post(number, "Content-Length: 1") + b"x" for number in range(count)]
    data = b"".join(requests) + post(count, "Connection: close", "Content-Length: 0")

    with echo.served() as url, ThreadPoolExecutor(1) as sender:

        def send() -> None:
            with connection(url) as opened:
                sent = sender.submit(opened.sendall, data)
                received = all_of(opened)
                sent.result()
            assert numbers_of(received) == list(range(count + 1))

        echo.watch.assert_not_blocked_by(send)

    assert echo.parsed_ahead <= 2


@pytest.mark.parametrize(
    "malformed",
    [
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX-A: " + b"x" * 40_000,
        post(0, "Transfer-Encoding: chunked") + b"x\r\n",
    ],
    ids=["request line", "no host", "large head", "chunk"],
)
@pytest.mark.parametrize("parts", [100, 10_000_000])
def test_a_refusal_comes_after_the_responses_to_the_requests_before(
    malformed: bytes, parts: int
) -> None:
    echo, count = Echo(), 300
    data = b"".join(post(number, "Content-Length: 1") + b"x" for number in range(count))
    first = post(count, "Content-Length: 1", path="/held") + b"x"

    with echo.served() as url, connection(url) as opened, ThreadPoolExecutor(1) as sender:
        sent = sender.submit(send_in_parts, opened, first + data + malformed, parts)
        if parts > len(data):
            sent.result()
        echo.release.set()
        received = all_of(opened)
        sent.result()

    assert numbers_of(received) == [count, *range(count)]
    assert statuses_of(received)[:-1] == [200] * (count + 1)
    assert statuses_of(received)[-1] in {400, 431}
    assert received.count(b"connection: close") == 1


def test_a_body_that_stops_is_refused_after_the_response_to_the_request_before() -> None:
    echo = Echo()
    limits = ConnectionLimits(stall_timeout_s=PATIENCE_S, head_timeout_s=TIMEOUT_S)
    requests = post(1, "Content-Length: 1", path="/held") + b"x" + post(2, "Content-Length: 5")

    with echo.served(limits) as url, connection(url) as opened:
        opened.sendall(requests)
        with connection(url) as other:
            other.sendall(post(3, "Content-Length: 5"))
            assert statuses_of(all_of(other)) == [408]  # As much time has passed for `opened`.
        echo.release.set()
        received = all_of(opened)

    assert statuses_of(received) == [200, 408]
    assert numbers_of(received) == [1]


def test_a_body_of_empty_lines_does_not_block_the_event_loop() -> None:
    echo = Echo()
    request = post(1, "Content-Length: 900000") + b"\r\n\r\n" * 225_000

    with echo.served() as url, connection(url) as opened:

        def send() -> None:
            opened.sendall(request)
            assert numbers_of(one_of(opened)) == [1]

        echo.watch.assert_not_blocked_by(send)


def test_a_head_does_not_wait_for_its_body() -> None:
    release = threading.Event()

    async def late(_: Request) -> Response:
        async def body() -> AsyncIterator[bytes]:
            await asyncio.to_thread(release.wait, TIMEOUT_S)
            yield b"late"

        return StreamingResponse(body())

    app = Starlette(routes=[Route("/", late, methods=["POST"])])
    with serving(app) as server, connection(url_of(server)) as opened:
        opened.sendall(post(1, "Connection: close", "Content-Length: 0"))
        received = b""
        while b"\r\n\r\n" not in received:
            received += opened.recv(65_536)
        release.set()
        rest = all_of(opened)

    assert b"late" not in received
    assert b"late" in rest


class Recorder:
    """A transport that keeps what is written to it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))
        self._transport.write(data)

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)


def test_a_head_is_sent_together_with_the_body_that_follows_at_once() -> None:
    recorders: list[Recorder] = []

    async def answer(_: Request) -> Response:
        if not recorders:
            [opened] = server.server_state.connections
            recorders.append(Recorder(opened.transport))
            opened.transport = recorders[0]  # type: ignore[assignment]
        return Response("body")

    app = Starlette(routes=[Route("/", answer, methods=["POST"])])
    with serving(app) as server, connection(url_of(server)) as client:
        client.sendall(post(1, "Content-Length: 0"))
        one_of(client)
        client.sendall(post(2, "Connection: close", "Content-Length: 0"))
        all_of(client)

    first, second = recorders[0].written
    for response in (first, second):
        assert response.startswith(b"HTTP/1.1 200 OK")
        assert response.endswith(b"\r\n\r\nbody")


@pytest.mark.parametrize("ends", [b"GET\r\n\r\n", b"\x00"])
def test_a_response_without_a_body_comes_before_a_refusal(
    ends: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(_: Request) -> Response:
        return Response("body")

    app = Starlette(routes=[Route("/", answer)])
    count = 50
    heads = b"".join(post(number).replace(b"POST", b"HEAD") for number in range(count))
    with serving(app) as server, connection(url_of(server)) as opened:
        opened.sendall(heads + ends)
        received = all_of(opened)

    assert statuses_of(received) == [200] * count + [400]
    assert not [record for record in caplog.records if record.name == "asyncio"]


def test_an_invitation_to_continue_comes_before_a_refusal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    headers = ("Expect: 100-continue", "Transfer-Encoding: chunked")
    with Echo().served() as url, connection(url) as opened:
        opened.sendall(post(1, *headers))
        received = opened.recv(65_536)
        opened.sendall(b"x\r\n")
        received += all_of(opened)

    assert statuses_of(received) == [100, 400]
    assert not [record for record in caplog.records if record.name == "asyncio"]
