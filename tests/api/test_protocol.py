"""Requests that do not end, are too large, lie about their length, or are no HTTP at all.

None of them keeps the event loop from other requests, and none has a large answer.
"""

import gc
import json
import math
import re
import socket
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import takewhile
from urllib.parse import urlsplit

import httpx2
import psycopg
import pytest

from cardledger.api import BASE_PATH
from cardledger.api.app import ApiConfig
from cardledger.api.connections.limits import ConnectionLimits
from cardledger.api.connections.request_head import MAX_HEAD
from cardledger.api.http.errors import MAX_ERROR_BODY, MAX_ERRORS
from cardledger.api.http.json_body import MAX_DEPTH, MAX_KEYS
from cardledger.api.http.middleware import MAX_HEADERS, MAX_PARAMETERS
from tests.api.support import TIMEOUT_S, Api, LoopWatch, Tenant, new_tenant, ok, refused, server
from tests.waiting import eventually, limit_s

PATIENCE_S = limit_s(0.25)
LONGEST_S = 0.05  # Of the event loop, for one thing.
ENDLESS = 20_000_000  # Bytes: more than a server and the sockets keep.


@pytest.fixture(scope="module")
def tenant(api_config: ApiConfig) -> Tenant:
    return new_tenant(api_config.database_url)


@pytest.fixture(scope="module")
def impatient(api_config: ApiConfig) -> Iterator[str]:
    """A server that waits less long than ours do."""
    limits = ConnectionLimits(
        head_timeout_s=PATIENCE_S,
        body_timeout_s=PATIENCE_S,
        stall_timeout_s=PATIENCE_S / 2,
        keep_alive_s=math.ceil(2 * PATIENCE_S),
    )
    with server(replace(api_config, body_timeout_s=PATIENCE_S), limits=limits) as url:
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


def accepts(opened: socket.socket, data: bytes) -> bool:
    """Return whether `data` can be sent: not after the other side has closed."""
    try:
        opened.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


def refusal(data: bytes, code: str = "INVALID_INPUT") -> tuple[int, dict[str, object]]:
    """Return status and envelope of the one answer in `data`."""
    first, _, rest = data.partition(b"\r\n")
    headers, _, body = rest.partition(b"\r\n\r\n")
    names = {line.partition(b":")[0].strip().lower() for line in headers.split(b"\r\n")}
    assert b"x-request-id" in names
    assert b"connection: close" in headers.lower()
    envelope = json.loads(body)
    status = int(first.split()[1])
    assert envelope["status"] == status
    assert envelope["code"] == code
    return status, envelope


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


def test_an_unread_body_that_arrives_byte_by_byte_is_given_up(
    impatient: str, tenant: Tenant
) -> None:
    request = head(tenant, "Content-Length: 100000", request="GET {}/config HTTP/1.1")
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
def test_an_invalid_http_request_is_refused_in_an_error_envelope(
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


# --- the event loop ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def watch() -> Iterator[LoopWatch]:
    # As in production, what was imported is not visited by the garbage collector.
    gc.collect()
    gc.freeze()
    yield LoopWatch()
    gc.unfreeze()


@pytest.fixture(scope="module")
def watched(api_config: ApiConfig, tenant: Tenant, watch: LoopWatch) -> Iterator[httpx2.Client]:
    """A client of a server whose event loop is watched; both have done everything once."""
    with (
        server(api_config, watch=watch) as url,
        httpx2.Client(
            base_url=url + BASE_PATH,
            auth=(tenant.client_id, tenant.client_secret),
            headers={"content-type": "application/json"},
            timeout=TIMEOUT_S,
        ) as client,
    ):
        for _ in range(2):
            for path in BODIES_TO:
                client.post(path, content=b'{"a": 0}')
            client.get("/customers?a=0")
        watch.longest_s()
        yield client


def filled(unit: bytes, size: int, begin: bytes = b"", end: bytes = b"") -> bytes:
    return begin + unit * ((size - len(begin) - len(end)) // len(unit)) + end


def keys(count: int, text: str = "f{}") -> bytes:
    return json.dumps({text.format(number): 0 for number in range(count)}).encode()


BODIES_TO = ("/tokens", "/customers", "/sandbox/webhooks/test", "/webhooks/endpoints")
BODIES: dict[str, Callable[[int], bytes]] = {
    "all keys unknown": lambda _: keys(MAX_KEYS),
    "too many keys": lambda size: keys(size // 11),
    "long keys": lambda size: keys(min(MAX_KEYS, size // 70), "k" * 50 + "{}"),
    "one long key": lambda size: keys(1, "k" * (size - 10)),
    "keys with escapes": lambda size: keys(min(MAX_KEYS, size // 70), "\u00e9\u20ac" * 4 + "{}"),
    "keys that are repeated": lambda size: filled(b'"a":0,', size, b"{", b'"a":0}'),
    "keys of many objects": lambda size: filled(b'{"a":0},', size, b"[", b"0]"),
    "a deep array": lambda size: filled(b"[", size),
    "a deep array with an end": lambda size: b"[" * (size // 2) + b"]" * (size // 2),
    "deep objects": lambda size: filled(b'{"a":', size),
    "objects as deep as allowed": lambda _: b'{"a":' * MAX_DEPTH + b"0" + b"}" * MAX_DEPTH,
    "a long string": lambda size: filled(b"x", size, b'{"name":"', b'"}'),
    "a string of escapes": lambda size: filled(b"\\u0041", size, b'{"name":"', b'"}'),
    "a string of surrogates": lambda size: filled(b"\\ud83d\\ude00", size, b'{"name":"', b'"}'),
    "a string of quotes": lambda size: filled(b'\\"', size, b'{"name":"', b'"}'),
    "a string without an end": lambda size: filled(b'\\"', size, b'{"name":"'),
    "strings with escapes": lambda size: filled(b'"\\u0041",', size, b'{"name":[', b"0]}"),
    "quotes": lambda size: filled(b'"', size),
    "a number": lambda size: filled(b"9", size, b'{"name":', b"}"),
    "a fraction": lambda size: filled(b"9", size, b'{"name":0.', b"}"),
    "an exponent": lambda size: filled(b"9", size, b'{"name":1e', b"}"),
    "numbers": lambda size: filled(b"9" * 99 + b",", size, b'{"permissions":[', b"0]}"),
    "fractions": lambda size: filled(b"1.1e-300,", size, b'{"permissions":[', b"0]}"),
    "a long array": lambda size: filled(b"0,", size, b'{"permissions":[', b"0]}"),
    "an array of arrays": lambda size: filled(b"[],", size, b'{"permissions":[', b"0]}"),
    "an array of objects": lambda size: filled(b"{},", size, b'{"permissions":[', b"0]}"),
    "an array of strings": lambda size: filled(b'"",', size, b'{"eventTypes":[', b'""]}'),
    "an array instead of an object": lambda size: filled(b"0,", size, b"[", b"0]"),
    "blanks": lambda size: filled(b" ", size),
}


@pytest.mark.parametrize("size", [60_000, 1_000_000])
@pytest.mark.parametrize("shape", BODIES)
def test_no_body_blocks_the_event_loop_or_has_a_large_answer(
    watched: httpx2.Client, watch: LoopWatch, shape: str, size: int
) -> None:
    body = BODIES[shape](size)
    for path in BODIES_TO:
        answer = watched.post(path, content=body)

        assert answer.status_code in {400, 413}
        assert_bounded(answer)
        assert watch.longest_s() < LONGEST_S


HEADS: dict[str, Callable[[int], tuple[str, dict[str, str]]]] = {
    "parameters without names": lambda size: ("/customers?" + "&" * size, {}),
    "parameters without values": lambda size: ("/customers?" + "a&" * (size // 2), {}),
    "as many parameters as allowed": lambda size: (
        "/customers?" + "&".join(f"{n}=" + "%41" * (size // 200) for n in range(MAX_PARAMETERS)),
        {},
    ),
    "one long parameter": lambda size: ("/customers?cursor=" + "%41" * (size // 3), {}),
    "an id that is encoded twice": lambda size: (
        "/webhooks/deliveries?subjectId=" + "%2541" * (size // 5),
        {},
    ),
    "parameters of an operation that is not implemented": lambda size: (
        "/exchange-rates?" + "a&" * (size // 2),
        {},
    ),
    "a long path": lambda size: ("/customers/" + "a" * size, {}),
    "a path of escapes": lambda size: ("/customers/Customer:" + "%2541" * (size // 5), {}),
    "a path of many parts": lambda size: ("/a" * (size // 2), {}),
    "one long header": lambda size: ("/customers", {"x-a": "a" * size}),
    "many headers": lambda size: ("/customers", {f"x{n}": "" for n in range(size // 10)}),
    "cookies": lambda size: ("/customers", {"cookie": "a=b;" * (size // 4)}),
    "a cookie of escapes": lambda size: (
        "/customers",
        {"cookie": 'a="' + "\\101" * (size // 4) + '"'},
    ),
    "a content type of parameters": lambda size: (
        "/tokens",
        {"content-type": "application/json" + ";" * size},
    ),
    "a content type of quotes": lambda size: (
        "/tokens",
        {"content-type": 'application/json; a="' + ";" * size + '"'},
    ),
    "long credentials": lambda size: (
        "/customers",
        {"authorization": "Basic " + "QUJD" * (size // 4)},
    ),
    "a long idempotency key": lambda size: ("/tokens", {"idempotency-key": "k" * size}),
    "a long request id": lambda size: ("/customers", {"x-request-id": "k" * size}),
}


@pytest.mark.parametrize("size", [15_000, 60_000])
@pytest.mark.parametrize("shape", HEADS)
def test_no_head_blocks_the_event_loop_or_has_a_large_answer(
    watched: httpx2.Client, watch: LoopWatch, shape: str, size: int
) -> None:
    path, headers = HEADS[shape](size)

    if path == "/tokens":
        answer = watched.post(path, content=b'{"a":0}', headers=headers)
    else:
        answer = watched.get(path, headers=headers)

    assert answer.status_code < 500 or answer.json()["code"] == "NOT_IMPLEMENTED"
    assert_bounded(answer)
    assert watch.longest_s() < LONGEST_S


def assert_bounded(answer: httpx2.Response) -> None:
    assert len(answer.content) <= MAX_ERROR_BODY
    errors = answer.json().get("details", {}).get("errors", [])
    assert len(errors) <= MAX_ERRORS


def test_an_error_says_how_many_fields_it_leaves_out(root: str, tenant: Tenant) -> None:
    names = {f"f{number}": 0 for number in range(50)}
    with Api(root, tenant) as api:
        answers = [
            api.post("/tokens", {"name": "A", "permissions": ["VIEW"], **names}),
            api.post("/sandbox/webhooks/test", names),
            api.get("/customers", **names),
        ]

    for answer in answers:
        error = refused(answer, 400, "INVALID_INPUT")
        assert [part["field"] for part in error["details"]["errors"]] == [*names][:MAX_ERRORS]
        assert error["details"]["moreErrors"] == 50 - MAX_ERRORS
        assert error["message"].endswith("; and 47 more")


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


# --- pipelined requests ------------------------------------------------------------------------


def numbers_of(data: bytes) -> list[int]:
    """Return the numbers that the requests had as ids, in the order of their responses."""
    return [int(number) for number in re.findall(rb"x-request-id: (\d+)\r\n", data)]


@pytest.mark.parametrize("size", [7, 1000, 10_000_000])
def test_pipelined_requests_are_answered_in_their_order(
    root: str, tenant: Tenant, size: int
) -> None:
    body = b'{"customerType": "INDIVIDUAL", "fullName": "Ada\\r\\n\\r\\n"}'
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    count = 60
    requests = []
    for number in range(0, count, 3):
        one, two, three = (f"X-Request-Id: {number + step}" for step in range(3))
        requests += [
            head(tenant, one, request="GET {}/config HTTP/1.1"),
            head(tenant, two, f"Content-Length: {len(body)}") + body,
            head(tenant, three, "Transfer-Encoding: chunked") + chunks,
        ]
    requests.append(head(tenant, f"X-Request-Id: {count}", "Connection: close"))
    data = b"".join(requests)

    with connection(root) as opened, ThreadPoolExecutor(1) as sender:
        sent = sender.submit(send_in_parts, opened, data, size)
        received = all_of(opened)
        sent.result()

    assert numbers_of(received) == list(range(count + 1))


def send_in_parts(opened: socket.socket, data: bytes, size: int) -> None:
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for start in range(0, len(data), size):
        opened.sendall(data[start : start + size])


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


# --- too many connections ----------------------------------------------------------------------


def test_health_checks_are_answered_while_every_connection_is_busy(
    api_config: ApiConfig, database_url: str, tenant: Tenant
) -> None:
    create = head(tenant, "Content-Length: 49")
    create += b'{"customerType": "INDIVIDUAL", "fullName": "Ada"}'
    limits = ConnectionLimits(connections=2, per_address=2)
    with (
        server(api_config, limits=limits) as url,
        psycopg.connect(database_url) as other,
        ExitStack() as stack,
    ):
        other.execute("LOCK TABLE customers IN SHARE MODE")
        for _ in range(2):
            stack.enter_context(connection(url)).sendall(create)
        eventually(lambda: waiting(api_config) == 2)

        with connection(url) as opened:
            opened.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            alive = all_of(opened)
        with connection(url) as opened:
            opened.sendall(create)
            refused = all_of(opened)
        assert waiting(api_config) == 2

    assert alive.startswith(b"HTTP/1.1 200 ")
    assert refusal(refused, "SERVICE_UNAVAILABLE")[0] == 503


def waiting(api_config: ApiConfig) -> int:
    """Return how many sessions wait for a lock."""
    with psycopg.connect(api_config.database_url) as connection:
        query = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        row = connection.execute(query).fetchone()
        assert row is not None
        return int(row[0])
