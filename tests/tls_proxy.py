"""A proxy that speaks TLS to clients of PostgreSQL or Redis, and plain text to the server."""

import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from storm.proxy import Address

_SSL_REQUEST: Final = 80877103
_GSS_REQUEST: Final = 80877104


@dataclass
class TlsProxy:
    """Where it listens, and how many clients have finished the handshake."""

    port: int
    handshakes: list[str] = field(default_factory=list)  # The version of TLS of each.


@contextmanager
def tls_proxy(server: Address, context: ssl.SSLContext, *, asks: bool) -> Iterator[TlsProxy]:
    """Run a proxy in front of `server`; `asks` is PostgreSQL's way, in which the client asks first.

    Its threads end when their client or the server closes the connection.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        proxy = TlsProxy(listening.getsockname()[1])

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listening.accept()
                    work = partial(_serve, client, server, context, proxy, asks=asks)
                    threading.Thread(target=work, daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield proxy
        listening.shutdown(socket.SHUT_RDWR)


def _serve(
    client: socket.socket, server: Address, context: ssl.SSLContext, proxy: TlsProxy, *, asks: bool
) -> None:
    with client, suppress(OSError):
        if asks and not _is_asked(client):
            return
        with (
            context.wrap_socket(client, server_side=True) as secure,
            _connected(server) as upstream,
        ):
            proxy.handshakes.append(secure.version() or "")
            # Two threads may use one TLS connection: one reads and the other writes.
            back = threading.Thread(target=_copy, args=(upstream, secure), daemon=True)
            back.start()
            _copy(secure, upstream)
            back.join()


def _is_asked(client: socket.socket) -> bool:
    """Return whether the client asks for TLS, and agree."""
    while True:
        _, code = struct.unpack("!ii", client.recv(8, socket.MSG_WAITALL))
        if code != _GSS_REQUEST:
            break
        client.sendall(b"N")
    if code != _SSL_REQUEST:
        return False
    client.sendall(b"S")
    return True


def _connected(server: Address) -> socket.socket:
    if not isinstance(server, str):
        return socket.create_connection(server)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(server)
    return connection


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(65536):
            target.sendall(chunk)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
