"""Connections to Redis: they fail at once instead of retrying, and their answers are bounded.

A repeated command would be a second doorbell, and ten retries last longer than an authorization may
take. Any program that may write to Redis can put half a gigabyte where a process waits for a token.
"""

import socket
from contextlib import suppress
from typing import Any, Final

import redis
import redis.asyncio
from redis._parsers import _AsyncHiredisParser, _HiredisParser
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry
from typing_extensions import override

ANSWER_LIMIT: Final = 4 * 1024 * 1024
"""Bytes of one answer; the largest are replies, of which a push is a quarter at most."""

_TIMEOUT_S: Final = 2.0  # Above the longest wait for a token, which is a second: it is no failure.
_CONNECT_TIMEOUT_S: Final = 1.0


def parameters(url: str) -> dict[str, Any]:
    """Return what `url` says: `host`, `password`, or the `path` of a Unix socket.

    Raises: ValueError.
    """
    found: dict[str, Any] = redis.connection.parse_url(url)  # type: ignore[no-untyped-call]
    return found


def has_tls(parameters: dict[str, Any]) -> bool:
    """Return whether connections with `parameters` are encrypted."""
    return parameters.get("connection_class") is redis.SSLConnection


def connect(url: str, *, timeout_s: float = _TIMEOUT_S) -> redis.Redis:
    """Return a client for threads. It raises ConnectionError for an answer above the limit."""
    client: redis.Redis = redis.Redis.from_url(
        url,
        socket_timeout=timeout_s,
        socket_connect_timeout=_CONNECT_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
        health_check_interval=0,
        parser_class=_BoundedParser,
    )
    return client


def connect_async(url: str, *, timeout_s: float, connect_timeout_s: float) -> "redis.asyncio.Redis":
    """Return a client for an event loop; otherwise as `connect`."""
    client: redis.asyncio.Redis = redis.asyncio.Redis.from_url(
        url,
        socket_timeout=timeout_s,
        socket_connect_timeout=connect_timeout_s,
        retry=AsyncRetry(NoBackoff(), 0),
        parser_class=_BoundedAsyncParser,
    )
    return client


def interrupt(client: redis.Redis) -> None:
    """Have every command of `client` that waits for its answer raise ConnectionError now.

    Of any thread. The socket is shut down and not closed: its thread reads an end and closes it.
    """
    for connection in list(client.connection_pool._in_use_connections):  # noqa: SLF001 - no public way
        link = connection._sock  # noqa: SLF001 - the same
        if link is not None:
            with suppress(OSError):  # It has ended by itself.
                # Not the method of a TLS socket, which forgets that it is one while a thread reads.
                socket.socket.shutdown(link, socket.SHUT_RDWR)


def _check(reader: Any) -> None:  # noqa: ANN401 - a `hiredis.Reader`
    """Raise ConnectionError, which closes the connection, when an answer is above the limit."""
    if reader.len() > ANSWER_LIMIT:
        raise redis.ConnectionError(f"an answer of Redis is larger than {ANSWER_LIMIT:,} bytes")


class _BoundedParser(_HiredisParser):
    @override
    def read_from_socket(self, *arguments: Any, **named: Any) -> bool:
        has_read: bool = super().read_from_socket(*arguments, **named)  # type: ignore[no-untyped-call]
        _check(self._reader)
        return has_read


class _BoundedAsyncParser(_AsyncHiredisParser):
    @override
    async def read_from_socket(self) -> bool:
        has_read: bool = await super().read_from_socket()  # type: ignore[no-untyped-call]
        _check(self._reader)
        return has_read
