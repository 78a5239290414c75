"""Addresses that webhooks must not be sent to: protection against SSRF.

The author of a webhook's URL chooses where this server connects, so only addresses of the public
internet are allowed. The list is our own, because `ipaddress.is_global` differs between releases
of Python, and an upgrade must not allow what was forbidden before.

Source: the special-purpose address registries of IANA for IPv4 and IPv6, and the RFC at each block.
"""

import re
import unicodedata
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

Address = IPv4Address | IPv6Address

_LOOPBACK: Final = "loopback"

_IPV4: Final = {
    IPv4Network(block): purpose
    for block, purpose in (
        ("0.0.0.0/8", "this network"),  # RFC 791; Linux connects 0.0.0.0 to itself.
        ("10.0.0.0/8", "private"),  # RFC 1918.
        ("100.64.0.0/10", "shared by carriers"),  # RFC 6598; also metadata of some clouds.
        ("127.0.0.0/8", _LOOPBACK),  # RFC 1122.
        ("168.63.129.16/32", "a cloud's own"),  # Azure: the host of a virtual machine.
        ("169.254.0.0/16", "link-local"),  # RFC 3927; 169.254.169.254 is cloud metadata.
        ("172.16.0.0/12", "private"),  # RFC 1918.
        ("192.0.0.0/24", "for protocols"),  # RFC 6890; DS-Lite, NAT64 discovery, a cloud's own.
        ("192.0.2.0/24", "documentation"),  # RFC 5737, TEST-NET-1.
        ("192.31.196.0/24", "AS112"),  # RFC 7535: DNS queries are answered by a nearby node.
        ("192.52.193.0/24", "automatic multicast tunnels"),  # RFC 7450.
        ("192.88.99.0/24", "6to4 relays"),  # RFC 7526, deprecated.
        ("192.168.0.0/16", "private"),  # RFC 1918.
        ("192.175.48.0/24", "AS112"),  # RFC 7534.
        ("198.18.0.0/15", "benchmarks"),  # RFC 2544.
        ("198.51.100.0/24", "documentation"),  # RFC 5737, TEST-NET-2.
        ("203.0.113.0/24", "documentation"),  # RFC 5737, TEST-NET-3.
        ("224.0.0.0/4", "multicast"),  # RFC 5771; with MCAST-TEST-NET 233.252.0.0/24.
        ("240.0.0.0/4", "reserved"),  # RFC 1112; with 255.255.255.255, the broadcast address.
    )
}

_IPV6: Final = {
    IPv6Network(block): purpose
    for block, purpose in (
        ("::/128", "unspecified"),  # RFC 4291; Linux connects it to itself.
        ("::1/128", _LOOPBACK),  # RFC 4291.
        ("64:ff9b:1::/48", "a translator's own"),  # RFC 8215: NAT64 inside one network.
        ("100::/64", "discarded"),  # RFC 6666.
        ("100:0:0:1::/64", "a dummy"),  # RFC 9780.
        ("2001:1::/32", "for protocols"),  # RFC 7723, 8155, 9665: anycast of protocols.
        ("2001:2::/48", "benchmarks"),  # RFC 5180.
        ("2001:3::/32", "automatic multicast tunnels"),  # RFC 7450.
        ("2001:4:112::/48", "AS112"),  # RFC 7535.
        ("2001:10::/28", "cryptographic hashes"),  # RFC 4843, ORCHID, deprecated.
        ("2001:20::/28", "cryptographic hashes"),  # RFC 7343, ORCHIDv2.
        ("2001:30::/28", "drone identifiers"),  # RFC 9374.
        ("2001:db8::/32", "documentation"),  # RFC 3849.
        ("2620:4f:8000::/48", "AS112"),  # RFC 7534.
        ("3ffe::/16", "returned"),  # RFC 3701: the 6bone.
        ("3fff::/20", "documentation"),  # RFC 9637.
        ("5f00::/16", "segment identifiers"),  # RFC 9602.
        ("fc00::/7", "private"),  # RFC 4193, unique local; fd00:ec2::254 is cloud metadata.
        ("fe80::/10", "link-local"),  # RFC 4291.
        ("fec0::/10", "private"),  # RFC 3879, site-local, deprecated and still routed by some.
        ("ff00::/8", "multicast"),  # RFC 4291.
    )
}

_FOR_PROTOCOLS: Final = IPv6Network("2001::/23")  # RFC 2928: the rest of it, except Teredo.
_TEREDO: Final = IPv6Network("2001::/32")  # RFC 4380.
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")  # RFC 4291: all that IANA assigns.

# The position of an IPv4 address in an IPv6 address: the block, and the number of bits after it.
_WITH_IPV4_INSIDE: Final = {
    IPv6Network("::/96"): 0,  # RFC 4291, IPv4-compatible, deprecated.
    IPv6Network("::ffff:0:0/96"): 0,  # RFC 4291, IPv4-mapped.
    IPv6Network("::ffff:0:0:0/96"): 0,  # RFC 2765, IPv4-translated.
    IPv6Network("64:ff9b::/96"): 0,  # RFC 6052, NAT64.
    IPv6Network("2002::/16"): 80,  # RFC 3056, 6to4.
    _TEREDO: 64,  # RFC 4380: the server; the client is at the end, inverted.
}
_ISATAP: Final = (0x0000_5EFE, 0x0200_5EFE)  # RFC 5214: the start of the lower half.
_LOW_32: Final = 0xFFFF_FFFF

_DOTS: Final = str.maketrans(dict.fromkeys("。．｡", "."))  # noqa: RUF001 - the dots of IDNA
_NUMBER: Final = re.compile(r"\d+|0x[0-9a-f]*")  # Digits of any script: IDNA may map them.


def why_forbidden(address: Address, *, allow_loopback: bool = False) -> str | None:
    """Return the purpose that forbids `address`; None when connections to it are allowed.

    `allow_loopback` allows 127.0.0.0/8 and ::1 themselves, not embedded in another address.
    """
    if allow_loopback and is_loopback(address):
        return None
    if isinstance(address, IPv4Address):
        return next((purpose for block, purpose in _IPV4.items() if address in block), None)
    for block, purpose in _IPV6.items():
        if address in block:
            return purpose
    for inside in _ipv4_inside(address):
        if purpose_inside := why_forbidden(inside):
            return purpose_inside
    if any(address in block for block in _WITH_IPV4_INSIDE):
        return None
    if address in _FOR_PROTOCOLS:
        return "for protocols"
    return None if address in _GLOBAL_UNICAST else "reserved"


def is_loopback(address: Address) -> bool:
    """Return whether `address` is a loopback address itself, not embedded in another."""
    if isinstance(address, IPv4Address):
        return address in IPv4Network("127.0.0.0/8")
    return address == IPv6Address(1) and address.scope_id is None


def literal(host: str) -> Address | None:
    """Return the IP address that `host` is; None when it is a name.

    `host` is as in a URL, without brackets. Only the plain spelling of an address is accepted: the
    other forms of `inet_aton` (2130706433, 0x7f.1, 127.1, 0177.0.0.1), a trailing dot, digits of
    other scripts and zones are rejected, because two programs may read them differently.
    Raises: ValueError with the accepted form.
    """
    if ":" in host:
        return _ipv6(host)
    folded = unicodedata.normalize("NFKC", host.translate(_DOTS)).translate(_DOTS).lower()
    labels = folded.removesuffix(".").split(".")
    # The rule of browsers (WHATWG URL): a host that ends in a number is an address or invalid.
    if not _NUMBER.fullmatch(labels[-1]):
        return None
    try:
        return IPv4Address(host)
    except ValueError:
        message = "an IPv4 address must be four decimal numbers, such as 198.51.100.7"
        raise ValueError(message) from None


def _ipv6(host: str) -> IPv6Address:
    try:
        address = ip_address(host)
    except ValueError:
        raise ValueError("not a valid IPv6 address") from None
    assert isinstance(address, IPv6Address)
    if address.scope_id is not None:
        raise ValueError("an address with a zone is not allowed")
    return address


def _ipv4_inside(address: IPv6Address) -> Iterator[IPv4Address]:
    """Yield the IPv4 addresses that a tunnel or translator may forward to."""
    bits = int(address)
    for block, after in _WITH_IPV4_INSIDE.items():
        if address in block:
            yield IPv4Address(bits >> after & _LOW_32)
    if address in _TEREDO:
        yield IPv4Address(~bits & _LOW_32)
    if bits >> 32 & _LOW_32 in _ISATAP:
        yield IPv4Address(bits & _LOW_32)
