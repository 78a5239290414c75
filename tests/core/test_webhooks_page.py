"""The examples of docs/webhooks.md work as they are written, on webhooks that we sign."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cardledger.ledger.webhooks import signatures
from cardledger.schema.wire.webhooks.envelope import WebhookType
from cardledger.webhooks.receiver import Receiver, Reply
from cardledger.webhooks.verification import verify
from tests.waiting import limit_s

PAGE = (Path(__file__).parents[2] / "docs" / "webhooks.md").read_text(encoding="utf-8")
WEBHOOK_ID = "Webhook:019542f5-b3e7-7d02-8000-0000000000a7"

PRIVATE_DER, PUBLIC_PEM = signatures.new_signing_key()
OTHER_PEM = signatures.new_signing_key()[1]
SECRET = signatures.new_webhook_secret()
OTHER_SECRET = signatures.new_webhook_secret()


def types_in(table: str) -> Iterator[str]:
    """Yield the types of a table; those with a placeholder as their whole group."""
    for line in table.splitlines():
        group = ""
        for name in re.findall(r"`([^`]+)`", line.split("|")[1] if "|" in line else ""):
            first, dot, last = name.partition(".")
            group = first or group
            is_whole = "<" in last
            yield f"{group}.*" if is_whole else group + dot + last


def test_every_type_is_in_the_table() -> None:
    named = set(types_in(PAGE.partition("## Types")[2].partition("## Allowed")[0]))

    missing = [kind for kind in WebhookType if not {kind, f"{kind.partition('.')[0]}.*"} & named]
    assert missing == []
    groups = {kind.partition(".")[0] for kind in WebhookType}
    assert {name for name in named if name.partition(".")[0] not in groups} == set()


def examples(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def body(sequence: int = 4, status: str = "SETTLED", *, webhook_id: str = WEBHOOK_ID) -> bytes:
    content = {
        "id": webhook_id,
        "type": f"CARD_TRANSACTION.{status}",
        "timestamp": "2026-03-01T12:00:00.000000Z",
        "data": {"id": "CardTransaction:1", "sequence": sequence, "status": status, "note": "€"},
    }
    return json.dumps(content, ensure_ascii=False).encode()


BODY = body()


def signed(content: bytes = BODY, at: datetime | None = None) -> dict[str, str]:
    """Return the headers as most frameworks provide them."""
    headers = signatures.sign(
        content,
        webhook_id=json.loads(content)["id"],
        at=at or datetime.now(UTC),
        private_key=signatures.load_private_key(PRIVATE_DER),
        secret=SECRET,
    )
    return {name.lower(): value for name, value in headers.items()}


def names_of(example: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(example, "webhooks.md", "exec"), names)  # noqa: S102 - ours
    return names


def test_there_is_an_example_for_each_tool() -> None:
    assert [len(examples(language)) for language in ("python", "js", "sh")] == [2, 1, 2]


def test_the_python_receiver_rejects_forgeries_ignores_duplicates_and_keeps_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WEBHOOK_SECRET", f"{OTHER_SECRET} {SECRET}")
    monkeypatch.setenv("WEBHOOK_PUBLIC_KEY", PUBLIC_PEM)
    names = names_of(examples("python")[0])
    receive, books = names["receive"], names["books"]
    newer, older = body(), body(2, "AUTHORIZED", webhook_id="Webhook:2")

    forged = receive(newer.replace(b"4", b"5"), signed(newer))
    statuses = [receive(webhook, signed(webhook)) for webhook in (newer, newer, older)]

    assert forged == 401
    assert statuses == [200, 200, 200]
    assert books.execute("SELECT * FROM purchases").fetchall() == [
        ("CardTransaction:1", 4, "SETTLED")
    ]
    assert books.execute("SELECT count(*) FROM seen").fetchone() == (2,)
    books.close()


def test_the_python_functions_verify_both_signatures() -> None:
    names = names_of(examples("python")[1])
    standard, grid = names["standard_holds"], names["grid_holds"]
    headers = signed()
    two = headers | {"webhook-signature": f"v1,other {headers['webhook-signature']}"}

    assert standard(BODY, headers, SECRET)
    assert standard(BODY, two, SECRET)
    assert not standard(BODY + b" ", headers, SECRET)
    assert not standard(BODY, headers, OTHER_SECRET)
    assert not standard(BODY, signed(at=datetime.now(UTC) - timedelta(minutes=6)), SECRET)
    assert grid(BODY, headers, PUBLIC_PEM)
    assert not grid(BODY + b" ", headers, PUBLIC_PEM)
    assert not grid(BODY, headers, OTHER_PEM)


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node on this machine")
def test_the_javascript_functions_verify_both_signatures(tmp_path: Path) -> None:
    headers = signed()
    two = headers | {"webhook-signature": f"v1,other {headers['webhook-signature']}"}
    old = signed(at=datetime.now(UTC) - timedelta(minutes=6))
    cases: list[tuple[str, bytes, Mapping[str, str], str, bool]] = [
        ("standardHolds", BODY, headers, SECRET, True),
        ("standardHolds", BODY, two, SECRET, True),
        ("standardHolds", BODY + b" ", headers, SECRET, False),
        ("standardHolds", BODY, headers, OTHER_SECRET, False),
        ("standardHolds", BODY, headers, "", False),
        ("standardHolds", BODY, old, SECRET, False),
        ("standardHolds", BODY, {}, SECRET, False),
        ("gridHolds", BODY, headers, PUBLIC_PEM, True),
        ("gridHolds", BODY + b" ", headers, PUBLIC_PEM, False),
        ("gridHolds", BODY, headers, OTHER_PEM, False),
        ("gridHolds", BODY, {}, PUBLIC_PEM, False),
    ]
    (tmp_path / "webhooks.mjs").write_text(examples("js")[0], encoding="utf-8")
    (tmp_path / "cases.json").write_text(
        json.dumps([[name, given.decode(), sent, key] for name, given, sent, key, _ in cases])
    )
    (tmp_path / "try.mjs").write_text(
        'import { readFileSync } from "node:fs"; import * as ours from "./webhooks.mjs";'
        'const cases = JSON.parse(readFileSync("cases.json"));'
        "console.log(JSON.stringify(cases.map("
        "([name, body, headers, key]) => ours[name](Buffer.from(body), headers, key))));"
    )

    finished = run([shutil.which("node") or "", "try.mjs"], tmp_path)

    assert json.loads(finished.stdout) == [expected for *_, expected in cases], finished.stderr


def run(
    command: list[str], directory: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=directory,
        env=env,
        capture_output=True,
        check=False,
        text=True,
        timeout=limit_s(),
    )


def shell(
    number: int, directory: Path, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    search = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    return run(["/bin/sh", "-c", examples("sh")[number]], directory, {**search, **variables})


needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="there is no openssl on this machine"
)


@needs_openssl
@pytest.mark.parametrize(
    ("given", "public_key", "secret", "holds"),
    [
        (BODY, PUBLIC_PEM, SECRET, True),
        (BODY + b" ", PUBLIC_PEM, SECRET, False),
        (BODY, OTHER_PEM, SECRET, False),
        (BODY, PUBLIC_PEM, OTHER_SECRET, False),
    ],
    ids=["as it was sent", "another body", "another key", "another secret"],
)
def test_the_openssl_commands_verify_both_signatures(
    tmp_path: Path, given: bytes, public_key: str, secret: str, *, holds: bool
) -> None:
    (tmp_path / "body").write_bytes(given)
    (tmp_path / "public.pem").write_text(public_key)
    headers = signed()
    variables = {
        "GRID": headers["x-grid-signature"],
        "ID": headers["webhook-id"],
        "TIME": headers["webhook-timestamp"],
        "SIGNATURES": f"v1,other {headers['webhook-signature']}",
        "SECRET": secret,
    }

    finished = shell(0, tmp_path, variables)

    assert (finished.returncode == 0) == holds, finished.stdout + finished.stderr
    if holds:
        assert "Verified OK" in finished.stdout
        assert "Standard Webhooks: valid" in finished.stdout


@needs_openssl
@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl on this machine")
def test_the_curl_command_sends_a_webhook_that_verifies(tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(BODY)
    with Receiver() as receiver:
        receiver.reply_always(Reply(status=200))

        finished = shell(1, tmp_path, {"URL": receiver.url, "ID": WEBHOOK_ID})

        assert finished.returncode == 0, finished.stderr
        [arrival] = receiver.received
    secret = (tmp_path / "keys.txt").read_text().split()[-1]
    public_key = (tmp_path / "public.pem").read_text()
    content = verify(arrival.body, arrival.headers, secret=secret, public_key=public_key)
    assert content == json.loads(BODY)
