"""What a request leaves behind: nothing that only the garbage collector frees.

A reference cycle keeps a request, its task and its connection in memory until a full
collection, which comes after millions of objects, and every collection costs time.
"""

import gc
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx2
import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from cardledger.api.app import ApiConfig
from cardledger.api.connections.limits import ConnectionLimits
from tests.api.support import Api, server
from tests.waiting import eventually

TIMES = 20
MISSING = "Customer:01a21e48-29d7-7209-91c7-8e110c36859e"
RESET = struct.pack("ii", 1, 0)  # Of SO_LINGER: closing sends a reset.
KEPT = 2  # The last request of a connection, until its next one.


@contextmanager
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def alive(kind: type[object]) -> int:
    return sum(issubclass(type(one), kind) for one in gc.get_objects())


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        pytest.param("GET", "/customers", None, id="list"),
        pytest.param("GET", f"/customers/{MISSING}", None, id="missing"),
        pytest.param("GET", "/customers/Customer:01", None, id="no id"),
        pytest.param("GET", "/customers?limit=none&cursor=none", None, id="invalid query"),
        pytest.param(
            "POST", "/customers", {"customerType": "INDIVIDUAL", "fullName": "Ada"}, id="create"
        ),
        pytest.param("POST", "/customers", {"customerType": "NEITHER"}, id="invalid"),
        pytest.param(
            "POST",
            "/cards",
            {"cardholderId": "Customer:01", "fundingSources": []},
            id="no id in a body",
        ),
        pytest.param("GET", "/no-such-path", None, id="no route"),
    ],
)
def test_a_request_leaves_nothing_to_the_garbage_collector(
    api: Api, method: str, path: str, body: dict[str, str] | None
) -> None:
    def request() -> None:
        api.http.request(method, path, json=body)

    request()  # Whatever is made the first time.
    with without_collector():
        before = alive(RequestResponseCycle)
        for _ in range(TIMES):
            request()

        eventually(lambda: alive(RequestResponseCycle) <= before + KEPT)


def test_a_connection_leaves_nothing_to_the_garbage_collector(root: str) -> None:
    with without_collector():
        before = alive(HttpToolsProtocol)
        for _ in range(TIMES):
            with httpx2.Client() as client:
                assert client.get(f"{root}/healthz").is_success

        eventually(lambda: alive(HttpToolsProtocol) <= before)


def test_a_connection_that_is_reset_is_not_kept_for_another_request(
    api_config: ApiConfig,
) -> None:
    with server(api_config, limits=ConnectionLimits(keep_alive_s=3_600)) as root:
        address = urlsplit(root)
        assert address.hostname is not None
        with without_collector():
            before = alive(HttpToolsProtocol)
            for _ in range(TIMES):
                with socket.create_connection((address.hostname, address.port or 0)) as client:
                    client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                    assert client.recv(12) == b"HTTP/1.1 200"
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

            eventually(lambda: alive(HttpToolsProtocol) <= before)
