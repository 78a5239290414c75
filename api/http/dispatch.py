"""Requests of guarded routes, handled without FastAPI's layers around a route.

FastAPI wraps every route in stacks for dependencies and files, and in two layers that turn
exceptions into responses, each with a function of its own around every message that is sent. A
guarded route whose arguments are simple uses neither dependencies nor files: it is called at once,
and its exceptions become responses here (docs/decisions/0096-arguments-at-once.md).
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from fastapi import Request
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from cardledger.api import BASE_PATH
from cardledger.api.http import errors
from cardledger.api.http.operations import Guarded, Handle

_BELOW: Final = f"{BASE_PATH}/"


class Dispatch:
    """Wraps the router; routes are matched in its order, so that a request has the same route."""

    def __init__(self, app: ASGIApp, *, routes: Iterable[BaseRoute]) -> None:
        """Handle the direct ones of `routes`, which are those of `app`."""
        self._app: Final = app
        # By the first segment below the base path: other requests are not matched twice.
        self._routes: Final[defaultdict[str, list[BaseRoute]]] = defaultdict(list)
        for route in routes:
            path = getattr(route, "path", "")
            if path.startswith(_BELOW):
                self._routes[_segment(path)].append(route)
        assert not any("{" in segment for segment in self._routes), "any path may be such a route's"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        direct = self._matched(scope) if scope["type"] == "http" else None
        if direct is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            response = await direct(request)
        except Exception as error:  # noqa: BLE001 - raised again unless it has a response
            response = await errors.answer(request, error)
        await response(scope, receive, send)

    def _matched(self, scope: Scope) -> Handle | None:
        """Return what handles the request; None: it is left to the router."""
        path: str = scope["path"]
        if not path.startswith(_BELOW):
            return None
        for route in self._routes.get(_segment(path), ()):
            match, found = route.matches(scope)
            if match is Match.FULL:
                direct = route.direct if isinstance(route, Guarded) else None
                if direct is not None:
                    scope.update(found)
                return direct
        return None


def _segment(path: str) -> str:
    return path[len(_BELOW) :].partition("/")[0]
