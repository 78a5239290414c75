"""The check of a worker reads what the worker reports, and finds one that is frozen or gone."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cardledger.ledger.storage import database_clock
from cardledger.workers.process import health_file
from cardledger.workers.process.health_file import FRESH_S, Health

NOW = 1000.0


def report(
    directory: Path,
    *,
    pid: int | None = None,
    age_s: float = 0.5,
    problem: str = "",
    installation_problem: str = "",
) -> None:
    health_file.write(
        directory,
        Health(
            role="events",
            pid=os.getpid() if pid is None else pid,
            written_at=NOW - age_s,
            problems=[problem] if problem else [],
            installation_problems=[installation_problem] if installation_problem else [],
            redis="answers",
        ),
    )


def ended_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_a_worker_that_reports_no_problem_is_healthy(tmp_path: Path) -> None:
    report(tmp_path)

    assert health_file.problems(tmp_path, "events", now=NOW) == []


def test_a_problem_is_passed_on(tmp_path: Path) -> None:
    report(tmp_path, problem="sweep has not succeeded for 5 s")

    assert health_file.problems(tmp_path, "events", now=NOW) == [
        f"worker {os.getpid()}: sweep has not succeeded for 5 s"
    ]


def test_a_problem_of_the_installation_is_reported_once_and_no_reason_for_a_restart(
    tmp_path: Path,
) -> None:
    report(tmp_path, installation_problem="a queue is stalled")
    report(tmp_path, pid=os.getppid(), installation_problem="a queue is stalled")

    assert health_file.problems(tmp_path, "events", now=NOW) == ["a queue is stalled"]
    assert health_file.problems(tmp_path, "events", of_worker_only=True, now=NOW) == []


def test_a_report_that_is_old_is_that_of_a_frozen_worker(tmp_path: Path) -> None:
    report(tmp_path, age_s=FRESH_S + 1)

    [problem] = health_file.problems(tmp_path, "events", now=NOW)
    assert "frozen" in problem


def test_the_report_of_a_process_that_has_ended_does_not_count(tmp_path: Path) -> None:
    report(tmp_path, pid=ended_process())

    [problem] = health_file.problems(tmp_path, "events", now=NOW)
    assert "no worker" in problem

    report(tmp_path)
    assert health_file.problems(tmp_path, "events", now=NOW) == []


def test_the_report_of_before_the_machine_was_started_does_not_count(tmp_path: Path) -> None:
    report(tmp_path, pid=os.getppid(), age_s=-1.0)

    [problem] = health_file.problems(tmp_path, "events", now=NOW)
    assert "no worker" in problem


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="nothing says when it was started")
@pytest.mark.parametrize("age_s", [0.5, FRESH_S + 1])
def test_the_report_of_a_process_whose_id_another_one_has_does_not_count(
    tmp_path: Path, age_s: float
) -> None:
    report(tmp_path, age_s=age_s)
    [path] = tmp_path.glob("*.json")
    written = json.loads(path.read_text())
    path.write_text(json.dumps(written | {"started": str(int(written["started"]) - 1)}))

    [problem] = health_file.problems(tmp_path, "events", now=NOW)
    assert "no worker" in problem


def test_a_worker_of_another_role_does_not_count(tmp_path: Path) -> None:
    report(tmp_path)

    assert health_file.problems(tmp_path, "webhooks", now=NOW) != []


def test_a_file_that_is_not_ours_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "worker-events-1.json").write_text('{"role": "events"}')
    report(tmp_path)

    assert health_file.problems(tmp_path, "events", now=NOW) == []


@pytest.mark.parametrize(
    ("ahead_s", "took_s", "found_s"),
    [
        (0.0, 0.01, 0.0),
        (0.25, 0.01, 0.0),
        (0.26, 0.01, 0.26),
        (-0.26, 0.0, -0.26),
        (20.0, 0.0, 20.0),
        (-20.0, 0.0, -20.0),
        (-3.0, 5.0, 0.0),
    ],
)
def test_a_clock_is_off_only_when_the_round_trip_does_not_explain_it(
    ahead_s: float, took_s: float, found_s: float
) -> None:
    answer = datetime(2026, 1, 1, tzinfo=UTC)

    ahead = database_clock.ahead(
        answer + timedelta(seconds=ahead_s), answer, timedelta(seconds=took_s)
    )

    assert ahead == timedelta(seconds=found_s)
