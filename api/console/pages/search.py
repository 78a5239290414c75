"""The search box: one field for every id and name; a single hit is opened at once."""

from typing import Annotated, Final

from fastapi import Query, Request, Response

from cardledger.api.console import ROOT, api_path
from cardledger.api.console.access.context import ConsoleContext, Viewer
from cardledger.api.console.html import rendering
from cardledger.api.console.routing import console_router, redirect
from cardledger.api.http.request_context import public_root
from cardledger.ledger.queries.console import search
from cardledger.ledger.queries.console.search import Found, Hit

_PATHS: Final = {
    "CardTransaction": f"{ROOT}/card-transactions",
    "Card": f"{ROOT}/cards",
    "Customer": f"{ROOT}/customers",
    "InternalAccount": f"{ROOT}/accounts",
    "WebhookDelivery": f"{ROOT}/webhooks/deliveries",
    "WebhookEndpoint": f"{ROOT}/webhooks/endpoints",
}
_IN_THE_API: Final = {
    "CardTransaction": "/transactions",
    "Card": "/cards",
    "Customer": "/customers",
    "InternalAccount": "/internal-accounts",
    "Transaction": "/transactions",
    "WebhookDelivery": "/webhooks/deliveries",
    "WebhookEndpoint": "/webhooks/endpoints",
    "Rejection": "/rejections",
    "ParkedEvent": "/parked-events",
}
"""Everything that is found, by its path in the API."""

_NO_SEARCH: Final = (
    "The API has no search: the command returns the first of what was found, the JSON lists all."
)

NOT_SEARCHED: Final[dict[str, tuple[str, ...]]] = {
    "Agent": ("/agents/{id}",),
    "AgentAction": (),
    "BeneficialOwner": ("/beneficial-owners/{id}",),
    "Document": ("/documents/{id}",),
    "ExternalAccount": ("/customers/external-accounts/{id}", "/platform/external-accounts/{id}"),
    "ExternalAccountChallenge": (),
    "Job": ("/customers/bulk/jobs/{id}",),
    "Lookup": (),
    "ParkedEvent": ("/parked-events/{id}",),
    "PlatformConfig": ("/config",),
    "Quote": ("/quotes/{id}",),
    "ScaChallenge": (),
    "ScaReset": (),
    "Token": ("/tokens/{id}",),
    "Verification": ("/verifications/{id}",),
    "Webhook": (),
}
"""What the search does not look for by its id, by the paths of the API that have it."""

router = console_router()


@router.get(f"{ROOT}/search")
async def find(
    request: Request, call: Viewer, q: Annotated[str, Query(max_length=300)] = ""
) -> Response:
    """Open what `q` names, or list what it may mean."""
    async with call.snapshot() as connection:
        found = await search.find(connection, platform_id=call.platform_id, query=q)
    hits = [(hit, _page_of(hit), _address_of(request, hit)) for hit in found.hits]
    if len(hits) == 1 and not found.has_more_cards:
        [(hit, path, _)] = hits
        if path is not None and not hit.is_owner:  # Of an owner, the list says why it is there.
            return redirect(path)
    return await rendering.page(
        request,
        "search.html",
        call=call,
        query=q,
        hits=hits,
        hint=found.hint,
        is_capped=found.is_capped,
        card_limit=search.CARD_LIMIT if found.has_more_cards else None,
        unread=found.unread if found.unread in NOT_SEARCHED else None,
        addresses=_addresses(request, found.unread, q.strip()),
        api=_api(request, call, found),
    )


def _api(request: Request, call: ConsoleContext, found: Found) -> rendering.ApiCall | None:
    """Return the request of the API for the first hit; None when nothing was found."""
    if not found.hits:
        return None
    document = {
        "data": [{"id": hit.name, "by": hit.by} for hit in found.hits],
        "hasMore": found.is_capped,
        "hasMoreCards": found.has_more_cards,
    }
    return rendering.api_call(request, call, _path_of(found.hits[0]), document, note=_NO_SEARCH)


def _page_of(hit: Hit) -> str | None:
    path = _PATHS.get(hit.resource)
    return None if path is None else f"{path}/{hit.name}"


def _path_of(hit: Hit) -> str:
    return f"{_IN_THE_API[hit.resource]}/{hit.name}"


def _address_of(request: Request, hit: Hit) -> str | None:
    """Return the address in the API of what has no page."""
    return None if hit.resource in _PATHS else _address(request, _path_of(hit))


def _addresses(request: Request, resource: str | None, name: str) -> list[str]:
    paths = NOT_SEARCHED.get(resource or "", ())
    return [_address(request, path.format(id=name)) for path in paths]


def _address(request: Request, path: str) -> str:
    return f"{public_root(request)}{api_path(path)}"
