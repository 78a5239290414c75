"""External accounts of customers and of the platform itself."""

from collections.abc import Mapping
from typing import Annotated, Final

from fastapi import Query, Response

from cardledger.api.http import routing
from cardledger.api.http.errors import ApiError, invalid, not_found
from cardledger.api.http.operations import answers
from cardledger.api.http.request_context import AnyCall, Call, PlatformCall
from cardledger.api.http.responses import CREATED, Listing, answer
from cardledger.ledger.customers import external_accounts
from cardledger.ledger.customers.external_accounts import Registration, RegistrationRefusal
from cardledger.ledger.platforms.api_tokens import Permission
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import ExternalAccountId, Page
from cardledger.schema.wire.customers.external_accounts import (
    ExternalAccountCreate,
    ExternalAccountResource,
    ExternalAccountsQuery,
    PlatformExternalAccountCreate,
    PlatformExternalAccountsQuery,
)
from cardledger.schema.wire.errors import Code, sentence

_TAG = "External Accounts"
_CUSTOMERS = "/customers/external-accounts"
_PLATFORM = "/platform/external-accounts"
_NO_CONTENT = 204

reads = routing.routes(Permission.VIEW, tag=_TAG)
writes = routing.routes(Permission.MANAGE, tag=_TAG)

REFUSES: Final = answers(Code.INVALID_CURRENCY, Code.INVALID_BANK_ACCOUNT)

_INVALID: Final[Mapping[RegistrationRefusal, Code]] = {
    RegistrationRefusal.INPUT: Code.INVALID_INPUT,
    RegistrationRefusal.CURRENCY: Code.INVALID_CURRENCY,
    RegistrationRefusal.NUMBER: Code.INVALID_BANK_ACCOUNT,
}


async def register(call: AnyCall, wanted: Registration) -> Response:
    """Answer with the account that `wanted` describes, for whoever it is registered."""
    try:
        async with call.writing() as connection:
            created = await external_accounts.create(
                connection,
                platform_id=call.platform_id,
                wanted=wanted,
                verifier=call.services.adapters.account_verifier,
                at=call.now(),
            )
    except external_accounts.RegistrationRefusedError as error:
        if error.refusal is RegistrationRefusal.DUPLICATE:
            raise ApiError(Code.CONFLICT, sentence(error.errors)) from None
        raise invalid(error.errors, _INVALID[error.refusal]) from None
    return answer(created, CREATED)


@writes.post(
    _CUSTOMERS,
    status_code=CREATED,
    response_model=ExternalAccountResource,
    responses=REFUSES,
)
async def create_customer_external_account(
    body: ExternalAccountCreate, call: PlatformCall
) -> Response:
    """Register an account of a customer; without `customerId`, of the platform.

    In the sandbox the end of the account's identifier decides on the name check: `102` not
    matched, `103` partial match, `104` pending, `105` no such account, `106` unsupported, `107`
    checked by the receiving institution, anything else matched.
    """
    wanted = Registration(
        customer_id=body.customer_id,
        currency=body.currency,
        info=body.account_info,
        platform_account_id=body.platform_account_id,
        is_default=body.default_uma_deposit_account,
    )
    return await register(call, wanted)


@reads.get(_CUSTOMERS, response_model=Page[ExternalAccountResource])
async def list_customer_external_accounts(
    query: Annotated[ExternalAccountsQuery, Query()], call: PlatformCall
) -> Response:
    """List the external accounts of customers, oldest first."""
    filters = external_accounts.ExternalAccountFilters(
        customer_id=query.customer_id, currency=query.currency
    )
    return await _list(call, Listing(call, "customer-external-accounts", query), filters)


@reads.get(_CUSTOMERS + "/{external_account_id}", response_model=ExternalAccountResource)
async def get_customer_external_account(
    external_account_id: ExternalAccountId, call: PlatformCall
) -> Response:
    """Return an external account, of whichever owner."""
    return await _get(call, external_account_id)


@writes.delete(_CUSTOMERS + "/{external_account_id}", status_code=_NO_CONTENT)
async def delete_customer_external_account(
    external_account_id: ExternalAccountId, call: PlatformCall
) -> Response:
    """Delete an external account, of whichever owner."""
    return await _delete(call, external_account_id)


@writes.post(
    _PLATFORM,
    status_code=CREATED,
    response_model=ExternalAccountResource,
    responses=REFUSES,
)
async def create_platform_external_account(
    body: PlatformExternalAccountCreate, call: PlatformCall
) -> Response:
    """Register an account of the platform."""
    wanted = Registration(
        customer_id=None,
        currency=body.currency,
        info=body.account_info,
        platform_account_id=body.platform_account_id,
    )
    return await register(call, wanted)


@reads.get(_PLATFORM, response_model=Page[ExternalAccountResource])
async def list_platform_external_accounts(
    query: Annotated[PlatformExternalAccountsQuery, Query()], call: PlatformCall
) -> Response:
    """List the platform's own external accounts, oldest first."""
    filters = external_accounts.ExternalAccountFilters(currency=query.currency, of_platform=True)
    return await _list(call, Listing(call, "platform-external-accounts", query), filters)


@reads.get(_PLATFORM + "/{external_account_id}", response_model=ExternalAccountResource)
async def get_platform_external_account(
    external_account_id: ExternalAccountId, call: PlatformCall
) -> Response:
    """Return an external account of the platform."""
    return await _get(call, external_account_id, of_platform=True)


@writes.delete(_PLATFORM + "/{external_account_id}", status_code=_NO_CONTENT)
async def delete_platform_external_account(
    external_account_id: ExternalAccountId, call: PlatformCall
) -> Response:
    """Delete an external account of the platform."""
    return await _delete(call, external_account_id, of_platform=True)


async def _list(
    call: Call, listing: Listing, filters: external_accounts.ExternalAccountFilters
) -> Response:
    async with call.reading() as connection:
        page = await external_accounts.page(
            connection,
            platform_id=call.platform_id,
            filters=filters,
            wanted=listing.wanted(newest_first=False),
        )
    return listing.answer(page)


async def _get(call: Call, account_id: Id, *, of_platform: bool = False) -> Response:
    async with call.reading() as connection:
        found = await external_accounts.get(
            connection,
            platform_id=call.platform_id,
            account_id=account_id,
            of_platform=of_platform,
        )
    if found is None:
        raise not_found(Code.REFERENCE_NOT_FOUND, "external account")
    return answer(found)


async def _delete(call: Call, account_id: Id, *, of_platform: bool = False) -> Response:
    async with call.writing() as connection:
        existed = await external_accounts.delete(
            connection,
            platform_id=call.platform_id,
            account_id=account_id,
            at=call.now(),
            of_platform=of_platform,
        )
    if not existed:
        raise not_found(Code.REFERENCE_NOT_FOUND, "external account")
    return Response(status_code=_NO_CONTENT)
