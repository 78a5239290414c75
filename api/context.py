"""What a route has at hand: the services of this process, and who calls."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Request
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from api.authentication import Authenticator
from ledger.secrets import KeyRing
from ledger.tokens import Token
from workers.client import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Everything that outlives a request; one per event loop."""

    writer: AsyncEngine
    reader: AsyncEngine  # The same connections, each statement on its own: one round trip.
    client: Client
    keys: KeyRing
    authenticator: Authenticator
    clock: Callable[[], datetime]
    reply_timeout: timedelta
    is_sandbox: bool
    sandbox_delay: timedelta
    schema_head: str


@dataclass(frozen=True, slots=True)
class Call:
    """One request of one platform."""

    services: Services
    token: Token

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
        """Return a connection in a database transaction that commits at the end of the block."""
        return self.services.writer.begin()


def services_of(request: Request) -> Services:
    """Return the services of the process that answers `request`."""
    services: Services = request.app.state.services
    return services


async def _call(request: Request) -> Call:
    return Call(services_of(request), request.state.token)


Here = Annotated[Call, Depends(_call)]
"""A parameter of this type gets the call that a route answers."""
