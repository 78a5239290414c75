"""External accounts of customers and of the platform itself."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Final

from fastapi import Query, Response

from cardledger.api.http.errors import ApiError, error_response, invalid, not_found
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall, PlatformContext, RequestContext
from cardledger.api.http.responses import CREATED, Listing, capped, resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.ledger.customers import challenges, external_accounts
from cardledger.ledger.customers.external_accounts import Registration, RegistrationRefusal
from cardledger.ledger.platforms.scopes import Permission
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import ExternalAccountId, Page
from cardledger.schema.wire.customers.challenges import (
    ExternalAccountChallengeResource,
    ExternalAccountVerify,
)
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

router = guarded_router(_TAG)

_CHALLENGE_ERRORS: Final = error_responses(Code.CONFLICT, Code.NOT_IMPLEMENTED)
_VERIFY_ERRORS: Final = error_responses(Code.CONFLICT, Code.INVALID_AMOUNT)

REGISTRATION_ERRORS: Final = error_responses(Code.INVALID_CURRENCY, Code.INVALID_BANK_ACCOUNT)

_INVALID: Final[Mapping[RegistrationRefusal, Code]] = {
    RegistrationRefusal.INPUT: Code.INVALID_INPUT,
    RegistrationRefusal.CURRENCY: Code.INVALID_CURRENCY,
    RegistrationRefusal.NUMBER: Code.INVALID_BANK_ACCOUNT,
}


async def register(call: RequestContext, wanted: Registration) -> Response:
    """Register the account that `wanted` describes and return the response with it."""
    try:
        with capped():
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
    return resource_response(created, CREATED)


@router.post(
    _CUSTOMERS,
    status_code=CREATED,
    response_model=ExternalAccountResource,
    responses=REGISTRATION_ERRORS,
)
@requires(Permission.MANAGE)
async def create_customer_external_account(
    body: ExternalAccountCreate, call: PlatformCall
) -> Response:
    """Register an account of a customer or, without `customerId`, of the platform.

    In the sandbox the last three characters of the account's identifier decide the beneficiary
    check: `102` not matched, `103` partial match, `104` pending, `105` unknown account, `106`
    unsupported, `107` checked by the receiving institution, anything else matched. A customer has
    1,000 accounts at most, and so has the platform: one more is 409 `CONFLICT`.
    """
    wanted = Registration(
        customer_id=body.customer_id,
        currency=body.currency,
        info=body.account_info,
        platform_account_id=body.platform_account_id,
        is_default=body.default_uma_deposit_account,
    )
    return await register(call, wanted)


@router.get(_CUSTOMERS, response_model=Page[ExternalAccountResource])
@requires(Permission.VIEW)
async def list_customer_external_accounts(
    query: Annotated[ExternalAccountsQuery, Query()], call: PlatformCall
) -> Response:
    """List the external accounts of customers, oldest first."""
    filters = external_accounts.ExternalAccountFilters(
        customer_id=query.customer_id, currency=query.currency
    )
    return await _list(call, Listing(call, "customer-external-accounts", query), filters)


@router.get(_CUSTOMERS + "/{external_account_id}", response_model=ExternalAccountResource)
@requires(Permission.VIEW)
async def get_customer_external_account(
    external_account_id: ExternalAccountId, call: PlatformCall
) -> Response:
    """Return an external account of a customer or of the platform."""
    return await _get(call, external_account_id)


@router.delete(_CUSTOMERS + "/{external_account_id}", status_code=_NO_CONTENT)
@requires(Permission.MANAGE)
async def delete_customer_external_account(
    external_account_id: ExternalAccountId, call: PlatformCall
) -> Response:
    """Delete an external account of a customer or of the platform."""
    return await _delete(call, external_account_id)


@router.post(
    _PLATFORM,
    status_code=CREATED,
    response_model=ExternalAccountResource,
    responses=REGISTRATION_ERRORS,
)
@requires(Permission.MANAGE)
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


@router.get(_PLATFORM, response_model=Page[ExternalAccountResource])
@requires(Permission.VIEW)
async def list_platform_external_accounts(
    query: Annotated[PlatformExternalAccountsQuery, Query()], call: PlatformCall
) -> Response:
    """List the platform's own external accounts, oldest first."""
    filters = external_accounts.ExternalAccountFilters(currency=query.currency, of_platform=True)
    return await _list(call, Listing(call, "platform-external-accounts", query), filters)


@router.get(_PLATFORM + "/{external_account_id}", response_model=ExternalAccountResource)
@requires(Permission.VIEW)
async def get_platform_external_account(
    external_account_id: ExternalAccountId, call: PlatformCall
) -> Response:
    """Return an external account of the platform."""
    return await _get(call, external_account_id, of_platform=True)


@router.delete(_PLATFORM + "/{external_account_id}", status_code=_NO_CONTENT)
@requires(Permission.MANAGE)
async def delete_platform_external_account(
    external_account_id: ExternalAccountId, call: PlatformCall
) -> Response:
    """Delete an external account of the platform."""
    return await _delete(call, external_account_id, of_platform=True)


@router.post(
    _CUSTOMERS + "/{external_account_id}/challenge",
    status_code=CREATED,
    response_model=ExternalAccountChallengeResource,
    responses=_CHALLENGE_ERRORS,
)
@requires(Permission.MANAGE)
async def challenge_external_account(
    external_account_id: ExternalAccountId, call: PlatformCall
) -> Response:
    """Pay two small amounts to a `PENDING` account, for its owner to name within seven days.

    409 when the account is not `PENDING`, is a wallet, has an open challenge, or has had three
    within 30 days. In the sandbox an account whose identifier ends in `108` is `PENDING`, and the
    amounts are 12 and 34. 501 without a payment rail.
    """
    return await _challenge(call, external_account_id)


@router.post(
    _CUSTOMERS + "/{external_account_id}/verify",
    response_model=ExternalAccountResource,
    responses=_VERIFY_ERRORS,
)
@requires(Permission.MANAGE, Permission.VIEW)
async def verify_external_account(
    external_account_id: ExternalAccountId, body: ExternalAccountVerify, call: PlatformCall
) -> Response:
    """Name the amounts of a challenge; the right ones make the account `ACTIVE`.

    400 `INVALID_AMOUNT` for wrong ones, with `details.attemptsLeft`; 409 after five, without a
    challenge, and after its end.
    """
    return await _verify(call, external_account_id, body)


@router.post(
    _PLATFORM + "/{external_account_id}/challenge",
    status_code=CREATED,
    response_model=ExternalAccountChallengeResource,
    responses=_CHALLENGE_ERRORS,
)
@requires(Permission.MANAGE)
async def challenge_platform_external_account(
    external_account_id: ExternalAccountId, call: PlatformCall
) -> Response:
    """Pay two small amounts to a `PENDING` account of the platform, as for one of a customer."""
    return await _challenge(call, external_account_id, of_platform=True)


@router.post(
    _PLATFORM + "/{external_account_id}/verify",
    response_model=ExternalAccountResource,
    responses=_VERIFY_ERRORS,
)
@requires(Permission.MANAGE, Permission.VIEW)
async def verify_platform_external_account(
    external_account_id: ExternalAccountId, body: ExternalAccountVerify, call: PlatformCall
) -> Response:
    """Name the amounts of a challenge of the platform's account, as for one of a customer."""
    return await _verify(call, external_account_id, body, of_platform=True)


@contextmanager
def _fitting() -> Iterator[None]:
    try:
        yield
    except challenges.ChallengeRefusedError as error:
        details = {"reason": error.reason.value}
        raise ApiError(Code.CONFLICT, str(error), details=details) from None


async def _challenge(
    call: PlatformContext, account_id: Id, *, of_platform: bool = False
) -> Response:
    with _fitting():
        async with call.writing() as connection:
            started = await challenges.start(
                connection,
                platform_id=call.platform_id,
                account_id=account_id,
                of_platform=of_platform,
                verifier=call.services.adapters.account_verifier,
                at=call.now(),
            )
    if started is None:
        raise not_found(Code.REFERENCE_NOT_FOUND, "external account")
    return resource_response(started, CREATED)


async def _verify(
    call: PlatformContext,
    account_id: Id,
    body: ExternalAccountVerify,
    *,
    of_platform: bool = False,
) -> Response:
    with _fitting():
        async with call.writing() as connection:
            answered = await challenges.answer(
                connection,
                platform_id=call.platform_id,
                account_id=account_id,
                of_platform=of_platform,
                amounts=body.amounts,
                at=call.now(),
            )
    match answered:
        case None:
            raise not_found(Code.REFERENCE_NOT_FOUND, "external account")
        case challenges.WrongAmounts(attempts_left):
            # Returned, not raised: the attempt has to be committed.
            message = f"These are not the amounts that were paid; {attempts_left} attempts left."
            details = {"attemptsLeft": attempts_left}
            return error_response(ApiError(Code.INVALID_AMOUNT, message, details=details))
        case account:
            return resource_response(account)


async def _list(
    call: PlatformContext, listing: Listing, filters: external_accounts.ExternalAccountFilters
) -> Response:
    async with call.reading() as connection:
        page = await external_accounts.page(
            connection,
            platform_id=call.platform_id,
            filters=filters,
            wanted=listing.wanted(newest_first=False),
        )
    return listing.response(page)


async def _get(call: PlatformContext, account_id: Id, *, of_platform: bool = False) -> Response:
    async with call.reading() as connection:
        account = await external_accounts.get(
            connection,
            platform_id=call.platform_id,
            account_id=account_id,
            of_platform=of_platform,
        )
    if account is None:
        raise not_found(Code.REFERENCE_NOT_FOUND, "external account")
    return resource_response(account)


async def _delete(call: PlatformContext, account_id: Id, *, of_platform: bool = False) -> Response:
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
