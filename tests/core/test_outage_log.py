"""An outage is two lines, however often it is met."""

import asyncio
from collections.abc import Iterator, MutableMapping
from typing import Any

import psycopg
import pytest
import structlog
from structlog.testing import capture_logs

from cardledger.workers.client import background
from cardledger.workers.signals.outage_log import QUIET_S, OutageLog
from cardledger.workers.signals.repeated_warning import RepeatedFailure, RepeatedWarning
from tests.waiting import eventually

Lines = list[MutableMapping[str, Any]]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def logs() -> Iterator[Lines]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.BoundLogger)
    with capture_logs() as captured:
        yield captured
    structlog.configure(**before)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def outages(clock: Clock) -> OutageLog:
    return OutageLog("database", consequence="; retried", clock=clock)


def test_an_outage_has_one_line_at_its_start_and_one_at_its_end(
    outages: OutageLog, clock: Clock, logs: Lines
) -> None:
    for _ in range(1000):
        outages.failed(OSError("refused"))
        clock.now += 0.01
    clock.now += QUIET_S
    for _ in range(1000):
        outages.succeeded()

    start, end = logs
    assert (start["event"], start["error"]) == ("database unavailable; retried", "refused")
    assert end["event"] == "database available again"
    assert end["failures"] == 1000
    assert end["outage_s"] == pytest.approx(10 + QUIET_S, abs=0.1)


def test_an_outage_is_not_over_while_something_still_fails(
    outages: OutageLog, clock: Clock, logs: Lines
) -> None:
    for _ in range(100):
        outages.failed(OSError("refused"))
        clock.now += QUIET_S / 2
        outages.succeeded()

    assert len(logs) == 1
    assert outages.is_out


def test_success_without_an_outage_is_silent(outages: OutageLog, logs: Lines) -> None:
    outages.succeeded()

    assert logs == []


def test_the_next_outage_is_logged_again(outages: OutageLog, clock: Clock, logs: Lines) -> None:
    for _ in range(2):
        outages.failed(OSError("refused"))
        clock.now += QUIET_S
        outages.succeeded()

    assert len(logs) == 4


def test_a_warning_that_is_repeated_is_one_line_and_later_a_count(
    clock: Clock, logs: Lines
) -> None:
    warning = RepeatedWarning("junk", clock=clock)

    for _ in range(1000):
        warning.note(2, queue="live")
    clock.now += 600
    warning.note()

    assert [(line["event"], line["times"]) for line in logs] == [("junk", 2), ("junk", 1999)]
    assert logs[0]["queue"] == "live"


def test_each_cause_of_a_refusal_is_one_line_and_later_a_count(clock: Clock, logs: Lines) -> None:
    refused = RepeatedFailure("refused", clock=clock)
    causes = [psycopg.errors.InsufficientPrivilege(f"denied for {name}") for name in ("a", "b")]

    for _ in range(1000):
        for cause in causes:
            refused.note(cause, count=1)
    clock.now += 600
    refused.note(causes[0])

    assert [(line["error"], line["times"]) for line in logs] == [
        ("denied for a", 1),
        ("denied for b", 1),
        ("denied for a", 1000),
    ]
    assert not any("exc_info" in line for line in logs), "it quotes the row"


def test_a_defect_is_one_traceback_whatever_it_is_about(clock: Clock, logs: Lines) -> None:
    failures = RepeatedFailure("failed", clock=clock)

    for number in range(1000):
        try:
            raise ValueError(number)
        except ValueError as error:
            failures.note(error)

    [line] = logs
    assert isinstance(line["exc_info"], ValueError)


def test_a_step_of_a_client_that_fails_again_and_again_is_one_line(
    logs: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []

    async def fail() -> None:
        attempts.append(1)
        raise ValueError(len(attempts))

    async def repeat() -> None:
        tasks = background.BackgroundTasks()
        tasks.start(fail)
        await asyncio.to_thread(eventually, lambda: len(attempts) >= 20)
        await tasks.stop()

    monkeypatch.setattr(background, "_RETRY_DELAY_S", 0.001)
    asyncio.run(repeat())

    assert [line["event"] for line in logs] == ["client background task failed; retrying"]
