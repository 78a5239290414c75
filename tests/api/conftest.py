from collections.abc import Iterator

import pytest

from cardledger.api.app import ApiConfig
from tests import fence
from tests.api.support import SECRET_KEY, Api, new_tenant, server, worker
from tests.waiting import limit_s


@pytest.fixture(scope="session", autouse=True)
def fenced() -> None:
    """Let the server, which tests webhook endpoints, look up no name of anybody else's."""
    fence.install()


@pytest.fixture(scope="module")
def api_config(app_database_url: str, redis_url: str) -> ApiConfig:
    return ApiConfig(
        database_url=app_database_url,
        redis_url=redis_url,
        secret_key=SECRET_KEY,
        reply_timeout_s=limit_s(10),
        sandbox_delay_s=0.2,
    )


@pytest.fixture(scope="module")
def root(api_config: ApiConfig) -> Iterator[str]:
    """The URL of a server and of a worker behind it."""
    with worker(api_config.database_url, api_config.redis_url), server(api_config) as url:
        yield url


@pytest.fixture(scope="module")
def api(root: str, api_config: ApiConfig) -> Iterator[Api]:
    """The interface as seen by a platform of this module."""
    with Api(root, new_tenant(api_config.database_url)) as client:
        yield client


@pytest.fixture(scope="module")
def other_platform(root: str, api_config: ApiConfig) -> Iterator[Api]:
    """The interface as seen by another platform in the same database."""
    with Api(root, new_tenant(api_config.database_url)) as client:
        yield client
