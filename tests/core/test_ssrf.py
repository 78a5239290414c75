"""SSRF protection: forbidden addresses, in every known spelling."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cardledger.schema import ssrf
from cardledger.schema.ssrf import why_forbidden
from cardledger.schema.wire.config import ConfigUpdate

LOOPBACK = ["127.0.0.1", "127.255.255.254", "::1"]

FORBIDDEN = [
    "0.0.0.0",  # noqa: S104 - the point
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.100.100.200",
    "100.127.255.255",
    "168.63.129.16",
    "169.254.0.1",
    "169.254.169.254",
    "169.254.170.2",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.192",
    "192.0.2.1",
    "192.31.196.1",
    "192.52.193.1",
    "192.88.99.1",
    "192.168.0.1",
    "192.168.255.255",
    "192.175.48.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "233.252.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "64:ff9b:1::1",
    "100::1",
    "100:0:0:1::1",
    "2001:1::1",
    "2001:2::1",
    "2001:3::1",
    "2001:4:112::1",
    "2001:5::1",
    "2001:10::1",
    "2001:20::1",
    "2001:30::1",
    "2001:1ff:ffff::1",
    "2001:db8::1",
    "2620:4f:8000::1",
    "3ffe::1",
    "3fff::1",
    "3fff:fff::1",
    "4000::1",
    "5f00::1",
    "8000::1",
    "fc00::1",
    "fd00:ec2::254",
    "fdff::1",
    "fe80::1",
    "fe80::1%eth0",
    "febf::1",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
    "1::1",
]

WRAPPED = [
    "::127.0.0.1",
    "::10.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:7f00:1",
    "::ffff:0.0.0.0",
    "::ffff:0:192.168.0.1",
    "64:ff9b::10.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::1",
    "2002:a9fe:a9fe::",
    "2002:c0a8:1:1::1",
    "2001:0:7f00:1::",  # A Teredo server.
    "2001:0:801:101:0:0:5601:5601",  # A Teredo client: 169.254.169.254, every bit turned.
    "2606:4700::5efe:10.0.0.1",
    "2606:4700::200:5efe:127.0.0.1",
]

PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "169.253.255.255",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "2001:200::1",
    "2001:db7::1",
    "2606:4700:4700::1111",
    "2a00:1450:4001::1",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
    "2002:808:808::1",
]


@pytest.mark.parametrize("address", LOOPBACK + FORBIDDEN + WRAPPED)
def test_a_special_purpose_address_is_forbidden(address: str) -> None:
    assert why_forbidden(ip_address(address)) is not None


@pytest.mark.parametrize("address", PUBLIC)
def test_the_public_internet_is_allowed(address: str) -> None:
    assert why_forbidden(ip_address(address)) is None


@pytest.mark.parametrize("address", LOOPBACK)
def test_a_sandbox_allows_loopback(address: str) -> None:
    assert why_forbidden(ip_address(address), allow_loopback=True) is None


@pytest.mark.parametrize("address", FORBIDDEN + WRAPPED)
def test_a_sandbox_forbids_embedded_loopback_and_all_other_addresses(address: str) -> None:
    assert why_forbidden(ip_address(address), allow_loopback=True) is not None


@given(st.ip_addresses(v=4))
def test_an_allowed_ipv4_address_is_global_for_python(address: IPv4Address) -> None:
    if why_forbidden(address) is None:
        assert address.is_global
        assert not address.is_multicast


@given(st.ip_addresses(v=6))
def test_an_allowed_ipv6_address_is_global_for_python_or_embeds_a_global_one(
    address: IPv6Address,
) -> None:
    wrapped = address.teredo or address.sixtofour or address.ipv4_mapped

    if why_forbidden(address) is None and not wrapped:
        assert address.is_global
        assert not address.is_multicast


@given(st.ip_addresses(v=4))
def test_an_embedded_address_is_judged_like_itself(inside: IPv4Address) -> None:
    bits = int(inside)
    wrapped = [
        IPv6Address(0xFFFF << 32 | bits),
        IPv6Address(0xFFFF << 48 | bits),
        IPv6Address(0x64_FF9B << 96 | bits),
        IPv6Address(0x2002 << 112 | bits << 80),
    ]

    judgements = {why_forbidden(address) for address in wrapped}

    assert judgements == {why_forbidden(inside)}


# --- spellings ---------------------------------------------------------------------------------

ODD = [
    "2130706433",
    "134744072",  # 8.8.8.8, and still no way to write it.
    "0x7f000001",
    "0x7f.1",
    "0x7f.0.0.0x1",
    "0177.0.0.1",
    "017700000001",
    "127.1",
    "127.0.1",
    "127.0.0.01",
    "127.0.0.1.",
    "8.8.8.8.",
    "1.2.3.4.5",
    "256.256.256.256",
    "example.0x7f",
    "127。0。0。1",
    "①②⑦.⓪.⓪.①",
    "\uff11\uff12\uff17.0.0.\uff11",  # Fullwidth digits.
    "\u0661\u0662\u0667.0.0.\u0661",  # Arabic digits.
    "fe80::1%eth0",
    "::1%lo",
    "::1.2.3",
    "1:2",
]


@pytest.mark.parametrize("host", ODD)
def test_an_address_has_one_accepted_spelling(host: str) -> None:
    with pytest.raises(ValueError, match="address"):
        ssrf.literal(host)


@pytest.mark.parametrize("host", ["example.com", "localhost", "1.example", "0xbee.example", "a1"])
def test_a_host_name_is_not_an_address(host: str) -> None:
    assert ssrf.literal(host) is None


@given(st.ip_addresses())
def test_the_plain_spelling_is_accepted(address: IPv4Address | IPv6Address) -> None:
    assert ssrf.literal(str(address)) == address


def in_url(host: str) -> str:
    return f"https://[{host}]/hook" if ":" in host else f"https://{host}/hook"


@pytest.mark.parametrize("host", FORBIDDEN + WRAPPED + ODD)
def test_settings_reject_a_forbidden_url(host: str) -> None:
    with pytest.raises(ValidationError):
        ConfigUpdate.model_validate({"webhookEndpoint": in_url(host)})


@pytest.mark.parametrize("host", PUBLIC)
def test_settings_accept_a_public_address(host: str) -> None:
    settings = {"webhookEndpoint": in_url(host)}

    assert ConfigUpdate.model_validate(settings).webhook_endpoint == in_url(host)


@pytest.mark.parametrize(
    "url", ["https://%31%32%37.0.0.1/", "https://example.com%00.evil/", "https://[::1%25lo]/"]
)
def test_a_host_with_percent_encoding_is_rejected(url: str) -> None:
    with pytest.raises(ValidationError):
        ConfigUpdate.model_validate({"webhookEndpoint": url})
