"""Payments from UMA addresses elsewhere, in a sandbox."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from fastapi import Response

from cardledger.api.http import idempotency
from cardledger.api.http.errors import invalid_field, not_found
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall, RequestContext
from cardledger.api.http.responses import resource_response
from cardledger.api.http.routing import SANDBOX, guarded_router, requires
from cardledger.api.routes import transactions
from cardledger.api.routes.exchange.quotes import UMA_CODES, refusals
from cardledger.ledger.messaging.inbox import Owner
from cardledger.ledger.payments import requests
from cardledger.ledger.payments.messages import Arrival
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.quotes import arrivals, drafts, receivers
from cardledger.schema.ids import Id
from cardledger.schema.wire.cards.transactions import IncomingTransaction
from cardledger.schema.wire.common import TypedId
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.exchange.quotes import SandboxUmaReceive

sandbox_router = guarded_router(SANDBOX)

_IDS: Final = ("id", "account_id")


async def _send(call: RequestContext, event: Mapping[str, Any]) -> Response:
    arrival = _arrival(event)
    async with call.writing() as connection:
        message = await requests.receive(
            connection,
            arrival,
            inbox_key=call.client.inbox_key,
            reply_to=call.client.reply_list,
            at=call.now(),
        )
    await call.client.outcome_of(message)
    return resource_response(await transactions.one(call, TypedId("Transaction", arrival.id)))


@sandbox_router.post(
    "/sandbox/uma/receive",
    response_model=IncomingTransaction,
    responses=error_responses(
        Code.USER_NOT_FOUND,
        Code.UMA_NOT_FOUND,
        Code.USER_NOT_READY,
        Code.INVALID_CURRENCY,
        Code.COUNTERPARTY_NOT_ALLOWED,
        *UMA_CODES.values(),
    ),
)
@requires(Permission.TRANSACT, send=_send)
async def simulate_uma_receive(body: SandboxUmaReceive, call: PlatformCall) -> Response:
    """Let a payment arrive from a UMA address elsewhere, and return its transaction.

    The receiver is a customer of the platform, by `receiverUmaAddress` or `customerId`. The payment
    is `PENDING` until the platform answers the webhook `INCOMING_PAYMENT.PENDING`, and goes to the
    customer's oldest account in the currency. From `$fail.compliance.usd@sandbox.uma.money` it
    fails at once, and `$asks.usd@sandbox.uma.money` asks for the receiver's name.
    """
    if (body.receiver_uma_address is None) == (body.customer_id is None):
        raise invalid_field("receiverUmaAddress", "is required, or customerId, but not both")
    network = call.services.adapters.uma_network
    with refusals():
        drafts.check_allowed(call.services.adapters, body.sender_uma_address)
        answer = (
            None
            if network is None
            else await call.ask_outside(receivers.ask, network, body.sender_uma_address)
        )
        sender = None if answer is None else answer.found()
        if sender is None:
            message = "is not a UMA address elsewhere"
            raise invalid_field("senderUmaAddress", message, Code.UMA_NOT_FOUND)
        async with call.reading() as connection:
            arrival = await arrivals.draft(
                connection,
                platform_id=call.platform_id,
                wanted=arrivals.Wanted(
                    sender=sender,
                    customer_id=body.customer_id,
                    address=body.receiver_uma_address,
                    amount=body.receiving_currency_amount,
                    currency=body.receiving_currency_code,
                ),
            )
    if arrival is None and body.customer_id is not None:
        raise not_found(Code.USER_NOT_FOUND, "customer")
    if arrival is None:
        message = "is not the UMA address of a customer of the platform"
        raise invalid_field("receiverUmaAddress", message, Code.UMA_NOT_FOUND)
    return await _send(call, await idempotency.settle(call, _event(arrival)))


def _event(arrival: Arrival) -> dict[str, Any]:
    """Return `arrival` as JSON, which is kept with the key of the request."""
    owner = [str(arrival.owner.customer_id), str(arrival.owner.platform_id)]
    ids = {name: str(getattr(arrival, name)) for name in _IDS}
    return {**asdict(arrival), **ids, "owner": owner}


def _arrival(event: Mapping[str, Any]) -> Arrival:
    customer_id, platform_id = map(Id.parse, event["owner"])
    fields = {name: value for name, value in event.items() if name != "reference"}
    ids = {name: Id.parse(event[name]) for name in _IDS}
    return Arrival(**{**fields, **ids, "owner": Owner(customer_id, platform_id)})
