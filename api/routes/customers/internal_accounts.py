"""Internal accounts."""

from typing import Annotated

from fastapi import Query, Response

from cardledger.api.http.errors import ApiError, invalid_field, not_found
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall, RequestContext
from cardledger.api.http.responses import CREATED, Listing, resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.ledger.customers import registry as customers
from cardledger.ledger.customers import updates
from cardledger.ledger.platforms import registry as platforms
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.projections import accounts
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import InternalAccountId, Page
from cardledger.schema.wire.customers.accounts import (
    InternalAccountCreate,
    InternalAccountResource,
    InternalAccountsQuery,
    PlatformAccounts,
    PlatformAccountsQuery,
)
from cardledger.schema.wire.errors import Code

_TAG = "Internal Accounts"

router = guarded_router(_TAG)


@router.get("/customers/internal-accounts", response_model=Page[InternalAccountResource])
@requires(Permission.VIEW)
async def list_customer_internal_accounts(
    query: Annotated[InternalAccountsQuery, Query()], call: PlatformCall
) -> Response:
    """List the internal accounts of customers, oldest first."""
    listing = Listing(call, "internal-accounts", query)
    filters = accounts.AccountFilters(
        currency=query.currency, customer_id=query.customer_id, type=query.type
    )
    async with call.reading() as connection:
        page = await accounts.page(
            connection,
            platform_id=call.platform_id,
            filters=filters,
            wanted=listing.wanted(newest_first=False),
        )
    return listing.response(page)


@router.post(
    "/customers/internal-accounts",
    status_code=CREATED,
    response_model=InternalAccountResource,
    responses=error_responses(Code.INVALID_CURRENCY),
)
@requires(Permission.MANAGE)
async def create_customer_internal_account(
    body: InternalAccountCreate, call: PlatformCall
) -> Response:
    """Open another account of a customer, in one of the platform's currencies.

    Customers have one account per currency from the start; a transfer within one currency needs a
    second one.
    """
    try:
        async with call.writing() as connection:
            opened = await updates.open_account(
                connection,
                platform_id=call.platform_id,
                customer_id=body.customer_id,
                currency=body.currency,
                at=call.now(),
            )
    except customers.UnsupportedCurrencyError as error:
        message = f"must be one of {', '.join(error.supported)}"
        raise invalid_field("currency", message, Code.INVALID_CURRENCY) from None
    except customers.CustomerDeletedError:
        opened = None
    except accounts.TooManyAccountsError:
        message = (
            f"The customer has {accounts.ACCOUNT_LIMIT} accounts, the maximum; use one of them."
        )
        raise ApiError(Code.CONFLICT, message) from None
    if opened is None:
        raise invalid_field("customerId", "is not a customer of this platform")
    return resource_response(opened, CREATED)


@router.get("/platform/internal-accounts", response_model=PlatformAccounts)
@requires(Permission.VIEW)
async def list_platform_internal_accounts(
    query: Annotated[PlatformAccountsQuery, Query()], call: PlatformCall
) -> Response:
    """List the platform's own internal accounts, one per currency that it supports, oldest first.

    Fees of its customers' payments are credited to them; transfers go out of them and into them.
    """
    async with call.reading() as connection:
        platform = await platforms.get(connection, call.platform_id)
        owned = await accounts.platform_accounts(connection, platform_id=call.platform_id)
    missing = set(platform.supported_currencies) - {
        account.balance.currency.code for account in owned
    }
    if missing:  # At the first time, and after a currency was added.
        async with call.writing() as connection:
            await accounts.open_platform_accounts(
                connection, platform_id=call.platform_id, currencies=missing, at=call.now()
            )
            owned = await accounts.platform_accounts(connection, platform_id=call.platform_id)
    listed = [account for account in owned if _matches(account, query)]
    return resource_response(PlatformAccounts(data=listed))


def _matches(account: InternalAccountResource, query: PlatformAccountsQuery) -> bool:
    return query.currency in {None, account.balance.currency.code} and query.type in {
        None,
        account.type,
    }


@router.get("/internal-accounts/{internal_account_id}", response_model=InternalAccountResource)
@requires(Permission.VIEW)
async def get_internal_account(
    internal_account_id: InternalAccountId, call: PlatformCall
) -> Response:
    """Return an internal account."""
    return resource_response(await internal_account(call, internal_account_id))


async def internal_account(call: RequestContext, account_id: Id) -> InternalAccountResource:
    """Return the platform's internal account.

    Raises: ApiError REFERENCE_NOT_FOUND.
    """
    async with call.reading() as connection:
        account = await accounts.get(
            connection, platform_id=call.platform_id, account_id=account_id
        )
    if account is None:
        raise not_found(Code.REFERENCE_NOT_FOUND, "internal account")
    return account
