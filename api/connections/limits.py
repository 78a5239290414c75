"""Limits of connections: how many at once, and how long each may take."""

from dataclasses import dataclass
from typing import Final

from cardledger.api.addresses import Network

DEFAULT_CONNECTIONS: Final = 4000
ADDRESS_SHARE: Final = 4
"""One address gets a quarter of all connections unless another limit is set."""

RESERVE: Final = 32
"""Connections above the limit, on which health checks are answered while all others are busy."""

_BACKLOG: Final = 2048  # Connections that the kernel has accepted and this process has not.
_BACKLOG_SHARE: Final = 4
_OTHER_FILES: Final = 256  # Connections to PostgreSQL and Redis, files, pipes, the reserve.
_FEWEST_CONNECTIONS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The limits of one server. Times in seconds."""

    connections: int = DEFAULT_CONNECTIONS
    per_address: int = DEFAULT_CONNECTIONS // ADDRESS_SHARE  # Not for connections of `proxies`.
    head_timeout_s: float = 10.0
    body_timeout_s: float = 30.0
    stall_timeout_s: float = 10.0  # Without progress: of a body, or of a response being read.
    keep_alive_s: int = 30
    backlog: int = _BACKLOG
    proxies: tuple[Network, ...] = ()  # Their X-Forwarded-For and X-Forwarded-Proto are believed.


class TooFewFilesError(ValueError):
    """The limit of open files is too low for the limit of connections."""


def backlog_of(open_files: int) -> int:
    """Return how many connections may wait to be accepted: each may need a file at once."""
    return min(_BACKLOG, open_files // _BACKLOG_SHARE)


def connections_of(open_files: int, wanted: int | None) -> int:
    """Return the limit of connections of a process that may open `open_files` files.

    Without `wanted` that is `DEFAULT_CONNECTIONS`, or as many as there are files for.
    Raises: TooFewFilesError when there are not enough files.
    """
    other = backlog_of(open_files) + _OTHER_FILES
    possible = open_files - other
    needed = wanted if wanted is not None else _FEWEST_CONNECTIONS
    if possible < needed:
        raise TooFewFilesError(
            f"{needed} connections do not fit in {open_files} open files, of which {other} are kept"
            " for others; raise the hard limit of open files (ulimit -Hn, LimitNOFILE), or lower"
            " CARDLEDGER_CONNECTION_LIMIT"
        )
    return wanted if wanted is not None else min(DEFAULT_CONNECTIONS, possible)
