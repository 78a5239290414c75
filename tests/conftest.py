"""Fixtures of all tests: a PostgreSQL server, a Redis, a database for each module.

Servers start with the first test that needs them, one PostgreSQL and one Redis per xdist worker.
Measured on two cores, two workers are at their first query after 1.1-1.4 s with a server each and
after 1.0-1.5 s with a shared one. So sharing saves nothing, while a server per worker is started
only where it is needed. They are children under a watchdog, so nothing is left behind
after Ctrl-C, a crash or a kill -9 of the worker.
"""

import functools
import gc
import logging
import os
import shutil
from collections.abc import Iterator, MutableMapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpcore2
import psycopg
import pytest
import structlog
from alembic.script import ScriptDirectory
from hypothesis import HealthCheck, settings
from psycopg import sql
from redis import Redis

from cardledger.config import gc_tuning
from cardledger.embedded import directories
from cardledger.embedded.servers import DatabaseUrl, find_postgres, find_redis
from cardledger.schema import migrate, roles
from cardledger.schema.roles import Role
from tests import memory
from tests.databases import PASSWORD, OwnRoles, fresh_database


def _only_failed_requests(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Leave an exception that became a 500, which a test cannot explain without its traceback."""
    if event["event"] != "request failed":
        raise structlog.DropEvent
    return event


# Failures are provoked here by the hundred; structlog would print each with all its locals.
structlog.configure(
    wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
    processors=[
        _only_failed_requests,
        structlog.processors.format_exc_info,
        structlog.processors.KeyValueRenderer(),
    ],
)

gc_tuning.relax()  # As in the processes of the system.


# How many examples Hypothesis tries: HYPOTHESIS_PROFILE=nightly many (NIGHTLY_EXAMPLES), brief few.
_PATIENT = (HealthCheck.too_slow, HealthCheck.data_too_large)
settings.register_profile(
    "ci", max_examples=100, deadline=None, print_blob=True, suppress_health_check=_PATIENT
)
settings.register_profile("brief", parent=settings.get_profile("ci"), max_examples=50)
settings.register_profile(
    "nightly",
    parent=settings.get_profile("ci"),
    max_examples=int(os.environ.get("NIGHTLY_EXAMPLES", "10000")),
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


# The longest first: the shortest then fill what is left of the time of each xdist worker.
_FOLDERS: Final = ("packaging", "system", "schedules", "integration", "api", "core")

memory.use()  # In the process that starts xdist's workers, and so in them.


# A fixture with `request` may ask for a server by name.
_SERVER_FIXTURES: Final = frozenset({"postgres_url", "redis_url", "request"})


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the tests of the browser, and the packages that they import, unless asked for.

    Chromium and Playwright are on few machines.
    """
    is_of_browser = collection_path == Path(__file__).parent / "console" / "browser"
    return True if is_of_browser and "browser" not in config.option.markexpr else None


@pytest.hookimpl(tryfirst=True)  # `-m` selects by the marker.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests by folder, and mark those that use servers."""
    for item in items:
        if not _SERVER_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.servers)
    root = Path(__file__).parent
    places = {folder: place for place, folder in enumerate(_FOLDERS)}
    items.sort(key=lambda item: places.get(item.path.relative_to(root).parts[0], len(places)))


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """Undo what a test, or a command that it calls, configures of the logs of this process."""
    root = logging.getLogger()
    configured, handlers, level = structlog.get_config(), root.handlers[:], root.level
    yield
    structlog.configure(**configured)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(scope="module", autouse=True)
def leaks_show_here() -> Iterator[None]:
    """Have what a module has not closed found in it, and not in the test that runs much later.

    What has survived is not looked at again, which would take half a second for each module.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def certificates_once() -> Iterator[None]:
    """Read the machine's certificates once, and not for each of thousands of HTTP clients.

    That takes 22 ms of processor time, a third of what some modules of tests of the API took.
    """
    with pytest.MonkeyPatch.context() as patch:
        once = functools.cache(httpcore2.default_ssl_context)
        patch.setattr(httpcore2, "default_ssl_context", once)
        yield


@pytest.fixture(scope="session", autouse=True)
def revisions_once() -> Iterator[None]:
    """Execute the modules of the revisions once, and not for each of a hundred migrations.

    That takes a third of the processor time of a migration, beside PostgreSQL's.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", lambda _config: migrate.revisions())
        yield


@pytest.fixture(scope="session")
def servers_dir() -> Iterator[Path]:
    """The data directory of this worker's servers; short, because sockets live there."""
    directory = directories.temporary("cardledger-tests-")
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def passable_dir() -> Iterator[Path]:
    """A directory for an embedded PostgreSQL; as root it runs as an account that tmp_path stops."""
    directory = directories.temporary("cardledger-test-")
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_url(servers_dir: Path) -> Iterator[DatabaseUrl]:
    """The superuser's URL of a PostgreSQL server: DATABASE_URL, else an embedded one."""
    server = find_postgres(os.environ.get("DATABASE_URL"), servers_dir)
    server.start()
    yield server.url
    server.stop()


@pytest.fixture(scope="session")
def redis_url(servers_dir: Path, worker_number: int) -> Iterator[str]:
    """An empty Redis database of this worker alone: REDIS_URL, else a server of its own.

    With REDIS_URL the databases counted down from its own number are EMPTIED before and after.
    """
    server = find_redis(_numbered(os.environ.get("REDIS_URL"), worker_number), servers_dir)
    server.start()
    with Redis.from_url(server.url) as client:
        client.flushdb()
        yield server.url
        client.flushdb()
    server.stop()


@pytest.fixture(scope="session")
def worker_number() -> int:
    """This xdist worker's number, 0 without xdist."""
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


def _numbered(url: str | None, worker: int) -> str | None:
    if not url:
        return None
    parts = urlsplit(url)
    number = int(parts.path.removeprefix("/") or 0) - worker
    if number < 0:
        message = f"{worker + 1} test workers need REDIS_URL to name a database from {worker} up"
        raise pytest.UsageError(message)
    return parts._replace(path=f"/{number}").geturl()


# --- migrated databases ----------------------------------------------------------------------


@pytest.fixture(scope="session")
def template_database(postgres_url: DatabaseUrl) -> Iterator[DatabaseUrl]:
    """A migrated, empty database that others are copied from; it has no sessions."""
    with fresh_database(postgres_url) as url:
        migrate.upgrade(url)
        # Roles belong to the server: copies of this database are entered with this one's roles.
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            for role in Role:
                name = sql.Identifier(roles.name_in(url, role))
                connection.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(name, PASSWORD))
        yield url
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for role_name in roles.names_in(url):
            connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(role_name)))


@pytest.fixture(scope="session")
def own_roles(postgres_url: DatabaseUrl) -> Iterator[OwnRoles]:
    """Migrated, empty databases whose roles are named after them, as those of `up` are."""
    with closing(OwnRoles(postgres_url)) as made:
        yield made


@pytest.fixture(scope="module")
def database_url(
    postgres_url: DatabaseUrl, template_database: DatabaseUrl
) -> Iterator[DatabaseUrl]:
    """The owner's URL of a migrated, empty database of this test module alone."""
    with fresh_database(postgres_url, template=template_database.database) as url:
        yield url


@pytest.fixture(scope="module")
def app_database_url(database_url: DatabaseUrl, template_database: DatabaseUrl) -> DatabaseUrl:
    """The same database for the role that the operator's commands use."""
    return database_url.with_user(migrate.app_role(template_database), PASSWORD)
