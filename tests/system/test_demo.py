import json
import os
import pty
import re
import socket
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from cardledger.commands.demo import text
from tests.system.support import COMMAND, environment, has_ended, run, started
from tests.waiting import eventually, limit_s

pytestmark = pytest.mark.slow


def test_the_demo_prints_the_tip_the_traffic_and_the_verification_in_plain_text(
    tmp_path: Path,
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        played = run("demo", "--check", "--events", "300", "--port", str(port), cwd=tmp_path)

    output = played.stdout
    assert played.returncode == 0, output + played.stderr
    assert re.search(r"authorization +1250 → AUTHORIZED +pulls 1$", output, re.MULTILINE)
    assert re.search(r"clearing +1500 → SETTLED +pulls 2 +settled 1500$", output, re.MULTILINE)
    assert re.search(r"balance +48500 from 50000", output)
    assert re.search(r"POST-HOC PULL customer funds +card holds +2\.50", output)
    assert "300 events, " in output
    assert re.search(r"events replayed in .* roll-ups match$", output, re.MULTILINE)
    assert "Verification passed." in output
    assert f"port {port} is in use" in output
    assert played.stderr == ""
    assert [line for line in output.splitlines() if len(line) > 80 or line != line.rstrip()] == []
    assert all(character.isprintable() or character == "\n" for character in output)
    assert list(tmp_path.iterdir()) == []


def test_with_keep_the_api_serves_until_ctrl_c_and_the_same_seed_repeats_the_traffic(
    tmp_path: Path,
) -> None:
    seeded = ["demo", "--json", "--seed", "3", "--events", "200", "--port", "0"]
    command = [*COMMAND, *seeded, "--keep"]
    with started(command, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = _document(process.stdout)
        children = psutil.Process(process.pid).children(recursive=True)
        running, story = first["running"], first["story"]
        url = f"{running['baseUrl']}/transactions/{story['cardTransactionId']}"
        response = httpx2.get(
            url, auth=(running["clientId"], running["clientSecret"]), timeout=limit_s()
        )
        process.send_signal(2)
        code = process.wait(limit_s())
    second = run(*seeded, cwd=tmp_path)

    assert response.json()["settlementSummary"]["totalAmount"] == 1500
    assert code == 0
    # The children die with it, a moment after it has ended.
    eventually(lambda: all(map(has_ended, children)))
    assert second.returncode == 0, second.stdout + second.stderr
    assert first["holds"]
    assert first["crowd"]["events"] == 200
    assert first["crowd"]["duplicatesIgnored"] == first["crowd"]["sentAgain"] > 0
    assert _reproducible(first) == _reproducible(json.loads(second.stdout))


def test_the_output_on_a_terminal_is_coloured(tmp_path: Path) -> None:
    parent, child = pty.openpty()
    env = environment() | {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "40"}
    command = [*COMMAND, "demo", "--events", "50", "--port", "0"]
    with started(command, env=env, cwd=tmp_path, stdout=child, stderr=child) as process:
        os.close(child)
        output = _everything(parent)
        process.wait(limit_s())

    assert process.returncode == 0, output
    assert "\x1b[" in output
    assert "Verification passed." in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output)


def test_an_interrupt_during_the_start_leaves_nothing(passable_dir: Path) -> None:
    env = environment() | {"TMPDIR": str(passable_dir)}
    command = [*COMMAND, "demo", "--port", "0"]
    with started(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        eventually(lambda: "PostgreSQL" in process.stdout.readline())  # type: ignore[union-attr]
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(2)
        process.stdout.read()
        code = process.wait(limit_s())

    assert code == 130
    # The children die with it, a moment after it has ended.
    eventually(lambda: all(map(has_ended, children)))
    assert not [path for path in passable_dir.iterdir() if path.name.startswith("cardledger-demo")]


def _reproducible(document: dict[str, Any]) -> dict[str, Any]:
    crowd = {name: value for name, value in document["crowd"].items() if name != "seconds"}
    names = ("statuses", "trialBalance", "events", "cardTransactions", "owed")
    return crowd | {name: document["proof"][name] for name in names}


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
    output = b""
    while True:
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:  # The other end is closed.
            chunk = b""
        if not chunk:
            os.close(descriptor)
            return output.decode()
        output += chunk


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "+0 ms"), (0.9994, "+999 ms"), (1, "+1.0 s"), (999.94, "+999.9 s")]
)
def test_the_journal_has_one_width_on_a_slow_machine_too(seconds: float, shown: str) -> None:
    began = datetime(2026, 1, 1, tzinfo=UTC)

    assert text.after(began + timedelta(seconds=seconds), began) == shown


# --- a controller's month -------------------------------------------------------------------------

_VARYING = (
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<id>"),
    (r"sha256 [0-9a-f]{64}", "sha256 <digest>"),
    (r"known at \S+Z", "known at <time>"),
    (r"in [0-9.]+ s( \([0-9]+/s\))?", "in <seconds>"),
)


def without_what_varies(text: str) -> str:
    for pattern, name in _VARYING:
        text = re.sub(pattern, name, text)
    return text


def test_the_month_of_the_finance_page_is_what_the_demo_prints(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "finance.md"
    expected = without_what_varies(page.read_text(encoding="utf-8"))

    played = run("demo", "--finance", "--json", "--port", "0", cwd=tmp_path)

    assert played.returncode == 0, played.stdout + played.stderr
    document = json.loads(played.stdout)
    assert document["holds"]
    assert set(document["findings"].values()) == {True}
    assert len(document["findings"]) == 14
    place = expected.index("## A month")
    for each in document["commands"][:-1]:  # The last one verifies again.
        mark = "=>" if each["command"].startswith("SELECT") else "$"
        block = f"{each['who']}{mark} {each['command']}\n{each['output']}".rstrip("\n")
        place = expected.index(without_what_varies(block), place)
    assert list(tmp_path.iterdir()) == []


def test_the_month_is_played_in_books_of_its_own(tmp_path: Path) -> None:
    played = run("demo", "--finance", "--data-dir", str(tmp_path / "mine"), cwd=tmp_path)

    assert played.returncode == 2
    assert "leave out --data-dir and DATABASE_URL" in played.stderr
    assert list(tmp_path.iterdir()) == []
