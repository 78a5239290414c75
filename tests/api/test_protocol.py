"""Requests that do not end, are too large, lie about their length, or are no HTTP at all."""

import json
import socket
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import takewhile
from urllib.parse import urlsplit

import pytest

from cardledger.api import BASE_PATH
from cardledger.api.app import ApiConfig
from cardledger.api.http.protocol import MAX_HEAD, MAX_REQUEST
from cardledger.api.http.routing import MAX_BODY
from tests.api.support import TIMEOUT_S, Api, Tenant, new_tenant, ok, server
from tests.waiting import limit_s

PATIENCE_S = limit_s(0.25)


@pytest.fixture(scope="module")
def tenant(api_config: ApiConfig) -> Tenant:
    return new_tenant(api_config.database_url)


@pytest.fixture(scope="module")
def impatient(api_config: ApiConfig) -> Iterator[str]:
    """A server that waits less long than ours do."""
    with server(replace(api_config, body_timeout_s=PATIENCE_S)) as url:
        yield url


@contextmanager
def connection(url: str) -> Iterator[socket.socket]:
    address = urlsplit(url)
    assert address.port is not None
    with socket.create_connection(("127.0.0.1", address.port), timeout=TIMEOUT_S) as opened:
        yield opened


def head(tenant: Tenant, *headers: str, request: str = "POST {}/customers HTTP/1.1") -> bytes:
    login = b64encode(f"{tenant.client_id}:{tenant.client_secret}".encode()).decode()
    lines = [
        request.format(BASE_PATH),
        "Host: x",
        f"Authorization: Basic {login}",
        "Content-Type: application/json",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def one_of(opened: socket.socket) -> bytes:
    """Return one answer to its end; what it has may come in any number of pieces."""
    with opened.makefile("rb") as data:
        lines = list(takewhile(bytes.strip, data))
        size = next(line for line in lines if line.lower().startswith(b"content-length:"))
        return b"".join([*lines, b"\r\n", data.read(int(size.partition(b":")[2]))])


def all_of(opened: socket.socket) -> bytes:
    """Return what is sent until the other side closes."""
    data = b""
    try:
        while more := opened.recv(65536):
            data += more
    except ConnectionResetError:
        pass  # It was closed while something of ours was still under way.
    return data


def refusal(data: bytes) -> tuple[int, dict[str, object]]:
    """Return status and envelope of the one answer in `data`."""
    first, _, rest = data.partition(b"\r\n")
    headers, _, body = rest.partition(b"\r\n\r\n")
    names = {line.partition(b":")[0].strip().lower() for line in headers.split(b"\r\n")}
    assert b"x-request-id" in names
    assert b"connection: close" in headers.lower()
    envelope = json.loads(body)
    status = int(first.split()[1])
    assert envelope["status"] == status
    assert envelope["code"] == "INVALID_INPUT"
    return status, envelope


@pytest.mark.parametrize(
    "framing", ["Content-Length: 1000", "Transfer-Encoding: chunked"], ids=["length", "chunks"]
)
def test_a_body_that_drips_is_given_up(impatient: str, tenant: Tenant, framing: str) -> None:
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


def test_a_body_that_never_comes_is_given_up(impatient: str, tenant: Tenant) -> None:
    with connection(impatient) as opened:
        opened.sendall(head(tenant, "Content-Length: 5"))

        data = all_of(opened)

    assert refusal(data)[0] == 408


@pytest.mark.parametrize("sent", [b"", b"POST /", b"GET / HTTP/1.1\r\nHost: x\r\nX-A"])
def test_a_head_that_never_ends_is_given_up(impatient: str, sent: bytes) -> None:
    begin = time.monotonic()
    with connection(impatient) as opened:
        opened.sendall(sent)

        assert all_of(opened) == b""

    assert time.monotonic() - begin >= PATIENCE_S * 0.9


def test_a_body_that_nobody_reads_is_given_up_as_well(impatient: str, tenant: Tenant) -> None:
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


@pytest.mark.parametrize("size", [MAX_HEAD + 1, 1_000_000])
@pytest.mark.parametrize("many", [True, False], ids=["many headers", "one header"])
def test_a_head_has_a_largest_size(root: str, tenant: Tenant, size: int, *, many: bool) -> None:
    line = f"X-A: {'x' * 95}"
    headers = [line] * (size // 100 + 1) if many else [f"X-A: {'x' * size}"]
    with connection(root) as opened:
        # It may be refused before it is sent; the response can still be read.
        with suppress(BrokenPipeError, ConnectionResetError):
            opened.sendall(head(tenant, *headers))

        data = all_of(opened)

    assert not data or refusal(data)[0] == 431


def test_a_header_without_an_end_is_not_kept(root: str) -> None:
    with connection(root) as opened:
        opened.sendall(b"GET / HTTP/1.1\r\nX-A: ")
        sent = 0
        try:
            while sent <= 10 * MAX_HEAD:
                opened.sendall(b"x" * 4096)
                sent += 4096
        except (BrokenPipeError, ConnectionResetError):
            pass

        data = all_of(opened)

    assert sent < 10 * MAX_HEAD or refusal(data)[0] == 431


def test_a_head_below_the_largest_size_is_read(root: str, tenant: Tenant) -> None:
    with Api(root, tenant) as api:
        ok(api.http.get("/config", headers={"X-A": "x" * (MAX_HEAD - 1000)}))


def test_chunks_are_a_body_like_any_other(root: str, tenant: Tenant) -> None:
    data = b'{"customerType": "INDIVIDUAL", "fullName": "Ada"}'
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in data) + b"0\r\n\r\n"
    with connection(root) as opened:
        opened.sendall(head(tenant, "Transfer-Encoding: chunked", "Connection: close") + chunks)

        answer = all_of(opened)

    assert answer.startswith(b"HTTP/1.1 201 ")


def test_chunks_are_not_read_beyond_the_largest_size(root: str, tenant: Tenant) -> None:
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    with connection(root) as opened:
        opened.sendall(head(tenant, "Transfer-Encoding: chunked"))
        sent = 0
        try:
            while sent < 20 * MAX_BODY:
                opened.sendall(chunk)
                sent += 0x10000
        except (BrokenPipeError, ConnectionResetError):
            pass

        data = all_of(opened)

    assert sent < 20 * MAX_BODY
    assert not data or refusal(data)[0] == 413


def test_trailers_without_end_are_not_kept(root: str, tenant: Tenant) -> None:
    request = head(tenant, "Transfer-Encoding: chunked", request="GET {}/config HTTP/1.1")
    with connection(root) as opened:
        opened.sendall(request + b"0\r\n")
        sent = 0
        try:
            while sent < 4 * MAX_REQUEST:
                opened.sendall(b"X-A: " + b"x" * 10_000 + b"\r\n")
                sent += 10_007
        except (BrokenPipeError, ConnectionResetError):
            pass

    assert sent < 4 * MAX_REQUEST


def test_a_body_ends_where_its_length_says(root: str, tenant: Tenant) -> None:
    data = b'{"customerType": "INDIVIDUAL", "fullName": "Ada"}'
    asked = head(tenant, f"Content-Length: {len(data)}")
    with connection(root) as opened:
        opened.sendall(asked + data + b"garbage\r\n\r\n")

        answers = all_of(opened)

    assert answers.startswith(b"HTTP/1.1 201 ")
    assert answers.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    "headers",
    [
        ("Content-Length: -1",),
        ("Content-Length: 1e3",),
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked, identity",),
        ("Content-Length: 99999999999999999999999",),
        ("X A: 1",),
        ("X-A: \x00",),
    ],
)
def test_what_is_no_http_is_refused_in_an_envelope(
    root: str, tenant: Tenant, headers: tuple[str, ...]
) -> None:
    with connection(root) as opened:
        opened.sendall(head(tenant, *headers) + b"5\r\nabcde\r\n0\r\n\r\n")

        data = all_of(opened)

    assert refusal(data)[0] == 400


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\x02\x00\x01", b"\x00\r\n\r\n", b"A\r\n"])
def test_another_protocol_is_refused_in_an_envelope(root: str, sent: bytes) -> None:
    with connection(root) as opened:
        opened.sendall(sent)

        data = all_of(opened)

    assert refusal(data)[0] == 400
