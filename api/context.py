"""What a route has at hand: the services of this process, and who calls."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

from fastapi import Depends, Request
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from api.authentication import Authenticator
from ledger.idempotency import Claim
from ledger.secrets import KeyRing
from ledger.tokens import Token
from workers.client import Client
from workers.doorbell import Doorbell

if TYPE_CHECKING:
    from api.once import Flights


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Everything that outlives a request; one per event loop."""

    writer: AsyncEngine
    reader: AsyncEngine  # The same connections, each statement on its own: one round trip.
    client: Client
    flights: "Flights"
    keys: KeyRing
    authenticator: Authenticator
    clock: Callable[[], datetime]
    reply_timeout: timedelta
    is_sandbox: bool
    sandbox_delay: timedelta
    schema_head: str


@dataclass(slots=True)
class Attempt:
    """A request that came with a key of its sender's, while it is answered."""

    claim: Claim
    connection: AsyncConnection | None = None  # The database transaction of the key.
    doorbells: list[Doorbell] = field(default_factory=list)  # To ring after its commit.


@dataclass(frozen=True, slots=True)
class Call:
    """One request of one platform."""

    services: Services
    token: Token
    attempt: Attempt | None = None

    @property
    def platform_id(self) -> UUID:
        """The caller's platform: part of every query."""
        return self.token.platform_id

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
        """Return a connection on which every statement is a database transaction of its own."""
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
            await self.client.ring(*doorbells)


def services_of(request: Request) -> Services:
    """Return the services of the process that answers `request`."""
    services: Services = request.app.state.services
    return services


async def _call(request: Request) -> Call:
    return Call(services_of(request), request.state.token, getattr(request.state, "attempt", None))


Here = Annotated[Call, Depends(_call)]
"""A parameter of this type gets the call that a route answers."""
