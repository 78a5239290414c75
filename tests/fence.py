"""A network fence: tests may set any webhook endpoint, and no request leaves this machine.

Host names are resolved in one place (`workers/webhooks/http_client.py`), which uses the function
that is replaced here: every name but those of this machine and of the given servers is unknown.
"""

import os
import socket
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

_GIVEN: Final = {
    urlsplit(os.environ.get(name, "")).hostname for name in ("DATABASE_URL", "REDIS_URL")
}
_look_up: Final = socket.getaddrinfo


def install() -> None:
    """Install the fence in this process, for as long as it runs."""
    socket.getaddrinfo = _look_up_here


def _look_up_here(host: Any, *rest: Any, **named: Any) -> Any:  # noqa: ANN401 - the library's
    name = host.decode() if isinstance(host, bytes) else host
    is_to_listen = named.get("flags", 0) & socket.AI_PASSIVE
    if name in _GIVEN or name is None or is_to_listen:
        return _look_up(host, *rest, **named)
    name.encode("idna")  # An invalid name raises as usual.
    is_local = name == "localhost" or _is_address(name)
    results = _look_up(host, *rest, **named) if is_local else []
    if not results or not all(ip_address(result[4][0]).is_loopback for result in results):
        raise socket.gaierror(socket.EAI_NONAME, "tests do not leave this machine")
    return results


def _is_address(name: str) -> bool:
    try:
        return bool(ip_address(name))
    except ValueError:
        return False
