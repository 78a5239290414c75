"""The application: routes, error handlers, and the services of the process."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.metadata import version
from inspect import signature
from itertools import chain
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from starlette.routing import BaseRoute

from cardledger.api import BASE_PATH
from cardledger.api.background.customer_uploads import CustomerUploads
from cardledger.api.background.upkeep import Upkeep
from cardledger.api.console import application as console
from cardledger.api.console import services as console_services
from cardledger.api.console import shown_settings, too_slow
from cardledger.api.console.html.headers import ConsoleHeaders
from cardledger.api.console.mode import OFF as CONSOLE_OFF
from cardledger.api.console.mode import ConsoleConfig, ConsoleMode
from cardledger.api.exchange_offers import ExchangeOffers
from cardledger.api.fair_slots import DEFAULT_LIMIT, DEFAULT_WAIT_S, FairSlots
from cardledger.api.health.examination import Examine
from cardledger.api.health.readiness import Readiness
from cardledger.api.http import errors, sliding_window
from cardledger.api.http.authentication import AGENT_REQUESTS, FAILURES, Authenticator
from cardledger.api.http.code_deliveries import CodeDeliveries
from cardledger.api.http.dispatch import Dispatch
from cardledger.api.http.in_flight import ConcurrencyLimit, InFlight, Turns
from cardledger.api.http.last_use import LastUses
from cardledger.api.http.middleware import Edge, hide_tokens_in_access_log, templates
from cardledger.api.http.outside_calls import OutsideCalls
from cardledger.api.http.rate_limits import RateLimits
from cardledger.api.http.recent_requests import RecentRequests
from cardledger.api.http.request_context import EndUserTerms, Services
from cardledger.api.http.routing import REQUESTS
from cardledger.api.ingestion_limits import (
    UPLOADS,
    UPLOADS_OF_PLATFORM,
    FilesInProgress,
    IngestionLimits,
)
from cardledger.api.loop_turns import LoopTurns
from cardledger.api.openapi import docs_page, not_implemented
from cardledger.api.routes import (
    card_embed,
    cards,
    health,
    network_events,
    parked_events,
    platform_config,
    rejections,
    simulators,
    tokens,
    transactions,
)
from cardledger.api.routes import sandbox as sandbox_routes
from cardledger.api.routes.agents import actions, approvals, device_codes, management, me
from cardledger.api.routes.agents import quotes as agent_quotes
from cardledger.api.routes.customers import (
    beneficial_owners,
    documents,
    end_user_terms,
    external_accounts,
    internal_accounts,
    invitations,
    kyc_links,
    registry,
    uploads,
    verifications,
)
from cardledger.api.routes.customers.authentication import (
    contacts,
    factors,
    logins,
    resets,
    trust,
)
from cardledger.api.routes.exchange import (
    authorizations,
    directory,
    exchange_rates,
    quotes,
    receivers,
    uma_payments,
)
from cardledger.api.routes.payments import steps, transfers, withdrawal_fees
from cardledger.api.routes.webhooks import deliveries, endpoint_tests, endpoints, published_keys
from cardledger.api.time_limit import GRACE_S, TimeLimit
from cardledger.ledger.customers.authentication.passkeys import RelyingParty
from cardledger.ledger.customers.documents.room import StorageLimits
from cardledger.ledger.customers.documents.store import DocumentStore
from cardledger.ledger.exchange.rates import Pricing
from cardledger.ledger.ports import NONE_CONNECTED, Adapters
from cardledger.ledger.sandbox import adapters as sandbox_adapters
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.platform_connections import PlatformConnections
from cardledger.ledger.storage.secrets.key_ring import KeyRing, ServerKey
from cardledger.ledger.webhooks.backlogs import WAITING_LIMIT
from cardledger.ledger.webhooks.endpoint_tests import TEST_LIMIT
from cardledger.schema import compatibility
from cardledger.workers.client import Client
from cardledger.workers.metrics import counted
from cardledger.workers.metrics.access import THIS_MACHINE, Access
from cardledger.workers.metrics.scrapes import Scrapes

_CONNECTIONS: Final = 20
# And as many more on demand: six write to the inbox, and eight look something up.
_INSTALLATION_CONNECTIONS: Final = 12
_POOL_TIMEOUT_S: Final = 5.0
_SANDBOX_PARTY: Final = RelyingParty(
    id="localhost", origins=("http://localhost:3000", "http://localhost:8000")
)

# The lists of accounts and the terms come before `registry`, whose paths would read their names as
# ids; `me` comes before `management` for the same reason.
_ROUTERS: Final[tuple[APIRouter, ...]] = (
    transactions.router,
    steps.router,
    transfers.router,
    withdrawal_fees.router,
    rejections.router,
    parked_events.router,
    platform_config.router,
    internal_accounts.router,
    external_accounts.router,
    end_user_terms.router,
    uploads.router,
    registry.router,
    contacts.router,
    resets.router,
    factors.router,
    logins.router,
    trust.router,
    beneficial_owners.router,
    verifications.router,
    kyc_links.router,
    invitations.router,
    documents.router,
    cards.router,
    tokens.router,
    exchange_rates.router,
    directory.router,
    quotes.router,
    authorizations.router,
    receivers.router,
    me.router,
    actions.router,
    agent_quotes.router,
    approvals.router,
    management.router,
    device_codes.router,
    endpoints.router,
    endpoint_tests.router,
    deliveries.router,
)


# Spans of FastAPI have the paths of requests, with the tokens of card pages in them; `Edge` makes
# spans without. Older releases make none.
_OFF: Final = {"tracing": False, "metrics": False, "logs": False}
_NO_TELEMETRY: Final[Mapping[str, Any]] = (
    {"telemetry": _OFF} if "telemetry" in signature(FastAPI).parameters else {}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiConfig:
    """The settings of the application."""

    database_url: str
    redis_url: str
    secret_key: str | ServerKey
    reply_timeout_s: float = 10.0
    sandbox: bool = True
    loopback_webhooks: bool = True  # In a sandbox only.
    sandbox_delay_s: float = 30.0
    exchange_spread_bps: int = 50
    rate_limit: str = sliding_window.OFF
    failure_limit: str = sliding_window.OFF
    in_progress_limit: int = DEFAULT_LIMIT
    webhook_waiting_limit: int = WAITING_LIMIT
    slot_wait_s: float = DEFAULT_WAIT_S
    body_timeout_s: float = 30.0
    document_bytes: int = 10 * 2**30  # Of a platform.
    documents_dir: Path | None = None  # None: files are in PostgreSQL.
    public_url: str | None = None
    end_user_terms: EndUserTerms | None = None  # None in a sandbox: its own.
    passkeys: RelyingParty | None = None  # None in a sandbox: pages of the same machine.
    metrics: Access = THIS_MACHINE  # Who may read them.
    console: ConsoleConfig = CONSOLE_OFF


def create_app(
    config: ApiConfig,
    *,
    clock: Callable[[], datetime] | None = None,
    examine: Examine | None = None,
) -> FastAPI:
    """Return the application; it opens no connection before it starts.

    It goes by PostgreSQL's clock, as the engine does; a `clock` takes the place of that and of the
    process's own. `examine` is what the console shows about the installation.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with (
            _services(config, clock) as services,
            console_services.running(
                config.console, config.database_url, examine
            ) as app.state.console,
        ):
            app.state.services = services
            yield

    app = FastAPI(
        title="cardledger",
        version=version("cardledger"),
        lifespan=lifespan,
        # `api.openapi` serves the document; FastAPI's page would load scripts from other servers.
        openapi_url=None,
        redirect_slashes=False,
        **_NO_TELEMETRY,
    )
    app.state.is_sandbox = config.sandbox
    app.state.recent_requests = RecentRequests() if config.sandbox else None
    app.state.shown_settings = shown_settings.shown(config)
    app.router.routes.extend(_routes(is_sandbox=config.sandbox))
    app.router.routes.extend(console.routes(config.console, is_sandbox=config.sandbox))
    app.state.templates = templates(app)
    app.state.metrics_access = config.metrics
    app.state.scrapes = Scrapes(counted.OF_API)
    errors.install(app)
    hide_tokens_in_access_log()
    has_console = config.console.mode is not ConsoleMode.OFF
    app.add_middleware(Dispatch, routes=app.router.routes)
    app.add_middleware(
        TimeLimit,
        limit_s=config.reply_timeout_s + GRACE_S,
        answer_of=too_slow.answer_of if has_console else None,
    )
    app.add_middleware(Edge)  # Outside the limit: it logs what that ends.
    if has_console:
        app.add_middleware(ConsoleHeaders)
    return app


@cache
def _routes(*, is_sandbox: bool) -> tuple[BaseRoute, ...]:
    """Return the routes of the interface.

    They have their whole paths, and no router is included: FastAPI would derive the models of its
    operations again, which takes an eighth of a second of processor time.
    """
    # Paths are matched in order, and the simulators are called most.
    sandbox = (
        simulators.router,
        sandbox_routes.router,
        end_user_terms.page_router,
        exchange_rates.sandbox_router,
        quotes.sandbox_router,
        uma_payments.sandbox_router,
    )
    public = (
        health.router,
        card_embed.router,
        kyc_links.page_router,
        invitations.page_router,
        docs_page.router,
        published_keys.router,
        network_events.router,
    )
    return (
        *_of((*sandbox, *public) if is_sandbox else public),
        *not_implemented.routes(BASE_PATH),
        *_of(_ROUTERS),
    )


def _of(routers: Iterable[APIRouter]) -> Iterator[BaseRoute]:
    return chain.from_iterable(router.routes for router in routers)


def _pool(size: int) -> dict[str, Any]:
    """Return the options of a pool that keeps `size` connections open, of twice as many."""
    return {
        "keyed": True,
        "pool_size": size,
        "max_overflow": size,
        "pool_timeout": _POOL_TIMEOUT_S,
    }


@asynccontextmanager
async def _services(
    config: ApiConfig, given_clock: Callable[[], datetime] | None
) -> AsyncIterator[Services]:
    platforms = PlatformConnections(config.database_url, **_pool(_CONNECTIONS))
    installation = async_engine(config.database_url, **_pool(_INSTALLATION_CONNECTIONS))
    # Requests that use every connection do not make the process unready.
    health_engine = async_engine(config.database_url, keyed=True, pool_size=1, max_overflow=0)
    keys = KeyRing(config.secret_key)
    adapters = _adapters(config, keys)
    document_files = (
        DocumentStore(config.documents_dir, installation) if config.documents_dir else None
    )
    outside, codes = OutsideCalls(), CodeDeliveries()
    client = Client(
        installation,
        config.redis_url,
        secret_key=config.secret_key,
        reply_timeout_s=config.reply_timeout_s,
    )
    clock = given_clock or client.now
    limits = RateLimits(
        {
            REQUESTS: sliding_window.parse(config.rate_limit),
            AGENT_REQUESTS: sliding_window.parse(config.rate_limit),
            FAILURES: sliding_window.parse(config.failure_limit),
        },
        config.redis_url,
        config.secret_key,
    )
    slots = FairSlots(limit=config.in_progress_limit, wait_s=config.slot_wait_s)
    try:
        async with (
            client,
            limits,
            LastUses(installation, clock) as last_uses,
            Upkeep(platforms, installation, files=document_files, clock=clock),
            CustomerUploads(
                platforms,
                installation,
                verifier=adapters.identity_verifier,
                keys=keys,
                clock=clock,
            ) as customer_uploads,
        ):
            readiness = Readiness(
                health_engine,
                client,
                schema_head=compatibility.head(),
                clock=given_clock or (lambda: datetime.now(UTC)),  # It says when that is wrong.
            )
            yield Services(
                platforms=platforms,
                installation=installation,
                client=client,
                in_flight=InFlight(),
                webhook_tests=ConcurrencyLimit(TEST_LIMIT),
                webhook_waiting_limit=config.webhook_waiting_limit,
                turns=Turns(),
                loop_turns=LoopTurns(is_shared=lambda: slots.is_shared),
                exchange_offers=ExchangeOffers(),
                slots=slots,
                ingestion=IngestionLimits(),
                uploads=FilesInProgress(limit=UPLOADS, of_platform=UPLOADS_OF_PLATFORM),
                document_limits=StorageLimits(bytes_of_platform=config.document_bytes),
                outside=outside,
                codes=codes,
                document_files=document_files,
                keys=keys,
                authenticator=Authenticator(
                    installation.execution_options(isolation_level="AUTOCOMMIT"),
                    keys,
                    limits,
                    clock=clock,
                    used=last_uses.note,
                    outdated=last_uses.replace_hash,
                ),
                limits=limits,
                clock=clock,
                reply_timeout=timedelta(seconds=config.reply_timeout_s),
                body_timeout_s=config.body_timeout_s,
                adapters=adapters,
                pricing=Pricing(
                    reference=adapters.reference_rates,
                    spread_bps=config.exchange_spread_bps,
                    with_own=config.sandbox,
                ),
                customer_uploads=customer_uploads,
                allow_loopback=config.sandbox and config.loopback_webhooks,
                readiness=readiness,
                public_url=config.public_url,
                is_sandbox=config.sandbox,
                end_user_terms=config.end_user_terms,
                passkeys=config.passkeys or (_SANDBOX_PARTY if config.sandbox else None),
            )
            await readiness.close()
    finally:
        await codes.close()
        outside.close()
        if document_files is not None:
            document_files.close()
        await health_engine.dispose()
        await installation.dispose()
        await platforms.dispose()


def _adapters(config: ApiConfig, keys: KeyRing) -> Adapters:
    if not config.sandbox:
        return NONE_CONNECTED
    return sandbox_adapters.adapters(keys, delay=timedelta(seconds=config.sandbox_delay_s))
