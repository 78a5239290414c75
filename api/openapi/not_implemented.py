"""What the interface has and this installation has not: 501, for whoever may come in.

One table. What gets built leaves it; a test holds table and routes against the interface's list.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from fastapi import Request, Response
from starlette.routing import Route

from cardledger.api.http.errors import ApiError
from cardledger.api.http.operations import AGENT, BASIC
from cardledger.api.http.routing import SANDBOX, agent_of, token_of
from cardledger.schema.wire.errors import Code


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """Operations of one area that are not built: why, and what can be used instead."""

    tag: str
    state: str
    operations: Sequence[str]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield method and path of every operation."""
        for operation in self.operations:
            method, path = operation.split()
            yield method, path


TABLE: Final[Sequence[Area]] = (
    Area(
        tag="Contact Verification",
        state="No payment provider is connected that mandates it.",
        operations=(
            "POST /customers/{customerId}/verify-email",
            "POST /customers/{customerId}/verify-email/confirm",
            "POST /customers/{customerId}/verify-phone",
            "POST /customers/{customerId}/verify-phone/confirm",
        ),
    ),
    Area(
        tag="Strong Customer Authentication",
        state="No region is served that requires it.",
        operations=(
            "GET /sca/factors",
            "POST /sca/factors",
            "POST /sca/factors/confirm",
            "DELETE /sca/factors/{credentialId}",
            "POST /sca/login/start",
            "POST /sca/login/complete",
            "POST /sca/record-event",
            "POST /sca/factors/reset",
            "GET /sca/factors/reset/{resetId}",
            "POST /sca/factors/reset/{resetId}/complete",
            "POST /customers/external-accounts/{externalAccountId}/trust",
            "POST /customers/external-accounts/{externalAccountId}/trust/confirm",
            "POST /customers/external-accounts/{externalAccountId}/untrust",
            "POST /customers/external-accounts/{externalAccountId}/untrust/confirm",
        ),
    ),
    Area(
        tag="KYC/KYB Verifications",
        state="No verification provider with pages of its own is connected.",
        operations=(
            "POST /customers/{customerId}/kyc-link",
            "GET /customers/end-user-terms",
        ),
    ),
    Area(
        tag="Documents",
        state="No document is kept.",
        operations=(
            "GET /documents",
            "POST /documents",
            "GET /documents/{documentId}",
            "PUT /documents/{documentId}",
            "DELETE /documents/{documentId}",
        ),
    ),
    Area(
        tag="Customers",
        state="Customers are created one by one: `POST /customers`.",
        operations=(
            "POST /customers/bulk/csv",
            "GET /customers/bulk/jobs/{jobId}",
        ),
    ),
    Area(
        tag="External Accounts",
        state="Nobody is asked to prove that an account is his.",
        operations=(
            "POST /customers/external-accounts/{externalAccountId}/challenge",
            "POST /customers/external-accounts/{externalAccountId}/verify",
            "POST /platform/external-accounts/{externalAccountId}/challenge",
            "POST /platform/external-accounts/{externalAccountId}/verify",
        ),
    ),
    Area(
        tag="Same-Currency Transfers",
        state="No rail is connected; agents transfer between internal accounts.",
        operations=(
            "POST /transfer-in",
            "POST /transfer-out",
            "POST /crypto/estimate-withdrawal-fee",
        ),
    ),
    Area(
        tag="Cross-Currency Transfers",
        state="There are no exchange rates, so there is nothing to quote.",
        operations=(
            "GET /receiver/uma/{receiverUmaAddress}",
            "GET /receiver/external-account/{accountId}",
            "POST /quotes",
            "GET /quotes/{quoteId}",
            "POST /quotes/{quoteId}/execute",
            "POST /quotes/{quoteId}/authorize",
            "POST /quotes/{quoteId}/authorize/resend",
        ),
    ),
    Area(
        tag="Transactions",
        state="No transaction has a second step of this kind.",
        operations=(
            "POST /transactions/{transactionId}/confirm",
            "POST /transactions/{transactionId}/cancel",
        ),
    ),
    Area(
        tag="Exchange Rates",
        state="No source of rates is connected.",
        operations=("GET /exchange-rates",),
    ),
    Area(
        tag="Discoveries",
        state="No rail is connected, so there is none to discover.",
        operations=("GET /discoveries", "GET /uma-providers", "GET /vasps"),
    ),
    Area(
        tag="Invitations",
        state="Customers have UMA addresses and nobody to invite.",
        operations=(
            "POST /invitations",
            "GET /invitations/{invitationCode}",
            "POST /invitations/{invitationCode}/claim",
            "POST /invitations/{invitationCode}/cancel",
        ),
    ),
    Area(
        tag=SANDBOX,
        state="Nothing receives UMA payments; `fund` brings money.",
        operations=("POST /sandbox/send", "POST /sandbox/uma/receive"),
    ),
    Area(
        tag="Embedded Wallet Auth",
        state="There are no embedded wallets; accounts are held in the service.",
        operations=(
            "PATCH /internal-accounts/{internalAccountId}",
            "POST /internal-accounts/{internalAccountId}/export",
            "GET /auth/credentials",
            "POST /auth/credentials",
            "DELETE /auth/credentials/{id}",
            "POST /auth/credentials/{id}/verify",
            "POST /auth/credentials/{id}/challenge",
            "GET /auth/sessions",
            "DELETE /auth/sessions/{id}",
            "POST /auth/sessions/{id}/refresh",
            "GET /auth/delegated-keys",
            "POST /auth/delegated-keys",
            "GET /auth/delegated-keys/{id}",
            "DELETE /auth/delegated-keys/{id}",
        ),
    ),
    Area(
        tag="Agent Operations",
        state="There are no exchange rates, so there is nothing to quote to an agent.",
        operations=(
            "POST /agents/me/quotes",
            "GET /agents/me/quotes/{quoteId}",
            "POST /agents/me/quotes/{quoteId}/execute",
        ),
    ),
    Area(
        tag="Stablecoins",
        state="No issuer of stablecoins is connected.",
        operations=(
            "GET /stablecoins",
            "POST /stablecoins",
            "GET /stablecoins/{stablecoinId}",
            "POST /stablecoins/{stablecoinId}/mints",
            "POST /stablecoins/{stablecoinId}/burns",
            "GET /stablecoins/{stablecoinId}/operations",
            "GET /stablecoin-operations/{stablecoinOperationId}",
            "GET /stablecoin-provider-accounts",
            "POST /stablecoin-provider-accounts",
            "GET /stablecoin-provider-accounts/{stablecoinProviderAccountId}",
        ),
    ),
)


def scheme_of(path: str) -> str:
    """Return how callers of `path` say who they are."""
    return AGENT if path.startswith("/agents/me/") else BASIC


def routes(prefix: str, *, sandbox: bool) -> list[Route]:
    """Return routes that refuse, after they have asked who calls.

    They come before all others: `/customers/end-user-terms` is nobody's id.
    """
    return [
        _route(prefix + path, method, _refusal(area, path))
        for area in TABLE
        if sandbox or area.tag != SANDBOX
        for method, path in area
    ]


def _route(path: str, method: str, refuse: Callable[[Request], Awaitable[Response]]) -> Route:
    # Not one of FastAPI's: there is nothing to parse, and those take ten times as long to make.
    route = Route(path, refuse, methods=[method])
    route.methods = {method}  # Without the HEAD that Starlette gives to every GET.
    return route


def _refusal(area: Area, path: str) -> Callable[[Request], Awaitable[Response]]:
    scheme = scheme_of(path)

    async def refuse(request: Request) -> Response:
        await _identify(request, scheme)
        message = f"{area.tag}: this is not built. {area.state}"
        raise ApiError(Code.NOT_IMPLEMENTED, message)

    return refuse


async def _identify(request: Request, scheme: str) -> None:
    if scheme == AGENT:
        await agent_of(request)
    else:
        await token_of(request)
