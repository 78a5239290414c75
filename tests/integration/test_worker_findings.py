"""What `cardledger doctor` says about workers, and about sessions that lock their queues."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Any, Final

import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.install import worker_findings
from cardledger.install.findings import CONNECTION_NAME, FAIL, OK, UNKNOWN, WARN, Finding
from cardledger.schema import connections
from cardledger.schema.roles import Role
from cardledger.workers.process.config import WorkerConfig
from cardledger.workers.signals.roles import WorkerRole
from tests.databases import as_role
from tests.shared_world import cardholder, world
from tests.waiting import eventually, limit_s
from tests.worker_process import worker_process
from tests.world import SECRET_KEY, Cardholder, World

__all__ = ["cardholder", "world"]  # Fixtures.

HELD_S: Final = 0.3
LOCK: Final = "SELECT FROM inbox_shards WHERE (lane, shard) = (0, 3) FOR UPDATE"


def connected(url: str, *, is_running: bool = False, name: str = CONNECTION_NAME) -> Finding:
    with connections.connect(url, autocommit=True, application_name=name) as connection:
        return worker_findings.connected(connection, is_running=is_running)


# --- whether a worker decides --------------------------------------------------------------------


def test_a_worker_that_is_missing_is_an_error_where_a_system_runs_or_a_message_waits(
    world: World, cardholder: Cardholder, database_url: DatabaseUrl
) -> None:
    before_the_start = connected(database_url)
    of_a_system = connected(database_url, is_running=True)
    world.accept([(cardholder, world.deposit(cardholder, 1))])
    waiting = connected(database_url)
    not_shown = connected(as_role(world.app_url, Role.SUBMIT))
    world.drain(world.engine())
    decided = connected(database_url)

    assert before_the_start.state == WARN
    assert before_the_start.detail == "no worker for events is connected to PostgreSQL"
    assert "cardledger worker --only events" in str(before_the_start.fix)
    assert of_a_system.state == waiting.state == FAIL
    assert "the oldest message has waited since" in waiting.detail
    assert (not_shown, decided) == (before_the_start, before_the_start)


def test_a_worker_that_is_connected_is_found_by_every_login(
    app_database_url: DatabaseUrl, database_url: DatabaseUrl, redis_url: str
) -> None:
    logins = [database_url, *(as_role(app_database_url, role) for role in Role)]
    config = WorkerConfig(
        database_url=as_role(app_database_url, Role.WORKER),
        redis_url=redis_url,
        secret_key=SECRET_KEY,
        role=WorkerRole.EVENTS,
        threads=4,
    )

    with worker_process(config):
        eventually(lambda: connected(database_url, is_running=True).state == OK)
        found = [connected(url, is_running=True) for url in logins if url.role]

    assert {finding.state for finding in found} == {OK}
    assert found[0].detail == "1 for events and 0 for webhooks connected to PostgreSQL"


def test_where_names_of_connections_are_replaced_nothing_is_said_of_workers(
    database_url: DatabaseUrl,
) -> None:
    finding = connected(database_url, is_running=True, name="a pooler")

    assert (finding.state, finding.fix) == (UNKNOWN, None)


# --- whose locks stop it -------------------------------------------------------------------------


@pytest.fixture
def holds_are_long_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_findings, "_HELD_S", HELD_S)


def locks(url: str) -> Finding:
    with connections.connect(url, autocommit=True) as connection:
        return worker_findings.locks(connection)


@contextmanager
def holder(url: str, statement: str = LOCK) -> Iterator[psycopg.Connection[Any]]:
    """Yield a session that has executed `statement` in a database transaction."""
    with connections.connect(url, application_name="a report of Ada's") as session:
        session.execute(statement.encode())
        yield session


@pytest.mark.usefixtures("holds_are_long_early")
def test_the_session_that_keeps_a_queue_locked_is_named_with_its_age(
    database_url: DatabaseUrl,
) -> None:
    with holder(database_url) as session:
        pid, user = session.info.backend_pid, session.info.user
        finding = eventually(lambda: found if (found := locks(database_url)).fix else None)
    after = locks(database_url)

    assert finding.state == FAIL
    assert f"session {pid} of {user} (a report of Ada's) for " in finding.detail
    assert finding.fix == f"psql -c 'SELECT pg_terminate_backend({pid})'"
    assert after.state == OK


@pytest.mark.usefixtures("holds_are_long_early")
def test_a_login_that_may_not_read_the_age_of_a_session_finds_it_all_the_same(
    database_url: DatabaseUrl, app_database_url: DatabaseUrl
) -> None:
    with holder(database_url) as session:
        pid, user = session.info.backend_pid, session.info.user
        finding = locks(as_role(app_database_url, Role.API))

    assert finding.state == FAIL
    assert f"session {pid} of {user} (a report of Ada's) for more than " in finding.detail


def test_locks_that_are_released_in_time_are_no_finding(
    database_url: DatabaseUrl, app_database_url: DatabaseUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_findings, "_HELD_S", limit_s())
    with holder(database_url) as session:
        by_the_owner = locks(database_url)
        release = Timer(HELD_S, session.rollback)
        release.start()
        by_the_api = locks(as_role(app_database_url, Role.API))
        release.join()

    assert (by_the_owner.state, by_the_api.state) == (OK, OK)


@pytest.mark.usefixtures("holds_are_long_early")
@pytest.mark.parametrize("statement", ["SELECT FROM inbox_shards", "SELECT FROM inbox FOR UPDATE"])
def test_a_session_that_locks_no_queue_is_no_finding(
    database_url: DatabaseUrl, app_database_url: DatabaseUrl, statement: str
) -> None:
    with holder(database_url, statement):
        finding = locks(as_role(app_database_url, Role.API))

    assert (finding.state, finding.fix) == (OK, None)


@pytest.mark.usefixtures("holds_are_long_early")
def test_of_several_sessions_the_first_are_named(database_url: DatabaseUrl) -> None:
    statements = [LOCK.replace("3)", f"{shard})") for shard in range(4)]
    with (
        holder(database_url, statements[0]),
        holder(database_url, statements[1]),
        holder(database_url, statements[2]),
        holder(database_url, statements[3]) as last,
    ):
        pid = last.info.backend_pid
        finding = eventually(
            lambda: found if "1 more" in (found := locks(database_url)).detail else None
        )

    assert finding.detail.endswith("; and 1 more")
    assert f"({pid})" not in str(finding.fix)
