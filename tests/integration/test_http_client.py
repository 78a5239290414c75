"""One request to a URL that a customer chose: real sockets, no database.

Only the resolver is replaced, because DNS is what an attacker controls.
"""

import gzip
import ipaddress
import socket
import ssl
import struct
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cardledger.webhooks.receiver import Reply
from cardledger.workers.webhooks.http_client import (
    MAX_HEAD,
    HttpClient,
    HttpResult,
    Resolve,
    look_up,
)
from tests.receiver import Receiver
from tests.waiting import limit_s

BODY = b'{"id":"Webhook:1"}'


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        receiver.reply_always(Reply(status=200))
        yield receiver


def post(  # noqa: PLR0913 - what differs between tests, by name
    url: str,
    *,
    resolve: Resolve = look_up,
    allow_loopback: bool = True,
    timeout_s: float | None = None,
    headers: dict[str, str] | None = None,
    times: int = 1,
) -> HttpResult:
    """Post `times` through one client and return the last result."""
    client = HttpClient(
        timeout_s=timeout_s or limit_s(5),
        connections=2,
        allow_loopback=allow_loopback,
        resolve=resolve,
    )
    result = HttpResult()
    with closing(client):
        for _ in range(times):
            result = client.post(url, BODY, headers or {})
    return result


def always(*addresses: str) -> Resolve:
    return lambda _host, _port: addresses


@dataclass
class Script:
    """A server that reads each request, then lets `respond` do anything with the connection."""

    respond: Callable[[socket.socket], None]
    context: ssl.SSLContext | None = None
    requests: list[bytes] = field(default_factory=list)
    names: list[str | None] = field(default_factory=list)  # The server names of TLS.
    connections: int = 0
    ended: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    @contextmanager
    def listening(self) -> Iterator["Script"]:
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        if self.context is not None:
            self.context.sni_callback = lambda _sock, name, _context: self.names.append(name)
        open_connections: list[socket.socket] = []

        def serve(raw: socket.socket) -> None:
            connection = raw
            try:
                if self.context is not None:
                    connection = self.context.wrap_socket(raw, server_side=True)
                    open_connections.append(connection)
                while self._request(connection):
                    self.respond(connection)
            except OSError:
                pass
            finally:
                connection.close()
                self.ended.set()

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                self.connections += 1
                open_connections.append(connection)
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield self
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            for connection in open_connections:
                connection.close()

    def _request(self, connection: socket.socket) -> bool:
        request = b""
        while not request.endswith(BODY):
            chunk = connection.recv(65536)
            if not chunk:
                return False
            request += chunk
        self.requests.append(request)
        return True

    @property
    def url(self) -> str:
        scheme = "http" if self.context is None else "https"
        return f"{scheme}://127.0.0.1:{self.port}/hook"


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def says(sent: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(sent)


def says_and_closes(sent: bytes) -> Callable[[socket.socket], None]:
    def respond(connection: socket.socket) -> None:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_RDWR)

    return respond


def drips(start: bytes, drop: bytes = b"a") -> Callable[[socket.socket], None]:
    def respond(connection: socket.socket) -> None:
        connection.sendall(start)
        pause = threading.Event()
        while True:
            connection.sendall(drop)
            pause.wait(0.1)

    return respond


def resets(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


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

    error = "forbidden: the host name resolves to an address that is not public"
    assert result == HttpResult(error=error)


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


class Rebinding:
    """A resolver whose results change from one query to the next."""

    def __init__(self, *results: Sequence[str]) -> None:
        self._results = results
        self.queries = 0

    def __call__(self, _host: str, _port: int) -> Sequence[str]:
        addresses = self._results[min(self.queries, len(self._results) - 1)]
        self.queries += 1
        return addresses


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


def test_a_kept_connection_is_reused_without_another_look_up(receiver: Receiver) -> None:
    resolve = Rebinding(["127.0.0.1"], ["192.168.0.1"])

    result = post(receiver.url.replace("127.0.0.1", "a.example"), resolve=resolve, times=3)

    assert result.status == 200
    assert resolve.queries == 1
    assert len(receiver.received) == 3


def test_one_connection_is_kept_for_each_receiver_up_to_the_concurrency(
    receiver: Receiver,
) -> None:
    resolve = Rebinding(*[["127.0.0.1"]] * 24)
    client = HttpClient(timeout_s=limit_s(5), connections=12, allow_loopback=True, resolve=resolve)

    for _ in range(2):
        for number in range(12):
            client.post(receiver.url.replace("127.0.0.1", f"r{number}.example"), b"{}", {})
    client.close()

    assert resolve.queries == 12


def test_no_proxy_of_the_environment_is_used(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Script(says(OK)).listening() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)

        result = post(receiver.url)

        assert result.status == 200
        assert proxy.connections == 0


# --- header injection ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/\r\nX-Evil: 1",
        "/ HTTP/1.1\r\nX-Evil: 1\r\n\r\nPOST /",
        "/\nX-Evil: 1",
        "/\rX-Evil: 1",
        "/?a=\x00",
        "/\t",
    ],
)
def test_a_url_cannot_inject_a_header(path: str) -> None:
    with Script(says(OK)).listening() as script:
        result = post(script.url + path)

    assert result.error == "the URL contains blanks or control characters"
    assert script.connections == 0


def test_an_escaped_line_end_in_a_url_stays_escaped() -> None:
    with Script(says(OK)).listening() as script:
        result = post(script.url + "/%0d%0aX-Evil:%201")

    assert result.status == 200
    assert script.requests[0].startswith(b"POST /hook/%0D%0AX-Evil:%201 HTTP/1.1\r\n")
    assert b"\nX-Evil" not in script.requests[0]


@pytest.mark.parametrize("value", ["1\r\nX-Evil: 1", "1\nX-Evil: 1", "1\r\n\r\nPOST / HTTP/1.1"])
def test_a_header_cannot_inject_another(value: str) -> None:
    with Script(says(OK)).listening() as script:
        result = post(script.url, headers={"webhook-signature": value})

    assert result.status is None
    assert not any(b"X-Evil" in request for request in script.requests)


def test_an_invalid_url_is_not_repeated_in_the_error() -> None:
    result = post("https://[::1/?token=hush")

    assert result.error
    assert "hush" not in result.error


# --- receivers that misbehave -------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_response_and_is_not_followed(receiver: Receiver, status: int) -> None:
    with Receiver() as elsewhere:
        receiver.reply(Reply(status=status, headers=(("Location", elsewhere.url),)))

        result = post(receiver.url)

        assert result.status == status
        assert elsewhere.received == []


def test_a_receiver_that_never_responds_times_out(receiver: Receiver) -> None:
    receiver.reply(Reply(delay_s=60))

    result, took_s = timed(lambda: post(receiver.url, timeout_s=0.3))

    assert result.error == "no response within 0.3 s"
    assert took_s < limit_s(2)


def timed(work: Callable[[], HttpResult]) -> tuple[HttpResult, float]:
    began = time.monotonic()
    result = work()
    return result, time.monotonic() - began


@pytest.mark.parametrize(
    ("start", "drop", "status"),
    [
        (b"", b"H", None),
        (b"HTTP/1.1 200 ", b"O", None),
        (b"HTTP/1.1 200 OK\r\nX-Long: ", b"a", None),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"a", 200),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n", 200),
        (b"HTTP/1.1 500 No\r\n\r\n", b"a", 500),
    ],
)
def test_an_endless_response_is_cut_off_in_time(
    start: bytes, drop: bytes, status: int | None
) -> None:
    with Script(drips(start, drop)).listening() as script:
        result, took_s = timed(lambda: post(script.url, timeout_s=limit_s(0.2)))

        assert result.status == status
        assert took_s < limit_s(3)
        assert script.ended.wait(limit_s()), "the connection is closed, not left to drip"


def test_a_flood_of_interim_responses_does_not_keep_a_processor_busy() -> None:
    def flood(connection: socket.socket) -> None:
        while True:
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 400)

    with Script(flood).listening() as script:
        result, took_s = timed(lambda: post(script.url, timeout_s=limit_s(5)))

        assert result.error is not None
        assert result.error.endswith("OSError('the response is too long'))")
        assert took_s < limit_s(5)
        assert script.ended.wait(limit_s()), "the connection is closed"


@pytest.mark.parametrize(
    "start",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 10485760\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
    ],
)
def test_only_the_head_of_a_response_of_ten_megabytes_is_kept(start: bytes) -> None:
    megabyte = b"x" * 2**20

    def flood(connection: socket.socket) -> None:
        connection.sendall(start)
        for _ in range(10):
            connection.sendall(megabyte)

    with Script(flood).listening() as script:
        post(script.url)  # What is imported and cached at the first request.
        tracemalloc.start()
        result = post(script.url)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert result == HttpResult(status=200, head="x" * MAX_HEAD)
    assert peak < 2**20


def test_a_compressed_response_is_not_decompressed() -> None:
    bomb = gzip.compress(b"\0" * 2**24)
    start = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)

    with Script(says(start + bomb)).listening() as script:
        result = post(script.url)

    assert result.status == 200
    assert len(result.head or "") <= MAX_HEAD


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", None),
        (b"HTTP/1.1 2", None),
        (b"HTTP/1.1 200 OK\r\nContent-Le", 200),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", 200),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal", 200),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnot a length\r\n", 200),
        (b"HTTP/1.1 503 No\r\nContent-Length: -1\r\n\r\nx", 503),
        (b"\x00\xff" * 100, None),
        (b"HTTP/1.1 200 OK\r\n" + b"X-Many: 1\r\n" * 200 + b"\r\n", None),
        (b"HTTP/1.1 200 OK\r\nX-Long: " + b"a" * 100_000 + b"\r\n\r\n", None),
        (b"HTTP/1.1 abc\r\n\r\n", None),
    ],
)
def test_of_a_truncated_response_the_status_counts(sent: bytes, status: int | None) -> None:
    with Script(says_and_closes(sent)).listening() as script:
        result = post(script.url)

    assert result.status == status
    assert (result.error is None) == (status is not None)


def test_a_reset_connection_fails_the_attempt_with_a_readable_error() -> None:
    with Script(resets).listening() as script:
        result = post(script.url)

    assert result.status is None
    assert "reset" in str(result.error)


def test_after_many_failures_the_first_success_counts(receiver: Receiver) -> None:
    receiver.reply(*[Reply(status=500)] * 20)

    failed, succeeded = post(receiver.url, times=20), post(receiver.url)

    assert (failed.status, succeeded.status) == (500, 200)


def test_nothing_is_sent_twice_when_a_kept_connection_dies() -> None:
    replies = iter([OK, b""])

    def respond(connection: socket.socket) -> None:
        sent = next(replies)
        connection.sendall(sent)
        if not sent:
            connection.shutdown(socket.SHUT_RDWR)

    with Script(respond).listening() as script:
        last = post(script.url, times=2)

    assert last.status is None
    assert len(script.requests) == 2


def test_a_clock_that_jumps_changes_no_time_budget(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.reply(Reply(status=200, delay_s=0.2), Reply(delay_s=60))
    jumps = iter(range(0, 10**9, 86_400))
    monkeypatch.setattr(time, "time", lambda: float(next(jumps)))

    slow = post(receiver.url)
    silent, took_s = timed(lambda: post(receiver.url, timeout_s=0.3))

    assert slow.status == 200
    assert silent.error == "no response within 0.3 s"
    assert took_s < limit_s(2)


def test_name_servers_that_do_not_respond_cost_no_more_than_the_time_budget() -> None:
    silent = threading.Event()

    def never(_host: str, _port: int) -> Sequence[str]:
        silent.wait(limit_s())
        return []

    url = "https://hook.example/"
    result, took_s = timed(lambda: post(url, resolve=never, timeout_s=0.3))
    silent.set()

    assert result.error == "no connection in time"
    assert took_s < limit_s(2)


@pytest.mark.parametrize("host", ["receiver.invalid", "a..b", "a" * 70 + ".example"])
def test_an_invalid_or_unknown_name_fails_the_attempt_with_a_readable_error(host: str) -> None:
    result = post(f"https://{host}/")

    assert result.status is None
    assert result.error


# --- TLS ----------------------------------------------------------------------------------------


@dataclass
class Authority:
    """Certificates of an authority that the tests make the system trust."""

    directory: Path

    def __post_init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Authority of tests")])
        own = self._certificate(self._name, self._key.public_key(), [], timedelta(days=1), ca=True)
        self.file = self.directory / "authority.pem"
        self.file.write_bytes(own.public_bytes(serialization.Encoding.PEM))

    def context(
        self, *names: x509.GeneralName, lasts: timedelta = timedelta(days=1)
    ) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "receiver")])
        made = self._certificate(subject, key.public_key(), list(names), lasts)
        file = self.directory / f"{made.serial_number}.pem"
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + made.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _certificate(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        names: list[x509.GeneralName],
        lasts: timedelta,
        *,
        ca: bool = False,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=2))
            .not_valid_after(now + lasts)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    made = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made.file))  # Read by OpenSSL for each context.
    return made


def test_tls_sends_the_name_and_verifies_it(authority: Authority) -> None:
    context = authority.context(x509.DNSName("hook.example"))
    with Script(says(OK), context=context).listening() as script:
        url = script.url.replace("127.0.0.1", "hook.example")

        result = post(url, resolve=always("127.0.0.1"))

    assert result == HttpResult(status=200, head="ok")
    assert script.names == ["hook.example"]
    assert b"\r\nHost: hook.example:" in script.requests[0]


def test_an_address_with_a_certificate_for_it_is_accepted(authority: Authority) -> None:
    context = authority.context(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    with Script(says(OK), context=context).listening() as script:
        result = post(script.url)

    assert result.status == 200


def test_a_certificate_of_another_name_is_refused(authority: Authority) -> None:
    context = authority.context(x509.DNSName("other.example"))
    with Script(says(OK), context=context).listening() as script:
        url = script.url.replace("127.0.0.1", "hook.example")

        result = post(url, resolve=always("127.0.0.1"))

    assert str(result.error).startswith("TLS: ")
    assert script.requests == []


def test_an_expired_certificate_is_refused(authority: Authority) -> None:
    context = authority.context(x509.DNSName("hook.example"), lasts=timedelta(days=-1))
    with Script(says(OK), context=context).listening() as script:
        url = script.url.replace("127.0.0.1", "hook.example")

        result = post(url, resolve=always("127.0.0.1"))

    assert "expired" in str(result.error)
    assert script.requests == []


def test_a_certificate_of_an_unknown_authority_is_refused(tmp_path: Path) -> None:
    context = Authority(tmp_path).context(x509.DNSName("hook.example"))
    with Script(says(OK), context=context).listening() as script:
        url = script.url.replace("127.0.0.1", "hook.example")

        result = post(url, resolve=always("127.0.0.1"))

    assert str(result.error).startswith("TLS: ")
    assert script.requests == []


def test_a_tls_handshake_that_never_ends_times_out(receiver: Receiver) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/"

        result, took_s = timed(lambda: post(url, timeout_s=0.3))

    assert result.status is None
    assert took_s < limit_s(2)
    assert receiver.received == []
