"""Addresses that the HTTP client refuses: the SSRF guard and DNS rebinding.

Only the resolver is replaced, because DNS is what an attacker controls.
"""

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from cardledger.webhooks.receiver import Reply
from cardledger.workers.webhooks.http_client import (
    HttpClient,
    HttpResult,
)
from tests.integration.scripted_receiver import (
    BODY,
    OK,
    Rebinding,
    Script,
    always,
    post,
    says_and_closes,
)
from tests.receiver import Receiver
from tests.waiting import limit_s


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        receiver.reply_always(Reply(status=200))
        yield receiver


# --- the SSRF guard -----------------------------------------------------------------------------

NOT_PUBLIC = [
    "0.0.0.0",  # noqa: S104 - the point
    "10.0.0.1",
    "100.64.0.1",
    "127.0.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "192.0.0.1",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::10.0.0.1",
    "64:ff9b:1::1",
    "100::1",
    "2001:0:7f00:1::",
    "2001:2::1",
    "2001:10::1",
    "2001:20::1",
    "2001:db8::1",
    "2002:7f00:1::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%lo",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
]


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_a_name_that_resolves_to_a_non_public_address_is_refused(address: str) -> None:
    result = post("https://hook.example/", resolve=always(address), allow_loopback=False)

    error = "forbidden: the host name does not resolve to a public address"
    assert result == HttpResult(error=error)


def test_a_name_inside_cannot_be_told_from_one_that_does_not_exist() -> None:
    def unknown(_: str, __: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    inside = post("https://db.example/", resolve=always("10.0.0.1"), allow_loopback=False)
    nowhere = post("https://db.example/", resolve=unknown, allow_loopback=False)

    assert inside == nowhere


@pytest.mark.parametrize("address", [address for address in NOT_PUBLIC if "%" not in address])
def test_a_non_public_address_in_the_url_is_refused(address: str) -> None:
    host = f"[{address}]" if ":" in address else address

    result = post(f"https://{host}/", allow_loopback=False)

    assert result.status is None
    assert str(result.error).startswith("forbidden: this address is not public (")


ODD = [
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0177.0.0.1",
    "017700000001",
    "127.1",
    "127.0.0.01",
    "[fe80::1%25eth0]",
    "[fe80::1%eth0]",
    "①②⑦.⓪.⓪.①",
    "\uff11\uff12\uff17.0.0.\uff11",
    "127。0。0。1",
]


@pytest.mark.parametrize("host", [*ODD, "127.0.0.1.", "%31%32%37.0.0.1", "localhost", "localhost."])
def test_no_spelling_of_a_loopback_address_is_connected_to(receiver: Receiver, host: str) -> None:
    port = receiver.url.split(":")[2]

    result = post(f"https://{host}:{port}", allow_loopback=False)

    assert result.status is None
    assert str(result.error).startswith(("forbidden: ", "LocationParseError: "))


@pytest.mark.parametrize("host", ODD)
def test_non_standard_address_spellings_are_refused_even_in_a_sandbox(
    receiver: Receiver, host: str
) -> None:
    port = receiver.url.split(":")[2]

    result = post(f"http://{host}:{port}")

    assert result.status is None
    assert str(result.error).startswith(("forbidden: ", "LocationParseError: "))
    assert receiver.received == []


@pytest.mark.parametrize("address", ["10.0.0.1", "169.254.169.254", "::ffff:127.0.0.1", "fe80::1"])
def test_a_sandbox_allows_loopback_and_no_other_network(address: str) -> None:
    result = post("https://hook.example/", resolve=always(address), allow_loopback=True)

    assert str(result.error).startswith("forbidden: ")


def test_one_forbidden_address_among_public_ones_is_enough_to_refuse() -> None:
    resolve = always("8.8.8.8", "2606:4700::1111", "10.0.0.1")

    result = post("https://hook.example/", resolve=resolve, allow_loopback=False)

    assert str(result.error).startswith("forbidden: ")


def test_outside_a_sandbox_neither_http_nor_loopback_is_allowed(receiver: Receiver) -> None:
    without_tls = post(receiver.url, allow_loopback=False)
    with_tls = post(receiver.url.replace("http:", "https:"), allow_loopback=False)

    assert without_tls.error == "forbidden: webhook URLs must use https://"
    assert with_tls.error == "forbidden: this address is not public (loopback)"
    assert receiver.received == []


def test_in_a_sandbox_http_is_allowed_for_loopback_only() -> None:
    result = post("http://hook.example/", resolve=always("8.8.8.8"))

    assert result.error == "forbidden: http:// is allowed for loopback addresses only"


def test_in_a_sandbox_a_name_that_resolves_to_loopback_is_allowed(receiver: Receiver) -> None:
    url = receiver.url.replace("127.0.0.1", "localhost")

    result = post(url, resolve=always("127.0.0.1"))

    assert result.status == 200
    assert receiver.received[0].headers["host"].startswith("localhost:")


# --- DNS rebinding ------------------------------------------------------------------------------


def test_a_name_is_resolved_once_and_the_checked_address_is_connected_to(
    receiver: Receiver,
) -> None:
    # The name does not exist, so a second look-up by the system would fail.
    resolve = Rebinding(["127.0.0.1"], ["10.0.0.1"])

    result = post(receiver.url.replace("127.0.0.1", "rebinding.invalid"), resolve=resolve)

    assert result.status == 200
    assert resolve.queries == 1


def test_a_receiver_behind_a_rebinding_name_is_never_reached(receiver: Receiver) -> None:
    """Public at first, loopback at the second look-up: every look-up is checked."""
    resolve = Rebinding([], ["127.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["::ffff:127.0.0.1"], ["::1"])
    url = receiver.url.replace("http://127.0.0.1", "https://rebinding.example")

    results = [post(url, resolve=resolve, allow_loopback=False) for _ in range(5)]

    assert results[0].error == "cannot connect: no address"
    assert {str(result.error)[:10] for result in results[1:]} == {"forbidden:"}
    assert resolve.queries == 5
    assert receiver.received == []


def test_a_new_connection_is_checked_again() -> None:
    resolve = Rebinding(["127.0.0.1"], ["192.168.0.1"])
    client = HttpClient(timeout_s=limit_s(5), connections=2, allow_loopback=True, resolve=resolve)
    with closing(client), Script(says_and_closes(OK)).listening() as script:
        url = script.url.replace("127.0.0.1", "rebinding.example")

        first = client.post(url, BODY, {})
        assert script.ended.wait(limit_s())
        second = client.post(url, BODY, {})

    assert first.status == 200
    assert str(second.error).startswith("forbidden: ")
    assert script.connections == 1
