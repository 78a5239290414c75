"""The context of a page: the session, its token, and what the console may do."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.console.access import cookies, sessions
from cardledger.api.console.access.sessions import Session
from cardledger.api.console.services import ConsoleServices
from cardledger.api.http.authentication import require
from cardledger.api.http.errors import ApiError
from cardledger.api.http.rate_limits import address_of
from cardledger.api.http.request_context import PlatformContext, services_of
from cardledger.api.http.routing import REQUESTS
from cardledger.ledger.platforms.scopes import Permission


class NotLoggedInError(Exception):
    """The request has no session, or a session that has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleContext(PlatformContext):
    """One request of a person who has logged in with a token of a platform."""

    console: ConsoleServices
    session: Session
    has_acted: bool

    @asynccontextmanager
    async def snapshot(self, *, may_lag: bool = False) -> AsyncIterator[AsyncConnection]:
        """Yield a read-only connection on which all statements see one snapshot.

        Once a page: there are two such connections. Who has just acted reads what that has done,
        from where it was written, unless that `may_lag`: what is refreshed by itself catches up.
        """
        snapshots = self.console.snapshots(may_lag=may_lag or not self.has_acted)
        async with snapshots.snapshot(self.platform_id) as connection:
            try:
                yield connection
            except ApiError:
                # Not by a roll-back: after one, psycopg prepares all statements again.
                await connection.commit()
                raise

    def may(self, permission: str) -> bool:
        """Return whether the token has `permission`."""
        return self.token.allows(Permission(permission))


def console_of(request: Request) -> ConsoleServices:
    """Return the services of the console."""
    console: ConsoleServices = request.app.state.console
    return console


async def context_of(request: Request) -> ConsoleContext:
    """Return the context of a request, whose token is looked up: it may have been deleted.

    Raises: NotLoggedInError; ApiError FORBIDDEN, RATE_LIMITED.
    """
    services = services_of(request)
    cookie = cookies.session_cookie_of(request)
    session = sessions.session_in(cookie, services.keys, at=services.clock())
    if session is None:
        raise NotLoggedInError
    proven = await services.authenticator.session_token(
        session.client_id, session.stamp, address=address_of(request)
    )
    if proven is None:
        raise NotLoggedInError
    call = ConsoleContext(
        services=services,
        proven=proven,
        console=console_of(request),
        session=session,
        has_acted=cookies.has_acted(request),
    )
    request.state.call = call
    services.limits.admit(REQUESTS, str(call.platform_id))
    return call


def _with(permission: Permission) -> Callable[[Request], Awaitable[ConsoleContext]]:
    async def admitted(request: Request) -> ConsoleContext:
        call = await context_of(request)
        require(call.token, permission)
        return call

    return admitted


Viewer = Annotated[ConsoleContext, Depends(_with(Permission.VIEW))]
"""Type of the parameter of a page that shows: the token has VIEW."""
