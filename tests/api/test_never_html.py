"""Whatever is sent, the answer is the envelope: never HTML, 422, or a stack trace."""

import json
import socket
from urllib.parse import urlsplit

import httpx2
import pytest

from cardledger.api import BASE_PATH
from tests.api.support import TIMEOUT_S, Api, refused

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")
PATHS = (
    "/",
    "/docs/",
    "/docs/nothing.js",
    "/docs/..%2Fcore.py",
    "/openapi.json/",
    "/redoc",
    "/static-offline-docs/swagger-ui.css",
    "/healthz/",
    "/favicon.ico",
    BASE_PATH,
    BASE_PATH + "/",
    BASE_PATH + "//customers",
    BASE_PATH + "/customers/",
    BASE_PATH + "/Customers",
    BASE_PATH + "/customers/%00",
    BASE_PATH + "/customers/%ff%fe",
    BASE_PATH + "/customers/" + "x" * 4000,
    "/2024-01-01/customers",
)


def exchange(root: str, sent: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send bytes as they are; returns status, headers and body of the first answer."""
    url = urlsplit(root)
    with socket.create_connection((url.hostname or "", url.port or 0), TIMEOUT_S) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in lines)}
    return int(first.split()[1]), headers, body


def must_be_envelope(status: int, headers: dict[str, str], body: bytes) -> None:
    response = json.loads(body)
    assert headers["content-type"] == "application/json"
    assert headers["x-request-id"]
    assert response["status"] == status
    assert 400 <= status < 600
    assert status not in {422, 500}
    assert "Traceback" not in response["message"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("path", PATHS)
def test_a_wrong_path_is_an_error_envelope(api: Api, method: str, path: str) -> None:
    url = httpx2.URL(api.root).copy_with(raw_path=path.encode())

    answer = httpx2.request(method, url, timeout=TIMEOUT_S)

    # 401 where it is a path and only the id is none: who does not say who it is learns nothing.
    assert answer.status_code in {401, 404, 405}
    if method != "HEAD":
        must_be_envelope(answer.status_code, dict(answer.headers), answer.content)


@pytest.mark.parametrize("method", METHODS)
def test_a_wrong_method_is_405_with_the_allowed_methods(api: Api, method: str) -> None:
    answer = api.http.request(method, "/customers")

    if method in {"GET", "HEAD", "POST"}:
        assert answer.status_code in {200, 400}
        return
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD, POST"
    refused(answer, 405, "METHOD_NOT_ALLOWED")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"null", b"[]", b'"x"', b"1", b"\xff", b"<html>", b"{}" * 2, b"[" * 60_000],
)
def test_a_broken_body_is_400(api: Api, body: bytes) -> None:
    for path in ("/customers", "/cards", "/tokens"):
        refused(api.raw("POST", path, body), 400, "INVALID_INPUT")


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"GET\r\n\r\n",
        b"BREW / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS, to a port that has none.
    ],
)
def test_bytes_that_are_not_http_get_an_error_envelope(root: str, sent: bytes) -> None:
    status, headers, body = exchange(root, sent)

    must_be_envelope(status, headers, body)


@pytest.mark.parametrize(
    "headers",
    [
        b"X-Long: " + b"x" * 15_000,
        b"\r\n".join(b"X-%d: x" % number for number in range(90)),
        b"Authorization: Basic " + b"A" * 15_000,
        (
            b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: eA==\r\n"
            b"Sec-WebSocket-Version: 13"
        ),
        b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
        b"Expect: 100-continue",
    ],
)
def test_unusual_headers_get_the_same_error_envelope(root: str, headers: bytes) -> None:
    path = BASE_PATH.encode() + b"/config"
    sent = b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + headers + b"\r\n\r\n"

    status, answered, body = exchange(root, sent)

    must_be_envelope(status, answered, body)
    assert status == 401


@pytest.mark.parametrize("headers", [b"X-Long: " + b"x" * 200_000, b"Cookie: " + b"x" * 100_000])
def test_headers_above_the_size_limit_are_431(root: str, headers: bytes) -> None:
    sent = b"GET " + BASE_PATH.encode() + b"/config HTTP/1.1\r\n" + headers + b"\r\n\r\n"

    status, answered, body = exchange(root, sent)

    must_be_envelope(status, answered, body)
    assert status == 431
