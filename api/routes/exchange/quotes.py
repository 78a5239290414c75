"""Quotes: created, read, executed once, and paid from outside in a sandbox."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from fastapi import Response
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.http.errors import ApiError, invalid_field, not_found
from cardledger.api.http.operations import ACCEPTED, also, error_responses
from cardledger.api.http.request_context import PlatformCall, RequestContext
from cardledger.api.http.responses import CREATED, resource_response
from cardledger.api.http.routing import SANDBOX, guarded_router, requires
from cardledger.api.routes import transactions
from cardledger.api.routes.customers.authentication.refusals import error_of
from cardledger.api.routes.exchange import challenges, outside
from cardledger.ledger.core.payments.conversion import Fees, LockedSide
from cardledger.ledger.customers.authentication.refusals import Refused
from cardledger.ledger.platforms import registry as platforms
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.ports import UmaFailedError, UmaFailure
from cardledger.ledger.quotes import drafts, execution, records, resources
from cardledger.ledger.quotes.drafts import Funding, UmaAddress, Wanted
from cardledger.ledger.quotes.receivers import Lookup
from cardledger.ledger.quotes.records import Quote, Shown
from cardledger.ledger.quotes.refusals import QuoteRefusedError, Refusal
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema.ids import Id
from cardledger.schema.wire.cards.transactions import TransactionResource
from cardledger.schema.wire.common import QuoteId, TypedId, format_amount
from cardledger.schema.wire.customers.authentication import ScaChallengeResource
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.exchange.quotes import (
    QuoteCreate,
    QuoteRealtimeFundingSource,
    QuoteResource,
    QuoteUmaDestination,
    SandboxSend,
)

router = guarded_router("Cross-Currency Transfers")
sandbox_router = guarded_router(SANDBOX)

CODES: Final[Mapping[Refusal, Code]] = {
    Refusal.INPUT: Code.INVALID_INPUT,
    Refusal.CURRENCY: Code.INVALID_CURRENCY,
    Refusal.RANGE: Code.AMOUNT_OUT_OF_RANGE,
    Refusal.FUNDS: Code.INVALID_AMOUNT,
    Refusal.SELF: Code.SELF_PAYMENT,
    Refusal.RATE: Code.QUOTE_REQUEST_FAILED,
    Refusal.NOT_READY: Code.USER_NOT_READY,
    Refusal.UNVERIFIED: Code.EXTERNAL_ACCOUNT_VERIFICATION_REQUIRED,
    Refusal.NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    Refusal.UNKNOWN_LOOKUP: Code.LOOKUP_REQUEST_NOT_FOUND,
    Refusal.UNKNOWN_UMA: Code.UMA_NOT_FOUND,
    Refusal.NOT_ALLOWED: Code.COUNTERPARTY_NOT_ALLOWED,
    Refusal.MISSING_INFO: Code.MISSING_REQUIRED_UMA_PARAMETERS,
    Refusal.STATE: Code.CONFLICT,
}
"""The code of each refusal."""

UMA_CODES: Final[Mapping[UmaFailure, Code]] = {
    UmaFailure.UNSUPPORTED_VERSION: Code.UNSUPPORTED_UMA_VERSION,
    UmaFailure.NO_COMMON_VERSION: Code.NO_COMPATIBLE_UMA_VERSION,
    UmaFailure.LOOK_UP_FAILED: Code.LNURLP_REQUEST_FAILED,
    UmaFailure.KEYS_UNAVAILABLE: Code.COUNTERPARTY_PUBKEY_FETCH_ERROR,
    UmaFailure.PAYMENT_REQUEST_FAILED: Code.PAYREQ_REQUEST_FAILED,
}
_UMA_MESSAGES: Final[Mapping[UmaFailure, str]] = {
    UmaFailure.UNSUPPORTED_VERSION: "The receiver's institution uses a version of UMA that is not"
    " supported; pay another address.",
    UmaFailure.NO_COMMON_VERSION: "There is no version of UMA that the receiver's institution"
    " supports, too; pay another address.",
    UmaFailure.LOOK_UP_FAILED: "The receiver's institution did not answer; retry later.",
    UmaFailure.KEYS_UNAVAILABLE: "The public keys of the receiver's institution could not be"
    " fetched; retry later.",
    UmaFailure.PAYMENT_REQUEST_FAILED: "The receiver's institution refused the payment request;"
    " retry later.",
}

_CREATED_CODES: Final = tuple(
    code for refusal, code in CODES.items() if refusal not in {Refusal.INPUT, Refusal.STATE}
)
ERRORS: Final = error_responses(
    *_CREATED_CODES, *UMA_CODES.values(), Code.ACCOUNT_LOCKED, Code.RATE_LIMITED
) | also(ACCEPTED)
"""The errors of a quote that is created."""

EXECUTION_ERRORS: Final = error_responses(Code.INVALID_AMOUNT, Code.CONFLICT)
"""The errors of a quote that is executed."""


@router.post("/quotes", status_code=CREATED, response_model=QuoteResource, responses=ERRORS)
@requires(Permission.TRANSACT, prepare=outside.ask)
async def create_quote(body: QuoteCreate, call: PlatformCall) -> Response:
    """Create a quote: the amounts, the rate and the fees of a payment, promised for five minutes.

    Nothing is debited before it is executed; with `immediatelyExecute` that is at once. A quote
    with the source `REALTIME_FUNDING` has payment instructions, and is executed when the money
    arrives. For a customer who has to authenticate, it is `PENDING_AUTHORIZATION` first, with an
    `scaChallenge` and without payment instructions (then 202). A platform may have 50,000,000
    quotes: one more is 409 `CONFLICT`.
    """
    return await create(call, wanted_of(body, call.keys))


@router.get("/quotes/{quote_id}", response_model=QuoteResource)
@requires(Permission.VIEW)
async def get_quote(quote_id: QuoteId, call: PlatformCall) -> Response:
    """Return a quote; after its execution its status is that of its transaction.

    A quote that expired unexecuted is deleted after some time, then it is 404 `QUOTE_NOT_FOUND`.
    """
    return resource_response(await rendered(call, await shown(call, quote_id)))


@router.post("/quotes/{quote_id}/execute", response_model=QuoteResource, responses=EXECUTION_ERRORS)
@requires(Permission.TRANSACT, waits=True)
async def execute_quote(quote_id: QuoteId, call: PlatformCall) -> Response:
    """Execute a quote: its source is debited at once, and it cannot be cancelled.

    A quote is executed once: an executed or expired one is 409 `CONFLICT`, as is one that is paid
    from outside. The response waits for the ledger; with an `Idempotency-Key` the status is
    `PROCESSING`, and webhooks report the result.
    """
    with refusals():
        async with call.writing() as connection:
            quote = await locked(call, connection, quote_id)
            if quote.is_funded:
                message = "The quote is paid by its paymentInstructions, not from an account."
                raise QuoteRefusedError(Refusal.STATE, message, reason="REALTIME_FUNDING")
            done = await execution.execute(
                connection,
                quote,
                inbox_key=call.client.inbox_key,
                reply_to=call.client.reply_list,
                at=call.now(),
            )
    await transactions.carry_out(call, done.message)
    return resource_response(await rendered(call, await shown(call, quote_id)))


@sandbox_router.post(
    "/sandbox/send",
    response_model=TransactionResource,
    responses=error_responses(
        Code.QUOTE_NOT_FOUND, Code.INVALID_CURRENCY, Code.INVALID_AMOUNT, Code.CONFLICT
    ),
)
@requires(Permission.TRANSACT, Permission.VIEW, waits=True)
async def simulate_send(body: SandboxSend, call: PlatformCall) -> Response:
    """Pay a quote from outside, as its payment instructions say, and return its transaction."""
    with refusals():
        async with call.writing() as connection:
            quote = await locked(call, connection, body.quote_id)
            _check_payment(quote, body)
            done = await execution.execute(
                connection,
                quote,
                inbox_key=call.client.inbox_key,
                reply_to=call.client.reply_list,
                at=call.now(),
            )
    return await transactions.after(call, done.transfer, done.message)


def _check_payment(quote: Quote, body: SandboxSend) -> None:
    if not quote.is_funded:
        message = "The quote is paid from an account; execute it."
        raise QuoteRefusedError(Refusal.STATE, message, reason="NOT_REALTIME_FUNDING")
    if body.currency_code != quote.sending_currency:
        message = f"must be {quote.sending_currency}, the currency that the quote sends"
        raise QuoteRefusedError(Refusal.CURRENCY, message, field="currencyCode")
    if body.currency_amount not in {None, quote.sending_amount}:
        needed = format_amount(quote.sending_amount, quote.sending_currency)
        message = f"must be what the quote needs, {needed}"
        raise QuoteRefusedError(
            Refusal.FUNDS, message, field="currencyAmount", reason="FUNDING_AMOUNT_MISMATCH"
        )


# --- for agents as well --------------------------------------------------------------------------


def wanted_of(
    body: QuoteCreate, keys: KeyRing, *, customer_id: Id | None = None, agent_id: Id | None = None
) -> Wanted:
    """Return what `body` wants; for an agent, with its customer as the only one who may pay."""
    override = body.platform_fee_override
    return Wanted(
        source=_source(body),
        destination=_destination(body),
        side=LockedSide(body.locked_currency_side),
        amount=body.locked_currency_amount,
        source_customer_id=customer_id or body.source.customer_id,
        agent_id=agent_id,
        payment_rail=(
            None
            if isinstance(body.destination, QuoteUmaDestination)
            else body.destination.payment_rail
        ),
        lookup=None if body.lookup_id is None else Lookup(body.lookup_id, keys),
        fees=None
        if override is None
        else Fees(
            platform_fixed=override.platform_fixed_fee.amount,
            platform_bps=override.platform_variable_fee_bps,
        ),
        fee_currency=None if override is None else override.platform_fixed_fee.currency.code,
        executes_at_once=body.immediately_execute,
        description=body.description,
        remittance_information=body.remittance_information,
        purpose_of_payment=body.purpose_of_payment,
        sender_information=body.sender_customer_info,
    )


def _source(body: QuoteCreate) -> TypedId | Funding:
    if isinstance(body.source, QuoteRealtimeFundingSource):
        return Funding(
            currency=body.source.currency,
            customer_id=body.source.customer_id,
            network=body.source.crypto_network,
        )
    account: TypedId = body.source.account_id
    return account


def _destination(body: QuoteCreate) -> TypedId | UmaAddress:
    if isinstance(body.destination, QuoteUmaDestination):
        return UmaAddress(address=body.destination.uma_address, currency=body.destination.currency)
    account: TypedId = body.destination.account_id
    return account


async def create(
    call: RequestContext, wanted: Wanted, *, check: Callable[[Quote], None] = lambda _: None
) -> Response:
    """Record the quote that is `wanted`, execute it if that is wanted, and return the response.

    `check` raises when the caller may not have it.
    """
    if isinstance(wanted.destination, UmaAddress):
        wanted = replace(wanted, answer=call.answers.get(wanted.destination.address))
    if isinstance(wanted.source, Funding):
        wanted = replace(wanted, source=replace(wanted.source, instructions=call.instructions))
    with refusals():
        async with call.writing() as connection:
            platform = await platforms.get(connection, call.platform_id)
            quote = await drafts.draft(
                connection,
                platform,
                wanted,
                pricing=call.services.pricing,
                adapters=call.services.adapters,
                at=call.now(),
            )
            check(quote)
            sender = await challenges.sender_for(call, connection, quote)
            if sender is not None:
                quote = drafts.authorized_first(quote)
            quote = await records.insert(connection, quote, call.client.inbox_key)
            challenge = None
            if sender is not None:
                sent = await challenges.send(
                    call, connection, quote, sender, party=call.services.passkeys
                )
                if isinstance(sent, Refused):
                    raise error_of(sent)
                challenge = sent
            done = None
            if quote.executes_at_once and not quote.is_funded and sender is None:
                done = await execution.execute(
                    connection,
                    quote,
                    inbox_key=call.client.inbox_key,
                    reply_to=call.client.reply_list,
                    at=call.now(),
                )
    if done is not None:
        await transactions.carry_out(call, done.message)
    withheld = quote.is_funded and quote.status == records.PENDING_AUTHORIZATION
    resource = await rendered(call, await shown(call, quote.id), challenge=challenge)
    return resource_response(resource, ACCEPTED if withheld else CREATED)


async def shown(call: RequestContext, quote_id: Id, *, agent_id: Id | None = None) -> Shown:
    """Return a quote of the caller.

    Raises: ApiError QUOTE_NOT_FOUND.
    """
    async with call.reading() as connection:
        found = await records.get(
            connection, platform_id=call.platform_id, quote_id=quote_id, agent_id=agent_id
        )
    if found is None:
        raise no_quote()
    return found


async def rendered(
    call: RequestContext, quote: Shown, *, challenge: ScaChallengeResource | None = None
) -> QuoteResource:
    """Return `quote` as a resource, as it is now.

    `challenge` has just begun; only then can it have the options of a passkey. In the database
    transaction of a key, what is asked outside was asked before.
    """
    status = resources.status_of(quote, at=call.now())
    if challenge is None and status == records.PENDING_AUTHORIZATION:
        async with call.reading() as connection:
            challenge = await challenges.open_for(call, connection, quote.quote)
    ways = await outside.ways_of(call, quote.quote) if status == records.PENDING else None
    return resources.render(quote, ways, at=call.now(), challenge=challenge)


async def executed_if_funded(
    call: RequestContext, connection: AsyncConnection, quote: Quote
) -> execution.Execution | None:
    """Execute `quote`, which is locked and authorized; None: its source has too little."""
    try:
        return await execution.execute(
            connection,
            replace(quote, status=records.PENDING),
            inbox_key=call.client.inbox_key,
            reply_to=call.client.reply_list,
            at=call.now(),
        )
    except QuoteRefusedError as error:
        if error.refusal is not Refusal.FUNDS:
            raise
        return None  # It can be executed once there are funds.


async def locked(call: RequestContext, connection: AsyncConnection, quote_id: Id) -> Quote:
    quote = await records.locked(connection, platform_id=call.platform_id, quote_id=quote_id)
    if quote is None:
        raise no_quote()
    return quote


@contextmanager
def refusals() -> Iterator[None]:
    """Turn the refusal of a quote into the error of the interface."""
    try:
        yield
    except QuoteRefusedError as error:
        raise refused(error) from None
    except UmaFailedError as error:
        raise ApiError(UMA_CODES[error.failure], _UMA_MESSAGES[error.failure]) from None


def refused(error: QuoteRefusedError) -> ApiError:
    """Return the error for the refusal of a quote."""
    code = CODES[error.refusal]
    reason = {} if error.reason is None else {"reason": error.reason}
    if error.field is None or error.refusal in _SENTENCES:
        return ApiError(code, str(error), details=reason or None)
    invalid = invalid_field(error.field, str(error), code)
    return ApiError(code, invalid.message, details={**(invalid.details or {}), **reason})


_SENTENCES: Final = frozenset(
    {Refusal.SELF, Refusal.NOT_READY, Refusal.NOT_SUPPORTED, Refusal.NOT_ALLOWED}
)
"""Refusals that say more than what is wrong with a field."""


def no_quote() -> ApiError:
    """Return the error for a quote id that the caller does not have."""
    return not_found(Code.QUOTE_NOT_FOUND, "quote")
