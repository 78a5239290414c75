"""Requests that do not end: none of them keeps its connection."""

import time

import pytest

from tests.api.protocol.support import (
    PATIENCE_S,
    accepts,
    all_of,
    connection,
    head,
    one_of,
    refusal,
)
from tests.api.support import TIMEOUT_S, Tenant
from tests.waiting import eventually, limit_s


@pytest.mark.parametrize(
    "framing", ["Content-Length: 1000", "Transfer-Encoding: chunked"], ids=["length", "chunks"]
)
def test_a_body_that_arrives_byte_by_byte_times_out(
    impatient: str, tenant: Tenant, framing: str
) -> None:
    drop = b"1\r\n \r\n" if "chunked" in framing else b" "
    begin = time.monotonic()
    with connection(impatient) as opened:
        opened.sendall(head(tenant, framing))
        opened.settimeout(0.05)
        data = b""
        while not data:  # A byte is enough to keep a server from calling a connection idle.
            opened.sendall(drop)
            try:
                data = opened.recv(65536)
            except TimeoutError:
                assert time.monotonic() - begin < limit_s()
        opened.settimeout(TIMEOUT_S)
        data += all_of(opened)

    assert refusal(data)[0] == 408
    assert time.monotonic() - begin >= PATIENCE_S * 0.9


def test_a_body_that_never_arrives_times_out(impatient: str, tenant: Tenant) -> None:
    with connection(impatient) as opened:
        opened.sendall(head(tenant, "Content-Length: 5"))

        data = all_of(opened)

    status, envelope = refusal(data)
    assert status == 408
    assert "nothing arrived for" in str(envelope["message"])


def test_a_body_that_stops_in_the_middle_times_out(impatient: str, tenant: Tenant) -> None:
    begin = time.monotonic()
    with connection(impatient) as opened:
        opened.sendall(head(tenant, "Content-Length: 5000") + b" " * 1000)

        data = all_of(opened)

    assert refusal(data)[0] == 408
    assert time.monotonic() - begin >= PATIENCE_S / 2 * 0.9


@pytest.mark.parametrize("length", [1000, 100_000])
def test_an_unread_body_that_arrives_byte_by_byte_is_given_up(
    impatient: str, tenant: Tenant, length: int
) -> None:
    request = head(tenant, f"Content-Length: {length}", request="GET {}/config HTTP/1.1")
    with connection(impatient) as opened:
        opened.sendall(request)

        assert one_of(opened).startswith(b"HTTP/1.1 200 ")
        eventually(lambda: not accepts(opened, b" "), poll_s=0.05)


@pytest.mark.parametrize("sent", [b"", b"POST /", b"GET / HTTP/1.1\r\nHost: x\r\nX-A"])
def test_a_head_that_never_ends_is_given_up(impatient: str, sent: bytes) -> None:
    begin = time.monotonic()
    with connection(impatient) as opened:
        opened.sendall(sent)

        assert all_of(opened) == b""

    assert time.monotonic() - begin >= PATIENCE_S * 0.9


def test_empty_lines_do_not_keep_a_connection_open(impatient: str, tenant: Tenant) -> None:
    with connection(impatient) as opened:
        opened.sendall(head(tenant, request="GET {}/config HTTP/1.1"))
        assert one_of(opened).startswith(b"HTTP/1.1 200 ")

        eventually(lambda: not accepts(opened, b"\r\n"), poll_s=0.05)


def test_an_unread_body_of_a_get_does_not_delay_its_response(
    impatient: str, tenant: Tenant
) -> None:
    with connection(impatient) as opened:
        opened.sendall(
            head(tenant, "Content-Length: 1000", request="GET {}/config HTTP/1.1") + b"x"
        )

        assert all_of(opened).startswith(b"HTTP/1.1 200 ")


def test_a_connection_that_is_used_again_has_time_again(impatient: str, tenant: Tenant) -> None:
    asked = head(tenant, request="GET {}/config HTTP/1.1")
    with connection(impatient) as opened:
        for _ in range(4):
            opened.sendall(asked)
            assert one_of(opened).startswith(b"HTTP/1.1 200 ")
            time.sleep(PATIENCE_S / 2)  # Idle, which has an end of its own.
