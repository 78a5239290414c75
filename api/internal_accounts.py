"""Internal accounts: listing them, and putting sandbox money on them."""

from collections.abc import Mapping
from typing import Annotated, Any
from uuid import UUID, uuid4

from fastapi import Query, Response

from api import once, routing
from api.answers import Listing, answer
from api.context import Call, Here
from api.errors import ApiError, not_found
from ledger import accounts
from ledger.tokens import Permission
from schema.wire.accounts import (
    FundRequest,
    InternalAccountResource,
    InternalAccountsQuery,
    PlatformAccounts,
    PlatformAccountsQuery,
)
from schema.wire.common import InternalAccountId, Page
from schema.wire.errors import Code
from schema.wire.outcomes import OutcomeType, RejectionReason

reads = routing.routes(Permission.VIEW, tag="Internal Accounts")

_SOURCE = "sandbox"


async def _send(call: Call, deposit: Mapping[str, Any]) -> Response:
    account_id = UUID(deposit["accountId"])
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
    assert outcome.outcome in {OutcomeType.APPLIED, OutcomeType.DUPLICATE}, outcome
    return answer(await _account(call, account_id))


sandbox = routing.routes(Permission.TRANSACT, tag=routing.SANDBOX, send=_send)


@reads.get("/customers/internal-accounts", response_model=Page[InternalAccountResource])
async def list_customer_internal_accounts(
    query: Annotated[InternalAccountsQuery, Query()], call: Here
) -> Response:
    """List the internal accounts of customers, oldest first."""
    listing = Listing(call, "internal-accounts", query)
    filters = accounts.Filters(
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


@reads.get("/platform/internal-accounts", response_model=PlatformAccounts)
async def list_platform_internal_accounts(
    _query: Annotated[PlatformAccountsQuery, Query()],
) -> Response:
    """List the platform's own internal accounts: none, whatever is asked for.

    Nothing pays into or out of a platform yet, so no platform has an account of its own.
    """
    return answer(PlatformAccounts(data=[]))


@sandbox.post(
    "/sandbox/internal-accounts/{internal_account_id}/fund",
    response_model=InternalAccountResource,
)
async def fund_internal_account(
    internal_account_id: InternalAccountId, body: FundRequest, call: Here
) -> Response:
    """Put `amount` on an internal account; the answer shows it with the money on it."""
    before = await _account(call, internal_account_id)
    if before.status != accounts.ACTIVE:
        message = f"the account is {before.status}; only an ACTIVE account can be funded"
        raise ApiError(Code.INVALID_INPUT, message, details={"reason": "ACCOUNT_NOT_ACTIVE"})
    deposit = {
        "accountId": str(internal_account_id),
        "amount": body.amount,
        "reference": str(uuid4()),
    }
    return await _send(call, await once.settle(call, deposit))


async def _account(call: Call, account_id: UUID) -> InternalAccountResource:
    async with call.reading() as connection:
        found = await accounts.get(connection, platform_id=call.platform_id, account_id=account_id)
    if found is None:
        raise not_found(Code.REFERENCE_NOT_FOUND, "internal account")
    return found
