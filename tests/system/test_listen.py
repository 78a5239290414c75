"""`cardledger listen` as a process: alone, in front of an application, and with a system."""

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import urllib3

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.webhooks import signatures
from cardledger.webhooks.receiver import Reply
from tests.receiver import Receiver
from tests.system import support
from tests.system.support import COMMAND, Up, environment, run
from tests.waiting import eventually, limit_s

PRIVATE_DER, PUBLIC_PEM = signatures.new_signing_key()
SECRET = signatures.new_webhook_secret()
WEBHOOK_ID = "Webhook:019542f5-b3e7-7d02-0000-0000000000a7"
BODY = json.dumps(
    {
        "id": WEBHOOK_ID,
        "type": "CARD_TRANSACTION.SETTLED",
        "timestamp": "2026-03-01T12:00:00.000000Z",
        "data": {"id": "CardTransaction:1", "status": "SETTLED", "sequence": 4},
    }
).encode()


class Listening:
    """The command, listening."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.output, self.errors = home / "listen.txt", home / "listen-errors.txt"
        with self.output.open("wb") as output, self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [*COMMAND, "listen", "--data-dir", str(home / "nothing"), *arguments],
                env=environment(PYTHONIOENCODING="utf-8"),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
            )
        self.url = eventually(self._url)

    def _url(self) -> str | None:
        assert self.process.poll() is None, self.text()
        output = self.text()
        if "Ctrl-C ends it" not in output:
            return None
        return output.partition("listening on ")[2].splitlines()[0]

    def text(self) -> str:
        return self.output.read_text() + self.errors.read_text()

    def lines(self, containing: str) -> list[str]:
        return [line for line in self.output.read_text().splitlines() if containing in line]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(limit_s())


@contextmanager
def listening(home: Path, *arguments: str) -> Iterator[Listening]:
    started = Listening(home, *arguments)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.stop()


def signed(body: bytes = BODY) -> dict[str, str]:
    return signatures.sign(
        body,
        webhook_id=WEBHOOK_ID,
        at=datetime.now(UTC),
        private_key=signatures.load_private_key(PRIVATE_DER),
        secret=SECRET,
    )


def send(url: str, body: bytes = BODY, headers: dict[str, str] | None = None) -> tuple[int, str]:
    with urllib3.PoolManager(retries=False) as http:
        answer = http.request("POST", url, body=body, headers=headers or signed(body))
        return answer.status, answer.data.decode()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    home = tmp_path_factory.mktemp("alone")
    (home / "public.pem").write_text(PUBLIC_PEM)
    (home / "secret").write_text(f"{SECRET}\n")
    keys = ["--public-key", str(home / "public.pem"), "--secret", f"@{home / 'secret'}"]
    with listening(home, *keys) as running:
        yield running


def test_a_verified_webhook_is_one_readable_line(alone: Listening) -> None:
    answer = send(alone.url)

    assert answer == (200, "")
    line = eventually(lambda: alone.lines("#4"))[0]
    for part in ("✓", "CARD_TRANSACTION.SETTLED", WEBHOOK_ID, "#4", "SETTLED", "200"):
        assert part in line
    assert '"webhookEndpoint":"' in alone.text()


def test_a_webhook_that_is_not_verified_gets_401_and_is_marked(alone: Listening) -> None:
    changed = BODY.replace(b"SETTLED", b"REFUNDED")

    answer = send(alone.url, changed, signed())

    assert answer[0] == 401
    line = eventually(lambda: alone.lines("REFUNDED"))[0]
    assert "✗" in line
    assert "webhook-signature does not match this webhook" in line


def test_untrusted_text_cannot_break_out_of_its_line(alone: Listening) -> None:
    body = json.dumps({"id": "x", "type": "FORGED\n\x1b[2J\x9b1m ✓ real", "data": []}).encode()

    send(alone.url, body, signed())

    line = eventually(lambda: alone.lines("FORGED"))[0]
    assert "FORGED??[2J?1m ✓ real" in line
    assert "\x1b" not in alone.text()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\xff\r\n\r\n",
    ],
)
def test_a_request_that_is_not_a_webhook_is_rejected_and_the_command_goes_on(
    alone: Listening, request_bytes: bytes
) -> None:
    address = ("127.0.0.1", urllib3.util.parse_url(alone.url).port or 0)

    with socket.create_connection(address, timeout=limit_s()) as connection:
        connection.sendall(request_bytes)
        answer = connection.recv(1000)

    assert not answer.startswith(b"HTTP/1.1 2")
    assert send(alone.url)[0] == 200


def test_with_json_each_webhook_is_one_line_of_json(tmp_path: Path) -> None:
    with listening(tmp_path, "--json", "--secret", SECRET) as running:
        send(running.url)
        send(running.url, b"\xff\x9b not json", signed())

        shown = eventually(
            lambda: len(found := running.output.read_text().splitlines()) == 2 and found
        )
        assert isinstance(shown, list)
        proven, forged = (json.loads(line) for line in shown)

    assert (proven["verified"], proven["problem"], proven["answered"]) == (True, None, 200)
    assert proven["event"]["data"]["sequence"] == 4
    assert proven["body"].encode() == BODY
    assert proven["headers"]["webhook-id"] == WEBHOOK_ID
    assert (forged["verified"], forged["event"], forged["answered"]) == (False, None, 401)


def test_without_a_key_nothing_is_marked_as_verified(tmp_path: Path) -> None:
    with listening(tmp_path) as running:
        answer = send(running.url)

        [line] = eventually(lambda: running.lines("#4"))

    assert answer[0] == 200
    assert "nothing is verified" in running.text()
    assert " ? " in line
    assert "✓" not in line


def test_a_webhook_is_forwarded_unchanged_and_the_response_is_returned(
    tmp_path: Path,
) -> None:
    with Receiver(PUBLIC_PEM, SECRET) as application:
        application.reply(
            Reply(status=202, headers=(("X-Mine", "1"),), body=b"taken"),
            Reply(status=307, headers=(("Location", "/elsewhere"),)),
        )
        with listening(tmp_path, "--forward-to", application.url, "--secret", SECRET) as running:
            headers = signed() | {"X-Other": "kept"}
            with urllib3.PoolManager(retries=False) as http:
                first = http.request("POST", running.url, body=BODY, headers=headers)
            second = send(running.url)

            eventually(lambda: len(running.lines("#4")) == 2)

        arrived, redirected = application.received
        assert arrived.problem is None, "by its own judgement"
        assert arrived.body == BODY
        assert arrived.headers["x-other"] == "kept"
        assert arrived.headers["host"] in application.url
        assert (first.status, first.headers["X-Mine"], first.data) == (202, "1", b"taken")
        assert second[0] == 307
        assert redirected.status == 307
        assert "202" in running.lines("#4")[0]


def test_an_application_that_does_not_respond_is_a_502_so_that_the_sender_retries(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with listening(tmp_path, "--forward-to", f"http://127.0.0.1:{port}/", "--secret", SECRET) as it:
        status, output = send(it.url)

        assert status == 502
        assert "did not answer" in output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_ends_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    with listening(tmp_path, "--secret", SECRET) as running:
        send(running.url)

        code = running.stop(number)

    assert code == 0
    assert "Traceback" not in running.text()


def test_the_command_ends_when_its_output_is_closed(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with (tmp_path / "errors").open("wb") as errors:
        process = subprocess.Popen(
            [*COMMAND, "listen", "--json", "--data-dir", str(tmp_path / "nothing")],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=errors,
        )
    os.close(writing)
    os.close(reading)
    try:
        found = eventually(
            lambda: re.search(r"listening on (\S+)\n", (tmp_path / "errors").read_text())
        )
        with suppress(urllib3.exceptions.HTTPError):  # It may have ended before its response.
            send(found[1])

        assert process.wait(limit_s()) == 141
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in (tmp_path / "errors").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "output"),
    [
        (["--register"], 1, "no system runs in "),
        (["--secret", "hush"], 2, "a secret must be whsec_"),
        (["--secret", "@/no/such/file"], 2, "cannot read /no/such/file"),
        (["--public-key", "/no/such/file"], 2, "cannot read /no/such/file"),
        (["--public-key", __file__], 2, "a public key is not valid PEM"),
        (["--forward-to", "127.0.0.1:3000"], 2, "--forward-to takes a URL"),
        (["--forward-to", "ftp://x/"], 2, "--forward-to takes a URL"),
        (["--ready-file", "/no/such/file"], 2, "is not a ready file"),
    ],
)
def test_a_usage_error_is_one_line(
    arguments: list[str], code: int, output: str, tmp_path: Path
) -> None:
    finished = run("listen", "--data-dir", str(tmp_path / "nothing"), *arguments)

    assert finished.returncode == code
    assert output in finished.stderr
    assert len(finished.stderr.splitlines()) == 1
    assert finished.stdout == ""


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        finished = run("listen", "--data-dir", str(tmp_path / "nothing"), "--port", port)

    assert finished.returncode == 1
    assert "choose another --port" in finished.stderr


# --- with a system ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def system(
    tmp_path_factory: pytest.TempPathFactory, postgres_url: DatabaseUrl, redis_url: str
) -> Iterator[Up]:
    with support.own_database(postgres_url) as database_url:
        env = environment(DATABASE_URL=database_url, REDIS_URL=redis_url)
        with support.up(tmp_path_factory.mktemp("up"), env) as running:
            yield running


def endpoint(system: Up) -> Any:  # noqa: ANN401 - JSON
    with system.api() as api:
        return api.get("/config").json().get("webhookEndpoint")


@pytest.mark.parametrize("before", [None, "http://127.0.0.1:9/hook"])
def test_register_receives_webhooks_and_restores_the_endpoint(
    system: Up, tmp_path: Path, before: str | None
) -> None:
    with system.api() as api:
        api.patch("/config", json={"webhookEndpoint": before}).raise_for_status()
        ready = ["--ready-file", str(system.ready_file)]
        with listening(tmp_path, "--register", *ready) as running:
            eventually(lambda: endpoint(system) == running.url)
            who = support.cardholder(api)
            authorized = support.authorize(api, who["card"], 1250)
            support.clear(api, who["card"], authorized["id"], 1500)

            settled = eventually(lambda: running.lines("CARD_TRANSACTION.SETTLED"))
            code = running.stop()

    assert code == 0
    assert "✓" in settled[0]
    assert running.lines("✗") == []
    assert endpoint(system) == before


def test_listen_does_not_overwrite_an_endpoint_that_was_changed_while_it_ran(
    system: Up, tmp_path: Path
) -> None:
    other = "http://127.0.0.1:9/other"
    with listening(tmp_path, "--register", "--ready-file", str(system.ready_file)) as running:
        eventually(lambda: endpoint(system) == running.url)
        with system.api() as api:
            api.patch("/config", json={"webhookEndpoint": other}).raise_for_status()

    assert endpoint(system) == other


def test_the_system_is_found_by_its_data_directory(system: Up, tmp_path: Path) -> None:
    with listening(tmp_path, "--data-dir", str(system.data_dir)) as running:
        output = running.text()

    assert "nothing is verified" not in output
    assert f"{system.ready['baseUrl']}/config" in output
