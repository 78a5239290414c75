"""What systems outside are asked of a quote: before its database transaction, and in a thread."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import structlog
from pydantic import ValidationError

from cardledger.api.http.errors import unavailable
from cardledger.api.http.request_context import RequestContext
from cardledger.ledger.ports import SystemUnavailableError
from cardledger.ledger.quotes import drafts, funding, receivers, records
from cardledger.ledger.quotes.funding import Instructions
from cardledger.ledger.quotes.records import Quote
from cardledger.ledger.quotes.refusals import QuoteRefusedError
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import parse_id
from cardledger.schema.wire.exchange.quotes import QuoteCreate, QuoteRealtimeFundingSource

_log = structlog.get_logger()


async def ask(call: RequestContext, body: object, path: Mapping[str, Any]) -> None:
    """Ask about the receiver and about the instructions of a quote that is to be created."""
    await ask_institution(call, body, path)
    try:
        wanted = QuoteCreate.model_validate(body)
    except ValidationError:
        return  # The route says what is wrong.
    source, is_in_range = wanted.source, drafts.is_in_range(wanted.locked_currency_amount)
    if not is_in_range or not isinstance(source, QuoteRealtimeFundingSource):
        return
    if await _can_fund(call, source):
        await _ask_instructions(call, new_id(), source.currency, source.crypto_network)


async def _can_fund(call: RequestContext, source: QuoteRealtimeFundingSource) -> bool:
    """Return whether there is a customer to fund; else the route refuses the quote."""
    if source.customer_id is None:
        return True  # The platform.
    async with call.services.platforms.reading(call.platform_id) as connection:
        return await drafts.can_be_funded(
            connection, platform_id=call.platform_id, customer_id=source.customer_id
        )


async def ask_again(call: RequestContext, _: object, path: Mapping[str, Any]) -> None:
    """Ask about the instructions of a quote that exists, if it is paid by instructions."""
    try:
        quote_id = parse_id("Quote", str(path["quote_id"]))
    except ValueError:
        return  # The route says what is wrong.
    async with call.services.platforms.reading(call.platform_id) as connection:
        found = await records.get(connection, platform_id=call.platform_id, quote_id=quote_id)
    if found is not None:
        await ways_of(call, found.quote)


async def ways_of(call: RequestContext, quote: Quote) -> Sequence[Mapping[str, Any]] | None:
    """Return the ways to pay a quote from outside; None: it is paid from an account."""
    if not quote.is_funded:
        return None
    if call.instructions is None or call.instructions.quote_id != quote.id:
        await _ask_instructions(call, quote.id, quote.sending_currency, quote.crypto_network)
    return None if call.instructions is None else call.instructions.ways


async def _ask_instructions(
    call: RequestContext, quote_id: Id, currency: str, network: str | None
) -> None:
    port = call.services.adapters.funding_instructions
    if port is None:
        return
    assert call.attempt is None or call.attempt.connection is None, "a transaction would wait"
    reference = funding.reference_of(quote_id)
    try:
        ways = await call.ask_outside(port.for_quote, currency, network, reference)
    except SystemUnavailableError as error:
        _log.error("no payment instructions", error=str(error), quote=str(quote_id))
        message = "The payment instructions cannot be asked for now. Retry later."
        raise unavailable(message) from None
    call.asked[:] = [Instructions(quote_id=quote_id, ways=ways)]


async def ask_institution(call: RequestContext, body: object, _: Mapping[str, Any]) -> None:
    """Ask the institution of the UMA address that a quote is to pay, if it is elsewhere.

    Only after a look-up of the address: this installation does not ask others at will.
    """
    address, key = _paid_address(body)
    network = call.services.adapters.uma_network
    if address is None or key is None or network is None:
        return
    if not receivers.Lookup(key, call.keys).is_of(call.platform_id, address, at=call.now()):
        return
    async with call.services.platforms.reading(call.platform_id) as connection:
        if await receivers.of_installation(connection, address) is not None:
            return
    with suppress(QuoteRefusedError):
        drafts.check_allowed(call.services.adapters, address)
        asked = partial(receivers.ask, network, address, to_pay=True)
        call.answers[address] = await call.ask_outside(asked)


def _paid_address(body: object) -> tuple[str | None, Id | None]:
    """Return the UMA address that a body names, which is not validated, and its look-up."""
    destination = body.get("destination") if isinstance(body, dict) else None
    address = destination.get("umaAddress") if isinstance(destination, dict) else None
    lookup = body.get("lookupId") if isinstance(body, dict) else None
    if not isinstance(address, str) or not isinstance(lookup, str):
        return None, None
    try:
        return address, parse_id("Lookup", lookup)
    except ValueError:
        return None, None
