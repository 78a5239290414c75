"""What a route has at hand: the services of this process, and who calls."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from typing_extensions import override

from cardledger.api.http.authentication import Authenticator
from cardledger.api.http.in_flight import InFlight
from cardledger.api.http.rate_limits import RateLimits
from cardledger.ledger.agents.device_codes import DeviceCode
from cardledger.ledger.agents.registry import Agent
from cardledger.ledger.messaging.idempotency_keys import Claim
from cardledger.ledger.platforms.api_tokens import Token
from cardledger.ledger.ports import Adapters
from cardledger.ledger.storage.secrets import KeyRing
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import public_id
from cardledger.workers.client import Client
from cardledger.workers.signals.doorbell import Doorbell


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Everything that outlives a request; one per event loop."""

    writer: AsyncEngine
    reader: AsyncEngine  # The same connections, each statement on its own: one round trip.
    client: Client
    in_flight: InFlight
    keys: KeyRing
    authenticator: Authenticator
    limits: RateLimits
    clock: Callable[[], datetime]
    reply_timeout: timedelta
    body_timeout_s: float
    adapters: Adapters
    allow_loopback: bool  # Webhooks to loopback, without TLS: in a sandbox.
    schema_head: str


@dataclass(slots=True)
class Attempt:
    """A request that came with a key of its sender's, while it is answered."""

    claim: Claim
    connection: AsyncConnection | None = None  # The database transaction of the key.
    doorbells: list[Doorbell] = field(default_factory=list)  # To ring after its commit.


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyCall(ABC):
    """One request, whoever calls."""

    services: Services
    attempt: Attempt | None = None

    @property
    @abstractmethod
    def platform_id(self) -> Id:
        """The caller's platform: part of every query."""

    @property
    @abstractmethod
    def idempotency_scope(self) -> str:
        """Whose keys and cursors the caller's are; empty for the platform as a whole."""

    @property
    def client(self) -> Client:
        """The way to the workers."""
        return self.services.client

    @property
    def keys(self) -> KeyRing:
        """The keys of this installation."""
        return self.services.keys

    def now(self) -> datetime:
        """Return the time."""
        return self.services.clock()

    def reading(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Return a connection on which every statement is a database transaction of its own.

        When the request has a key, it is the connection that `writing` returns: who has one and
        waited for a second would keep others from theirs, until nobody has any.
        """
        if self.attempt is not None and self.attempt.connection is not None:
            return nullcontext(self.attempt.connection)
        return self.services.reader.connect()

    def writing(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Return a connection in a database transaction that commits at the end of the block.

        When the request has a key, its row and the answer are in the same database transaction,
        which then commits after the route.
        """
        if self.attempt is not None and self.attempt.connection is not None:
            return nullcontext(self.attempt.connection)
        return self.services.writer.begin()

    async def ring(self, *doorbells: Doorbell) -> None:
        """Ring `doorbells` once what this request has written is committed."""
        if self.attempt is not None and self.attempt.connection is not None:
            self.attempt.doorbells += doorbells
        else:
            await self.client.notify(*doorbells)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(AnyCall):
    """One request of one platform."""

    token: Token

    @property
    @override
    def platform_id(self) -> Id:
        return self.token.platform_id

    @property
    @override
    def idempotency_scope(self) -> str:
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCall(AnyCall):
    """One request of one agent, for its customer."""

    agent: Agent

    @property
    @override
    def platform_id(self) -> Id:
        return self.agent.platform_id

    @property
    @override
    def idempotency_scope(self) -> str:
        return public_id("Agent", self.agent.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeCall(AnyCall):
    """One request of a program that has a device code of an agent, and no credentials yet."""

    found: DeviceCode

    @property
    @override
    def platform_id(self) -> Id:
        return self.found.platform_id

    @property
    @override
    def idempotency_scope(self) -> str:
        # Not the agent's: who comes with another code must not see what this one was answered.
        return f"DeviceCode:{self.found.code_hash.hex()}"


def services_of(request: Request) -> Services:
    """Return the services of the process that answers `request`."""
    services: Services = request.app.state.services
    return services


async def _call(request: Request) -> Call:
    call: Call = request.state.call
    return call


async def _agent_call(request: Request) -> AgentCall:
    call: AgentCall = request.state.call
    return call


PlatformCall = Annotated[Call, Depends(_call)]
"""A parameter of this type gets the call that a route answers."""

AgentCallDependency = Annotated[AgentCall, Depends(_agent_call)]
"""The same for the call of an agent."""
