"""Requests as bytes, and what comes back on their connection."""

import json
import re
import socket
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from urllib.parse import urlsplit

from cardledger.api import BASE_PATH
from tests.api.support import TIMEOUT_S, Tenant
from tests.waiting import limit_s

PATIENCE_S = limit_s(0.25)
"""How long the server `impatient` waits for a client."""


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


def numbers_of(data: bytes) -> list[int]:
    """Return the numbers that the requests had as ids, in the order of their responses."""
    return [int(number) for number in re.findall(rb"x-request-id: (\d+)\r\n", data)]


def statuses_of(data: bytes) -> list[int]:
    """Return the statuses of the responses in `data`, in their order."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", data)]


def send_in_parts(opened: socket.socket, data: bytes, size: int) -> None:
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for start in range(0, len(data), size):
        opened.sendall(data[start : start + size])
