"""The socket that the API listens on, bound by the parent.

No other process can take the port, and requests wait while the API starts again.
"""

import errno
import http.client
import socket
from typing import Final

from cardledger.config.errors import CommandError

_PORTS_TRIED: Final = 100
_HIGHEST_PORT: Final = 65535
_BACKLOG: Final = 2048


class ListeningSocket:
    """A bound TCP socket, and how to reach it from this machine."""

    def __init__(self, host: str, port: int, *, any_port: bool) -> None:
        """Bind `port`, or with `any_port` the next free one.

        Raises: CommandError when no port can be bound.
        """
        self._host: Final = host
        self._socket: Final = _bind_first(
            host, port, tries=_PORTS_TRIED if any_port and port else 1
        )

    @property
    def fd(self) -> int:
        """The file descriptor, to be passed to the API process."""
        return self._socket.fileno()

    @property
    def port(self) -> int:
        """The port that is bound."""
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def origin(self) -> str:
        """The URL of the API without a path, as this machine reaches it."""
        host = self._local_host()
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def is_api_ready(self) -> bool:
        """Return whether `/readyz` responds with success."""
        connection = http.client.HTTPConnection(self._local_host(), self.port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def close(self) -> None:
        """Close it here; the API process has its own copy."""
        self._socket.close()

    def _local_host(self) -> str:
        addresses = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104
        return addresses.get(self._host, self._host)


def _bind_first(host: str, port: int, *, tries: int) -> socket.socket:
    last_port = min(port + tries - 1, _HIGHEST_PORT)
    for candidate in range(port, last_port + 1):
        try:
            return _bind(host, candidate)
        except OSError as error:
            if candidate < last_port:
                continue
            raise CommandError(_cannot_listen(host, port, error)) from None
    raise CommandError(f"no free port from {port} on")


def _bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens, so that the port is taken."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def _cannot_listen(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is already in use; choose another --port (0: any free port)"
    if error.errno == errno.EACCES:
        return f"port {port} needs root privileges; choose a --port above 1023"
    return f"cannot listen on {host}:{port}: {error.strerror or error}; choose another --host"
