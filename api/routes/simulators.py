"""What the network does, on request: the sandbox's messages take the way of all others."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import wraps
from types import MappingProxyType
from typing import Any

from fastapi import Response
from uuid_utils import uuid4

from cardledger.api.http import idempotency, routing
from cardledger.api.http.errors import ApiError, invalid_field, not_found
from cardledger.api.http.operations import answers
from cardledger.api.http.request_context import AnyCall, Call, PlatformCall
from cardledger.api.http.responses import answer, answer_json
from cardledger.api.routes.cards import no_card
from cardledger.ledger.cards import inquiries
from cardledger.ledger.messaging.inbox import CardRoute
from cardledger.ledger.platforms.api_tokens import Permission
from cardledger.schema.ids import Id
from cardledger.schema.wire.cards.card_transactions import CardTransactionResource
from cardledger.schema.wire.common import CardId, money
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.network_events import NETWORK_EVENT, EventType, body_of
from cardledger.schema.wire.outcomes import (
    NOT_APPLIED,
    Outcome,
    OutcomeFlag,
    OutcomeType,
    RejectionReason,
)
from cardledger.schema.wire.sandbox import (
    InquiryResource,
    SimulateAdvice,
    SimulateAuthorization,
    SimulateClearing,
    SimulateInquiry,
    SimulateOnParent,
    SimulateReturn,
    SimulateReversal,
)


async def _send(call: AnyCall, event: Mapping[str, Any]) -> Response:
    [outcome] = await call.client.submit_written([event], platform_id=call.platform_id)
    said = outcome.wire
    reason = said.get("reason")
    if reason == RejectionReason.OUTDATED:
        if call.attempt is None:
            raise _MovedOnError
        # Its key stands for the event as it was written, so nobody can look again for it.
        message = "the card transaction has moved on meanwhile; send a new request with a new key"
        raise ApiError(Code.CONFLICT, message)
    if outcome.outcome in {OutcomeType.PARKED, OutcomeType.IGNORED}:
        raise ApiError(
            Code.INVALID_INPUT, NOT_APPLIED[OutcomeFlag(said["reason"])], details={"reason": reason}
        )
    card_transaction = said.get("cardTransaction")
    if card_transaction is None:
        raise _rejected(outcome)
    return answer_json(card_transaction)


sandbox = routing.routes(Permission.TRANSACT, tag=routing.SANDBOX, send=_send)

_SOURCE = "simulator"
_OPEN = frozenset({"AUTHORIZED", "PARTIALLY_SETTLED"})
# An authorization that its caller has stopped waiting for must not be approved any more; decided
# a little earlier, the refusal still reaches him.
_DECIDED_WITHIN = 0.9

_LOOKS = 20  # More simulations of one card transaction at once than anybody makes.

_Route = Callable[..., Awaitable[Response]]


class _MovedOnError(Exception):
    """The card transaction is not what it was when it was looked at."""


def _looking_again(route: _Route) -> _Route:
    """Run `route` from the start while others change its card transaction under its hands."""

    @wraps(route)
    async def looking(*args: Any, **named: Any) -> Response:  # noqa: ANN401 - the route's own
        for _ in range(_LOOKS):
            with suppress(_MovedOnError):
                return await route(*args, **named)
        message = "too much happens to this card transaction at once; try again"
        raise ApiError(Code.CONFLICT, message)

    return looking


_PATH = "/sandbox/cards/{card_id}/simulate"

_ASKS = answers(Code.INVALID_CURRENCY, Code.AMOUNT_OUT_OF_RANGE)
_TELLS = answers(Code.TRANSACTION_NOT_FOUND, Code.AMOUNT_OUT_OF_RANGE)
_CREDITS = answers(Code.INVALID_CURRENCY, Code.AMOUNT_OUT_OF_RANGE, Code.NOT_IMPLEMENTED)
_NEVER = answers(Code.INVALID_CURRENCY, Code.NOT_IMPLEMENTED, succeeds=False)


@sandbox.post(_PATH + "/authorization", response_model=CardTransactionResource, responses=_ASKS)
async def simulate_authorization(
    card_id: CardId, body: SimulateAuthorization, call: PlatformCall
) -> Response:
    """Ask whether `amount` may be spent; a refusal is an answer, with status `DECLINED`."""
    return await _ask(card_id, body, call, EventType.AUTHORIZATION)


@sandbox.post(
    _PATH + "/financial_authorization", response_model=CardTransactionResource, responses=_ASKS
)
async def simulate_financial_authorization(
    card_id: CardId, body: SimulateAuthorization, call: PlatformCall
) -> Response:
    """Authorize and clear with one message, as a cash machine does."""
    return await _ask(card_id, body, call, EventType.FINANCIAL_AUTHORIZATION)


@sandbox.post(_PATH + "/clearing", response_model=CardTransactionResource, responses=_TELLS)
@_looking_again
async def simulate_clearing(
    card_id: CardId, body: SimulateClearing, call: PlatformCall
) -> Response:
    """Move `amount` for a card transaction that still expects it; 0 lets it expire."""
    card, parent = await _parent(call, card_id, body.card_transaction_id)
    _must_be_open(parent)
    if not body.amount:
        return await _tell(call, card_id, card, parent, EventType.AUTHORIZATION_EXPIRY)
    said = {"amount": body.amount} | ({} if body.final is None else {"final": body.final})
    return await _tell(call, card_id, card, parent, EventType.CLEARING, said)


@sandbox.post(
    _PATH + "/authorization_advice", response_model=CardTransactionResource, responses=_TELLS
)
@_looking_again
async def simulate_authorization_advice(
    card_id: CardId, body: SimulateAdvice, call: PlatformCall
) -> Response:
    """Say that the authorized total is `amount` from now on."""
    card, parent = await _parent(call, card_id, body.card_transaction_id)
    _must_be_open(parent)
    if body.amount < parent.settled:
        raise _beyond("BELOW_SETTLED", "must be at least what has settled", parent.settled)
    said = {"amount": body.amount}
    return await _tell(call, card_id, card, parent, EventType.AUTHORIZATION_ADVICE, said)


@sandbox.post(
    _PATH + "/authorization_reversal", response_model=CardTransactionResource, responses=_TELLS
)
@_looking_again
async def simulate_authorization_reversal(
    card_id: CardId, body: SimulateReversal, call: PlatformCall
) -> Response:
    """Take an authorization back, wholly or in part, before anything has cleared."""
    card, parent = await _parent(call, card_id, body.card_transaction_id)
    _must_be_open(parent)
    if parent.settled:
        raise _wrong_state(parent, "something has settled; only an authorization can be reversed")
    if body.amount is not None and body.amount > parent.authorized:
        raise _beyond("OVER_REVERSAL", "must be at most what is authorized", parent.authorized)
    said = {} if body.amount is None else {"amount": body.amount}
    return await _tell(call, card_id, card, parent, EventType.AUTHORIZATION_REVERSAL, said)


@sandbox.post(
    _PATH + "/authorization_expiry", response_model=CardTransactionResource, responses=_TELLS
)
@_looking_again
async def simulate_authorization_expiry(
    card_id: CardId, body: SimulateOnParent, call: PlatformCall
) -> Response:
    """Let an authorization come to its end."""
    card, parent = await _parent(call, card_id, body.card_transaction_id)
    _must_be_open(parent)
    return await _tell(call, card_id, card, parent, EventType.AUTHORIZATION_EXPIRY)


@sandbox.post(_PATH + "/return", response_model=CardTransactionResource, responses=_TELLS)
@_looking_again
async def simulate_return(card_id: CardId, body: SimulateReturn, call: PlatformCall) -> Response:
    """Give `amount` back; at most what has settled and was not given back yet."""
    card, parent = await _parent(call, card_id, body.card_transaction_id)
    left = parent.settled - parent.refunded
    if body.amount > left:
        raise _beyond("OVER_REFUND", "must be at most what settled and was not refunded", left)
    return await _tell(call, card_id, card, parent, EventType.RETURN, {"amount": body.amount})


@sandbox.post(_PATH + "/return_reversal", response_model=CardTransactionResource, responses=_TELLS)
@_looking_again
async def simulate_return_reversal(
    card_id: CardId, body: SimulateOnParent, call: PlatformCall
) -> Response:
    """Take the refunds of a card transaction back."""
    card, parent = await _parent(call, card_id, body.card_transaction_id)
    if not parent.refunded:
        raise _wrong_state(parent, "nothing has been refunded")
    said = {"amount": parent.refunded}
    return await _tell(call, card_id, card, parent, EventType.RETURN_REVERSAL, said)


@sandbox.post(_PATH + "/balance_inquiry", response_model=InquiryResource)
async def simulate_balance_inquiry(
    card_id: CardId, body: SimulateInquiry, call: PlatformCall
) -> Response:
    """Ask whether the card is good, for nothing: an authorization of amount 0 and no record of it.

    Answers `{issuerTransactionToken, approved, declineReason?, availableBalance}`. Looked at are
    the merchant's suffix, the state of the card and its account, as for every authorization, but
    no funds: a card without money is good. `availableBalance` is what an authorization would be
    judged on, 0 for a closed card. There is no card transaction, no entry and no webhook, so the
    token leads to nothing.
    """
    async with call.reading() as connection:
        inquiry = await inquiries.inquire(
            connection,
            platform_id=call.platform_id,
            card_id=card_id,
            descriptor=body.merchant.descriptor,
            rail=call.services.adapters.funding_rail,
            at=call.now(),
        )
    if inquiry is None:
        raise no_card()
    return answer(
        InquiryResource(
            issuer_transaction_token=str(uuid4()),
            approved=inquiry.decline_reason is None,
            decline_reason=inquiry.decline_reason,
            available_balance=money(inquiry.available, inquiry.currency),
        )
    )


@sandbox.post(
    _PATH + "/financial_credit_authorization",
    response_model=CardTransactionResource,
    responses=_CREDITS,
)
async def simulate_financial_credit_authorization(
    card_id: CardId, body: SimulateAuthorization, call: PlatformCall
) -> Response:
    """Credit `amount` with one message, as a cash deposit or a push payment does.

    The result is a card transaction with direction `CREDIT` and status `CREDITED`, whose amount is
    in `creditedAmount`: it is not a refund of a purchase. The network has already moved the money,
    so the state of the card declines nothing. A merchant whose suffix asks for a decline is 501.
    """
    card = await _card_in(call, card_id, body)
    rail = call.services.adapters.funding_rail
    if rail is not None and rail.issuer_decline(body.merchant.descriptor):
        raise _not_implemented("a credit cannot be refused yet; use another descriptor")
    said = {
        "type": EventType.FINANCIAL_CREDIT_AUTHORIZATION,
        "issuerTransactionToken": str(uuid4()),
        "amount": body.amount,
        "currency": card.currency,
        "merchant": body.merchant,
        "occurredAt": call.now(),
    }
    return await _submit(call, card_id, said)


@sandbox.post(
    _PATH + "/credit_authorization", response_model=CardTransactionResource, responses=_NEVER
)
async def simulate_credit_authorization(
    card_id: CardId, body: SimulateAuthorization, call: PlatformCall
) -> Response:
    """Announce a credit that moves no money yet: 501, there is no such event yet."""
    raise await _no_credit_to_come(call, card_id, body)


@sandbox.post(
    _PATH + "/credit_authorization_advice", response_model=CardTransactionResource, responses=_NEVER
)
async def simulate_credit_authorization_advice(
    card_id: CardId, body: SimulateAuthorization, call: PlatformCall
) -> Response:
    """Say that a credit was announced in our stead: 501, there is no such event yet."""
    raise await _no_credit_to_come(call, card_id, body)


async def _no_credit_to_come(call: Call, card_id: Id, body: SimulateAuthorization) -> ApiError:
    await _card_in(call, card_id, body)
    return _not_implemented(
        "a credit that is announced and not paid yet cannot be recorded;"
        " financial_credit_authorization pays one at once"
    )


def _not_implemented(message: str) -> ApiError:
    # A repetition gets the same answer, and the public clients repeat every 5xx.
    return ApiError(Code.NOT_IMPLEMENTED, message)


async def _ask(
    card_id: Id, body: SimulateAuthorization, call: Call, question: EventType
) -> Response:
    card = await _card_in(call, card_id, body)
    now = call.now()
    said = {
        "type": question,
        "issuerTransactionToken": str(uuid4()),
        "amount": body.amount,
        "currency": card.currency,
        "merchant": body.merchant,
        "occurredAt": now,
        "decideBy": now + _DECIDED_WITHIN * call.services.reply_timeout,
    }
    return await _submit(call, card_id, said)


async def _tell(  # noqa: PLR0913, PLR0917 - what about, and what
    call: Call,
    card_id: Id,
    card: inquiries.Spending,
    parent: inquiries.Parent,
    kind: EventType,
    said: Mapping[str, Any] = MappingProxyType({}),
) -> Response:
    event = {
        "type": kind,
        "issuerTransactionToken": parent.issuer_transaction_token,
        "currency": card.currency,
        "occurredAt": call.now(),
        # What was checked has to be true still when the engine decides.
        "expectedSequence": parent.sequence,
        **said,
    }
    return await _submit(call, card_id, event)


async def _parent(
    call: Call, card_id: Id, card_transaction_id: Id
) -> tuple[inquiries.Spending, inquiries.Parent]:
    card = await _card(call, card_id, card_transaction_id)
    if card.parent is None:
        raise not_found(Code.TRANSACTION_NOT_FOUND, "card transaction of this card")
    return card, card.parent


def _must_be_open(parent: inquiries.Parent) -> None:
    if parent.status not in _OPEN:
        raise _wrong_state(parent, "it has to be AUTHORIZED or PARTIALLY_SETTLED for this")


def _wrong_state(parent: inquiries.Parent, why: str) -> ApiError:
    details = {"reason": "CARD_TRANSACTION_NOT_OPEN", "status": parent.status}
    message = f"the card transaction is {parent.status}; {why}"
    return ApiError(Code.INVALID_INPUT, message, details=details)


def _beyond(reason: str, message: str, limit: int) -> ApiError:
    details = {"reason": reason, "limit": limit}
    return ApiError(Code.INVALID_INPUT, f"amount {message}: {limit}", details=details)


async def _card(
    call: Call, card_id: Id, card_transaction_id: Id | None = None
) -> inquiries.Spending:
    async with call.reading() as connection:
        found = await inquiries.spending(
            connection,
            platform_id=call.platform_id,
            card_id=card_id,
            card_transaction_id=card_transaction_id,
        )
    if found is None:
        raise no_card()
    return found


async def _card_in(call: Call, card_id: Id, body: SimulateAuthorization) -> CardRoute:
    """Return where the caller's card belongs; what never changes about it is asked for once."""
    card = await call.client.card(card_id)
    if card is None or card.owner.platform_id != call.platform_id:
        raise no_card()
    if body.currency.code != card.currency:
        raise _wrong_currency(card.currency)
    return card


async def _submit(call: Call, card_id: Id, said: dict[str, Any]) -> Response:
    event = {"source": _SOURCE, "reference": str(uuid4()), "cardId": card_id, **said}
    written = body_of(NETWORK_EVENT.validate_python(event))
    return await _send(call, await idempotency.settle(call, written))


def _rejected(outcome: Outcome) -> Exception:
    if outcome.reason == RejectionReason.AMOUNT_OUT_OF_RANGE:
        message = "a total of this card transaction would leave the range of a 64-bit integer"
        return ApiError(Code.AMOUNT_OUT_OF_RANGE, message)
    # The card and its currency have been looked at, so the engine has no reason left.
    return AssertionError(f"a simulated event was rejected: {outcome}")


def _wrong_currency(currency: str) -> ApiError:
    message = f"must be {currency}, the currency of the card"
    return invalid_field("currency.code", message, Code.INVALID_CURRENCY)
