"""Look-ups of receivers: what can be paid to a UMA address or an external account."""

import re
from collections.abc import Iterable
from typing import Annotated, Final

from fastapi import Query, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.http.errors import ApiError, not_found
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall, PlatformContext
from cardledger.api.http.responses import resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.api.routes.exchange.quotes import UMA_CODES, refusals
from cardledger.ledger.core.payments.conversion import received_for
from cardledger.ledger.exchange import rates
from cardledger.ledger.exchange.rates import PIVOT, Pair
from cardledger.ledger.payments import parties
from cardledger.ledger.platforms import registry as platforms
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.quotes import corridors, drafts, receivers
from cardledger.schema.wire.common import CURRENCIES, ExternalAccountId
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.exchange.receivers import (
    ExternalAccountReceiverLookup,
    ReceiverCurrency,
    ReceiverQuery,
    UmaReceiverLookup,
)
from cardledger.schema.wire.payments.counterparties import RequiredField

router = guarded_router("Cross-Currency Transfers")

_ADDRESS: Final = re.compile(r"\$[A-Za-z0-9._+-]{1,64}@[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?")


@router.get(
    "/receiver/uma/{receiver_uma_address}",
    response_model=UmaReceiverLookup,
    responses=error_responses(
        Code.UMA_NOT_FOUND,
        Code.USER_NOT_FOUND,
        Code.COUNTERPARTY_NOT_ALLOWED,
        *UMA_CODES.values(),
    ),
)
@requires(Permission.VIEW)
async def look_up_uma_receiver(
    receiver_uma_address: str, query: Annotated[ReceiverQuery, Query()], call: PlatformCall
) -> Response:
    """Look up a UMA address: the currencies that its owner takes, with estimated rates.

    Rates are from the currencies of the sender's accounts, of `customerId` if it is sent, otherwise
    from US dollars. `lookupId` goes into a quote within five minutes.
    """
    if _ADDRESS.fullmatch(receiver_uma_address) is None:
        raise _unknown_address()
    with refusals():
        drafts.check_allowed(call.services.adapters, receiver_uma_address)
        async with call.reading() as connection:
            found = await receivers.of_installation(connection, receiver_uma_address)
        network = call.services.adapters.uma_network
        if found is None and network is not None:  # No connection is held while it is asked.
            answer = await call.ask_outside(receivers.ask, network, receiver_uma_address)
            found = receivers.elsewhere(answer)
        if found is None:
            raise _unknown_address()
        async with call.reading() as connection:
            taken = await _currencies(call, connection, found.currencies, query)
    return resource_response(
        UmaReceiverLookup(
            lookup_id=receivers.lookup_id(
                call.keys, call.platform_id, found.address, at=call.now()
            ),
            receiver_uma_address=found.address,
            supported_currencies=taken,
            required_payer_data_fields=[
                RequiredField(name=name, mandatory=is_mandatory)
                for name, is_mandatory in found.required_fields.items()
            ],
        )
    )


@router.get(
    "/receiver/external-account/{account_id}",
    response_model=ExternalAccountReceiverLookup,
    responses=error_responses(Code.REFERENCE_NOT_FOUND, Code.USER_NOT_FOUND),
)
@requires(Permission.VIEW)
async def look_up_external_account_receiver(
    account_id: ExternalAccountId, query: Annotated[ReceiverQuery, Query()], call: PlatformCall
) -> Response:
    """Look up an external account: its currency, with an estimated rate."""
    async with call.reading() as connection:
        found = await parties.external(
            connection, platform_id=call.platform_id, account_id=account_id
        )
        if found is None:
            raise not_found(Code.REFERENCE_NOT_FOUND, "external account")
        taken = await _currencies(call, connection, [found.currency], query)
    return resource_response(
        ExternalAccountReceiverLookup(
            lookup_id=receivers.lookup_id(
                call.keys, call.platform_id, str(account_id), at=call.now()
            ),
            account_id=account_id,
            supported_currencies=taken,
            required_payer_data_fields=[],
        )
    )


async def _currencies(
    call: PlatformContext,
    connection: AsyncConnection,
    currencies: Iterable[str],
    query: ReceiverQuery,
) -> list[ReceiverCurrency]:
    """Return `currencies` with the rate at which the sender gets them."""
    platform = await platforms.get(connection, call.platform_id)
    sending = PIVOT
    if query.customer_id is not None:
        held = await parties.currencies_of(
            connection, platform_id=call.platform_id, customer_id=query.customer_id
        )
        if not held:
            raise not_found(Code.USER_NOT_FOUND, "customer")
        sending = PIVOT if PIVOT in held else held[0]
    pairs = [Pair(sending, currency) for currency in currencies]
    known = await rates.read(
        connection,
        pairs,
        platform_id=platform.id,
        pricing=call.services.pricing,
        at=call.now(),
    )
    taken = []
    for pair in pairs:
        rate = known.rate(*pair)
        if rate is None:
            continue
        limits = corridors.limits_of(platform, sending, rate, corridors.fees_of(platform, sending))
        taken.append(
            ReceiverCurrency(
                currency=CURRENCIES[pair.destination],
                estimated_exchange_rate=rate.price,
                min=max(1, received_for(limits.least, rate)),
                max=max(1, received_for(limits.largest, rate)),
            )
        )
    return taken


def _unknown_address() -> ApiError:
    message = "There is no such UMA address; check it, or ask the receiver for another one."
    return ApiError(Code.UMA_NOT_FOUND, message)
