"""The context of a request: the services of this process and the authenticated caller."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any, Final, Protocol, TypeVar

from fastapi import Depends, Request
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from typing_extensions import override

from cardledger.api.exchange_offers import ExchangeOffers
from cardledger.api.fair_slots import FairSlots
from cardledger.api.health.readiness import Readiness
from cardledger.api.http.authentication import Authenticator
from cardledger.api.http.code_deliveries import CodeDeliveries
from cardledger.api.http.in_flight import ConcurrencyLimit, InFlight, Turn, Turns
from cardledger.api.http.outside_calls import OutsideCalls
from cardledger.api.http.rate_limits import RateLimits
from cardledger.api.ingestion_limits import FilesInProgress, IngestionLimits
from cardledger.api.loop_turns import LoopTurns
from cardledger.ledger.agents.device_codes import DeviceCode
from cardledger.ledger.agents.registry import Agent
from cardledger.ledger.customers.authentication.passkeys import RelyingParty
from cardledger.ledger.customers.documents.directory import (
    FilePlace,
    StagedFile,
)
from cardledger.ledger.customers.documents.room import StorageLimits
from cardledger.ledger.customers.documents.store import DocumentStore
from cardledger.ledger.exchange.rates import Pricing
from cardledger.ledger.messaging.idempotency_keys import Claim
from cardledger.ledger.platforms import api_tokens
from cardledger.ledger.platforms.api_tokens import ProvenToken
from cardledger.ledger.platforms.scopes import Token
from cardledger.ledger.ports import Adapters, CodeSender
from cardledger.ledger.quotes.funding import Instructions
from cardledger.ledger.quotes.receivers import Answer
from cardledger.ledger.storage.platform_connections import PlatformConnections
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import public_id
from cardledger.schema.wire.customers.authentication import Channel
from cardledger.workers.client import Client
from cardledger.workers.signals.doorbell import Doorbell

# Requests that write at a time, of the 40 connections of a process: two platforms with all of
# their agents leave some to others (docs/decisions/0042-failures-are-counted-by-id.md).
_WAIT_SHARE: Final = 0.9  # Of the reply time-out, so that the response still comes in time.
_PLATFORM_WRITERS: Final = 12
_AGENT_WRITERS: Final = 6  # Of all agents of a platform, which leave it its own.
_CODE_WRITERS: Final = 2


Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class CodesAfterCommit(CodeSender):
    """A sender of codes that notes what is to be sent, for after the commit."""

    sender: CodeSender
    check: Callable[[], None]
    """Raises: ApiError SERVICE_UNAVAILABLE when too many codes are on their way."""
    codes: list[Callable[[], None]]

    @override
    def new_code(self) -> str:
        return self.sender.new_code()

    @override
    def send(self, channel: Channel, address: str, code: str) -> None:
        self.check()
        self.codes.append(partial(self.sender.send, channel, address, code))

    @override
    def accepts_as_totp(self, code: str) -> bool:
        return self.sender.accepts_as_totp(code)


class Wakeable(Protocol):
    """A task between requests that looks for work by itself, and at once when it is woken."""

    def wake(self) -> None:
        """Look for work at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndUserTerms:
    """The terms that end users accept: the version, and the address of the text."""

    version: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Everything that outlives a request; one per event loop."""

    platforms: PlatformConnections
    installation: AsyncEngine  # For what is not known to be of one platform: credentials.
    client: Client
    in_flight: InFlight
    webhook_tests: ConcurrencyLimit
    webhook_waiting_limit: int  # Of a platform.
    turns: Turns
    slots: FairSlots
    loop_turns: LoopTurns
    exchange_offers: ExchangeOffers
    ingestion: IngestionLimits
    uploads: FilesInProgress
    document_limits: StorageLimits
    outside: OutsideCalls
    codes: CodeDeliveries
    document_files: DocumentStore | None  # None: files are in PostgreSQL.
    customer_uploads: Wakeable
    keys: KeyRing
    authenticator: Authenticator
    limits: RateLimits
    clock: Callable[[], datetime]
    reply_timeout: timedelta
    body_timeout_s: float
    adapters: Adapters
    pricing: Pricing
    allow_loopback: bool  # Webhooks to loopback, without TLS: in the sandbox of `up`.
    readiness: Readiness
    public_url: str | None
    is_sandbox: bool
    end_user_terms: EndUserTerms | None
    passkeys: RelyingParty | None

    @property
    def wait_limit(self) -> timedelta:
        """How long a request waits for a result: a little less than it may take as a whole."""
        return _WAIT_SHARE * self.reply_timeout


@dataclass(slots=True)
class Attempt:
    """The processing of a request that has an idempotency key."""

    claim: Claim
    unstored: Sequence[str] = ()  # Fields of the response that a repetition does not return.
    connection: AsyncConnection | None = None  # The database transaction of the key.
    doorbells: list[Doorbell] = field(default_factory=list)  # Rung after its commit.
    has_event: bool = False  # It has come to its event, and uses the key for it.


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext(ABC):
    """One request of an authenticated caller."""

    services: Services
    attempt: Attempt | None = None
    codes: list[Callable[[], None]] = field(default_factory=list)
    """What hands over the codes of this request, once their challenges are committed."""
    outdated: list[FilePlace] = field(default_factory=list)
    """Files that are removed once the rows that named them are gone."""
    prepared: list[Any] = field(default_factory=list)
    """What was made of the file of its form."""
    staged: list[StagedFile] = field(default_factory=list)
    """Files that it has stored before its database transaction."""
    answers: dict[str, Answer] = field(default_factory=dict)
    """What the institutions of UMA addresses have answered, asked before anything is written."""
    asked: list[Instructions] = field(default_factory=list)
    """The instructions for a quote that is paid from outside, asked likewise; the last at most."""
    subjects: dict[str, object] = field(default_factory=dict)
    """What the line of the request log names: the event and the card transaction of the call."""

    @property
    @abstractmethod
    def platform_id(self) -> Id:
        """The caller's platform; every query is limited to it, and every connection."""

    @property
    @abstractmethod
    def idempotency_scope(self) -> str:
        """The owner of the caller's idempotency keys and cursors; empty for the platform."""

    @property
    def caller(self) -> str | None:
        """The token or the agent that calls, for the request log."""
        return None

    @property
    @abstractmethod
    def kind(self) -> str:
        """Which requests of its platform share slots with this one."""

    @property
    @abstractmethod
    def turn(self) -> Turn:
        """Whose requests take turns with this one to write."""

    @property
    def instructions(self) -> Instructions | None:
        """The instructions that were asked for the quote of this request."""
        return self.asked[0] if self.asked else None

    @property
    def client(self) -> Client:
        """The client that submits messages to the workers."""
        return self.services.client

    @property
    def code_sender(self) -> CodeSender | None:
        """Who sends one-time codes, after the database transaction in which they are made."""
        sender = self.services.adapters.code_sender
        if sender is None:
            return None
        check = partial(self.services.codes.check, self.platform_id)
        return CodesAfterCommit(sender, check, self.codes)

    @property
    def keys(self) -> KeyRing:
        """The keys of this installation."""
        return self.services.keys

    async def ask_outside(self, ask: Callable[..., Result], *arguments: object) -> Result:
        """Return what a system outside answers; it may take long, and holds no connection.

        Raises: ApiError SERVICE_UNAVAILABLE; what `ask` raises.
        """
        return await self.services.outside.run(self.platform_id, partial(ask, *arguments))

    def now(self) -> datetime:
        """Return the current time."""
        return self.services.clock()

    def reading(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Return a connection on which every statement is a database transaction of its own.

        When the request has a key, this is the connection of `writing`: requests that hold one
        connection and wait for a second can exhaust the pool and block each other.
        """
        if self.attempt is not None and self.attempt.connection is not None:
            return nullcontext(self.attempt.connection)
        return self.services.platforms.reading(self.platform_id)

    def writing(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Return a connection in a database transaction that commits at the end of the block.

        When the request has a key, the row of the key and the response are in the same database
        transaction, which commits after the route.
        """
        if self.attempt is not None and self.attempt.connection is not None:
            return nullcontext(self.attempt.connection)
        return self.begin()

    def remove_after_commit(self, files: Sequence[FilePlace]) -> None:
        """Remove files of documents once the rows that named them are gone."""
        self.outdated.extend(files)

    @asynccontextmanager
    async def begin(self, *, may_refuse: bool = True) -> AsyncIterator[AsyncConnection]:
        """Yield a connection in a database transaction of its own, once it is the caller's turn.

        A request that has had an effect already may not be refused.
        Raises: ApiError RATE_LIMITED when too many requests of the caller wait.
        """
        turn = self.services.turns.take(self.turn, may_refuse=may_refuse)
        is_complete = False
        try:
            async with turn, self.services.platforms.writing(self.platform_id) as connection:
                yield connection
                is_complete = True
        except BaseException:
            if is_complete:
                # It may be committed: a code without a challenge is useless, and does no harm.
                self._send_codes()
            self.codes.clear()  # What was to follow has no cause.
            self.outdated.clear()
            raise
        self._send_codes()
        store = self.services.document_files
        if self.outdated and store is not None:
            # It waits for a disk; nothing of the database is held any more.
            await store.remove(self.outdated)
            self.outdated.clear()

    def _send_codes(self) -> None:
        while self.codes:
            self.services.codes.start(self.platform_id, self.codes.pop(0))

    async def notify(self, *doorbells: Doorbell) -> None:
        """Ring `doorbells` after the rows of this request are committed."""
        if self.attempt is not None and self.attempt.connection is not None:
            self.attempt.doorbells += doorbells
        else:
            await self.client.notify(*doorbells)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformContext(RequestContext):
    """One request of a platform."""

    proven: ProvenToken

    @property
    def token(self) -> Token:
        """The caller's token, as this process may have known it for seconds."""
        return self.proven.token

    @property
    @override
    def platform_id(self) -> Id:
        return self.token.platform_id

    @property
    @override
    def kind(self) -> str:
        return "platform"

    @property
    @override
    def idempotency_scope(self) -> str:
        return ""

    @property
    @override
    def caller(self) -> str:
        return public_id("Token", self.token.id)

    @property
    @override
    def turn(self) -> Turn:
        return Turn(f"platform {self.platform_id}", _PLATFORM_WRITERS)

    @asynccontextmanager
    async def giving_access(self) -> AsyncIterator[AsyncConnection]:
        """Yield the connection of `writing`, to make what gives access and outlives the token.

        Raises: RevokedTokenError when the token has been deleted, or the caller's secret replaced,
        as this process may not know.
        """
        async with self.writing() as connection:
            await api_tokens.keep(connection, self.proven, at=self.now())
            yield connection


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentContext(RequestContext):
    """One request of an agent, for its customer."""

    agent: Agent

    @property
    @override
    def platform_id(self) -> Id:
        return self.agent.platform_id

    @property
    @override
    def kind(self) -> str:
        return "agents"

    @property
    @override
    def idempotency_scope(self) -> str:
        return public_id("Agent", self.agent.id)

    @property
    @override
    def caller(self) -> str:
        return public_id("Agent", self.agent.id)

    @property
    @override
    def turn(self) -> Turn:
        return Turn(f"agents of {self.platform_id}", _AGENT_WRITERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCodeContext(RequestContext):
    """One request of a program that presents a device code and has no credentials yet."""

    device_code: DeviceCode

    @property
    @override
    def platform_id(self) -> Id:
        return self.device_code.platform_id

    @property
    @override
    def kind(self) -> str:
        return "device codes"

    @property
    @override
    def idempotency_scope(self) -> str:
        # Not the agent's: another code of the agent must not replay this code's response.
        return f"DeviceCode:{self.device_code.code_hash.hex()}"

    @property
    @override
    def turn(self) -> Turn:
        # Not the platform's: many may know a code that was redeemed.
        return Turn(self.idempotency_scope, _CODE_WRITERS)


def services_of(request: Request) -> Services:
    """Return the services of the process that handles `request`."""
    services: Services = request.app.state.services
    return services


def public_root(request: Request) -> str:
    """Return the URL under which clients reach the root of this server.

    Never taken from the header Host, which the caller chooses: without a public URL it is the
    address that the request arrived at.
    """
    url = services_of(request).public_url
    if url is not None:
        return url
    host, port = request.scope["server"]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def _platform_context(request: Request) -> PlatformContext:
    call: PlatformContext = request.state.call
    return call


async def _agent_context(request: Request) -> AgentContext:
    call: AgentContext = request.state.call
    return call


PlatformCall = Annotated[PlatformContext, Depends(_platform_context)]
"""Type of the endpoint parameter that receives the context of a platform's request."""

AgentCall = Annotated[AgentContext, Depends(_agent_context)]
"""Type of the endpoint parameter that receives the context of an agent's request."""
