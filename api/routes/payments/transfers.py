"""Transfers within one currency: to external accounts, from them, and between internal ones."""

from collections.abc import Mapping
from typing import Final

from fastapi import Response
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.http.errors import ApiError, invalid_field, not_found
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall, PlatformContext, RequestContext
from cardledger.api.http.responses import CREATED
from cardledger.api.http.routing import guarded_router, requires
from cardledger.api.routes import transactions
from cardledger.api.routes.payments.amounts import required_amount
from cardledger.ledger.core.payments.payment import Kind
from cardledger.ledger.customers.authentication import payments as authentication
from cardledger.ledger.payments import drafts, requests
from cardledger.ledger.payments.drafts import Refusal, RefusedError, Wanted
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.projections.transfers import Transfer
from cardledger.schema.wire.cards.transactions import PaymentResource
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.payments.transfers import TransferInCreate, TransferOutCreate

router = guarded_router("Same-Currency Transfers")

CODES: Final[Mapping[Refusal, Code]] = {
    Refusal.UNKNOWN: Code.REFERENCE_NOT_FOUND,
    Refusal.SAME_ACCOUNT: Code.SELF_PAYMENT,
    Refusal.ACCOUNT: Code.INVALID_INPUT,
    Refusal.UNVERIFIED: Code.EXTERNAL_ACCOUNT_VERIFICATION_REQUIRED,
    Refusal.NOT_READY: Code.USER_NOT_READY,
    Refusal.CURRENCY: Code.INVALID_CURRENCY,
    Refusal.RAIL: Code.INVALID_INPUT,
    Refusal.RANGE: Code.AMOUNT_OUT_OF_RANGE,
    Refusal.FUNDS: Code.INVALID_AMOUNT,
}
"""The code of each refusal."""

ERRORS: Final = error_responses(
    *(code for code in CODES.values() if code != Code.INVALID_INPUT), Code.SCA_SESSION_REQUIRED
)
"""The errors of transfers."""


@router.post("/transfer-out", status_code=CREATED, response_model=PaymentResource, responses=ERRORS)
@requires(Permission.TRANSACT, waits=True)
async def transfer_out(body: TransferOutCreate, call: PlatformCall) -> Response:
    """Transfer money from an internal account to an external one, or to another internal one.

    The source is a customer's or the platform's own, and is debited at once. The response waits for
    the ledger: a transfer to another internal account of the owner is `COMPLETED`, one to an
    external account has the status that its rail has reported so far. With an `Idempotency-Key` the
    response does not wait, and webhooks report what becomes of the transfer. A transfer that fails
    or is returned is refunded.
    """
    wanted = Wanted(
        source=body.source.account_id,
        destination=body.destination.account_id,
        amount=required_amount(body.amount),
        payment_rail=body.destination.payment_rail,
        remittance_information=body.remittance_information,
        purpose_of_payment=body.purpose_of_payment,
    )
    return await _request(call, wanted, drafts.transfer_out)


@router.post("/transfer-in", status_code=CREATED, response_model=PaymentResource, responses=ERRORS)
@requires(Permission.TRANSACT, waits=True)
async def transfer_in(body: TransferInCreate, call: PlatformCall) -> Response:
    """Collect money from an external account into an internal account of the same owner.

    Only from accounts that can be collected from: those with the rail `ACH`. The internal account
    is credited when the money has arrived, which a webhook reports; a collection that fails changes
    no balance.
    """
    wanted = Wanted(
        source=body.source.account_id,
        destination=body.destination.account_id,
        amount=required_amount(body.amount),
    )
    return await _request(call, wanted, drafts.transfer_in)


async def check_authentication(
    call: RequestContext, connection: AsyncConnection, transfer: Transfer
) -> None:
    """Refuse a payment that its customer has to authenticate, which a transfer cannot ask for.

    Raises: ApiError SCA_SESSION_REQUIRED.
    """
    is_of_customer = transfer.customer_id != transfer.platform_id
    leaves = transfer.kind == Kind.OUT and transfer.peer_id != transfer.platform_id
    if not (is_of_customer and leaves):
        return
    if await authentication.is_required(
        connection,
        platform_id=call.platform_id,
        customer_id=transfer.customer_id,
        external_account_id=(transfer.destination_account_id if transfer.peer_id is None else None),
        sender=call.code_sender,
    ):
        message = (
            "The customer has to authenticate payments to this account; let the customer trust the"
            " account first, or pay by a quote."
        )
        raise ApiError(Code.SCA_SESSION_REQUIRED, message)


def refused(error: RefusedError) -> ApiError:
    """Return the response to a transfer that is refused."""
    if error.refusal is Refusal.UNKNOWN:
        return not_found(Code.REFERENCE_NOT_FOUND, str(error))
    code = CODES[error.refusal]
    if error.refusal in _SENTENCES:
        return ApiError(code, str(error), details=_reason(error))
    invalid = invalid_field(error.field, str(error), code)
    details = {**(invalid.details or {}), **(_reason(error) or {})}
    return ApiError(code, invalid.message, details=details)


_SENTENCES: Final = frozenset({Refusal.SAME_ACCOUNT, Refusal.NOT_READY, Refusal.CURRENCY})
"""Refusals that say more than what is wrong with a field."""


def _reason(error: RefusedError) -> Mapping[str, str] | None:
    return None if error.reason is None else {"reason": error.reason}


async def _request(call: PlatformContext, wanted: Wanted, draft: drafts.Draft) -> Response:
    try:
        async with call.writing() as connection:
            at = call.now()
            transfer = await draft(connection, platform_id=call.platform_id, wanted=wanted, at=at)
            await check_authentication(call, connection, transfer)
            message = await requests.submit(
                connection,
                transfer,
                inbox_key=call.client.inbox_key,
                reply_to=call.client.reply_list,
                at=at,
            )
    except RefusedError as error:
        raise refused(error) from None
    return await transactions.after(call, transfer, message, status=CREATED)
