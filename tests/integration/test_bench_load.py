"""The load of the benchmark, on a server of sockets that answers, is slow, or hangs up."""

import asyncio
from asyncio import StreamReader, StreamWriter
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from benchmarks import load
from benchmarks.load import LoadResult

HOST = "127.0.0.1"
OK = b"HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 2\r\n\r\n{}"
BUSY = b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n"

Answer = Callable[[int], Awaitable[bytes]]
"""What to answer the n-th request; nothing: hang up."""


class Server:
    """Counts connections and requests."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.requests: list[bytes] = []
        self.connections = 0
        self.port = 0

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
                self.requests.append(head + await reader.readexactly(length))
                answer = await self._answer(len(self.requests))
                if not answer:
                    return
                writer.write(answer)
        except (EOFError, OSError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[Server]:
    server = Server(answer)
    async with await asyncio.start_server(server.serve, HOST, 0) as listening:
        server.port = listening.sockets[0].getsockname()[1]
        yield server


def request() -> bytes:
    return load.request(HOST, "/path", "Basic abc", b'{"a":1}')


def test_a_request_of_the_load_generator_has_all_headers_and_its_body() -> None:
    assert request() == (
        b"POST /path HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Basic abc\r\n"
        b'Content-Type: application/json\r\nContent-Length: 7\r\n\r\n{"a":1}'
    )


def test_closed_load_sends_on_each_connection_as_soon_as_it_is_answered() -> None:
    async def ok(_number: int) -> bytes:
        return OK

    async def send() -> tuple[LoadResult, Server]:
        async with serving(ok) as server:
            result = await load.closed(HOST, server.port, request, connections=3, seconds=0.2)
            return result, server

    result, server = asyncio.run(send())

    assert server.connections == 3
    assert set(server.requests) == {request()}
    assert result.statuses == {200: len(server.requests)}
    assert len(result.seconds) == len(server.requests) > 3
    assert result.failed == 0
    assert result.rate == pytest.approx(len(server.requests) / result.elapsed_s)


def test_answers_other_than_200_are_counted_as_failed() -> None:
    async def busy_at_first(number: int) -> bytes:
        return BUSY if number <= 2 else OK

    async def send() -> LoadResult:
        async with serving(busy_at_first) as server:
            return await load.paced(HOST, server.port, request, rate=100, seconds=0.1)

    result = asyncio.run(send())

    assert result.statuses == {503: 2, 200: 8}
    assert result.failed == 2


def test_a_closed_connection_is_counted_and_replaced() -> None:
    async def hang_up_once(number: int) -> bytes:
        return b"" if number == 1 else OK

    async def send() -> tuple[LoadResult, Server]:
        async with serving(hang_up_once) as server:
            result = await load.paced(HOST, server.port, request, rate=20, seconds=0.2)
            return result, server

    result, server = asyncio.run(send())

    assert result.statuses == {load.NO_ANSWER: 1, 200: 3}
    assert result.failed == 1
    assert len(result.seconds) == 3, "no answer is not a fast one"
    assert server.connections >= 2


def test_a_closed_port_is_counted_as_no_answer() -> None:
    async def send() -> LoadResult:
        async with await asyncio.start_server(lambda _r, _w: None, HOST, 0) as listening:
            port = listening.sockets[0].getsockname()[1]
        return await load.paced(HOST, port, request, rate=100, seconds=0.03)

    assert asyncio.run(send()).statuses == {load.NO_ANSWER: 3}


def test_paced_load_counts_from_when_a_request_was_due() -> None:
    """A server that stops for a while makes all that was due meanwhile late, not just one."""
    stalled = asyncio.Event()

    async def stall_at_first(number: int) -> bytes:
        if number == 1:
            asyncio.get_running_loop().call_later(0.2, stalled.set)
        await stalled.wait()
        return OK

    async def send() -> LoadResult:
        async with serving(stall_at_first) as server:
            return await load.paced(HOST, server.port, request, rate=100, seconds=0.3)

    result = asyncio.run(send())

    assert len(result.seconds) == 30
    assert result.quantile_ms(0.99) >= 190
    # Half of those that came during the stall waited half of it or longer.
    assert sum(seconds >= 0.09 for seconds in result.seconds) >= 8


def test_runs_are_pooled_with_the_samples_of_all() -> None:
    first = LoadResult(seconds=[0.1, 0.2], statuses=Counter({200: 1, 401: 1}), elapsed_s=1.0)
    second = LoadResult(seconds=[0.3], statuses=Counter({200: 1}), elapsed_s=0.5)

    both = load.pooled([first, second])

    assert both.seconds == [0.1, 0.2, 0.3]
    assert (both.rate, both.failed) == (2.0, 1)
    assert both.quantile_ms(0.99) == 300
