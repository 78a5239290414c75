"""What `.ci/run` does with servers that are not its own, and with known vulnerabilities."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from cardledger.embedded.servers import OwnRedis

_SCRIPT = Path(__file__).parents[2] / ".ci" / "run"
_FUNCTION = 'source <(sed -n "/^empty_redis() {/,/^}/p" "$1"); empty_redis "$2" "$3"'


def empty(url: str, workers: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/bash", "-c", _FUNCTION, "bash", str(_SCRIPT), url, str(workers)],
        cwd=_SCRIPT.parents[1],
        capture_output=True,
        check=False,
        text=True,
    )


def test_a_redis_database_that_is_not_empty_is_skipped(tmp_path: Path) -> None:
    server = OwnRedis(tmp_path)
    server.start()
    try:
        base = server.url.rpartition("/")[0] if server.url.count("/") > 2 else server.url
        for number in (5, 2):
            with Redis.from_url(f"{base}/{number}") as client:
                client.set("other", "data")

        found, none = empty(f"{base}/5", 2), empty(f"{base}/2", 3)
    finally:
        server.stop()

    assert found.stdout == f"{base}/4\n"
    assert found.stderr == "Redis database 5 has 1 keys: skipped\n"
    assert none.returncode == 1
    assert "no 3 empty Redis databases in a row" in none.stderr


# --- known vulnerabilities -------------------------------------------------------------------

_LOCK = """
Ink.Well==1.4.2 ; python_version > "3" \\
    --hash=sha256:00
quill==2.0
"""


def audit(tmp_path: Path, export: object | None) -> subprocess.CompletedProcess[str]:
    """Audit a lock of made-up packages with a made-up export."""
    lock, file = tmp_path / "lock.txt", tmp_path / "advisories.json"
    lock.write_text(_LOCK)
    file.write_text(export if isinstance(export, str) else json.dumps(export))
    return subprocess.run(
        [sys.executable, str(_SCRIPT.with_name("audit_dependencies.py")), str(lock)],
        capture_output=True,
        check=False,
        env={} if export is None else {"ADVISORY_EXPORT": str(file)},
        text=True,
    )


def advisory(name: str = "ink-well", **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {
        "id": "MADE-UP-1",
        "affected": [{"package": {"ecosystem": "PyPI", "name": name}} | fields],
    }


def between(*events: dict[str, str]) -> list[dict[str, Any]]:
    return [{"type": "ECOSYSTEM", "events": list(events)}]


SINCE_EVER, SINCE_1_4 = {"introduced": "0"}, {"introduced": "1.4"}


def test_the_locks_are_audited() -> None:
    locks = "constraints.txt constraints-dev.txt constraints-publish.txt constraints-browser.txt"
    command = f".venv/bin/python .ci/audit_dependencies.py {locks}"

    assert command in _SCRIPT.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    "export",
    [
        advisory(versions=["1.4.2"]),
        [advisory(ranges=between(SINCE_EVER))],
        {"vulns": [advisory(ranges=between({"fixed": "1.10"}, SINCE_EVER))]},
        [advisory("INK_well", ranges=between(SINCE_EVER, {"last_affected": "1.4.2"}))],
        [advisory(ranges=between(SINCE_EVER, {"fixed": "1.1"}, SINCE_1_4, {"fixed": "1.5"}))],
        {
            "dependencies": [
                {"name": "ink-well", "version": "1.4.2", "vulns": [{"id": "MADE-UP-1"}]},
                {"name": "quill", "skip_reason": "not on the index"},
            ]
        },
    ],
)
def test_an_affected_dependency_fails_the_audit(tmp_path: Path, export: object) -> None:
    done = audit(tmp_path, export)

    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[0] == "ink-well 1.4.2: MADE-UP-1"


@pytest.mark.parametrize(
    "export",
    [
        [],
        [advisory(versions=["1.4.1"])],
        [advisory(ranges=between(SINCE_EVER, {"fixed": "1.4.2"}))],
        [advisory(ranges=between(SINCE_EVER, {"last_affected": "1.4.1"}))],
        [advisory(ranges=between({"introduced": "1.10"}))],
        [advisory("other", ranges=between(SINCE_EVER))],
        [advisory(ranges=between(SINCE_EVER)) | {"withdrawn": "2026-01-01T00:00:00Z"}],
        {"dependencies": [{"name": "ink-well", "version": "1.0", "vulns": [{"id": "X"}]}]},
    ],
)
def test_an_unaffected_dependency_passes_the_audit(tmp_path: Path, export: object) -> None:
    done = audit(tmp_path, export)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("2 locked packages audited")
    assert done.stdout.endswith(": 0 findings\n")


def test_without_an_export_it_says_that_nothing_was_audited(tmp_path: Path) -> None:
    done = audit(tmp_path, None)

    assert done.returncode == 0
    assert "NOT audited" in done.stdout
    assert "ADVISORY_EXPORT" in done.stdout


@pytest.mark.parametrize("export", ["", "[1]", "{}", '{"dependencies": 1}'])
def test_an_export_that_cannot_be_understood_fails_the_audit(tmp_path: Path, export: str) -> None:
    done = audit(tmp_path, export)

    assert done.returncode == 2
    assert "is not an export" in done.stdout
