"""HTTP load: requests at fixed times, whatever the answers do, or as fast as answers come.

A generator that waits for an answer before it sends the next request measures itself: while the
service is slow, it asks less. So latencies are taken at a given rate and from the moment at which a
request was due. One connection of HTTP/1.1 is a socket and a parser of a few lines, so that the
generator takes little of the processor that it shares with what it measures.
"""

import asyncio
from asyncio import StreamReader, StreamWriter
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

from benchmarks.figures import quantile

_LENGTH: Final = b"content-length:"
_OK: Final = 200
NO_ANSWER: Final = 0
"""Stands for the status of a request that was not answered."""

Requests = Callable[[], bytes]
"""Makes the next request, whole."""


@dataclass(slots=True)
class Heard:
    """What came of requests: seconds each answer took, and how often each status came."""

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

    def note(self, status: int, seconds: float) -> None:
        """Keep what came of one request; what was not answered did not take any time."""
        self.statuses[status] += 1
        if status != NO_ANSWER:
            self.seconds.append(seconds)

    def quantile_ms(self, share: float) -> float:
        """Return the time in which `share` of the requests was answered."""
        return quantile(self.seconds, share) * 1000


def request(host: str, path: str, authorization: str, body: bytes) -> bytes:
    """Return a POST as it goes over the wire."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: {authorization}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


async def closed(
    host: str, port: int, requests: Requests, *, connections: int, seconds: float
) -> Heard:
    """Ask on every connection as soon as the last answer is there."""
    heard = Heard()
    started = perf_counter()

    async def ask_on(one: "_Connection") -> None:
        while perf_counter() - started < seconds:
            sent = perf_counter()
            heard.note(await one.ask(requests()), perf_counter() - sent)

    opened = [_Connection(host, port) for _ in range(connections)]
    try:
        await asyncio.gather(*(ask_on(one) for one in opened))
        heard.elapsed_s = perf_counter() - started
    finally:
        for one in opened:
            one.close()
    return heard


async def paced(host: str, port: int, requests: Requests, *, rate: float, seconds: float) -> Heard:
    """Ask `rate` times a second, at even distances, on as many connections as that takes."""
    heard = Heard()
    idle: list[_Connection] = []
    opened: list[_Connection] = []

    async def ask(due: float) -> None:
        if not idle:
            opened.append(_Connection(host, port))
            idle.append(opened[-1])
        one = idle.pop()
        heard.note(await one.ask(requests()), perf_counter() - due)
        idle.append(one)

    started = perf_counter()
    tasks = []
    for number in range(int(rate * seconds)):
        due = started + number / rate
        if (early := due - perf_counter()) > 0:
            await asyncio.sleep(early)
        tasks.append(asyncio.create_task(ask(due)))
    await asyncio.gather(*tasks)
    heard.elapsed_s = perf_counter() - started
    for one in opened:
        one.close()
    return heard


class _Connection:
    """A connection to one place, opened when it is needed and again when it has broken."""

    def __init__(self, host: str, port: int) -> None:
        self._host: Final = host
        self._port: Final = port
        self._streams: tuple[StreamReader, StreamWriter] | None = None

    async def ask(self, whole: bytes) -> int:
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
