"""The configuration of uvicorn, for the API process and for tests."""

from typing import Final

import uvicorn
from starlette.types import ASGIApp

from cardledger.api.addresses import with_mapped
from cardledger.api.connections.limits import ConnectionLimits
from cardledger.api.connections.protocol import bounded

_STOP_S: Final = 10  # For requests in flight; their events stay accepted in any case.


def server_config(
    app: ASGIApp, limits: ConnectionLimits, *, host: str, port: int, has_access_log: bool = False
) -> uvicorn.Config:
    """Return the configuration of one server of `app`, whose connections are within `limits`."""
    return uvicorn.Config(
        app,
        http=bounded(limits),
        host=host,
        port=port,
        backlog=limits.backlog,
        timeout_keep_alive=limits.keep_alive_s,
        # Given also when empty: uvicorn's own default believes every program on this machine.
        proxy_headers=bool(limits.proxies),
        forwarded_allow_ips=with_mapped(limits.proxies),
        log_config=None,  # See cardledger.config.logs.
        access_log=has_access_log,
        lifespan="on",
        ws="none",  # An upgrade request gets the response of the request without the upgrade.
        server_header=False,
        timeout_graceful_shutdown=_STOP_S,
    )
