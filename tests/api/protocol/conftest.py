import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

from cardledger.api.app import ApiConfig
from cardledger.api.connections.limits import ConnectionLimits
from tests.api.protocol.support import PATIENCE_S
from tests.api.support import Tenant, new_tenant, server


@pytest.fixture(scope="module")
def tenant(api_config: ApiConfig) -> Tenant:
    return new_tenant(api_config.database_url)


@pytest.fixture(scope="module")
def impatient(api_config: ApiConfig) -> Iterator[str]:
    """A server that waits less long than ours do."""
    limits = ConnectionLimits(
        head_timeout_s=PATIENCE_S,
        body_timeout_s=PATIENCE_S,
        stall_timeout_s=PATIENCE_S / 2,
        keep_alive_s=math.ceil(2 * PATIENCE_S),
    )
    with server(replace(api_config, body_timeout_s=PATIENCE_S), limits=limits) as url:
        yield url
