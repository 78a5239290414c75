"""What the network does, on request: the sandbox's messages take the way of all others."""

from typing import Any
from uuid import UUID, uuid4

from fastapi import Response

from api import routing
from api.answers import answer
from api.cards import no_card
from api.context import Call, Here
from api.errors import ApiError, invalid_field, not_found
from ledger import cards
from ledger.tokens import Permission
from schema.wire.card_transactions import CardTransactionResource
from schema.wire.common import CardId
from schema.wire.errors import Code
from schema.wire.network_events import EventType
from schema.wire.outcomes import Outcome, RejectionReason
from schema.wire.sandbox import SimulateAuthorization, SimulateClearing

sandbox = routing.routes(Permission.TRANSACT, tag=routing.SANDBOX)

_SOURCE = "simulator"
_CLEARABLE = frozenset({"AUTHORIZED", "PARTIALLY_SETTLED"})
# An authorization that its caller has stopped waiting for must not be approved any more; decided
# a little earlier, the refusal still reaches him.
_DECIDED_WITHIN = 0.9

_PATH = "/sandbox/cards/{card_id}/simulate"


@sandbox.post(_PATH + "/authorization", response_model=CardTransactionResource)
async def simulate_authorization(
    card_id: CardId, body: SimulateAuthorization, call: Here
) -> Response:
    """Ask whether `amount` may be spent; a refusal is an answer, with status `DECLINED`."""
    card = await _card(call, card_id)
    if body.currency.code != card.currency:
        raise _wrong_currency(card.currency)
    now = call.now()
    decide_by = now + _DECIDED_WITHIN * call.services.reply_timeout
    return await _submit(
        call,
        card_id,
        {
            "type": EventType.AUTHORIZATION,
            "issuerTransactionToken": str(uuid4()),
            "amount": body.amount,
            "currency": card.currency,
            "merchant": body.merchant,
            "occurredAt": now,
            "decideBy": decide_by,
        },
    )


@sandbox.post(_PATH + "/clearing", response_model=CardTransactionResource)
async def simulate_clearing(card_id: CardId, body: SimulateClearing, call: Here) -> Response:
    """Move `amount` for a card transaction that still expects it."""
    card = await _card(call, card_id, body.card_transaction_id)
    if card.parent is None:
        raise not_found(Code.TRANSACTION_NOT_FOUND, "card transaction of this card")
    if card.parent.status not in _CLEARABLE:
        message = (
            f"the card transaction is {card.parent.status}; a clearing can be simulated while it is"
            " AUTHORIZED or PARTIALLY_SETTLED"
        )
        details = {"reason": "CARD_TRANSACTION_NOT_OPEN", "status": card.parent.status}
        raise ApiError(Code.INVALID_INPUT, message, details=details)
    final = {} if body.final is None else {"final": body.final}
    return await _submit(
        call,
        card_id,
        {
            "type": EventType.CLEARING,
            "issuerTransactionToken": card.parent.issuer_transaction_token,
            "amount": body.amount,
            "currency": card.currency,
            "occurredAt": call.now(),
            **final,
        },
    )


async def _card(
    call: Call, card_id: UUID, card_transaction_id: UUID | None = None
) -> cards.Spending:
    async with call.reading() as connection:
        found = await cards.spending(
            connection,
            platform_id=call.platform_id,
            card_id=card_id,
            card_transaction_id=card_transaction_id,
        )
    if found is None:
        raise no_card()
    return found


async def _submit(call: Call, card_id: UUID, said: dict[str, Any]) -> Response:
    event = {"source": _SOURCE, "reference": str(uuid4()), "cardId": card_id, **said}
    [outcome] = await call.client.submit([event], platform_id=call.platform_id)
    if outcome.card_transaction is None:
        raise _rejected(outcome)
    return answer(outcome.card_transaction)


def _rejected(outcome: Outcome) -> Exception:
    if outcome.reason == RejectionReason.AMOUNT_OUT_OF_RANGE:
        message = "a total of this card transaction would leave the range of a 64-bit integer"
        return ApiError(Code.AMOUNT_OUT_OF_RANGE, message)
    # The card and its currency have been looked at, so the engine has no reason left.
    return AssertionError(f"a simulated event was rejected: {outcome}")


def _wrong_currency(currency: str) -> ApiError:
    message = f"must be {currency}, the currency of the card"
    return invalid_field("currency.code", message, Code.INVALID_CURRENCY)
