"""One request to a URL that a customer chose: real sockets, no database."""

import gzip
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator, Sequence

import pytest

from cardledger.webhooks.receiver import Reply
from cardledger.workers.webhooks import http_client
from cardledger.workers.webhooks.http_client import MAX_HEAD, HttpClient, HttpResult
from tests.integration.scripted_receiver import (
    OK,
    Rebinding,
    Script,
    drips,
    post,
    resets,
    says,
    says_and_closes,
    timed,
)
from tests.receiver import Receiver
from tests.waiting import limit_s


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        receiver.reply_always(Reply(status=200))
        yield receiver


# --- connections ----------------------------------------------------------------------------------


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


def test_a_connection_that_was_silent_for_long_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A firewall may have forgotten it: what is sent on it then has no response."""
    monkeypatch.setattr(http_client, "KEPT_S", 0.0)
    replies = iter([OK, OK])

    def respond(connection: socket.socket) -> None:
        connection.sendall(next(replies))

    with Script(respond).listening() as script:
        last = post(script.url, times=2)

    assert last.status == 200
    assert script.connections == 2


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
