"""The page of metrics of a worker process, on a port of its own.

A client has a few seconds and a few kilobytes for a request, and few are served at a time: what it
sends costs the worker nothing that grows.
"""

import asyncio
import socket
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import structlog

from cardledger.workers.metrics.access import (
    PATH,
    Access,
    MetricsConfig,
    Scrape,
    Verdict,
)
from cardledger.workers.metrics.instruments import Source
from cardledger.workers.metrics.scrapes import CONTENT_TYPE, Scrapes

_CONNECTIONS: Final = 8
_TIME_LIMIT_S: Final = 8.0  # Of a request and its response; Prometheus waits for ten.
_HEAD_LIMIT: Final = 16 * 1024
_BACKLOG: Final = 16
_STOP_S: Final = 2.0

_REFUSALS: Final = {
    Verdict.UNAUTHORIZED: (401, "Unauthorized", "Send the header Authorization: Bearer <token>.\n"),
    Verdict.UNKNOWN: (404, "Not Found", "Unknown path.\n"),
}

_log = structlog.get_logger()


class MetricsPortError(Exception):
    """The port cannot be bound; the message says why and what to change."""


class MetricsServer:
    """Serves the metrics of this process; one of its components."""

    def __init__(
        self,
        config: MetricsConfig,
        sources: Sequence[Source],
        *,
        time_limit_s: float = _TIME_LIMIT_S,
    ) -> None:
        """Listen at once; `start` answers. A client has `time_limit_s`.

        Raises: MetricsPortError.
        """
        self._access: Final = config.access
        self._sources: Final = sources
        self._time_limit_s: Final = time_limit_s
        self._socket: Final = _listening(config.host, config.port)
        self._thread: Final = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._answers: Final = threading.Event()
        self._end: Callable[[], object] = lambda: None  # Of the event loop, once it runs.
        self._connections = 0

    @property
    def port(self) -> int:
        """The port that is bound."""
        port: int = self._socket.getsockname()[1]
        return port

    def start(self) -> None:
        """Start to answer."""
        self._thread.start()
        self._answers.wait(_STOP_S)

    def stop(self, limit_s: float = _STOP_S) -> None:
        """Answer no more."""
        with suppress(RuntimeError):  # It has ended by itself.
            self._end()
        if self._thread.ident is not None:
            self._thread.join(min(limit_s, _STOP_S))
        self._socket.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:  # noqa: BLE001 - the worker works without its metrics
            _log.exception("metrics are not served any more")

    async def _serve(self) -> None:
        scrapes = Scrapes(self._sources)

        async def handle(reader: StreamReader, writer: StreamWriter) -> None:
            await self._handle(reader, writer, scrapes)

        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._end = partial(loop.call_soon_threadsafe, stopping.set)
        server = await asyncio.start_server(handle, sock=self._socket, limit=_HEAD_LIMIT)
        self._answers.set()
        await stopping.wait()
        server.close()  # Not waited for: connections that are open end with the event loop.

    async def _handle(self, reader: StreamReader, writer: StreamWriter, scrapes: Scrapes) -> None:
        self._connections += 1
        try:
            if self._connections <= _CONNECTIONS:
                async with asyncio.timeout(self._time_limit_s):
                    head = await reader.readuntil(b"\r\n\r\n")
                    peer = writer.get_extra_info("peername") or ("",)  # It may have left.
                    writer.write(await self._response(head, str(peer[0]), scrapes))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # The client has left, or sends no request: there is nothing to answer.
        finally:
            self._connections -= 1
            writer.close()

    async def _response(self, head: bytes, peer: str, scrapes: Scrapes) -> bytes:
        verdict = _verdict(self._access, head, peer)
        if verdict is Verdict.ALLOWED:
            return _written(200, "OK", CONTENT_TYPE, await scrapes.page())
        status, phrase, text = _REFUSALS[verdict]
        return _written(status, phrase, "text/plain; charset=utf-8", text.encode())


def _verdict(access: Access, head: bytes, peer: str) -> Verdict:
    """Return what the request with `head` gets; what is not GET of the path is unknown."""
    line, *rest = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, _, target = line.partition(" ")
    path, _, version = target.partition(" ")
    if method != "GET" or path.partition("?")[0] != PATH:
        return Verdict.UNKNOWN
    pairs = [each.partition(":") for each in rest]
    headers = [(name.strip().lower(), value.strip()) for name, _, value in pairs]
    return access.verdict(Scrape(peer, version.removeprefix("HTTP/"), headers))


def _written(status: int, phrase: str, content_type: str, body: bytes) -> bytes:
    challenge = 'WWW-Authenticate: Bearer realm="metrics"\r\n' if status == 401 else ""  # noqa: PLR2004
    head = (
        f"HTTP/1.1 {status} {phrase}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n{challenge}"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises: MetricsPortError.
    """
    is_ipv6 = ":" in host
    family = socket.AF_INET6 if is_ipv6 else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        message = (
            f"metrics cannot be served on {host}:{port}: {error.strerror or error}; choose another"
            " CARDLEDGER_METRICS_PORT, or CARDLEDGER_METRICS_HOST"
        )
        raise MetricsPortError(message) from None
