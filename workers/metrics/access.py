"""Who may read the metrics: who has the token, or, where there is none, this machine alone.

A reverse proxy on this machine connects from loopback for any stranger. So without a token a
request must also look like none that was passed on, and where a proxy is configured none is
answered.
Source: docs/decisions/0059-observability.md
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from hmac import compare_digest
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from cardledger.schema import ssrf

PATH: Final = "/metrics"

_BEARER: Final = "bearer "
_FORWARDED: Final = ("forwarded", "via", "x-real-ip", "x-client-ip", "x-forwarded-", "x-original-")
_VERSION: Final = "1.1"  # What proxies speak by default is often 1.0, without a header of theirs.


class Verdict(Enum):
    """What a request for the metrics gets."""

    ALLOWED = auto()
    UNAUTHORIZED = auto()  # A token is required, and this is not it.
    UNKNOWN = auto()  # The path does not exist for this client.


class Scrape(NamedTuple):
    """A request for the metrics: who has connected, and its head; names are in lower case."""

    peer: str
    http_version: str
    headers: Sequence[tuple[str, str]]

    def values(self, name: str) -> list[str]:
        """Return the values of the header `name`."""
        return [value for key, value in self.headers if key == name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may read the metrics of a process."""

    token: str | None = None
    is_behind_proxy: bool = False

    def verdict(self, scrape: Scrape) -> Verdict:
        """Return what `scrape` gets."""
        if self.token is not None:
            given = _bearer(scrape.values("authorization"))
            is_known = compare_digest(given.encode(), self.token.encode())
            return Verdict.ALLOWED if is_known else Verdict.UNAUTHORIZED
        if self.is_behind_proxy or not _is_from_here(scrape):
            return Verdict.UNKNOWN
        return Verdict.ALLOWED


THIS_MACHINE: Final = Access()
"""Without a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """Where a worker serves its metrics, and who may read them."""

    host: str = "127.0.0.1"
    port: int  # 0: any free one.
    access: Access = THIS_MACHINE


def _bearer(values: Sequence[str]) -> str:
    if len(values) != 1 or values[0][: len(_BEARER)].lower() != _BEARER:
        return ""
    return values[0][len(_BEARER) :].strip()


def _is_from_here(scrape: Scrape) -> bool:
    """Return whether a program of this machine has sent `scrape` by itself."""
    hosts = scrape.values("host")
    return (
        is_loopback(scrape.peer)
        and scrape.http_version == _VERSION
        and len(hosts) == 1
        and _is_name_of_loopback(hosts[0])
        and not any(name.startswith(_FORWARDED) for name, _ in scrape.headers)
    )


def _is_name_of_loopback(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return name == "localhost" or is_loopback(name)


def is_loopback(address: str) -> bool:
    """Return whether `address` is one of this machine alone."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return ssrf.is_loopback(mapped or parsed)
