"""Addresses of clients and of trusted proxies."""

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final

Network = IPv4Network | IPv6Network

_MAPPED_BITS: Final = 96


def parse_networks(text: str) -> tuple[Network, ...]:
    """Return the networks in `text`: addresses and CIDR networks, separated by commas.

    Raises: ValueError.
    """
    parts = [part.strip() for part in text.split(",")]
    return tuple(_network(part) for part in parts if part)


def is_within(address: str, networks: Sequence[Network]) -> bool:
    """Return whether `address` is in one of `networks`."""
    parsed = _parsed(address)
    return parsed is not None and any(parsed in network for network in networks)


def with_mapped(networks: Sequence[Network]) -> list[str]:
    """Return `networks`, and as a socket for both versions of IP names those of IPv4."""
    mapped = [
        f"::ffff:{network.network_address}/{_MAPPED_BITS + network.prefixlen}"
        for network in networks
        if isinstance(network, IPv4Network)
    ]
    return [*map(str, networks), *mapped]


@lru_cache(maxsize=4096)
def counted_as(address: str) -> str:
    """Return the address or network under which connections from `address` are counted.

    An IPv6 client has a /64 network at its disposal. Empty where there is no IP address.
    """
    parsed = _parsed(address)
    if isinstance(parsed, IPv6Address):
        return str(ip_network((int(parsed), 64), strict=False).network_address)
    return "" if parsed is None else str(parsed)


def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    try:
        parsed = ip_address(address)
    except ValueError:  # A Unix socket has no address.
        return None
    return parsed.ipv4_mapped or parsed if isinstance(parsed, IPv6Address) else parsed


def _network(part: str) -> Network:
    if part == "*":
        # Everything would be trusted, so the first address, which the client chooses, would count.
        raise ValueError("must name the proxies' addresses; * would believe every client")
    try:
        return ip_network(part)
    except ValueError:
        message = f"must be IP addresses or networks, separated by commas; {part[:64]!r} is neither"
        raise ValueError(message) from None
