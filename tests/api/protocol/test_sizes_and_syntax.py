"""Requests that are too large, lie about their length, or are not HTTP."""

from contextlib import suppress

import pytest

from cardledger.api.connections.request_head import MAX_HEAD
from cardledger.api.http.middleware import MAX_HEADERS, MAX_PARAMETERS
from tests.api.protocol.support import all_of, connection, head, one_of, refusal, statuses_of
from tests.api.support import Api, Tenant, ok, refused

ENDLESS = 20_000_000  # Bytes: more than a server and the sockets keep.


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
            while sent < ENDLESS:
                opened.sendall(chunk)
                sent += 0x10000
        except (BrokenPipeError, ConnectionResetError):
            pass

        data = all_of(opened)

    assert sent < ENDLESS
    assert not data or refusal(data)[0] == 413


def test_trailers_without_end_are_not_kept(root: str, tenant: Tenant) -> None:
    request = head(tenant, "Transfer-Encoding: chunked", request="GET {}/config HTTP/1.1")
    with connection(root) as opened:
        opened.sendall(request + b"0\r\n")
        sent = 0
        try:
            while sent < ENDLESS:
                opened.sendall(b"X-A: " + b"x" * 10_000 + b"\r\n")
                sent += 10_007
        except (BrokenPipeError, ConnectionResetError):
            pass

    assert sent < ENDLESS


def test_a_body_ends_where_its_length_says(root: str, tenant: Tenant) -> None:
    data = b'{"customerType": "INDIVIDUAL", "fullName": "Ada"}'
    asked = head(tenant, f"Content-Length: {len(data)}")
    with connection(root) as opened:
        opened.sendall(asked + data + b"garbage\r\n\r\n")

        answers = all_of(opened)

    assert statuses_of(answers) == [201, 400]  # What follows is a malformed request of its own.


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
        ("Transfer-Encoding: chunked", "X-A: the chunk is invalid"),
    ],
)
def test_an_invalid_http_request_is_refused_in_an_error_envelope(
    root: str, tenant: Tenant, headers: tuple[str, ...]
) -> None:
    with connection(root) as opened:
        opened.sendall(head(tenant, *headers) + b"5\r\nabcdefgh\r\n0\r\n\r\n")

        data = all_of(opened)

    assert refusal(data)[0] == 400


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\x02\x00\x01", b"\x00\r\n\r\n", b"A\r\n"])
def test_another_protocol_is_refused_in_an_envelope(root: str, sent: bytes) -> None:
    with connection(root) as opened:
        opened.sendall(sent)

        data = all_of(opened)

    assert refusal(data)[0] == 400


def test_headers_and_query_parameters_are_counted(root: str, tenant: Tenant) -> None:
    headers = [f"X{number}: a" for number in range(MAX_HEADERS - 3)]  # `head` has three.
    request = "GET {}/config HTTP/1.1"
    with Api(root, tenant) as api, connection(root) as opened:
        opened.sendall(head(tenant, *headers, request=request))
        allowed = one_of(opened)
        opened.sendall(head(tenant, *headers, "X: a", request=request))
        too_many = one_of(opened)
        opened.sendall(head(tenant, request=request))
        still_open = one_of(opened)
        for path in ("/config", "/exchange-rates"):
            query = "&".join(["a=0"] * (MAX_PARAMETERS + 1))
            refused(api.http.get(f"{path}?{query}"), 400, "INVALID_INPUT")

    assert allowed.startswith(b"HTTP/1.1 200 ")
    assert too_many.startswith(b"HTTP/1.1 431 ")
    assert still_open.startswith(b"HTTP/1.1 200 ")


# --- the header Host ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        ((), "Missing"),
        (("Host: a", "Host: a"), "Duplicate"),
        (("Host:",), "Invalid"),
        (("Host: a/b",), "Invalid"),
        (("Host: [",), "Invalid"),
    ],
)
def test_a_request_names_its_host_once(root: str, lines: tuple[str, ...], word: str) -> None:
    with connection(root) as opened:
        opened.sendall("\r\n".join(["GET /healthz HTTP/1.1", *lines, "", ""]).encode())

        status, envelope = refusal(all_of(opened))

    assert status == 400
    assert str(envelope["message"]).startswith(word)
    assert envelope["details"] == {"header": "Host"}


def test_a_health_check_with_http_1_0_needs_no_host(root: str) -> None:
    with connection(root) as opened:
        opened.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")

        assert all_of(opened).startswith(b"HTTP/1.1 200 ")
