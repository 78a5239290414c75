"""The application: routes, errors and what lives as long as the process."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Final

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from cardledger.api import BASE_PATH
from cardledger.api.http import errors, sliding_window
from cardledger.api.http.authentication import FAILURES, Authenticator
from cardledger.api.http.in_flight import InFlight
from cardledger.api.http.middleware import Edge, hide_tokens_in_access_log
from cardledger.api.http.rate_limits import RateLimits
from cardledger.api.http.request_context import Services
from cardledger.api.http.routing import REQUESTS, SANDBOX
from cardledger.api.openapi import docs_page, not_implemented
from cardledger.api.routes import (
    beneficial_owners,
    card_embed,
    cards,
    customers,
    external_accounts,
    health,
    internal_accounts,
    platform_config,
    simulators,
    tokens,
    transactions,
    verifications,
)
from cardledger.api.routes.agents import actions, device_codes, management, me
from cardledger.api.routes.webhooks import deliveries, endpoints
from cardledger.ledger import sandbox
from cardledger.ledger.ports import NONE_CONNECTED, Adapters
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.secrets import KeyRing
from cardledger.schema import migrate
from cardledger.workers.client import Client

_CONNECTIONS: Final = 20
_MORE_CONNECTIONS: Final = 20
_WAIT_FOR_CONNECTION_S: Final = 5.0

# The lists of accounts come before customers: their paths would otherwise be read as a customer's
# id; and what an agent sees of itself before all agents, because `me` would be read as an id.
_ROUTERS: Final[tuple[APIRouter, ...]] = (
    transactions.reads,
    transactions.decisions,
    platform_config.reads,
    platform_config.writes,
    internal_accounts.reads,
    internal_accounts.writes,
    internal_accounts.sandbox,
    external_accounts.reads,
    external_accounts.writes,
    customers.reads,
    customers.writes,
    beneficial_owners.reads,
    beneficial_owners.writes,
    verifications.reads,
    verifications.writes,
    cards.reads,
    cards.writes,
    tokens.reads,
    tokens.writes,
    me.own,
    me.views,
    me.reads,
    me.writes,
    actions.own,
    actions.views,
    actions.transfers,
    actions.approvals,
    actions.decisions,
    management.reads,
    management.writes,
    device_codes.router,
    endpoints.reads,
    endpoints.writes,
    endpoints.sandbox,
    deliveries.reads,
    deliveries.writes,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiConfig:
    """What the facade needs to know."""

    database_url: str
    redis_url: str
    secret_key: str
    reply_timeout_s: float = 10.0
    sandbox: bool = True
    sandbox_delay_s: float = 30.0
    rate_limit: str = sliding_window.OFF
    failure_limit: str = sliding_window.OFF
    body_timeout_s: float = 30.0


def create_app(
    config: ApiConfig, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> FastAPI:
    """Return the application; nothing is connected to before it starts."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with _services(config, clock) as services:
            app.state.services = services
            yield

    app = FastAPI(
        title="cardledger",
        version=version("cardledger"),
        lifespan=lifespan,
        # Ours say more, and their pages load scripts from elsewhere: see api/openapi/docs_page.py.
        openapi_url=None,
        redirect_slashes=False,
        generate_unique_id_function=_operation_id,
    )
    app.state.is_sandbox = config.sandbox
    if config.sandbox:
        # What is called most comes first, because paths are tried one after the other.
        app.include_router(simulators.sandbox, prefix=BASE_PATH)
    app.include_router(health.router)
    app.include_router(card_embed.router)
    app.include_router(docs_page.router)
    app.router.routes.extend(not_implemented.routes(BASE_PATH, sandbox=config.sandbox))
    app.include_router(endpoints.router)
    for router in _ROUTERS:
        if SANDBOX in router.tags and not config.sandbox:
            continue  # So its paths are not there at all, for nobody.
        app.include_router(router, prefix=BASE_PATH)
    errors.install(app)
    hide_tokens_in_access_log()
    app.add_middleware(Edge)
    return app


@asynccontextmanager
async def _services(config: ApiConfig, clock: Callable[[], datetime]) -> AsyncIterator[Services]:
    engine = async_engine(
        config.database_url,
        keyed=True,
        pool_size=_CONNECTIONS,
        max_overflow=_MORE_CONNECTIONS,
        pool_timeout=_WAIT_FOR_CONNECTION_S,
    )
    reader = engine.execution_options(isolation_level="AUTOCOMMIT")
    keys = KeyRing(config.secret_key)
    client = Client(engine, config.redis_url, reply_timeout_s=config.reply_timeout_s)
    limits = RateLimits(
        {
            REQUESTS: sliding_window.parse(config.rate_limit),
            FAILURES: sliding_window.parse(config.failure_limit),
        },
        config.redis_url,
    )
    try:
        async with client, limits:
            yield Services(
                writer=engine,
                reader=reader,
                client=client,
                in_flight=InFlight(),
                keys=keys,
                authenticator=Authenticator(reader, keys, limits),
                limits=limits,
                clock=clock,
                reply_timeout=timedelta(seconds=config.reply_timeout_s),
                body_timeout_s=config.body_timeout_s,
                adapters=_adapters(config, keys),
                allow_loopback=config.sandbox,
                schema_head=migrate.head(),
            )
    finally:
        await engine.dispose()


def _adapters(config: ApiConfig, keys: KeyRing) -> Adapters:
    if not config.sandbox:
        return NONE_CONNECTED
    return sandbox.adapters(keys, delay=timedelta(seconds=config.sandbox_delay_s))


def _operation_id(route: APIRoute) -> str:
    """Return `createCard` for `create_card`: names that generated clients can use as they are."""
    first, *rest = route.name.split("_")
    return first + "".join(word.capitalize() for word in rest)
