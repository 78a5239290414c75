"""The examination of an installation: in a thread, seldom, and never a reason that a page fails."""

import asyncio
import socket
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
import structlog
from structlog.testing import capture_logs

from cardledger.api.health import examination
from cardledger.api.health.examination import Examination, Report
from cardledger.install import database_findings, installation_report, redis_findings, role_findings
from cardledger.install.findings import UNKNOWN, Finding
from cardledger.install.installation_report import examiner
from cardledger.ledger.queries.console import running_workers
from cardledger.ledger.queries.console.running_workers import RunningWorker
from cardledger.ledger.storage.batch_connections import WorkerId, new_worker_id
from cardledger.schema.roles import Role
from tests.api.support import SECRET_KEY, closed_port
from tests.databases import as_role
from tests.waiting import limit_s

WORKER = RunningWorker(
    id="0123456789ab",
    pid=7,
    began_at=None,
    decides_events=True,
    sends_webhooks=False,
    last_statement_at=None,
)


def report(number: int) -> Report:
    """Return the report of an examination, which has its number as its time."""
    at = datetime(2026, 1, 31, tzinfo=UTC) + timedelta(seconds=number)
    return Report(at=at, checks=[], workers=[WORKER])


def test_callers_share_an_examination_and_wait_for_none_while_they_have_a_late_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(examination, "_ANSWER_LIMIT_S", 0.01)
    made: list[Report] = []
    now = [0.0]
    goes_on = threading.Event()

    def examine() -> Report:
        if len(made) == 1:
            goes_on.wait(limit_s())
        made.append(report(len(made)))
        return made[-1]

    async def ask() -> list[Report | None]:
        examined = Examination(examine, clock=lambda: now[0])

        async def answer(at: float) -> Report | None:
            now[0] = at
            answers = await asyncio.gather(*(examined.answer() for _ in range(5)))
            assert answers == [answers[0]] * 5
            return answers[0]

        # The second examination begins at 5.0, and has not ended ten seconds later.
        found = [await answer(at) for at in (0.0, 4.9, 5.0, 14.9, 15.0)]
        goes_on.set()
        assert examined._running is not None
        await examined._running
        found.append(await answer(60.0))  # Begins the third one.
        await examined._running
        found.append(await answer(1_000.0))
        await examined.close()
        return found

    old = replace(report(0), workers=None, is_old=True)
    assert asyncio.run(ask()) == [*[report(0)] * 4, old, report(1), report(3)]


def test_a_slow_examination_keeps_no_caller_and_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()
    monkeypatch.setattr(examination, "_ANSWER_LIMIT_S", 0.01)

    def examine() -> Report:
        goes_on.wait(limit_s())
        return report(0)

    async def ask() -> tuple[Report | None, Report | None]:
        examined = Examination(examine)
        first = await examined.answer()
        goes_on.set()
        assert examined._running is not None
        await examined._running
        return first, await examined.answer()

    assert asyncio.run(ask()) == (None, report(0))


def test_a_caller_that_comes_again_and_again_waits_for_no_examination() -> None:
    now, count = [0.0], [0]
    goes_on = threading.Event()

    def examine() -> Report:
        count[0] += 1
        if count[0] == 2:
            goes_on.wait(limit_s())
        return report(count[0])

    async def ask() -> list[Report | None]:
        examined = Examination(examine, clock=lambda: now[0])
        found = [await examined.answer()]
        now[0] = 7.0
        found.append(await examined.answer())  # The next one has begun, and is not waited for.
        goes_on.set()
        assert examined._running is not None
        await examined._running
        now[0] = 14.0
        found.append(await examined.answer())
        await examined.close()
        return found

    assert asyncio.run(ask()) == [report(1), report(1), report(2)]


def test_what_is_old_is_called_so_and_shows_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    now, count = [0.0], [0]
    goes_on = threading.Event()

    def examine() -> Report:
        count[0] += 1
        if count[0] == 2:
            goes_on.wait(limit_s())
        return report(count[0])

    async def ask() -> list[Report | None]:
        examined = Examination(examine, clock=lambda: now[0])
        found = [await examined.answer()]
        now[0] = 3_600.0
        monkeypatch.setattr(examination, "_ANSWER_LIMIT_S", 0.01)
        found += [await examined.answer(), await examined.answer()]
        goes_on.set()
        assert examined._running is not None
        await examined._running
        found.append(await examined.answer())
        return found

    first, *old, last = asyncio.run(ask())

    assert first == report(1)
    assert old == [replace(report(1), workers=None, is_old=True)] * 2
    assert last == report(2)


def test_an_examination_does_not_keep_a_process_from_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    goes_on, ended = threading.Event(), threading.Event()
    monkeypatch.setattr(examination, "_ANSWER_LIMIT_S", 0.01)

    def examine() -> Report:
        goes_on.wait(limit_s())
        ended.set()
        return report(0)

    async def ask() -> list[bool]:
        examined = Examination(examine)
        await examined.answer()
        is_daemon = [each.daemon for each in threading.enumerate() if each.name == "examination"]
        await examined.close()
        return is_daemon

    is_daemon = asyncio.run(ask())  # Waits for what runs in the loop's executor.
    has_ended = ended.is_set()
    goes_on.set()

    assert is_daemon == [True]
    assert not has_ended
    assert ended.wait(limit_s())


def test_an_examination_that_fails_is_a_finding() -> None:
    def examine() -> Report:
        raise RuntimeError("postgresql://user:secret@host")

    found = asyncio.run(Examination(examine).answer())

    assert found is not None
    assert [(each.name, each.state) for each in found.checks] == [("examination", "fail")]
    assert "secret" not in found.checks[0].detail


def test_without_a_way_to_examine_there_is_no_report() -> None:
    assert asyncio.run(Examination(None).answer()) is None


def test_servers_that_are_away_are_findings_without_their_addresses() -> None:
    port = closed_port()
    database, redis = f"postgresql://away@127.0.0.1:{port}/away", f"redis://127.0.0.1:{port}/0"

    found = examiner(database, redis, SECRET_KEY)()

    assert [(each.name, each.state) for each in found.checks] == [
        ("PostgreSQL", "fail"),
        ("Redis", "fail"),
    ]
    assert not [each for each in found.checks if "127.0.0.1" in f"{each.detail}{each.fix}"]
    assert found.workers is None


def test_a_check_that_fails_leaves_the_others_and_is_logged_once(
    app_database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    examine = examiner(as_role(app_database_url, Role.API), redis_url, SECRET_KEY)
    whole = [each.name for each in examine().checks]

    def broken(_: psycopg.Connection[Any]) -> Finding:
        raise psycopg.errors.UndefinedColumn("postgresql://user:secret@host")

    log = structlog.wrap_logger(None, wrapper_class=structlog.BoundLogger)  # Of every level.
    monkeypatch.setattr(installation_report, "_log", log)
    monkeypatch.setattr(role_findings, "_process_roles", broken)
    with capture_logs() as logs:
        some, again = examine(), examine()

    assert [each.name for each in some.checks] == [each.name for each in again.checks] == whole
    [failed] = [each for each in some.checks if "the check failed" in each.detail]
    assert (failed.name, failed.state) == ("process roles", "fail")
    assert "UndefinedColumn" in failed.detail
    assert "secret" not in failed.detail
    assert some.workers is not None
    assert [(each["event"], each["check"]) for each in logs] == [("check failed", "process roles")]


def test_a_server_that_falls_silent_in_a_check_is_away(
    app_database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation_report, "_REPLY_LIMIT_S", 0.2)

    def silent(connection: psycopg.Connection[Any]) -> Finding:
        connection.execute("SELECT pg_sleep(60)")
        raise AssertionError

    monkeypatch.setattr(role_findings, "_process_roles", silent)

    found = examiner(as_role(app_database_url, Role.API), redis_url, SECRET_KEY)()

    states = {each.name: each.state for each in found.checks}
    assert states["fsync"] in {"ok", "fail"}  # What was found before.
    assert states["PostgreSQL"] == "fail"
    assert "process roles" not in states
    assert "Redis" in states
    assert found.workers is None


def test_a_server_that_is_slow_gets_a_time_for_all_checks(
    app_database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation_report, "_DATABASE_LIMIT_S", 2.0)

    def slow(connection: psycopg.Connection[Any]) -> Finding:
        for _ in range(100):
            connection.execute("SELECT pg_sleep(0.05)")
        raise AssertionError

    monkeypatch.setattr(role_findings, "_process_roles", slow)

    found = examiner(as_role(app_database_url, Role.API), redis_url, SECRET_KEY)()

    states = {each.name: each.state for each in found.checks}
    assert states["examination"] == "warn"
    assert not {"process roles", "append-only", "PostgreSQL"} & set(states)
    assert states["Redis"] == "ok"
    assert found.workers is not None


def test_a_redis_that_is_silent_is_waited_for_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"

        findings = list(redis_findings.examine(url, reply_limit_s=0.1))

        silent.settimeout(0)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()
    assert [(each.name, each.state) for each in findings] == [("Redis", "fail")]


def test_the_id_of_a_worker_says_its_process_and_its_beginning() -> None:
    named = WorkerId.parse(new_worker_id())

    assert named is not None
    assert abs((datetime.now(UTC) - named.began_at).total_seconds()) < limit_s()
    assert [WorkerId.parse(text) for text in ("slow", "0123456789ab.1", "x.1.1")] == [None] * 3


def test_parts_of_a_worker_are_one_worker() -> None:
    at = datetime(2026, 1, 31, tzinfo=UTC)
    rows = [
        ("cardledger watch 0123456789ab.7.1769817600", at),
        ("cardledger webhooks 0123456789ab.7.1769817600", None),
        ("cardledger watch slow", None),
        ("cardledger webhooks watch sender", at),
        ("cardledger webhooks sender", None),
    ]

    first, sender, second = running_workers.named(rows)

    assert (first.pid, first.began_at, first.last_statement_at) == (7, at, at)
    assert (first.decides_events, first.sends_webhooks) == (True, True)
    assert (sender.decides_events, sender.sends_webhooks) == (False, True)
    assert (second.id, second.pid, second.sends_webhooks) == ("slow", None, False)


def test_what_a_login_may_not_see_is_not_called_right() -> None:
    def check() -> Finding:
        raise psycopg.errors.InsufficientPrivilege("permission denied for table platforms")

    finding = database_findings.shown("secret key", check)

    assert (finding.state, finding.detail) == (UNKNOWN, "not shown to this login")
