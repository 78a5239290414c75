"""A system with a console, its database and its worker; for browsers, see `browser.py`."""

from collections.abc import Iterator

import pytest

from cardledger.api.app import ApiConfig
from cardledger.api.console.mode import ConsoleConfig, ConsoleMode
from cardledger.install.installation_report import examiner
from cardledger.schema.roles import Role
from tests import connection_guard
from tests.api.support import SECRET_KEY, TIMEOUT_S, Api, new_tenant, server, worker
from tests.console.person import Person
from tests.databases import as_role
from tests.waiting import limit_s


@pytest.fixture(autouse=True)
def connections_are_held_for_the_database_only() -> Iterator[None]:
    """Fail the test if a page has waited for anything else while it held a connection."""
    yield
    found = connection_guard.violations()
    assert not found, "\n".join(found)


@pytest.fixture(scope="module")
def config(app_database_url: str, redis_url: str) -> ApiConfig:
    return ApiConfig(
        database_url=as_role(app_database_url, Role.API),
        redis_url=redis_url,
        secret_key=SECRET_KEY,
        reply_timeout_s=limit_s(5),
        sandbox_delay_s=0.2,
        slot_wait_s=TIMEOUT_S,
        failure_limit="1000/minute",
        console=ConsoleConfig(mode=ConsoleMode.ACT),
    )


@pytest.fixture(scope="module")
def root(config: ApiConfig) -> Iterator[str]:
    """The root URL of a server with a console, as the supervisor starts it, and a worker."""
    examine = examiner(config.database_url, config.redis_url, config.secret_key)
    with (
        worker(config.database_url, config.redis_url),
        server(config, examine=examine) as url,
    ):
        yield url


@pytest.fixture(scope="module")
def api(root: str, config: ApiConfig) -> Iterator[Api]:
    """A client of the API with the credentials of this module's platform."""
    with Api(root, new_tenant(config.database_url)) as client:
        yield client


@pytest.fixture(scope="module")
def other_platform(root: str, config: ApiConfig) -> Iterator[Api]:
    """A client of another platform in the same database."""
    with Api(root, new_tenant(config.database_url)) as client:
        yield client


@pytest.fixture
def person(root: str, api: Api) -> Iterator[Person]:
    """A person who has logged in with the token of this module's platform."""
    with Person(root) as visitor:
        visitor.log_in(api.tenant)
        yield visitor
