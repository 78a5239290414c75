"""One request to a receiver that somebody else chose: real sockets, no database.

The resolver is the one part that is given, because what DNS says is the attack.
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
from cardledger.workers.webhooks.http_client import MAX_HEAD, Answer, Egress, Resolve, look_up
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
) -> Answer:
    """Post that often through one Egress and return the last answer."""
    egress = Egress(
        timeout_s=timeout_s or limit_s(5),
        connections=2,
        allow_loopback=allow_loopback,
        resolve=resolve,
    )
    answer = Answer()
    with closing(egress):
        for _ in range(times):
            answer = egress.post(url, BODY, headers or {})
    return answer


def always(*addresses: str) -> Resolve:
    return lambda _host, _port: addresses


@dataclass
class Script:
    """A server that reads each request and does what it was told with the connection."""

    answer: Callable[[socket.socket], None]
    context: ssl.SSLContext | None = None
    requests: list[bytes] = field(default_factory=list)
    names: list[str | None] = field(default_factory=list)  # What TLS asked for.
    connections: int = 0
    ended: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    @contextmanager
    def listening(self) -> Iterator["Script"]:
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        if self.context is not None:
            self.context.sni_callback = lambda _sock, name, _context: self.names.append(name)
        open_ones: list[socket.socket] = []

        def serve(raw: socket.socket) -> None:
            connection = raw
            try:
                if self.context is not None:
                    connection = self.context.wrap_socket(raw, server_side=True)
                    open_ones.append(connection)
                while self._request(connection):
                    self.answer(connection)
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
                open_ones.append(connection)
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield self
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            for connection in open_ones:
                connection.close()

    def _request(self, connection: socket.socket) -> bool:
        request = b""
        while not request.endswith(BODY):
            piece = connection.recv(65536)
            if not piece:
                return False
            request += piece
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
    def answer(connection: socket.socket) -> None:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_RDWR)

    return answer


def drips(start: bytes, drop: bytes = b"a") -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        connection.sendall(start)
        pause = threading.Event()
        while True:
            connection.sendall(drop)
            pause.wait(0.1)

    return answer


def resets(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


# --- where nothing is sent ----------------------------------------------------------------------

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
def test_a_name_that_leads_to_such_an_address_is_refused(address: str) -> None:
    answer = post("https://hook.example/", resolve=always(address), allow_loopback=False)

    assert answer == Answer(error="forbidden: the host name leads to an address that is not public")


@pytest.mark.parametrize("address", [one for one in NOT_PUBLIC if "%" not in one])
def test_such_an_address_in_the_url_is_refused(address: str) -> None:
    host = f"[{address}]" if ":" in address else address

    answer = post(f"https://{host}/", allow_loopback=False)

    assert answer.status is None
    assert str(answer.error).startswith("forbidden: this address is not public (")


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
def test_no_spelling_of_this_machine_is_reached(receiver: Receiver, host: str) -> None:
    port = receiver.url.split(":")[2]

    answer = post(f"https://{host}:{port}", allow_loopback=False)

    assert answer.status is None
    assert str(answer.error).startswith(("forbidden: ", "LocationParseError: "))


@pytest.mark.parametrize("host", ODD)
def test_odd_spellings_reach_nobody_even_in_a_sandbox(receiver: Receiver, host: str) -> None:
    port = receiver.url.split(":")[2]

    answer = post(f"http://{host}:{port}")

    assert answer.status is None
    assert str(answer.error).startswith(("forbidden: ", "LocationParseError: "))
    assert receiver.received == []


@pytest.mark.parametrize("address", ["10.0.0.1", "169.254.169.254", "::ffff:127.0.0.1", "fe80::1"])
def test_a_sandbox_allows_loopback_and_no_other_network(address: str) -> None:
    answer = post("https://hook.example/", resolve=always(address), allow_loopback=True)

    assert str(answer.error).startswith("forbidden: ")


def test_one_forbidden_address_among_public_ones_is_enough_to_refuse() -> None:
    resolve = always("8.8.8.8", "2606:4700::1111", "10.0.0.1")

    answer = post("https://hook.example/", resolve=resolve, allow_loopback=False)

    assert str(answer.error).startswith("forbidden: ")


def test_outside_a_sandbox_neither_http_nor_loopback_is_called(receiver: Receiver) -> None:
    without_tls = post(receiver.url, allow_loopback=False)
    with_tls = post(receiver.url.replace("http:", "https:"), allow_loopback=False)

    assert without_tls.error == "forbidden: webhooks go to https:// only"
    assert with_tls.error == "forbidden: this address is not public (loopback)"
    assert receiver.received == []


def test_in_a_sandbox_http_goes_to_loopback_only() -> None:
    answer = post("http://hook.example/", resolve=always("8.8.8.8"))

    assert answer.error == "forbidden: http:// is for loopback addresses only"


def test_in_a_sandbox_a_name_of_this_machine_is_called(receiver: Receiver) -> None:
    url = receiver.url.replace("127.0.0.1", "localhost")

    answer = post(url, resolve=always("127.0.0.1"))

    assert answer.status == 200
    assert receiver.received[0].headers["host"].startswith("localhost:")


# --- names that change their meaning ------------------------------------------------------------


class Rebinding:
    """A resolver whose answers change from one question to the next."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = answers
        self.asked = 0

    def __call__(self, _host: str, _port: int) -> Sequence[str]:
        answer = self._answers[min(self.asked, len(self._answers) - 1)]
        self.asked += 1
        return answer


def test_a_name_is_looked_up_once_and_the_checked_address_is_connected_to(
    receiver: Receiver,
) -> None:
    # The name does not exist, so whoever looked it up a second time would get nowhere.
    resolve = Rebinding(["127.0.0.1"], ["10.0.0.1"])

    answer = post(receiver.url.replace("127.0.0.1", "rebinding.invalid"), resolve=resolve)

    assert answer.status == 200
    assert resolve.asked == 1


def test_a_receiver_behind_a_rebinding_name_is_never_reached(receiver: Receiver) -> None:
    """Public at first, this machine at the second look-up: where there is one, it is checked."""
    resolve = Rebinding([], ["127.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["::ffff:127.0.0.1"], ["::1"])
    url = receiver.url.replace("http://127.0.0.1", "https://rebinding.example")

    answers = [post(url, resolve=resolve, allow_loopback=False) for _ in range(5)]

    assert answers[0].error == "cannot connect: no address"
    assert {str(answer.error)[:10] for answer in answers[1:]} == {"forbidden:"}
    assert resolve.asked == 5
    assert receiver.received == []


def test_a_connection_that_is_made_again_is_checked_again() -> None:
    resolve = Rebinding(["127.0.0.1"], ["192.168.0.1"])
    egress = Egress(timeout_s=limit_s(5), connections=2, allow_loopback=True, resolve=resolve)
    with closing(egress), Script(says_and_closes(OK)).listening() as script:
        url = script.url.replace("127.0.0.1", "rebinding.example")

        first = egress.post(url, BODY, {})
        assert script.ended.wait(limit_s())
        second = egress.post(url, BODY, {})

    assert first.status == 200
    assert str(second.error).startswith("forbidden: ")
    assert script.connections == 1


def test_a_kept_connection_serves_again_without_asking(receiver: Receiver) -> None:
    resolve = Rebinding(["127.0.0.1"], ["192.168.0.1"])

    answer = post(receiver.url.replace("127.0.0.1", "a.example"), resolve=resolve, times=3)

    assert answer.status == 200
    assert resolve.asked == 1
    assert len(receiver.received) == 3


def test_connections_to_as_many_receivers_as_are_sent_to_at_once_are_kept(
    receiver: Receiver,
) -> None:
    resolve = Rebinding(*[["127.0.0.1"]] * 24)
    egress = Egress(timeout_s=limit_s(5), connections=12, allow_loopback=True, resolve=resolve)

    for _ in range(2):
        for number in range(12):
            egress.post(receiver.url.replace("127.0.0.1", f"r{number}.example"), b"{}", {})
    egress.close()

    assert resolve.asked == 12


def test_no_proxy_of_the_environment_is_used(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Script(says(OK)).listening() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)

        answer = post(receiver.url)

        assert answer.status == 200
        assert proxy.connections == 0


# --- requests are one request -------------------------------------------------------------------


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
def test_a_url_cannot_carry_a_header(path: str) -> None:
    with Script(says(OK)).listening() as script:
        answer = post(script.url + path)

    assert answer.error == "the URL has blanks or control characters in it"
    assert script.connections == 0


def test_an_escaped_line_end_in_a_url_stays_escaped() -> None:
    with Script(says(OK)).listening() as script:
        answer = post(script.url + "/%0d%0aX-Evil:%201")

    assert answer.status == 200
    assert script.requests[0].startswith(b"POST /hook/%0D%0AX-Evil:%201 HTTP/1.1\r\n")
    assert b"\nX-Evil" not in script.requests[0]


@pytest.mark.parametrize("value", ["1\r\nX-Evil: 1", "1\nX-Evil: 1", "1\r\n\r\nPOST / HTTP/1.1"])
def test_a_header_cannot_carry_another(value: str) -> None:
    with Script(says(OK)).listening() as script:
        answer = post(script.url, headers={"webhook-signature": value})

    assert answer.status is None
    assert not any(b"X-Evil" in request for request in script.requests)


def test_a_url_that_is_none_is_not_repeated_in_the_error() -> None:
    answer = post("https://[::1/?token=hush")

    assert answer.error
    assert "hush" not in answer.error


# --- receivers that misbehave -------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_an_answer_and_is_not_followed(receiver: Receiver, status: int) -> None:
    with Receiver() as elsewhere:
        receiver.reply(Reply(status=status, headers=(("Location", elsewhere.url),)))

        answer = post(receiver.url)

        assert answer.status == status
        assert elsewhere.received == []


def test_no_answer_at_all_ends_in_time(receiver: Receiver) -> None:
    receiver.reply(Reply(delay_s=60))

    answer, took_s = timed(lambda: post(receiver.url, timeout_s=0.3))

    assert answer.error == "no answer within 0.3 s"
    assert took_s < limit_s(2)


def timed(work: Callable[[], Answer]) -> tuple[Answer, float]:
    began = time.monotonic()
    answer = work()
    return answer, time.monotonic() - began


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
def test_an_answer_without_end_is_cut_off_in_time(
    start: bytes, drop: bytes, status: int | None
) -> None:
    with Script(drips(start, drop)).listening() as script:
        answer, took_s = timed(lambda: post(script.url, timeout_s=0.4))

        assert answer.status == status
        assert took_s < limit_s(3)
        assert script.ended.wait(limit_s()), "the connection is closed, not left to drip"


def test_a_flood_before_the_answer_does_not_keep_a_processor_busy() -> None:
    def flood(connection: socket.socket) -> None:
        while True:
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 400)

    with Script(flood).listening() as script:
        answer, took_s = timed(lambda: post(script.url, timeout_s=10))

        assert answer.error is not None
        assert answer.error.endswith("OSError('the answer is too long'))")
        assert took_s < limit_s(5)
        assert script.ended.wait(limit_s()), "the connection is closed"


@pytest.mark.parametrize(
    "start",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 10485760\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
    ],
)
def test_of_ten_megabytes_only_the_head_is_kept(start: bytes) -> None:
    megabyte = b"x" * 2**20

    def flood(connection: socket.socket) -> None:
        connection.sendall(start)
        for _ in range(10):
            connection.sendall(megabyte)

    with Script(flood).listening() as script:
        post(script.url)  # Whatever is imported and cached at first.
        tracemalloc.start()
        answer = post(script.url)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert answer == Answer(status=200, head="x" * MAX_HEAD)
    assert peak < 2**20


def test_a_packed_answer_is_not_unpacked() -> None:
    bomb = gzip.compress(b"\0" * 2**24)
    start = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)

    with Script(says(start + bomb)).listening() as script:
        answer = post(script.url)

    assert answer.status == 200
    assert len(answer.head or "") <= MAX_HEAD


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
def test_a_receiver_that_closes_in_the_middle_is_judged_by_its_status(
    sent: bytes, status: int | None
) -> None:
    with Script(says_and_closes(sent)).listening() as script:
        answer = post(script.url)

    assert answer.status == status
    assert (answer.error is None) == (status is not None)


def test_a_reset_connection_fails_the_attempt_in_words() -> None:
    with Script(resets).listening() as script:
        answer = post(script.url)

    assert answer.status is None
    assert "reset" in str(answer.error)


def test_after_many_failures_the_first_success_counts(receiver: Receiver) -> None:
    receiver.reply(*[Reply(status=500)] * 20)

    failed, succeeded = post(receiver.url, times=20), post(receiver.url)

    assert (failed.status, succeeded.status) == (500, 200)


def test_nothing_is_sent_twice_when_a_kept_connection_dies() -> None:
    replies = iter([OK, b""])

    def answer(connection: socket.socket) -> None:
        sent = next(replies)
        connection.sendall(sent)
        if not sent:
            connection.shutdown(socket.SHUT_RDWR)

    with Script(answer).listening() as script:
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
    assert silent.error == "no answer within 0.3 s"
    assert took_s < limit_s(2)


def test_name_servers_that_keep_silent_cost_no_more_time_than_there_is() -> None:
    silent = threading.Event()

    def never(_host: str, _port: int) -> Sequence[str]:
        silent.wait(limit_s())
        return []

    url = "https://hook.example/"
    answer, took_s = timed(lambda: post(url, resolve=never, timeout_s=0.3))
    silent.set()

    assert answer.error == "no connection in time"
    assert took_s < limit_s(2)


@pytest.mark.parametrize("host", ["receiver.invalid", "a..b", "a" * 70 + ".example"])
def test_a_name_that_is_none_or_leads_nowhere_fails_the_attempt_in_words(host: str) -> None:
    answer = post(f"https://{host}/")

    assert answer.status is None
    assert answer.error


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


def test_tls_asks_for_the_name_and_checks_it(authority: Authority) -> None:
    context = authority.context(x509.DNSName("hook.example"))
    with Script(says(OK), context=context).listening() as script:
        url = script.url.replace("127.0.0.1", "hook.example")

        answer = post(url, resolve=always("127.0.0.1"))

    assert answer == Answer(status=200, head="ok")
    assert script.names == ["hook.example"]
    assert b"\r\nHost: hook.example:" in script.requests[0]


def test_an_address_with_a_certificate_of_its_own_is_fine(authority: Authority) -> None:
    context = authority.context(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    with Script(says(OK), context=context).listening() as script:
        answer = post(script.url)

    assert answer.status == 200


def test_a_certificate_of_another_name_is_refused(authority: Authority) -> None:
    context = authority.context(x509.DNSName("other.example"))
    with Script(says(OK), context=context).listening() as script:
        url = script.url.replace("127.0.0.1", "hook.example")

        answer = post(url, resolve=always("127.0.0.1"))

    assert str(answer.error).startswith("TLS: ")
    assert script.requests == []


def test_a_certificate_that_has_ended_is_refused(authority: Authority) -> None:
    context = authority.context(x509.DNSName("hook.example"), lasts=timedelta(days=-1))
    with Script(says(OK), context=context).listening() as script:
        url = script.url.replace("127.0.0.1", "hook.example")

        answer = post(url, resolve=always("127.0.0.1"))

    assert "expired" in str(answer.error)
    assert script.requests == []


def test_a_certificate_of_nobody_is_refused(tmp_path: Path) -> None:
    context = Authority(tmp_path).context(x509.DNSName("hook.example"))
    with Script(says(OK), context=context).listening() as script:
        url = script.url.replace("127.0.0.1", "hook.example")

        answer = post(url, resolve=always("127.0.0.1"))

    assert str(answer.error).startswith("TLS: ")
    assert script.requests == []


def test_a_receiver_that_never_ends_its_handshake_is_left_in_time(receiver: Receiver) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/"

        answer, took_s = timed(lambda: post(url, timeout_s=0.3))

    assert answer.status is None
    assert took_s < limit_s(2)
    assert receiver.received == []
