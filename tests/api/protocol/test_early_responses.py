"""Responses that are sent before the body of their request has arrived."""

import socket
from collections.abc import Iterator
from time import monotonic

import pytest

from cardledger.api.app import ApiConfig
from cardledger.api.connections.limits import ConnectionLimits
from cardledger.api.ingestion.bodies import MAX_BODY as MAX_EVENTS_BODY
from cardledger.api.ingestion.bodies import PATH as EVENTS_PATH
from cardledger.schema.ids import Id
from tests.api.protocol.support import (
    PATIENCE_S,
    all_of,
    connection,
    head,
    one_of,
    refusal,
    statuses_of,
)
from tests.api.support import TIMEOUT_S, Tenant, server

BODY = b'{"customerType": "INDIVIDUAL", "fullName": "Ada"}'
LENGTH = f"Content-Length: {len(BODY)}"
CONFIG = "GET {}/config HTTP/1.1"
SLOWLY_S = 0.7


@pytest.fixture(scope="module")
def stranger() -> Tenant:
    """Credentials that are refused before the body is read."""
    return Tenant(Id(bytes(16)), "a", "b")


@pytest.fixture(scope="module")
def strict(api_config: ApiConfig) -> Iterator[str]:
    """A server that soon closes a connection whose head does not arrive, and never an idle one."""
    limits = ConnectionLimits(
        head_timeout_s=PATIENCE_S,
        body_timeout_s=TIMEOUT_S,
        stall_timeout_s=TIMEOUT_S,
        keep_alive_s=3600,
    )
    with server(api_config, limits=limits) as url:
        yield url


def closes_for_a_head(url: str) -> None:
    """Return when the server has closed a connection that was opened now, for its head."""
    with connection(url) as opened:
        assert all_of(opened) == b""


def until_closed(opened: socket.socket) -> bytes:
    """Return what is sent until the other side closes, which does not reset the connection."""
    data = b""
    while more := opened.recv(65536):
        data += more
    return data


def test_a_connection_goes_on_after_a_body_that_was_refused_unread(
    strict: str, tenant: Tenant, stranger: Tenant
) -> None:
    with connection(strict) as opened:
        opened.sendall(head(stranger, LENGTH) + BODY[:1])
        early = one_of(opened)
        closes_for_a_head(strict)  # The body has a limit of its own.
        opened.sendall(BODY[1:])
        closes_for_a_head(strict)  # It is idle now.
        opened.sendall(head(tenant, LENGTH) + BODY)
        late = one_of(opened)

    assert statuses_of(early) == [401]
    assert b"connection: close" not in early
    assert statuses_of(late) == [201]


def test_what_follows_a_body_that_was_refused_unread_is_answered(
    root: str, tenant: Tenant, stranger: Tenant
) -> None:
    with connection(root) as opened:
        opened.sendall(head(stranger, LENGTH) + BODY[:1])
        early = one_of(opened)
        opened.sendall(BODY[1:] + head(tenant, LENGTH) + BODY + head(tenant, request=CONFIG))
        late = one_of(opened) + one_of(opened)

    assert statuses_of(early + late) == [401, 201, 200]


@pytest.mark.parametrize(
    "headers",
    [
        ("Transfer-Encoding: chunked",),
        ("Content-Length: 1000000",),
        (LENGTH, "Expect: 100-continue"),
    ],
    ids=["chunks", "long", "expected"],
)
def test_a_response_says_close_if_the_body_may_never_be_read(
    root: str, stranger: Tenant, headers: tuple[str, ...]
) -> None:
    with connection(root) as opened:
        opened.sendall(head(stranger, *headers))

        assert refusal(until_closed(opened), "UNAUTHORIZED")[0] == 401


@pytest.mark.parametrize("size", [200_000, 400_000])
def test_a_client_that_is_still_sending_gets_the_refusal_of_a_large_body(
    root: str, tenant: Tenant, size: int
) -> None:
    with connection(root) as opened:
        opened.sendall(head(tenant, f"Content-Length: {size}") + b" " * (size - 1))

        data = until_closed(opened)

    assert refusal(data)[0] == 413


def test_a_file_that_was_refused_is_read_slowly_until_its_end(root: str, stranger: Tenant) -> None:
    size = MAX_EVENTS_BODY
    request = f"POST {EVENTS_PATH} HTTP/1.1"
    with connection(root) as opened:
        began = monotonic()
        opened.sendall(head(stranger, f"Content-Length: {size}", request=request) + b"\n" * size)
        seconds = monotonic() - began
        data = until_closed(opened)

    assert refusal(data, "UNAUTHORIZED")[0] == 401
    assert seconds > SLOWLY_S, "a second and a half; at once it would be some hundredths of one"


def test_a_body_of_chunks_that_was_read_leaves_the_connection_open(
    root: str, tenant: Tenant
) -> None:
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
    with connection(root) as opened:
        opened.sendall(head(tenant, "Transfer-Encoding: chunked") + chunks)
        first = one_of(opened)
        opened.sendall(head(tenant, request=CONFIG))
        second = one_of(opened)

    assert statuses_of(first + second) == [201, 200]
    assert b"connection: close" not in first


def test_a_body_that_was_asked_for_leaves_the_connection_open(root: str, tenant: Tenant) -> None:
    with connection(root) as opened:
        opened.sendall(head(tenant, LENGTH, "Expect: 100-continue"))
        go_on = opened.recv(len(b"HTTP/1.1 100 Continue\r\n\r\n"))
        opened.sendall(BODY)
        first = one_of(opened)
        opened.sendall(head(tenant, request=CONFIG))
        second = one_of(opened)

    assert statuses_of(go_on + first + second) == [100, 201, 200]
