"""HTTP/1.1 as bytes: well-formed requests, requests that no client library sends, and answers."""

import asyncio
import json
from asyncio import StreamReader, StreamWriter, WriteTransport
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakSet

NO_ANSWER: Final = 0
"""Stands for the status of a request that was not answered."""

_TIMEOUT_S: Final = 30.0
_LENGTH: Final = b"content-length:"


@dataclass(frozen=True, slots=True)
class Address:
    """Where the API listens, and below which path its resources are."""

    host: str
    port: int
    base: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; the status is `NO_ANSWER` when the connection ended before."""

    status: int
    head: bytes = b""
    body: bytes = b""

    @property
    def size(self) -> int:
        """Bytes of head and body."""
        return len(self.head) + len(self.body)

    def json(self) -> Any:  # noqa: ANN401 - JSON
        """Return the body as JSON, an empty object when it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return {}


def basic(client_id: str, client_secret: str) -> str:
    """Return the value of `Authorization` for credentials of a platform."""
    return "Basic " + b64encode(f"{client_id}:{client_secret}".encode()).decode()


def request(  # noqa: PLR0913 - the parts of a request
    method: str,
    address: Address,
    path: str,
    *,
    authorization: str | None = None,
    body: object = None,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """Return a request as it goes over the wire; `body` is JSON unless it is bytes.

    Its type is that of JSON unless `headers` have another `Content-Type`.
    """
    content = (
        body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    )
    lines = [f"{method} {address.base}{path} HTTP/1.1", f"Host: {address.host}"]
    if authorization is not None:
        lines.append(f"Authorization: {authorization}")
    if body is not None and "Content-Type" not in (headers or {}):
        lines.append("Content-Type: application/json")
    lines += [f"Content-Length: {len(content)}"] if method != "GET" else []
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + content


class Connection:
    """A connection to the API, opened on demand, and again after an error or once it was closed.

    The API closes connections that are idle, sooner when it needs room: no client takes that for a
    request without an answer. `close` sends the rest of a refused file; `abort` does not.
    """

    def __init__(self, address: Address, *, timeout_s: float = _TIMEOUT_S) -> None:
        """Wait at most `timeout_s` for each answer."""
        self._address: Final = address
        self._timeout_s: Final = timeout_s
        self._streams: tuple[StreamReader, StreamWriter] | None = None
        self._closing: Final[WeakSet[WriteTransport]] = WeakSet()

    async def exchange(self, whole: bytes) -> Answer:
        """Send a request; return its answer, or one without a status."""
        try:
            async with asyncio.timeout(self._timeout_s):
                if self._streams is not None and self._streams[0].at_eof():
                    self.close()
                if self._streams is None:
                    opened = asyncio.open_connection(self._address.host, self._address.port)
                    self._streams = await opened
                return await self._exchange(*self._streams, whole)
        except (OSError, EOFError, TimeoutError, ValueError, asyncio.LimitOverrunError):
            self.close()
            return Answer(NO_ANSWER)

    def close(self) -> None:
        """Close it, if it is open, once all is sent."""
        if self._streams is not None:
            transport = self._streams[1].transport
            self._closing.add(transport)
            with suppress(RuntimeError):  # The loop of a cancelled attack may have ended.
                transport.close()
            self._streams = None

    def abort(self) -> None:
        """Close it at once, and what it still sends on connections that it has closed."""
        self.close()
        for transport in self._closing:
            is_open = transport.get_extra_info("socket").fileno() >= 0
            with suppress(RuntimeError):  # As above.
                if is_open:  # asyncio fails where all was sent.
                    transport.abort()

    async def _exchange(self, reader: StreamReader, writer: StreamWriter, whole: bytes) -> Answer:
        writer.write(whole)
        with suppress(ConnectionError):  # Refused before it was read; the refusal can be read.
            await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        lowered = head.lower()
        start = lowered.find(_LENGTH)
        body = b""
        if start >= 0:
            start += len(_LENGTH)
            body = await reader.readexactly(int(lowered[start : lowered.index(b"\r\n", start)]))
        if b"connection: close" in lowered:
            self.close()
        return Answer(int(head[9:12]), head, body)


async def send_raw(address: Address, content: bytes, *, timeout_s: float = 5.0) -> bytes:
    """Send `content` on a connection of its own; return all that comes back until it ends."""
    received = bytearray()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            try:
                writer.write(content)
                while data := await reader.read(1 << 16):
                    received += data
            finally:
                writer.transport.abort()
    return bytes(received)


def statuses(received: bytes) -> list[int]:
    """Return the status of each answer in `received`, in their order."""
    parts = received.split(b"HTTP/1.1 ")[1:]
    return [int(part[:3]) for part in parts if part[:3].isdigit()]
