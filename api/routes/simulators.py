"""Card simulators: each sends a network event, which is processed like every other one."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import wraps
from types import MappingProxyType
from typing import Any

from fastapi import Response
from uuid_utils import uuid4

from cardledger.api.http import idempotency
from cardledger.api.http.errors import ApiError, not_found, unavailable
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall, PlatformContext, RequestContext
from cardledger.api.http.responses import json_response, resource_response
from cardledger.api.http.routing import SANDBOX, guarded_router, requires
from cardledger.api.routes import simulated_amounts
from cardledger.api.routes.cards import no_card
from cardledger.ledger.cards import inquiries
from cardledger.ledger.core.events import DeclineReason
from cardledger.ledger.messaging.inbox import CardRoute
from cardledger.ledger.platforms.scopes import Permission
from cardledger.schema.ids import Id
from cardledger.schema.wire.cards.card_transactions import CardTransactionResource
from cardledger.schema.wire.common import CardId, format_amount, money, rfc3339
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


async def _send(call: RequestContext, event: Mapping[str, Any]) -> Response:
    if "decideBy" in event:
        # Repetitions of a request send the stored event: each has a deadline of its own.
        event = {**event, "decideBy": _decide_by(call)}
    call.subjects["network_event"] = f"{event['source']}/{event['reference']}"
    [outcome] = await call.client.submit_written([event], platform_id=call.platform_id)
    reason = outcome.wire.get("reason")
    if reason == RejectionReason.OUTDATED:
        if call.attempt is None:
            raise _ModifiedConcurrentlyError
        # The key is bound to the event as it was written, so it cannot be written anew.
        message = (
            "The card transaction was modified concurrently; retry with a new Idempotency-Key."
        )
        raise ApiError(Code.CONFLICT, message)
    if outcome.outcome in {OutcomeType.PARKED, OutcomeType.IGNORED}:
        raise ApiError(
            Code.INVALID_INPUT, NOT_APPLIED[OutcomeFlag(str(reason))], details={"reason": reason}
        )
    card_transaction = outcome.wire.get("cardTransaction")
    if card_transaction is None:
        if reason == DeclineReason.DECISION_TIMEOUT:
            raise _not_in_time(call)
        raise _rejection_error(outcome)
    call.subjects["card_transaction"] = card_transaction["id"]
    return json_response(card_transaction)


def _decide_by(call: RequestContext) -> str:
    """Return a deadline, before which the decline still reaches the caller.

    An authorization must not be approved after its caller has stopped waiting.
    """
    return rfc3339(call.client.now() + call.services.wait_limit)


def _not_in_time(call: RequestContext) -> ApiError:
    message = (
        "The authorization was accepted but not approved in time; an approval that was recorded all"
        " the same is reversed."
    )
    # Without a key the request would be another authorization.
    headers = {"x-should-retry": "false"} if call.attempt is None else None
    return unavailable(message, headers)


router = guarded_router(SANDBOX)

_SOURCE = "simulator"
_ATTEMPT_LIMIT = 20  # Well above the number of simulations of one card transaction at once.

_Route = Callable[..., Awaitable[Response]]


class _ModifiedConcurrentlyError(Exception):
    """The card transaction has changed since it was read."""


def _retrying(route: _Route) -> _Route:
    """Run `route` again from the start while its card transaction is modified concurrently."""

    @wraps(route)
    async def retrying(*args: Any, **named: Any) -> Response:  # noqa: ANN401 - the route's own
        for _ in range(_ATTEMPT_LIMIT):
            with suppress(_ModifiedConcurrentlyError):
                return await route(*args, **named)
        message = "The card transaction was modified concurrently; retry."
        raise ApiError(Code.CONFLICT, message)

    return retrying


_PATH = "/sandbox/cards/{card_id}/simulate"

_AUTHORIZATION_ERRORS = error_responses(Code.INVALID_CURRENCY, Code.AMOUNT_OUT_OF_RANGE)
_EVENT_ERRORS = error_responses(Code.TRANSACTION_NOT_FOUND, Code.AMOUNT_OUT_OF_RANGE)


@router.post(
    _PATH + "/authorization",
    response_model=CardTransactionResource,
    responses=_AUTHORIZATION_ERRORS,
)
@requires(Permission.TRANSACT, send=_send)
async def simulate_authorization(
    card_id: CardId, body: SimulateAuthorization, call: PlatformCall
) -> Response:
    """Authorize `amount`; a declined authorization is 200 as well, with status `DECLINED`."""
    return await _authorize(card_id, body, call, EventType.AUTHORIZATION)


@router.post(
    _PATH + "/financial_authorization",
    response_model=CardTransactionResource,
    responses=_AUTHORIZATION_ERRORS,
)
@requires(Permission.TRANSACT, send=_send)
async def simulate_financial_authorization(
    card_id: CardId, body: SimulateAuthorization, call: PlatformCall
) -> Response:
    """Authorize and clear with one message, as a cash machine does."""
    return await _authorize(card_id, body, call, EventType.FINANCIAL_AUTHORIZATION)


@router.post(_PATH + "/clearing", response_model=CardTransactionResource, responses=_EVENT_ERRORS)
@requires(Permission.TRANSACT, send=_send)
@_retrying
async def simulate_clearing(
    card_id: CardId, body: SimulateClearing, call: PlatformCall
) -> Response:
    """Clear `amount` of a purchase or a credit; 0 expires an open authorization.

    A clearing of a closed card transaction is accepted as well, as a force post: the network has
    already moved the money.
    """
    card, parent = await _parent(call, card_id, body.card_transaction_id)
    if not body.amount:
        _require_open(parent)
        return await _apply(call, card_id, card, parent, EventType.AUTHORIZATION_EXPIRY)
    fields = simulated_amounts.later(card, parent, body.amount, body.merchant_amount)
    if body.final is not None:
        fields["final"] = body.final
    return await _apply(call, card_id, card, parent, EventType.CLEARING, fields)


@router.post(
    _PATH + "/authorization_advice", response_model=CardTransactionResource, responses=_EVENT_ERRORS
)
@requires(Permission.TRANSACT, send=_send)
@_retrying
async def simulate_authorization_advice(
    card_id: CardId, body: SimulateAdvice, call: PlatformCall
) -> Response:
    """Set the authorized total of an open authorization to `amount`."""
    card, parent = await _parent(call, card_id, body.card_transaction_id)
    _require_open(parent)
    if body.amount < parent.settled:
        message = "must be at least the settled amount"
        raise _out_of_bounds("BELOW_SETTLED", message, parent.settled, card.currency)
    fields = {"amount": body.amount}
    return await _apply(call, card_id, card, parent, EventType.AUTHORIZATION_ADVICE, fields)


@router.post(
    _PATH + "/authorization_reversal",
    response_model=CardTransactionResource,
    responses=_EVENT_ERRORS,
)
@requires(Permission.TRANSACT, send=_send)
@_retrying
async def simulate_authorization_reversal(
    card_id: CardId, body: SimulateReversal, call: PlatformCall
) -> Response:
    """Reverse an open authorization, in full or by `amount`, before anything has cleared."""
    card, parent = await _parent(call, card_id, body.card_transaction_id)
    _require_open(parent)
    if parent.settled:
        raise _wrong_state(parent, "it has settled in part; expire or refund it instead")
    if body.amount is not None and body.amount > parent.authorized:
        message = "must be at most the authorized amount"
        raise _out_of_bounds("OVER_REVERSAL", message, parent.authorized, card.currency)
    fields = {} if body.amount is None else {"amount": body.amount}
    return await _apply(call, card_id, card, parent, EventType.AUTHORIZATION_REVERSAL, fields)


@router.post(
    _PATH + "/authorization_expiry", response_model=CardTransactionResource, responses=_EVENT_ERRORS
)
@requires(Permission.TRANSACT, send=_send)
@_retrying
async def simulate_authorization_expiry(
    card_id: CardId, body: SimulateOnParent, call: PlatformCall
) -> Response:
    """Expire an open authorization: what has not cleared is released."""
    card, parent = await _parent(call, card_id, body.card_transaction_id)
    _require_open(parent)
    return await _apply(call, card_id, card, parent, EventType.AUTHORIZATION_EXPIRY)


@router.post(_PATH + "/return", response_model=CardTransactionResource, responses=_EVENT_ERRORS)
@requires(Permission.TRANSACT, send=_send)
@_retrying
async def simulate_return(card_id: CardId, body: SimulateReturn, call: PlatformCall) -> Response:
    """Refund `amount`, at most the settled amount of a purchase that is not refunded yet."""
    card, parent = await _parent(call, card_id, body.card_transaction_id)
    if body.amount > parent.refundable:
        message = "must be at most the settled amount that has not been refunded"
        raise _out_of_bounds("OVER_REFUND", message, parent.refundable, card.currency)
    fields = simulated_amounts.later(card, parent, body.amount, body.merchant_amount)
    return await _apply(call, card_id, card, parent, EventType.RETURN, fields)


@router.post(
    _PATH + "/return_reversal", response_model=CardTransactionResource, responses=_EVENT_ERRORS
)
@requires(Permission.TRANSACT, send=_send)
@_retrying
async def simulate_return_reversal(
    card_id: CardId, body: SimulateOnParent, call: PlatformCall
) -> Response:
    """Reverse all refunds of a card transaction, or all that was credited."""
    card, parent = await _parent(call, card_id, body.card_transaction_id)
    if not parent.refunded:
        raise _wrong_state(parent, "it has no refund to reverse")
    fields = {"amount": parent.refunded}
    return await _apply(call, card_id, card, parent, EventType.RETURN_REVERSAL, fields)


@router.post(_PATH + "/balance_inquiry", response_model=InquiryResource)
@requires(Permission.TRANSACT, send=_send)
async def simulate_balance_inquiry(
    card_id: CardId, body: SimulateInquiry, call: PlatformCall
) -> Response:
    """Check a card with an authorization of amount 0, which is not recorded.

    Returns `{issuerTransactionToken, approved, declineReason?, availableBalance}`. The merchant's
    suffix, the state of the card and its account are checked as for every authorization; funds are
    not. `availableBalance` is the balance that an authorization would be checked against, 0 for a
    closed card. No card transaction, entry or webhook is created, so the token refers to nothing.
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
    return resource_response(
        InquiryResource(
            issuer_transaction_token=str(uuid4()),
            approved=inquiry.decline_reason is None,
            decline_reason=inquiry.decline_reason,
            available_balance=money(inquiry.available, inquiry.currency),
        )
    )


@router.post(
    _PATH + "/financial_credit_authorization",
    response_model=CardTransactionResource,
    responses=_AUTHORIZATION_ERRORS,
)
@requires(Permission.TRANSACT, send=_send)
async def simulate_financial_credit_authorization(
    card_id: CardId, body: SimulateAuthorization, call: PlatformCall
) -> Response:
    """Credit `amount` to the card with one message, as a cash deposit or a push payment does.

    Creates a card transaction with direction `CREDIT` and status `SETTLED`, the amount in
    `settledAmount`: it is not a refund of a purchase. The network has already moved the money, so
    the state of the card does not matter. A merchant suffix that requests a decline declines it.
    """
    return await _credit(card_id, body, call, EventType.FINANCIAL_CREDIT_AUTHORIZATION)


@router.post(
    _PATH + "/credit_authorization",
    response_model=CardTransactionResource,
    responses=_AUTHORIZATION_ERRORS,
)
@requires(Permission.TRANSACT, send=_send)
async def simulate_credit_authorization(
    card_id: CardId, body: SimulateAuthorization, call: PlatformCall
) -> Response:
    """Authorize a credit of `amount`, such as a merchant's for goods that were given back.

    Creates a card transaction with direction `CREDIT`. Nothing moves until `clearing` clears it;
    it can be reversed, advised and expire like a debit. A declined one is 200 as well.
    """
    return await _authorize(card_id, body, call, EventType.CREDIT_AUTHORIZATION)


@router.post(
    _PATH + "/credit_authorization_advice",
    response_model=CardTransactionResource,
    responses=_AUTHORIZATION_ERRORS,
)
@requires(Permission.TRANSACT, send=_send)
async def simulate_credit_authorization_advice(
    card_id: CardId, body: SimulateAuthorization, call: PlatformCall
) -> Response:
    """Report a credit of `amount` that the network has approved on behalf of the issuer.

    Creates a card transaction with direction `CREDIT`, as `credit_authorization` does, whatever the
    state of the card. A merchant suffix that requests a decline declines it.
    """
    return await _credit(card_id, body, call, EventType.CREDIT_AUTHORIZATION_ADVICE)


async def _credit(
    card_id: Id, body: SimulateAuthorization, call: PlatformContext, event_type: EventType
) -> Response:
    """Submit a credit that the network has decided on, or one that the suffix declines."""
    rail = call.services.adapters.funding_rail
    if rail is not None and rail.issuer_decline(body.merchant.descriptor):
        # What is declined has not happened: the network has only asked.
        return await _authorize(card_id, body, call, EventType.CREDIT_AUTHORIZATION)
    card = await _card_in(call, card_id)
    event = {
        "type": event_type,
        "issuerTransactionToken": str(uuid4()),
        **await simulated_amounts.billed(call, card, body),
        "merchant": body.merchant,
        "occurredAt": call.now(),
        # Its token is new. What is rejected is refused to the caller, and has not happened.
        "expectedSequence": 0,
    }
    return await _submit(call, card_id, event)


async def _authorize(
    card_id: Id, body: SimulateAuthorization, call: PlatformContext, event_type: EventType
) -> Response:
    card = await _card_in(call, card_id)
    now = call.now()
    event = {
        "type": event_type,
        "issuerTransactionToken": str(uuid4()),
        **await simulated_amounts.billed(call, card, body),
        "merchant": body.merchant,
        "occurredAt": now,
        "decideBy": _decide_by(call),
    }
    return await _submit(call, card_id, event)


async def _apply(  # noqa: PLR0913, PLR0917 - the parent and the event
    call: PlatformContext,
    card_id: Id,
    card: inquiries.Spending,
    parent: inquiries.Parent,
    event_type: EventType,
    fields: Mapping[str, Any] = MappingProxyType({}),
) -> Response:
    event = {
        "type": event_type,
        "issuerTransactionToken": parent.issuer_transaction_token,
        "currency": card.currency,
        "occurredAt": call.now(),
        # What was checked here must still hold when the engine decides; else it has not happened.
        "expectedSequence": parent.sequence,
        **fields,
    }
    return await _submit(call, card_id, event)


async def _parent(
    call: PlatformContext, card_id: Id, card_transaction_id: Id
) -> tuple[inquiries.Spending, inquiries.Parent]:
    card = await _card(call, card_id, card_transaction_id)
    if card.parent is None:
        raise not_found(Code.TRANSACTION_NOT_FOUND, "card transaction of this card")
    return card, card.parent


def _require_open(parent: inquiries.Parent) -> None:
    if not parent.is_open:
        raise _wrong_state(parent, "only an open authorization can be changed")


def _wrong_state(parent: inquiries.Parent, reason: str) -> ApiError:
    details = {"reason": "CARD_TRANSACTION_NOT_OPEN", "status": parent.status}
    message = f"The card transaction is {parent.status}; {reason}."
    return ApiError(Code.INVALID_INPUT, message, details=details)


def _out_of_bounds(reason: str, message: str, limit: int, currency: str) -> ApiError:
    """Return the error of an amount beyond `limit`: `details` has it in minor units."""
    details = {"reason": reason, "limit": limit}
    text = f"amount {message}, {format_amount(limit, currency)}"
    return ApiError(Code.INVALID_INPUT, text, details=details)


async def _card(
    call: PlatformContext, card_id: Id, card_transaction_id: Id | None = None
) -> inquiries.Spending:
    async with call.reading() as connection:
        card = await inquiries.spending(
            connection,
            platform_id=call.platform_id,
            card_id=card_id,
            card_transaction_id=card_transaction_id,
        )
    if card is None:
        raise no_card()
    return card


async def _card_in(call: PlatformContext, card_id: Id) -> CardRoute:
    """Return the route of the caller's card, which is cached: it never changes."""
    card = await call.client.card(card_id, platform_id=call.platform_id)
    if card is None:
        raise no_card()
    return card


async def _submit(call: PlatformContext, card_id: Id, fields: dict[str, Any]) -> Response:
    event = {"source": _SOURCE, "reference": str(uuid4()), "cardId": card_id, **fields}
    written = body_of(NETWORK_EVENT.validate_python(event))
    return await _send(call, await idempotency.settle(call, written))


def _rejection_error(outcome: Outcome) -> Exception:
    if outcome.reason == RejectionReason.AMOUNT_OUT_OF_RANGE:
        message = "A total of the card transaction would exceed a 64-bit integer; lower the amount."
        return ApiError(Code.AMOUNT_OUT_OF_RANGE, message)
    if outcome.reason == RejectionReason.TOO_MANY_PARKED:
        message = f"{outcome.detail} Simulate what they take back first."
        return ApiError(Code.CONFLICT, message)
    # Card and currency were checked before, so the engine has no other reason.
    return AssertionError(f"a simulated event was rejected: {outcome}")
