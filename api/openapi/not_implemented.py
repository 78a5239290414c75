"""Operations of the interface that are not implemented: they authenticate, then respond 501.

A test compares this table and the routes with the public list of operations.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fastapi import Request, Response
from starlette.routing import Route

from cardledger.api.http.errors import ApiError
from cardledger.api.http.operations import AGENT, BASIC
from cardledger.api.http.routing import agent_of, token_of
from cardledger.schema.wire.errors import Code


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """Operations of one area that are not implemented, and the reason."""

    tag: str
    reason: str
    operations: Mapping[str, str]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield method and path of every operation."""
        for _, method, path in self.named():
            yield method, path

    def named(self) -> Iterator[tuple[str, str, str]]:
        """Yield name, method and path of every operation."""
        for name, operation in self.operations.items():
            method, path = operation.split()
            yield name, method, path


_PROVIDER: Final = "/stablecoin-provider-accounts"

TABLE: Final[Sequence[Area]] = (
    Area(
        tag="Embedded Wallet Auth",
        reason="Embedded wallets are not supported; accounts are held in the service.",
        operations={
            "updateInternalAccount": "PATCH /internal-accounts/{internalAccountId}",
            "exportInternalAccount": "POST /internal-accounts/{internalAccountId}/export",
            "listCredentials": "GET /auth/credentials",
            "createCredential": "POST /auth/credentials",
            "deleteCredential": "DELETE /auth/credentials/{id}",
            "verifyCredential": "POST /auth/credentials/{id}/verify",
            "challengeCredential": "POST /auth/credentials/{id}/challenge",
            "listSessions": "GET /auth/sessions",
            "deleteSession": "DELETE /auth/sessions/{id}",
            "refreshSession": "POST /auth/sessions/{id}/refresh",
            "listDelegatedKeys": "GET /auth/delegated-keys",
            "createDelegatedKey": "POST /auth/delegated-keys",
            "getDelegatedKey": "GET /auth/delegated-keys/{id}",
            "deleteDelegatedKey": "DELETE /auth/delegated-keys/{id}",
        },
    ),
    Area(
        tag="Stablecoins",
        reason="No stablecoin issuer is connected.",
        operations={
            "listStablecoins": "GET /stablecoins",
            "createStablecoin": "POST /stablecoins",
            "getStablecoin": "GET /stablecoins/{stablecoinId}",
            "mintStablecoin": "POST /stablecoins/{stablecoinId}/mints",
            "burnStablecoin": "POST /stablecoins/{stablecoinId}/burns",
            "listOperationsOfStablecoin": "GET /stablecoins/{stablecoinId}/operations",
            "getStablecoinOperation": "GET /stablecoin-operations/{stablecoinOperationId}",
            "listStablecoinProviderAccounts": "GET /stablecoin-provider-accounts",
            "createStablecoinProviderAccount": "POST /stablecoin-provider-accounts",
            "getStablecoinProviderAccount": f"GET {_PROVIDER}/{{stablecoinProviderAccountId}}",
        },
    ),
)


def scheme_of(path: str) -> str:
    """Return the security scheme of `path`."""
    return AGENT if path.startswith("/agents/me/") else BASIC


def routes(prefix: str) -> list[Route]:
    """Return routes that authenticate the caller and respond 501.

    They come before all others, whose paths may read a name as an id.
    """
    return [
        _route(prefix + path, method, _not_implemented(area, path))
        for area in TABLE
        for method, path in area
    ]


def _route(path: str, method: str, respond: Callable[[Request], Awaitable[Response]]) -> Route:
    # Not a FastAPI route: there is nothing to parse, and creating one takes ten times as long.
    route = Route(path, respond, methods=[method])
    route.methods = {method}  # Without HEAD, which Starlette adds to GET.
    return route


def _not_implemented(area: Area, path: str) -> Callable[[Request], Awaitable[Response]]:
    scheme = scheme_of(path)

    async def respond(request: Request) -> Response:
        await _identify(request, scheme)
        message = f"Not implemented: {area.tag}. {area.reason}"
        raise ApiError(Code.NOT_IMPLEMENTED, message)

    return respond


async def _identify(request: Request, scheme: str) -> None:
    if scheme == AGENT:
        await agent_of(request)
    else:
        await token_of(request)
