"""Internal accounts: listing them, and putting sandbox money on them."""

from collections.abc import Mapping
from typing import Annotated, Any
from uuid import uuid4

from fastapi import Query, Response

from cardledger.api.http import idempotency, routing
from cardledger.api.http.errors import ApiError, invalid_field, not_found
from cardledger.api.http.operations import answers
from cardledger.api.http.request_context import AnyCall, PlatformCall
from cardledger.api.http.responses import CREATED, Listing, answer
from cardledger.ledger.customers import registry as customers
from cardledger.ledger.customers import updates
from cardledger.ledger.platforms.api_tokens import Permission
from cardledger.ledger.projections import accounts
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import InternalAccountId, Page
from cardledger.schema.wire.customers.accounts import (
    FundRequest,
    InternalAccountCreate,
    InternalAccountResource,
    InternalAccountsQuery,
    PlatformAccounts,
    PlatformAccountsQuery,
)
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.outcomes import OutcomeType, RejectionReason

_TAG = "Internal Accounts"

reads = routing.routes(Permission.VIEW, tag=_TAG)
writes = routing.routes(Permission.MANAGE, tag=_TAG)

_SOURCE = "sandbox"


async def _send(call: AnyCall, deposit: Mapping[str, Any]) -> Response:
    account_id = Id.parse(deposit["accountId"])
    outcome = await call.client.deposit(
        platform_id=call.platform_id,
        account_id=account_id,
        amount=deposit["amount"],
        source=_SOURCE,
        reference=deposit["reference"],
    )
    if outcome.reason == RejectionReason.AMOUNT_OUT_OF_RANGE:
        message = "the balance would leave the range of a 64-bit integer; fund less"
        raise ApiError(Code.AMOUNT_OUT_OF_RANGE, message)
    if outcome.reason == RejectionReason.ACCOUNT_NOT_ACTIVE:
        raise _not_active((await _account(call, account_id)).status)
    assert outcome.outcome in {OutcomeType.APPLIED, OutcomeType.DUPLICATE}, outcome
    return answer(await _account(call, account_id))


sandbox = routing.routes(Permission.TRANSACT, tag=routing.SANDBOX, send=_send)


@reads.get("/customers/internal-accounts", response_model=Page[InternalAccountResource])
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
    return listing.answer(page)


@writes.post(
    "/customers/internal-accounts",
    status_code=CREATED,
    response_model=InternalAccountResource,
    responses=answers(Code.INVALID_CURRENCY),
)
async def create_customer_internal_account(
    body: InternalAccountCreate, call: PlatformCall
) -> Response:
    """Open one more account of a customer, in one of the platform's currencies.

    An addition of ours: every customer gets one account per currency by itself, and a transfer
    needs two of one currency.
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
            f"the customer has {accounts.ACCOUNT_LIMIT} accounts, which is as many as one may have"
        )
        raise ApiError(Code.CONFLICT, message) from None
    if opened is None:
        raise invalid_field("customerId", "is not a customer of this platform")
    return answer(opened, CREATED)


@reads.get("/platform/internal-accounts", response_model=PlatformAccounts)
async def list_platform_internal_accounts(
    _query: Annotated[PlatformAccountsQuery, Query()],
) -> Response:
    """List the platform's own internal accounts: none, whatever is asked for.

    Nothing pays into or out of a platform yet, so no platform has an account of its own.
    """
    return answer(PlatformAccounts(data=[]))


@reads.get("/internal-accounts/{internal_account_id}", response_model=InternalAccountResource)
async def get_internal_account(
    internal_account_id: InternalAccountId, call: PlatformCall
) -> Response:
    """Return an internal account."""
    return answer(await _account(call, internal_account_id))


@sandbox.post(
    "/sandbox/internal-accounts/{internal_account_id}/fund",
    response_model=InternalAccountResource,
    responses=answers(Code.AMOUNT_OUT_OF_RANGE),
)
async def fund_internal_account(
    internal_account_id: InternalAccountId, body: FundRequest, call: PlatformCall
) -> Response:
    """Put `amount` on an internal account; the answer shows it with the money on it."""
    before = await _account(call, internal_account_id)
    if before.status != accounts.ACTIVE:
        raise _not_active(before.status)
    deposit = {
        "accountId": str(internal_account_id),
        "amount": body.amount,
        "reference": str(uuid4()),
    }
    return await _send(call, await idempotency.settle(call, deposit))


async def _account(call: AnyCall, account_id: Id) -> InternalAccountResource:
    async with call.reading() as connection:
        found = await accounts.get(connection, platform_id=call.platform_id, account_id=account_id)
    if found is None:
        raise not_found(Code.REFERENCE_NOT_FOUND, "internal account")
    return found


def _not_active(status: str) -> ApiError:
    message = f"the account is {status}; only an ACTIVE account can be funded"
    return ApiError(Code.INVALID_INPUT, message, details={"reason": "ACCOUNT_NOT_ACTIVE"})
