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

_LENGTH: Final = b"content-length:"

Requests = Callable[[], bytes]
"""Makes the next request, whole."""


@dataclass(slots=True)
class Heard:
    """What came of requests: seconds each took, and how often each status came."""

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
        return sum(count for status, count in self.statuses.items() if status != 200)  # noqa: PLR2004

    def quantile_ms(self, share: float) -> float:
        """Return the time in which `share` of the requests was answered."""
        ordered = sorted(self.seconds)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] * 1000


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
            heard.statuses[await one.ask(requests())] += 1
            heard.seconds.append(perf_counter() - sent)

    opened = [await _Connection.open(host, port) for _ in range(connections)]
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
            opened.append(await _Connection.open(host, port))
            idle.append(opened[-1])
        one = idle.pop()
        heard.statuses[await one.ask(requests())] += 1
        heard.seconds.append(perf_counter() - due)
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
    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._reader: Final = reader
        self._writer: Final = writer

    @classmethod
    async def open(cls, host: str, port: int) -> "_Connection":
        return cls(*await asyncio.open_connection(host, port))

    async def ask(self, whole: bytes) -> int:
        """Send a request and return the status of its answer."""
        self._writer.write(whole)
        head = await self._reader.readuntil(b"\r\n\r\n")
        lowered = head.lower()
        start = lowered.index(_LENGTH) + len(_LENGTH)
        length = int(lowered[start : lowered.index(b"\r\n", start)])
        await self._reader.readexactly(length)
        return int(head[9:12])

    def close(self) -> None:
        self._writer.close()
