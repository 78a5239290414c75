"""Internal accounts: listing them, and putting sandbox money on them."""

from typing import Annotated
from uuid import uuid4

from fastapi import Query, Response

from api import routing
from api.answers import Listing, answer
from api.context import Here
from api.errors import ApiError, not_found
from ledger import accounts
from ledger.tokens import Permission
from schema.wire.accounts import FundRequest, InternalAccountResource, InternalAccountsQuery
from schema.wire.common import InternalAccountId, Page
from schema.wire.errors import Code
from schema.wire.outcomes import OutcomeType, RejectionReason

reads = routing.routes(Permission.VIEW, tag="Internal Accounts")
sandbox = routing.routes(Permission.TRANSACT, tag=routing.SANDBOX)

_SOURCE = "sandbox"


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
    outcome = await call.client.deposit(
        platform_id=call.platform_id,
        account_id=internal_account_id,
        amount=body.amount,
        source=_SOURCE,
        reference=str(uuid4()),
    )
    if outcome.reason == RejectionReason.AMOUNT_OUT_OF_RANGE:
        message = "the balance would leave the range of a 64-bit integer; fund less"
        raise ApiError(Code.AMOUNT_OUT_OF_RANGE, message)
    assert outcome.outcome is OutcomeType.APPLIED, outcome
    return answer(await _account(call, internal_account_id))


async def _account(call: Here, account_id: InternalAccountId) -> InternalAccountResource:
    async with call.reading() as connection:
        found = await accounts.get(connection, platform_id=call.platform_id, account_id=account_id)
    if found is None:
        raise not_found(Code.REFERENCE_NOT_FOUND, "internal account")
    return found
