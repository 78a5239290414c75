"""Who can be paid: banks, mobile money, providers of UMA addresses, providers of wallets."""

from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import Query, Response

from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall, PlatformContext
from cardledger.api.http.responses import Item, Listing, resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.ports import Directory, NotConnectedError
from cardledger.ledger.storage import paging
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import Page
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.exchange.directory import (
    DiscoveriesQuery,
    DiscoveryList,
    DiscoveryResource,
    UmaProviderResource,
    UmaProvidersQuery,
    VaspResource,
    VaspsQuery,
)

_KEY_BYTES: Final = 16
_NOT_CONNECTED: Final = error_responses(Code.NOT_IMPLEMENTED)

router = guarded_router("Discoveries")


@router.get("/discoveries", response_model=DiscoveryList, responses=_NOT_CONNECTED)
@requires(Permission.VIEW)
async def list_discoveries(
    query: Annotated[DiscoveriesQuery, Query()], call: PlatformCall
) -> Response:
    """List banks and providers of mobile money of a country and a currency, all without filters."""
    found = [
        DiscoveryResource(
            bank_name=bank.bank_name,
            display_name=bank.display_name,
            country=bank.country,
            currency=bank.currency,
        )
        for bank in _directory(call).banks()
        if query.country in {None, bank.country} and query.currency in {None, bank.currency}
    ]
    found.sort(key=lambda bank: (bank.country, bank.currency, bank.display_name))
    return resource_response(DiscoveryList(data=found))


@router.get("/uma-providers", response_model=Page[UmaProviderResource], responses=_NOT_CONNECTED)
@requires(Permission.VIEW)
async def list_uma_providers(
    query: Annotated[UmaProvidersQuery, Query()], call: PlatformCall
) -> Response:
    """List providers of UMA addresses by name, from Z to A unless `sortOrder` is `asc`.

    With `hasBlockedProviders` `false`, without those to which payments are not allowed.
    """
    found = [
        UmaProviderResource(
            name=provider.name,
            domain=provider.domain,
            logo_url=provider.logo_url,
            lei=provider.lei,
            supported_regions=list(provider.supported_regions),
            supported_currencies=list(provider.supported_currencies),
            allow_list_status=provider.is_allowed,
        )
        for provider in _directory(call).uma_providers()
        if query.country_code is None or query.country_code in provider.supported_regions
        if query.currency_code is None or query.currency_code in provider.supported_currencies
        if query.has_blocked_providers != "false" or provider.is_allowed
    ]
    found.sort(key=lambda provider: provider.name, reverse=query.sort_order == "desc")
    listing = Listing(call, "uma-providers", query)
    return listing.response(_page(listing, found))


@router.get("/vasps", response_model=Page[VaspResource], responses=_NOT_CONNECTED)
@requires(Permission.VIEW)
async def list_vasps(query: Annotated[VaspsQuery, Query()], call: PlatformCall) -> Response:
    """List providers of wallets by name."""
    found = [VaspResource(vasp_name=vasp.name, url=vasp.url) for vasp in _directory(call).vasps()]
    found.sort(key=lambda vasp: vasp.vasp_name)
    listing = Listing(call, "vasps", query)
    return listing.response(_page(listing, found))


def _page(listing: Listing, items: Sequence[Item]) -> paging.Page[Item]:
    """Return a page of `items`, whose keys are their places."""
    wanted = listing.wanted(newest_first=False)
    first = 0 if wanted.after is None else int.from_bytes(wanted.after)
    shown = items[first : first + wanted.limit]
    end = first + len(shown)
    last = Id(end.to_bytes(_KEY_BYTES)) if end < len(items) else None
    return paging.Page(items=shown, last=last, total_count=len(items))


def _directory(call: PlatformContext) -> Directory:
    directory = call.services.adapters.directory
    if directory is None:
        raise NotConnectedError("directory of banks and providers")
    return directory
