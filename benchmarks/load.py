"""HTTP load: requests at a fixed rate, or as fast as they are answered.

A generator that waits for an answer before it sends the next request measures itself: while the
service is slow, it sends less. So latencies are taken at a given rate, from the moment at which
a request was due. One connection of HTTP/1.1 is a socket and a parser of a few lines, so that the
generator takes little of the processor that it shares with what it measures.
"""

import asyncio
from asyncio import StreamReader, StreamWriter
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

from benchmarks.results.figures import quantile

_LENGTH: Final = b"content-length:"
_OK: Final = 200
NO_ANSWER: Final = 0
"""Stands for the status of a request that was not answered."""

Requests = Callable[[], bytes]
"""Makes the next request, whole."""


@dataclass(slots=True)
class LoadResult:
    """Latencies in seconds of the answered requests, and a count of each status."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    elapsed_s: float = 0.0

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.seconds) / self.elapsed_s

    @property
    def failed(self) -> int:
        """Answers other than 200, and requests without any."""
        return sum(count for status, count in self.statuses.items() if status != _OK)

    def record(self, status: int, seconds: float) -> None:
        """Count the status of a request, and its latency if it was answered."""
        self.statuses[status] += 1
        if status != NO_ANSWER:
            self.seconds.append(seconds)

    def quantile_ms(self, share: float) -> float:
        """Return the time in which `share` of the requests was answered."""
        return quantile(self.seconds, share) * 1000


def pooled(results: Sequence[LoadResult]) -> LoadResult:
    """Return all that `results` have, as of one run."""
    return LoadResult(
        seconds=[seconds for result in results for seconds in result.seconds],
        statuses=sum((result.statuses for result in results), Counter[int]()),
        elapsed_s=sum(result.elapsed_s for result in results),
    )


def request(host: str, path: str, authorization: str, body: bytes) -> bytes:
    """Return a POST as it goes over the wire."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: {authorization}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def page(host: str, path: str, cookie: str) -> bytes:
    """Return a GET of a page as it goes over the wire."""
    return (
        f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: text/html\r\nCookie: {cookie}\r\n\r\n"
    ).encode()


async def closed(
    host: str, port: int, requests: Requests, *, connections: int, seconds: float
) -> LoadResult:
    """Send the next request on each connection as soon as the last one is answered."""
    result = LoadResult()
    started = perf_counter()

    async def send_on(connection: "_Connection") -> None:
        while perf_counter() - started < seconds:
            sent = perf_counter()
            result.record(await connection.send(requests()), perf_counter() - sent)

    opened = [_Connection(host, port) for _ in range(connections)]
    try:
        await asyncio.gather(*(send_on(connection) for connection in opened))
        result.elapsed_s = perf_counter() - started
    finally:
        for connection in opened:
            connection.close()
    return result


async def paced(
    host: str, port: int, requests: Requests, *, rate: float, seconds: float
) -> LoadResult:
    """Send `rate` requests a second, evenly spaced, on as many connections as they need."""
    result = LoadResult()
    idle: list[_Connection] = []
    opened: list[_Connection] = []

    async def send(due: float) -> None:
        if not idle:
            opened.append(_Connection(host, port))
            idle.append(opened[-1])
        connection = idle.pop()
        result.record(await connection.send(requests()), perf_counter() - due)
        idle.append(connection)

    started = perf_counter()
    tasks = []
    for number in range(int(rate * seconds)):
        due = started + number / rate
        if (early := due - perf_counter()) > 0:
            await asyncio.sleep(early)
        tasks.append(asyncio.create_task(send(due)))
    await asyncio.gather(*tasks)
    result.elapsed_s = perf_counter() - started
    for connection in opened:
        connection.close()
    return result


class _Connection:
    """A connection to one server, opened on demand and again after an error."""

    def __init__(self, host: str, port: int) -> None:
        self._host: Final = host
        self._port: Final = port
        self._streams: tuple[StreamReader, StreamWriter] | None = None

    async def send(self, whole: bytes) -> int:
        """Send a request and return the status of its answer, `NO_ANSWER` when none came."""
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection(self._host, self._port)
            return await _exchange(*self._streams, whole)
        except (OSError, EOFError):
            self.close()
            return NO_ANSWER

    def close(self) -> None:
        """Close it, if it is open."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def _exchange(reader: StreamReader, writer: StreamWriter, whole: bytes) -> int:
    writer.write(whole)
    head = await reader.readuntil(b"\r\n\r\n")
    lowered = head.lower()
    start = lowered.index(_LENGTH) + len(_LENGTH)
    length = int(lowered[start : lowered.index(b"\r\n", start)])
    await reader.readexactly(length)
    return int(head[9:12])
