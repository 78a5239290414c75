"""The application: routes, errors and what lives as long as the process."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Final

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from api import (
    BASE_PATH,
    cards,
    config,
    customers,
    embed,
    errors,
    external_accounts,
    health,
    internal_accounts,
    simulators,
    tokens,
    transactions,
)
from api.authentication import Authenticator
from api.context import Services
from api.middleware import Edge, hide_tokens_in_access_log
from api.once import Flights
from api.routing import SANDBOX
from ledger.database import async_engine
from ledger.secrets import KeyRing
from schema import migrate
from workers.client import Client

_CONNECTIONS: Final = 20
_MORE_CONNECTIONS: Final = 20
_WAIT_FOR_CONNECTION_S: Final = 5.0

# The lists of accounts first: their paths would otherwise be read as a customer's id.
_ROUTERS: Final[tuple[APIRouter, ...]] = (
    config.reads,
    config.writes,
    internal_accounts.reads,
    internal_accounts.sandbox,
    external_accounts.reads,
    external_accounts.writes,
    customers.reads,
    customers.writes,
    cards.reads,
    cards.writes,
    simulators.sandbox,
    transactions.reads,
    tokens.reads,
    tokens.writes,
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
        # Their pages load scripts from elsewhere; blank without a network.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=_operation_id,
    )
    app.include_router(health.router)
    app.include_router(embed.router)
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
    try:
        async with client:
            yield Services(
                writer=engine,
                reader=reader,
                client=client,
                flights=Flights(),
                keys=keys,
                authenticator=Authenticator(reader, keys),
                clock=clock,
                reply_timeout=timedelta(seconds=config.reply_timeout_s),
                is_sandbox=config.sandbox,
                sandbox_delay=timedelta(seconds=config.sandbox_delay_s),
                schema_head=migrate.head(),
            )
    finally:
        await engine.dispose()


def _operation_id(route: APIRoute) -> str:
    """Return `createCard` for `create_card`: names that generated clients can use as they are."""
    first, *rest = route.name.split("_")
    return first + "".join(word.capitalize() for word in rest)
