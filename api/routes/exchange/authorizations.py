"""Authorization of quotes by customers who have to authenticate (SCA)."""

from collections.abc import Mapping
from typing import Any, Final

from fastapi import Response
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall, RequestContext
from cardledger.api.http.responses import resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.api.routes import transactions
from cardledger.api.routes.customers.authentication.refusals import refusal
from cardledger.api.routes.exchange import challenges, outside, quotes
from cardledger.ledger.customers.authentication import payments
from cardledger.ledger.customers.authentication.refusals import Refused
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.quotes import records
from cardledger.ledger.quotes.execution import Execution
from cardledger.ledger.quotes.records import PENDING, PENDING_AUTHORIZATION, Quote
from cardledger.ledger.quotes.refusals import QuoteRefusedError, Refusal
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import QuoteId
from cardledger.schema.wire.customers.authentication import ScaAnswer
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.exchange.quotes import QuoteResource

router = guarded_router("Cross-Currency Transfers")

_NO_CONTENT: Final = 204
_ERRORS: Final[Mapping[int | str, Any]] = error_responses(
    Code.CONFLICT, Code.ACCOUNT_LOCKED, Code.RATE_LIMITED
)


@router.post("/quotes/{quote_id}/authorize", response_model=QuoteResource, responses={**_ERRORS})
@requires(Permission.TRANSACT, prepare=outside.ask_again, waits=True)
async def authorize_quote(quote_id: QuoteId, body: ScaAnswer, call: PlatformCall) -> Response:
    """Authorize a quote with the code that its customer has received, or with a passkey.

    The quote can be executed afterwards; with `immediatelyExecute` it is. 409 `CONFLICT` for a
    quote that does not wait for this. The fifth wrong code in a row locks the customer for 30
    minutes, 423 `ACCOUNT_LOCKED`.
    """
    done: Execution | None = None
    with quotes.refusals():
        async with call.writing() as connection:
            quote = await _waiting(call, connection, quote_id)
            refused = await payments.answer(
                connection,
                platform_id=call.platform_id,
                customer_id=quote.customer_id,
                subject=challenges.subject_of(quote),
                challenge_id=body.challenge_id,
                code=body.code,
                passkey_assertion=body.passkey_assertion,
                origin=body.origin,
                party=call.services.passkeys,
                keys=call.keys,
                at=call.now(),
            )
            if refused is not None:
                return refusal(refused)
            await connection.execute(records.set_status(quote, PENDING, at=call.now()))
            if quote.executes_at_once and not quote.is_funded:
                done = await quotes.executed_if_funded(call, connection, quote)
    if done is not None:
        await transactions.carry_out(call, done.message)
    return resource_response(await quotes.rendered(call, await quotes.shown(call, quote_id)))


@router.post("/quotes/{quote_id}/authorize/resend", status_code=_NO_CONTENT, responses={**_ERRORS})
@requires(Permission.TRANSACT)
async def resend_quote_authorization(quote_id: QuoteId, call: PlatformCall) -> Response:
    """Send the customer another code, which replaces the one before."""
    sender = call.code_sender
    with quotes.refusals():
        async with call.writing() as connection:
            quote = await _waiting(call, connection, quote_id)
            if sender is None:
                message = "Nothing is connected that can send a code; create the quote again."
                raise QuoteRefusedError(Refusal.STATE, message, reason="NO_CODE_SENDER")
            sent = await challenges.send(call, connection, quote, sender)
            if isinstance(sent, Refused):
                return refusal(sent)
    return Response(status_code=_NO_CONTENT)


async def _waiting(call: RequestContext, connection: AsyncConnection, quote_id: Id) -> Quote:
    """Lock and return a quote that waits for the authorization of its customer."""
    quote = await quotes.locked(call, connection, quote_id)
    if quote.status != PENDING_AUTHORIZATION or quote.is_expired(call.now()):
        message = "The quote does not wait for an authorization of its customer."
        raise QuoteRefusedError(Refusal.STATE, message, reason="NO_AUTHORIZATION_DUE")
    return quote
