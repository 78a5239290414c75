"""TLS of the HTTP client: names, authorities and handshakes."""

import ipaddress
import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from cardledger.webhooks.receiver import Reply
from cardledger.workers.webhooks.http_client import HttpResult
from tests.authority import Authority
from tests.integration.scripted_receiver import (
    OK,
    Script,
    always,
    post,
    says,
    timed,
)
from tests.receiver import Receiver
from tests.waiting import limit_s


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        receiver.reply_always(Reply(status=200))
        yield receiver


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
