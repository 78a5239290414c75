from collections.abc import Iterator

import pytest

from cardledger.api.app import ApiConfig
from cardledger.schema.roles import Role
from tests import connection_guard, fence
from tests.api.support import SECRET_KEY, TIMEOUT_S, Api, new_tenant, server, worker
from tests.databases import as_role
from tests.waiting import limit_s


@pytest.fixture(scope="session", autouse=True)
def fenced() -> None:
    """Keep the server from resolving host names outside this machine."""
    fence.install()


@pytest.fixture(autouse=True)
def connections_are_held_for_the_database_only() -> Iterator[None]:
    """Fail the test if a request has waited for anything else while it held one."""
    yield
    found = connection_guard.violations()
    assert not found, "\n".join(found)


@pytest.fixture(scope="module")
def api_config(app_database_url: str, redis_url: str) -> ApiConfig:
    return ApiConfig(
        database_url=as_role(app_database_url, Role.API),
        redis_url=redis_url,
        secret_key=SECRET_KEY,
        reply_timeout_s=limit_s(5),
        sandbox_delay_s=0.2,
        slot_wait_s=TIMEOUT_S,  # Not refused on a slow machine, where one waits for many.
    )


@pytest.fixture(scope="module")
def root(api_config: ApiConfig) -> Iterator[str]:
    """The root URL of an API server with a worker."""
    with worker(api_config.database_url, api_config.redis_url), server(api_config) as url:
        yield url


@pytest.fixture(scope="module")
def api(root: str, api_config: ApiConfig) -> Iterator[Api]:
    """A client with the credentials of this module's platform."""
    with Api(root, new_tenant(api_config.database_url)) as client:
        yield client


@pytest.fixture(scope="module")
def other_platform(root: str, api_config: ApiConfig) -> Iterator[Api]:
    """A client with the credentials of another platform in the same database."""
    with Api(root, new_tenant(api_config.database_url)) as client:
        yield client
