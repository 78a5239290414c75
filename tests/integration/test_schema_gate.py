"""A worker on a schema that its release cannot use waits, says so, and decides nothing."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
import structlog
from structlog.testing import capture_logs

from cardledger.embedded.servers import DatabaseUrl
from cardledger.schema import migrate
from cardledger.workers.process import health_file
from cardledger.workers.process.health import role_name
from cardledger.workers.process.schema_gate import SchemaGate
from tests.integration.workers import config_of
from tests.waiting import eventually, limit_s
from tests.worker_process import worker_process
from tests.world import World, open_world


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


def declare(world: World, revision: str, oldest_head: str) -> None:
    world.connection.execute("UPDATE alembic_version SET version_num = %s", [revision])
    world.connection.execute("UPDATE schema_compatibility SET oldest_head = %s", [oldest_head])


@pytest.mark.parametrize(
    ("revision", "oldest_head", "problem"),
    [
        ("0011", "0011", "run `cardledger migrate`"),
        ("9999", "9999", "deploy the release that belongs to it"),
    ],
)
def test_a_worker_waits_for_a_schema_that_it_can_use(
    world: World, revision: str, oldest_head: str, problem: str
) -> None:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.stdlib.BoundLogger)
    declare(world, revision, oldest_head)
    try:
        with capture_logs() as logs, ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(SchemaGate(world.app_url).wait, Event())
            eventually(lambda: logs)
            was_done = waiting.done()
            declare(world, migrate.head(), migrate.head())
            usable = waiting.result(limit_s())
    finally:
        declare(world, migrate.head(), migrate.head())
        structlog.configure(**before)

    assert (was_done, usable) == (False, True)
    [line] = logs
    assert line["problem"].endswith(problem)


class AfterOneLook:
    """Stops a gate that would look at the schema again."""

    def __init__(self) -> None:
        self.looks = 0

    def wait(self, _timeout: float, /) -> bool:
        self.looks += 1
        return self.looks > 1


def test_a_newer_schema_that_says_so_can_be_used(world: World) -> None:
    declare(world, "9999", migrate.head())

    try:
        assert SchemaGate(world.app_url).wait(AfterOneLook())
    finally:
        declare(world, migrate.head(), migrate.head())


def test_a_worker_that_is_stopped_while_it_waits_ends(world: World) -> None:
    stopping = Event()
    stopping.set()

    assert not SchemaGate(world.app_url).wait(stopping)


def test_a_worker_process_decides_once_the_schema_has_been_migrated(
    world: World, redis_url: str, tmp_path: Path
) -> None:
    cardholder = world.cardholder(world.platform(), 1000)
    declare(world, "0011", "0011")
    world.accept([(cardholder, world.clearing(cardholder, "T1", 400))])

    with worker_process(config_of(world, redis_url, health_dir=tmp_path)):
        eventually(lambda: "run `cardledger migrate`" in problems(tmp_path))
        undecided = world.count_waiting()
        declare(world, migrate.head(), migrate.head())
        eventually(lambda: world.count("inbox") == 0)

    assert undecided == 1
    assert world.balance(cardholder) == 600


def problems(health_dir: Path) -> str:
    """Return what the worker of every role reports there."""
    return "".join(health_file.problems(health_dir, role_name(None)))
