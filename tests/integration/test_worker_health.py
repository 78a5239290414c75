"""The check of a worker turns red when the worker cannot work, and green when it can again."""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from cardledger.embedded.servers import DatabaseUrl
from cardledger.install import databases
from cardledger.ledger.messaging import canaries, inbox
from cardledger.ledger.messaging.inbox import SHARDS, Lane
from cardledger.workers.process import health_file
from cardledger.workers.process.config import WorkerConfig
from cardledger.workers.process.health import role_name
from cardledger.workers.process.main import WorkerProcess
from cardledger.workers.signals.best_effort_redis import BestEffort
from cardledger.workers.signals.roles import WorkerRole
from tests.api.support import closed_port
from tests.proxy import proxy_to, through
from tests.side_by_side import Scenario, side_by_side
from tests.waiting import LIMIT_S, eventually, limit_s
from tests.worker_process import worker_process
from tests.world import INBOX_KEY, SECRET_KEY, open_world


@pytest.fixture
def config(app_database_url: DatabaseUrl, redis_url: str, tmp_path: Path) -> WorkerConfig:
    return WorkerConfig(
        database_url=app_database_url,
        redis_url=redis_url,
        secret_key=SECRET_KEY,
        threads=4,
        health_dir=tmp_path,
    )


def problems(config: WorkerConfig, *, of_worker_only: bool = False) -> list[str]:
    assert config.health_dir is not None
    role = role_name(config.role)
    return health_file.problems(config.health_dir, role, of_worker_only=of_worker_only)


@pytest.mark.parametrize("role", [None, *WorkerRole])
def test_a_worker_of_every_role_is_healthy_until_it_stops(
    config: WorkerConfig, role: WorkerRole | None
) -> None:
    config = replace(config, role=role)

    with worker_process(config):
        eventually(lambda: not problems(config))

    assert problems(config)


def test_a_worker_without_postgresql_is_found_and_one_without_redis_is_healthy(
    config: WorkerConfig,
) -> None:
    away = replace(config, database_url=f"postgresql://ada@127.0.0.1:{closed_port()}/nothing")
    with worker_process(away):
        eventually(lambda: "database unavailable" in "".join(problems(away)), timeout_s=10)

    no_redis = replace(config, redis_url=f"redis://127.0.0.1:{closed_port()}")
    with worker_process(no_redis):
        eventually(lambda: not problems(no_redis))


def test_a_stalled_queue_is_found_and_no_reason_to_restart_the_worker(
    config: WorkerConfig, database_url: DatabaseUrl, app_database_url: DatabaseUrl
) -> None:
    with open_world(database_url, app_database_url) as world:
        config = replace(config, database_url=world.worker_url, role=WorkerRole.EVENTS)
        role = sql.Identifier(databases.role_of(world.worker_url))
        platform = world.platform()
        cardholders = [world.cardholder(platform) for _ in range(3 * SHARDS)]
        with worker_process(config):
            eventually(lambda: not problems(config))
            world.connection.execute(sql.SQL("REVOKE INSERT ON outcomes FROM {}").format(role))
            world.accept([(holder, world.deposit(holder, 1)) for holder in cardholders])
            eventually(lambda: "queues are stalled" in "".join(problems(config)), timeout_s=5)
            of_worker = problems(config, of_worker_only=True)
            world.connection.execute(sql.SQL("GRANT INSERT ON outcomes TO {}").format(role))
            eventually(lambda: not problems(config) and not world.count("inbox"))

    assert of_worker == []


def test_a_worker_that_can_send_no_reply_is_found(config: WorkerConfig) -> None:
    config = replace(config, role=WorkerRole.EVENTS)
    process = WorkerProcess(config)
    process.start()
    try:
        eventually(lambda: not problems(config))
        [sender] = [each for each in process._components if isinstance(each, BestEffort)]
        sender.stop()
        eventually(lambda: "replies and doorbells has ended" in "".join(problems(config)))
    finally:
        process.stop(limit_s())


# --- what is found after some seconds ------------------------------------------------------------


def frozen(config: WorkerConfig) -> None:
    with worker_process(config) as pid:
        eventually(lambda: not problems(config))
        os.kill(pid, signal.SIGSTOP)
        try:
            eventually(lambda: "frozen" in "".join(problems(config)), timeout_s=5)
        finally:
            os.kill(pid, signal.SIGCONT)
        eventually(lambda: not problems(config))


def on_a_silent_postgresql(config: WorkerConfig) -> None:
    url = DatabaseUrl(config.database_url)
    with proxy_to(url) as proxy:
        silenced = replace(config, database_url=through(url, proxy))
        with worker_process(silenced):
            eventually(lambda: not problems(silenced))
            proxy.freeze()
            eventually(lambda: bool(problems(silenced)), timeout_s=6)
            held = proxy.held_chunks
            proxy.thaw()
            eventually(lambda: not problems(silenced))

    assert held > 0


def on_a_locked_table(config: WorkerConfig) -> None:
    with worker_process(config), psycopg.connect(config.database_url) as outsider:
        eventually(lambda: not problems(config))
        outsider.execute("LOCK TABLE inbox")
        eventually(lambda: bool(problems(config)), timeout_s=6)
        outsider.rollback()
        eventually(lambda: not problems(config))


def on_a_locked_queue(config: WorkerConfig) -> None:
    at = datetime.now(UTC)
    with worker_process(config), psycopg.connect(config.database_url) as outsider:
        eventually(lambda: not problems(config))
        outsider.execute("SELECT FROM inbox_shards WHERE (lane, shard) = (0, 3) FOR UPDATE")
        with psycopg.connect(config.database_url) as acceptor:
            inbox.accept(acceptor, [canaries.canary((Lane.LIVE, 3), at)], INBOX_KEY)
        eventually(lambda: "in queues live/3" in "".join(problems(config)), timeout_s=5)
        of_worker = problems(config, of_worker_only=True)
        outsider.rollback()
        eventually(lambda: not problems(config))

    assert of_worker == []


SCENARIOS = (frozen, on_a_silent_postgresql, on_a_locked_table, on_a_locked_queue)


@pytest.fixture(scope="module")
def running(
    postgres_url: DatabaseUrl,
    template_database: DatabaseUrl,
    redis_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, Future[None]]]:
    def scenario(work: Callable[[WorkerConfig], None]) -> Scenario:
        directory = tmp_path_factory.mktemp(work.__name__)

        @wraps(work)
        def run(url: DatabaseUrl) -> None:
            work(
                WorkerConfig(
                    database_url=url,
                    redis_url=redis_url,
                    secret_key=SECRET_KEY,
                    threads=4,
                    health_dir=directory,
                )
            )

        return run

    scenarios = [scenario(work) for work in SCENARIOS]
    with side_by_side(scenarios, postgres_url, template_database) as started:
        yield started


@pytest.mark.parametrize("scenario", [work.__name__ for work in SCENARIOS])
def test_a_worker_that_cannot_work_is_found_and_its_recovery_too(
    running: dict[str, Future[None]], scenario: str
) -> None:
    running[scenario].result(limit_s(2 * LIMIT_S))
