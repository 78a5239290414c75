"""Clients that do not read, never finish or are too many, against one real API process."""

import json
import re
import shutil
import socket
import ssl
import subprocess
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import httpx2
import psutil
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cardledger.api import BASE_PATH
from cardledger.api.ingestion.bodies import MAX_BODY as MAX_EVENTS_BODY
from cardledger.api.uploads.limits import CUSTOMERS_FILE, DOCUMENT_FILE
from cardledger.config import open_files
from cardledger.embedded.servers import DatabaseUrl
from storm.proxy import free_port
from tests.api.support import new_tenant
from tests.system.support import COMMAND, environment
from tests.waiting import Deadline, eventually, limit_s

HARD_LIMIT: Final = 2048
CONNECTIONS: Final = 1280  # What is left of it.
PUBLIC_URL: Final = "https://ledger.example.com"
PROXY: Final = "127.0.0.2"
CLIENT: Final = "203.0.113.9"
MEGABYTE: Final = 1024 * 1024
BUNDLE: Final = b"GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: x\r\n\r\n"
PAGE: Final = Path(__file__).parents[2] / "docs" / "reverse-proxy.md"


@dataclass(frozen=True)
class Server:
    """An API process."""

    process: psutil.Process
    port: int
    log: Path
    stall_timeout_s: float

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(
            ("127.0.0.1", self.port), timeout=limit_s(), source_address=(source, 0)
        )

    def client_of(self, request_id: str) -> object:
        """Return the client's address in the log of a request."""

        def look() -> list[Any]:
            lines = [json.loads(line) for line in self.log.read_text().splitlines()]
            return [line["client"] for line in lines if line.get("request_id") == request_id]

        [client] = eventually(look)
        return client


@pytest.fixture(scope="module")
def api(
    app_database_url: DatabaseUrl, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    open_files.raise_limit()  # This process opens as many connections.
    log = tmp_path_factory.mktemp("api") / "log"
    stall_timeout_s = limit_s(1)
    settings = environment(
        DATABASE_URL=app_database_url,
        REDIS_URL=redis_url,
        CARDLEDGER_SECRET_KEY="a secret key that only tests use, long enough",
        CARDLEDGER_LOG_FORMAT="json",
        CARDLEDGER_PUBLIC_URL=PUBLIC_URL,
        CARDLEDGER_FORWARDED_ALLOW_IPS=PROXY,
        CARDLEDGER_STALL_TIMEOUT_S=f"{stall_timeout_s:g}",
        CARDLEDGER_HEAD_TIMEOUT_S=f"{limit_s():g}",
    )
    with socket.create_server(("127.0.0.1", 0)) as listening, log.open("wb") as output:
        port: int = listening.getsockname()[1]
        limits = f'ulimit -Sn 256 && ulimit -Hn {HARD_LIMIT} && exec "$@"'
        serving = [*COMMAND, "api", "--listen-fd", str(listening.fileno())]
        process = subprocess.Popen(
            ["/bin/sh", "-c", limits, "sh", *serving],
            env=settings,
            pass_fds=[listening.fileno()],
            stderr=output,
        )
    server = Server(psutil.Process(process.pid), port, log, stall_timeout_s)
    try:
        eventually(lambda: answers(server), process=process)
        yield server
    finally:
        process.terminate()
        process.wait(limit_s())


def answers(server: Server) -> bool:
    with suppress(httpx2.TransportError):
        return httpx2.get(f"{server.url}/healthz", timeout=limit_s()).is_success
    return False


@contextmanager
def connections(server: Server, sources: list[str]) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(closing(server.connect(source))) for source in sources]


def test_the_process_may_open_as_many_files_as_the_hard_limit_allows(api: Server) -> None:
    assert api.process.rlimit(psutil.RLIMIT_NOFILE) == (HARD_LIMIT, HARD_LIMIT)


def test_health_checks_are_answered_while_strangers_send_slow_heads(api: Server) -> None:
    before = api.process.num_fds()
    many = [f"127.0.1.{1 + number % 8}" for number in range(CONNECTIONS + 320)]
    with connections(api, many) as slow:
        for opened in slow:
            with suppress(OSError):  # The oldest have made room for the others.
                opened.sendall(b"GET / HTTP/1.1\r\nX-A: ")

        assert [answers(api) for _ in range(20)] == [True] * 20
        assert before + 1000 < api.process.num_fds() <= before + CONNECTIONS + 5

    eventually(lambda: api.process.num_fds() <= before + 5)


def test_one_address_has_a_quarter_of_the_connections(api: Server) -> None:
    before = api.process.num_fds()
    with connections(api, ["127.0.1.9"] * 400):
        assert answers(api)
        assert api.process.num_fds() <= before + CONNECTIONS // 4 + 5

    eventually(lambda: api.process.num_fds() <= before + 5)


def test_clients_that_pipeline_and_do_not_read_cost_little_and_are_closed(api: Server) -> None:
    warm = httpx2.get(f"{api.url}/docs/swagger-ui-bundle.js")
    assert warm.is_success
    files, memory = api.process.num_fds(), api.process.memory_info().rss
    deadline = Deadline()
    with connections(api, [f"127.0.2.{1 + number % 4}" for number in range(300)]) as greedy:
        for opened in greedy:
            opened.settimeout(0)
        eventually(lambda: api.process.num_fds() >= files + 250)
        while api.process.num_fds() > files + 5:
            for opened in greedy:
                with suppress(OSError):  # Its buffers are full, or it has been closed.
                    opened.send(BUNDLE * 5000)
            assert api.process.memory_info().rss - memory < 150 * MEGABYTE
            assert answers(api)
            assert not deadline.has_passed, "they were not closed"


def test_a_client_that_reads_slowly_gets_every_response(api: Server) -> None:
    count = 4  # More than the kernel's buffers hold.
    closing_one = BUNDLE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    body = httpx2.get(f"{api.url}/docs/swagger-ui-bundle.js").content
    # Slowly: the limit is on progress, not on the whole, which takes half as long again.
    pause_s = 1.5 * api.stall_timeout_s * 32768 / (count * len(body))
    with api.connect() as opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        began = time.monotonic()
        opened.sendall(BUNDLE * (count - 1) + closing_one)
        data = bytearray()
        while more := opened.recv(32768):
            data += more
            time.sleep(pause_s)
        took_s = time.monotonic() - began

    assert data.count(body) == count
    assert took_s > api.stall_timeout_s, "longer than a client may make no progress"


# --- the client's address ----------------------------------------------------------------------


def request_from(server: Server, source: str, request_id: str) -> object:
    """Return the client's address that the server sees for a request with X-Forwarded-For."""
    lines = ["GET /docs HTTP/1.1", "Host: x", f"X-Request-Id: {request_id}"]
    lines += [f"X-Forwarded-For: {CLIENT}", "Connection: close", "", ""]
    with server.connect(source) as opened:
        opened.sendall("\r\n".join(lines).encode())
        while opened.recv(65536):
            pass
    return server.client_of(request_id)


def test_a_forwarded_address_is_believed_from_named_proxies_only(api: Server) -> None:
    assert request_from(api, PROXY, "forwarded-1") == CLIENT
    assert request_from(api, "127.0.0.1", "forwarded-2") == "127.0.0.1"


# --- nginx -------------------------------------------------------------------------------------


# The processes of nginx write large bodies to files in a folder of the user who runs the test.
MAIN: Final = """
user root;
daemon off;
pid {home}/nginx.pid;
error_log {home}/error.log;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {home}/body;
    proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
    proxy_bind {proxy};
    include {home}/cardledger.conf;
}}
"""


def example(server: Server, home: Path, tls: int, plain: int) -> str:
    """Return the configuration of the documentation, with addresses and files of this test."""
    [found] = re.findall(r"```nginx\n(.*?)```", PAGE.read_text(), re.DOTALL)
    text = str(found)
    for written, here in (
        ("server 127.0.0.1:8000;", f"server 127.0.0.1:{server.port};"),
        ("listen 80;", f"listen 127.0.0.1:{plain};"),
        ("listen 443 ssl;", f"listen 127.0.0.1:{tls} ssl;"),
        ("rate=50r/s", "rate=1r/s"),
        ("burst=200", "burst=20"),
        ("/etc/ssl/ledger.example.com.pem", str(home / "certificate.pem")),
        ("/etc/ssl/ledger.example.com.key", str(home / "key.pem")),
    ):
        assert text.count(written) == 1, written
        text = text.replace(written, here)
    return text


def make_certificate(home: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ledger.example.com")])
    at = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(at - timedelta(days=1))
        .not_valid_after(at + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName("ledger.example.com")]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (home / "certificate.pem").write_bytes(certificate.public_bytes(pem))
    (home / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


@dataclass(frozen=True)
class Proxy:
    """A running nginx."""

    tls: int
    plain: int
    home: Path

    def get(self, path: str, *, headers: str = "", body: bytes = b"") -> bytes:
        """Return the answer to one request over TLS."""
        trusted = ssl.create_default_context(cafile=str(self.home / "certificate.pem"))
        method = "POST" if body else "GET"
        lines = f"{method} {path} HTTP/1.1\r\nHost: ledger.example.com\r\nConnection: close\r\n"
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        with (
            socket.create_connection(("127.0.0.1", self.tls), timeout=limit_s()) as raw,
            trusted.wrap_socket(raw, server_hostname="ledger.example.com") as opened,
        ):
            opened.sendall(f"{lines}{length}{headers}\r\n".encode() + body)
            answer = b""
            while more := opened.recv(65536):
                answer += more
        return answer


@pytest.fixture(scope="module")
def nginx(api: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    command = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if command is None:
        pytest.skip("nginx is not installed; install it to try docs/reverse-proxy.md")
    home = tmp_path_factory.mktemp("nginx")
    tls, plain = free_port(), free_port()
    make_certificate(home)
    (home / "cardledger.conf").write_text(example(api, home, tls, plain))
    (home / "nginx.conf").write_text(MAIN.format(home=home, proxy=PROXY))
    process = subprocess.Popen(
        [command, "-p", str(home), "-c", str(home / "nginx.conf"), "-e", str(home / "error.log")]
    )
    try:
        eventually(lambda: is_open(tls), process=process)
        yield Proxy(tls, plain, home)
    finally:
        process.terminate()
        process.wait(limit_s())


def is_open(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=limit_s()):
        return True
    return False


def test_the_example_of_a_reverse_proxy_serves_the_api_over_tls(nginx: Proxy) -> None:
    assert nginx.get("/healthz").startswith(b"HTTP/1.1 200 ")
    assert nginx.get("/readyz").startswith(b"HTTP/1.1 404 ")
    assert b"Strict-Transport-Security" in nginx.get("/docs")
    redirect = httpx2.get(
        f"http://127.0.0.1:{nginx.plain}/docs", headers={"host": "ledger.example.com"}
    )
    assert redirect.status_code == 308
    assert redirect.headers["location"] == f"{PUBLIC_URL}/docs"


def test_the_example_passes_on_the_address_of_the_client_and_not_what_it_claims(
    nginx: Proxy, api: Server
) -> None:
    headers = f"X-Forwarded-For: {CLIENT}\r\nX-Request-Id: proxied-1\r\n"

    assert nginx.get("/docs", headers=headers).startswith(b"HTTP/1.1 200 ")

    assert api.client_of("proxied-1") == "127.0.0.1"


def test_the_example_passes_on_files_as_large_as_the_api_takes(
    nginx: Proxy, app_database_url: DatabaseUrl
) -> None:
    tenant = new_tenant(app_database_url)
    credentials = b64encode(f"{tenant.client_id}:{tenant.client_secret}".encode()).decode()
    headers = f"Authorization: Basic {credentials}\r\n"
    form = f"{headers}Content-Type: multipart/form-data; boundary=b\r\n"
    begin = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    large = {
        f"{BASE_PATH}/documents": (form, begin + b"x" * DOCUMENT_FILE + b"\r\n--b--\r\n"),
        f"{BASE_PATH}/customers/bulk/csv": (form, begin + b"x" * CUSTOMERS_FILE + b"\r\n--b--\r\n"),
        "/network-events?wait=false": (
            f"{headers}Content-Type: application/x-ndjson\r\n",
            b"{}\n" + b" " * (MAX_EVENTS_BODY - 3),
        ),
    }

    answers = {
        path: nginx.get(path, headers=head, body=body).split(b"\r\n", 1)
        for path, (head, body) in large.items()
    }

    assert {path: status for path, (status, _) in answers.items()} == {
        f"{BASE_PATH}/documents": b"HTTP/1.1 400 Bad Request",
        f"{BASE_PATH}/customers/bulk/csv": b"HTTP/1.1 202 Accepted",
        "/network-events?wait=false": b"HTTP/1.1 202 Accepted",
    }
    assert all(b"application/json" in rest for _, rest in answers.values()), "of the API itself"


def test_the_example_limits_bodies_and_requests(nginx: Proxy) -> None:
    assert nginx.get("/healthz", body=b"x" * (MEGABYTE + 1)).startswith(b"HTTP/1.1 413 ")

    eventually(lambda: nginx.get("/healthz").startswith(b"HTTP/1.1 429 "))
