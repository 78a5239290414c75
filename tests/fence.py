"""A fence: tests may set any webhook endpoint, generated ones too, and nothing leaves this machine.

Names are looked up in one place (`workers/webhooks/http_client.py`), so that is where it stands:
every name but those of this machine and of the given servers is one that nobody knows.
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
    """Put the fence up in this process, for as long as it lives."""
    socket.getaddrinfo = _look_up_here


def _look_up_here(host: Any, *rest: Any, **named: Any) -> Any:  # noqa: ANN401 - the library's
    name = host.decode() if isinstance(host, bytes) else host
    if name in _GIVEN or name is None:
        return _look_up(host, *rest, **named)
    name.encode("idna")  # What is no name at all is refused as ever.
    found = _look_up(host, *rest, **named) if name == "localhost" or _is_address(name) else []
    if not found or not all(ip_address(one[4][0]).is_loopback for one in found):
        raise socket.gaierror(socket.EAI_NONAME, "tests do not leave this machine")
    return found


def _is_address(name: str) -> bool:
    try:
        return bool(ip_address(name))
    except ValueError:
        return False
