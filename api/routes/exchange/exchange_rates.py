"""Exchange rates: those of a platform, and a rate that it sets in a sandbox."""

from collections.abc import Iterable, Sequence
from email.utils import format_datetime
from fractions import Fraction
from itertools import product
from typing import Annotated, Final

from fastapi import Query, Response
from pydantic_core import to_json

from cardledger.api.http.errors import ApiError, invalid_field
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall, PlatformContext
from cardledger.api.http.routing import SANDBOX, guarded_router, requires
from cardledger.api.loop_turns import at_once
from cardledger.ledger.core.payments.conversion import ConversionRangeError
from cardledger.ledger.exchange import rates
from cardledger.ledger.exchange.rates import VALIDITY, Pair, window_start
from cardledger.ledger.platforms import registry as platforms
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.quotes import corridors, exchange_rates
from cardledger.schema.wire.common import CURRENCIES
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.exchange.rates import (
    ExchangeRateList,
    ExchangeRateSet,
    ExchangeRatesQuery,
)

router = guarded_router("Exchange Rates")
sandbox_router = guarded_router(SANDBOX)

_PAIRS_LIMIT: Final = 1_000
_SOURCE: Final = "sourceCurrency"
_DESTINATION: Final = "destinationCurrency"
_SHOWN_AMOUNT: Final = 10_000


@router.get(
    "/exchange-rates",
    response_model=ExchangeRateList,
    responses=error_responses(Code.INVALID_CURRENCY, Code.AMOUNT_OUT_OF_RANGE),
)
@requires(Permission.VIEW, lists=[_DESTINATION])
async def list_exchange_rates(
    query: Annotated[ExchangeRatesQuery, Query()], call: PlatformCall
) -> Response:
    """List exchange rates, with the fees of the platform, for `sendingAmount`.

    Without `sourceCurrency`, those from every currency that the platform supports; without
    `destinationCurrency`, which may be sent several times, those to every other currency that can
    be paid out. There is one item for each payment rail, or network of wallets, of the destination.
    Rates are refreshed every five minutes, and the response may be cached until then.
    """
    _check(_SOURCE, [query.source_currency] if query.source_currency else [])
    _check(_DESTINATION, query.destination_currency or [])
    async with call.reading() as connection:
        platform = await platforms.get(connection, call.platform_id)
    sources = [query.source_currency] if query.source_currency else platform.supported_currencies
    pairs = _pairs(sources, query.destination_currency or corridors.currencies())
    response = await _listed(call, platform, pairs, query.sending_amount)
    response.headers["Cache-Control"] = "private"
    refreshed_at = window_start(call.now()) + VALIDITY
    response.headers["Expires"] = format_datetime(refreshed_at, usegmt=True)
    return response


@sandbox_router.post(
    "/sandbox/exchange-rates",
    response_model=ExchangeRateList,
    responses=error_responses(Code.INVALID_CURRENCY),
)
@requires(Permission.TRANSACT)
async def set_sandbox_exchange_rate(body: ExchangeRateSet, call: PlatformCall) -> Response:
    """Set the rate of two currencies, in both directions, for the caller's platform.

    `exchangeRate` is minor units sent for one minor unit received, as in the list; quotes that
    exist keep theirs. Returns what the list has for the pair.
    """
    pair = Pair(body.source_currency, body.destination_currency)
    _check(_SOURCE, [pair.source])
    _check(_DESTINATION, [pair.destination])
    if pair.source == pair.destination:
        raise invalid_field(_DESTINATION, f"must be another currency than {pair.source}")
    async with call.writing() as connection:
        await rates.set_own(
            connection, pair, Fraction(body.exchange_rate), platform_id=call.platform_id
        )
        platform = await platforms.get(connection, call.platform_id)
    return await _listed(call, platform, [pair], _SHOWN_AMOUNT)


async def _listed(
    call: PlatformContext, platform: platforms.Platform, pairs: Sequence[Pair], amount: int
) -> Response:
    services = call.services
    async with call.reading() as connection:
        known = await rates.read(
            connection, pairs, platform_id=platform.id, pricing=services.pricing, at=call.now()
        )
    key, made_of = (platform.id, tuple(pairs), amount), (platform, known.record)
    body = services.exchange_offers.find(key, made_of)
    if body is None:
        steps = exchange_rates.offers(platform, pairs, known, sending_amount=amount)
        try:
            # With an Idempotency-Key, setting a rate is still in its database transaction here.
            offers = at_once(steps) if len(pairs) == 1 else await services.loop_turns.run(steps)
        except ConversionRangeError:
            message = (
                f"is too large for a currency of the list: {amount}; send less, or name others"
            )
            raise invalid_field("sendingAmount", message, Code.AMOUNT_OUT_OF_RANGE) from None
        body = to_json({"data": offers})
        services.exchange_offers.keep(key, made_of, body)
    return Response(body, media_type="application/json")


def _pairs(sources: Iterable[str], destinations: Iterable[str]) -> list[Pair]:
    """Return the pairs of two different currencies, each once.

    Raises: ApiError INVALID_INPUT when there are too many.
    """
    pairs = [
        Pair(source, destination)
        for source, destination in dict.fromkeys(product(sources, destinations))
        if source != destination
    ]
    if len(pairs) > _PAIRS_LIMIT:
        message = f"There are more than {_PAIRS_LIMIT:,} pairs of currencies; send {_SOURCE}."
        raise ApiError(Code.INVALID_INPUT, message)
    return pairs


def _check(field: str, codes: Iterable[str]) -> None:
    for code in codes:
        if code not in CURRENCIES:
            message = f"is {code}, which is not a currency of this installation"
            raise invalid_field(field, message, Code.INVALID_CURRENCY)
