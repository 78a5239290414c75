import json
import os
import pty
import re
import socket
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from tests.system.support import COMMAND, environment, run, started
from tests.waiting import eventually, limit_s

pytestmark = pytest.mark.slow


def test_the_demo_tells_the_tip_the_crowd_and_the_proof_in_plain_text(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        played = run("demo", "--check", "--events", "300", "--port", str(port), cwd=tmp_path)

    said = played.stdout
    assert played.returncode == 0, said + played.stderr
    assert re.search(r"authorization +1250 → AUTHORIZED +pulls 1$", said, re.MULTILINE)
    assert re.search(r"clearing +1500 → SETTLED +pulls 2 +settled 1500$", said, re.MULTILINE)
    assert re.search(r"balance +48500 from 50000", said)
    assert re.search(r"POST-HOC PULL customer funds +card holds +2\.50", said)
    assert "300 events and" in said
    assert re.search(r"events folded again in .* roll-ups are equal$", said, re.MULTILINE)
    assert "The proof holds." in said
    assert f"port {port} is taken" in said
    assert played.stderr == ""
    assert [line for line in said.splitlines() if len(line) > 80 or line != line.rstrip()] == []
    assert all(character.isprintable() or character == "\n" for character in said)
    assert list(tmp_path.iterdir()) == []


def test_the_same_seed_plays_the_same_crowd(tmp_path: Path) -> None:
    first, second = _json(tmp_path, "--seed", "3"), _json(tmp_path, "--seed", "3")

    assert first["holds"]
    assert first["crowd"]["events"] == 200
    assert first["crowd"]["duplicatesIgnored"] == first["crowd"]["sentAgain"] > 0
    assert _lasting(first) == _lasting(second)


def test_kept_up_it_can_be_looked_at_and_ctrl_c_removes_everything(tmp_path: Path) -> None:
    command = [*COMMAND, "demo", "--keep", "--json", "--events", "20", "--port", "0"]
    with started(command, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        document = _document(process.stdout)
        children = psutil.Process(process.pid).children(recursive=True)
        running, story = document["running"], document["story"]
        url = f"{running['baseUrl']}/transactions/{story['cardTransactionId']}"

        answered = httpx2.get(
            url, auth=(running["clientId"], running["clientSecret"]), timeout=limit_s()
        )
        process.send_signal(2)
        code = process.wait(limit_s())

    assert answered.json()["settlementSummary"]["totalAmount"] == 1500
    assert code == 0
    # They die with it, which is a moment later than it has ended.
    eventually(lambda: not any(child.is_running() for child in children))
    del tmp_path


def test_on_a_terminal_it_is_coloured(tmp_path: Path) -> None:
    parent, child = pty.openpty()
    env = environment() | {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "40"}
    command = [*COMMAND, "demo", "--events", "50", "--port", "0"]
    with started(command, env=env, cwd=tmp_path, stdout=child, stderr=child) as process:
        os.close(child)
        said = _everything(parent)
        process.wait(limit_s())

    assert process.returncode == 0, said
    assert "\x1b[" in said
    assert "The proof holds." in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said)


def test_interrupted_while_it_starts_it_leaves_nothing(tmp_path: Path) -> None:
    env = environment() | {"TMPDIR": str(tmp_path)}
    command = [*COMMAND, "demo", "--port", "0"]
    with started(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        eventually(lambda: "PostgreSQL" in process.stdout.readline())  # type: ignore[union-attr]
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(2)
        process.stdout.read()
        code = process.wait(limit_s())

    assert code == 130
    # They die with it, which is a moment later than it has ended.
    eventually(lambda: not any(child.is_running() for child in children))
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("cardledger-demo")]


def _json(cwd: Path, *arguments: str) -> dict[str, Any]:
    played = run("demo", "--json", "--events", "200", "--port", "0", *arguments, cwd=cwd)
    assert played.returncode == 0, played.stdout + played.stderr
    document: dict[str, Any] = json.loads(played.stdout)
    return document


def _lasting(document: dict[str, Any]) -> dict[str, Any]:
    crowd = {name: value for name, value in document["crowd"].items() if name != "seconds"}
    kept = ("statuses", "trialBalance", "events", "cardTransactions", "owed")
    return crowd | {name: document["proof"][name] for name in kept}


def _document(output: Any) -> dict[str, Any]:  # noqa: ANN401 - a text stream
    """Return the first JSON document on `output`, as soon as it is whole."""
    text = ""
    for line in output:
        text += line
        if line == "}\n":
            break
    document: dict[str, Any] = json.loads(text)
    return document


def _everything(descriptor: int) -> str:
    said = b""
    while True:
        try:
            piece = os.read(descriptor, 65536)
        except OSError:  # The other end is closed.
            piece = b""
        if not piece:
            os.close(descriptor)
            return said.decode()
        said += piece
