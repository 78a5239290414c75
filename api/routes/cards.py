"""Cards."""

from contextlib import suppress
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Query, Request, Response

from cardledger.api.http import routing
from cardledger.api.http.errors import ApiError, invalid_field, not_found
from cardledger.api.http.operations import answers
from cardledger.api.http.request_context import PlatformCall
from cardledger.api.http.responses import CREATED, Listing, answer
from cardledger.api.routes import card_embed
from cardledger.ledger.cards import issuing, lifecycle, reveals
from cardledger.ledger.cards import registry as cards
from cardledger.ledger.cards.lifecycle import CardConflict
from cardledger.ledger.cards.refusals import CardRefusal, CardRefusedError
from cardledger.ledger.core.card import CardState
from cardledger.ledger.platforms.api_tokens import Permission
from cardledger.ledger.ports import NotConnectedError
from cardledger.schema.wire.cards.cards import (
    CardCreate,
    CardResource,
    CardsQuery,
    CardUpdate,
    RevealResource,
)
from cardledger.schema.wire.common import CardId, Page
from cardledger.schema.wire.errors import Code
from cardledger.workers.client import ReplyTimeoutError
from cardledger.workers.signals import doorbell

_TAG = "Cards"

reads = routing.routes(Permission.VIEW, tag=_TAG)
writes = routing.routes(Permission.MANAGE, tag=_TAG)

_CODES = {
    CardRefusal.DUPLICATE_FUNDING_SOURCE: Code.INVALID_INPUT,
    CardRefusal.UNKNOWN_CARDHOLDER: Code.INVALID_INPUT,
    CardRefusal.KYC_NOT_APPROVED: Code.CARDHOLDER_KYC_NOT_APPROVED,
    CardRefusal.FUNDING_SOURCE_INELIGIBLE: Code.FUNDING_SOURCE_INELIGIBLE,
    CardRefusal.PLATFORM_CARD_ID_TAKEN: Code.CONFLICT,
}
_CONFLICTS = {
    CardConflict.INVALID_STATE_TRANSITION: Code.INVALID_STATE_TRANSITION,
    CardConflict.CARD_ALREADY_CLOSED: Code.CARD_ALREADY_CLOSED,
    CardConflict.CARD_NOT_MUTABLE: Code.CARD_NOT_MUTABLE,
}


@writes.post(
    "/cards",
    status_code=CREATED,
    response_model=CardResource,
    responses=answers(
        Code.CARDHOLDER_KYC_NOT_APPROVED, Code.FUNDING_SOURCE_INELIGIBLE, Code.NOT_IMPLEMENTED
    ),
)
async def create_card(body: CardCreate, call: PlatformCall) -> Response:
    """Issue a card; it is `PROCESSING` until the issuer has answered. 501 without an issuer.

    In the sandbox the end of `platformCardId`, or without one that of `cardholderId`, says how:
    `001` never, `002` refused, `005` late.
    A funding source whose id ends in `002` or `003` is refused.
    """
    application = issuing.CardApplication(
        cardholder_id=body.cardholder_id,
        platform_card_id=body.platform_card_id,
        funding_sources=body.funding_sources,
        max_spend_per_transaction=body.max_spend_per_transaction,
    )
    try:
        async with call.writing() as connection:
            created = await issuing.create(
                connection,
                platform_id=call.platform_id,
                application=application,
                issuer=call.services.adapters.issuer,
                at=call.now(),
            )
    except CardRefusedError as error:
        raise _refused(error) from None
    await call.ring(doorbell.CARDS)
    return answer(created, CREATED)


@reads.get("/cards", response_model=Page[CardResource])
async def list_cards(query: Annotated[CardsQuery, Query()], call: PlatformCall) -> Response:
    """List cards by creation, newest first unless `sortOrder` says otherwise.

    `accountId` finds the cards that spend from an account; a closed card spends from none.
    """
    listing = Listing(call, "cards", query)
    filters = cards.CardFilters(
        cardholder_id=query.cardholder_id,
        account_id=query.account_id,
        platform_card_id=query.platform_card_id,
        state=query.state,
    )
    async with call.reading() as connection:
        page = await cards.page(
            connection,
            platform_id=call.platform_id,
            filters=filters,
            wanted=listing.wanted(newest_first=query.sort_order == "desc"),
        )
    return listing.answer(page)


@reads.get("/cards/{card_id}", response_model=CardResource)
async def get_card(card_id: CardId, call: PlatformCall) -> Response:
    """Return a card."""
    async with call.reading() as connection:
        found = await cards.get(connection, platform_id=call.platform_id, card_id=card_id)
    if found is None:
        raise no_card()
    return answer(found)


@writes.patch(
    "/cards/{card_id}",
    response_model=CardResource,
    responses=answers(
        Code.FUNDING_SOURCE_INELIGIBLE,
        Code.INVALID_STATE_TRANSITION,
        Code.CARD_ALREADY_CLOSED,
        Code.CARD_NOT_MUTABLE,
    ),
)
async def update_card(card_id: CardId, body: CardUpdate, call: PlatformCall) -> Response:
    """Freeze a card, use it again, close it for ever, or change what it spends from and how much.

    All that a body says happens at once or not at all. `fundingSources` replaces the whole list;
    `maxSpendPerTransaction` null takes the limit away.

    `CLOSED` comes alone. What is held for open authorizations goes back to the funding account:
    the answer waits for that, but not longer than for any other, and it happens all the same.
    """
    change = _change(body)
    try:
        async with call.writing() as connection:
            changed = await lifecycle.apply(
                connection,
                platform_id=call.platform_id,
                card_id=card_id,
                change=change,
                reply_to=call.client.reply_list,
                at=call.now(),
                issuer=call.services.adapters.issuer,
            )
    except CardRefusedError as error:
        raise _refused(error) from None
    except lifecycle.CardConflictError as error:
        raise ApiError(_CONFLICTS[error.conflict], str(error)) from None
    if changed is None:
        raise no_card()
    await call.ring(doorbell.WEBHOOKS)
    if changed.closing is not None:
        with suppress(ReplyTimeoutError):  # The card is closed; what is held follows.
            await call.client.outcome_of(changed.closing)
    return answer(changed.card)


@writes.post(
    "/cards/{card_id}/reveal",
    response_model=RevealResource,
    responses=answers(Code.NOT_IMPLEMENTED),
)
async def reveal_card(card_id: CardId, call: PlatformCall, request: Request) -> Response:
    """Return the URL of a page that shows number, CVV and expiry of a card, made for a frame.

    It can be opened once, within five minutes; every call makes a new one. Who asked is recorded.
    Without a connected card issuer it is 501.
    """
    if call.services.adapters.issuer is None:
        raise NotConnectedError("card issuer")
    root = _root(request)
    try:
        async with call.writing() as connection:
            reveal = await reveals.create(
                connection,
                platform_id=call.platform_id,
                card_id=card_id,
                api_token_id=call.token.id,
                keys=call.keys,
                at=call.now(),
            )
    except reveals.NotRevealableError as error:
        raise ApiError(Code.CONFLICT, str(error)) from None
    if reveal is None:
        raise no_card()
    url = f"{root}{card_embed.PATH}/{reveal.token}"
    revealed = answer(RevealResource(pan_embed_url=url, expires_at=reveal.expires_at))
    revealed.headers["Cache-Control"] = "no-store"
    return revealed


def no_card() -> ApiError:
    """Return the refusal of a card id that the platform does not have."""
    return not_found(Code.REFERENCE_NOT_FOUND, "card")


def _change(body: CardUpdate) -> lifecycle.CardChange:
    said = body.model_fields_set
    if not said:
        message = "nothing to change; send state, fundingSources or maxSpendPerTransaction"
        raise ApiError(Code.INVALID_INPUT, message)
    if body.state == "CLOSED" and len(said) > 1:
        message = "CLOSED comes alone; leave fundingSources and maxSpendPerTransaction out"
        raise invalid_field("state", message)
    return lifecycle.CardChange(
        state=None if body.state is None else CardState(body.state),
        funding_sources=body.funding_sources,
        max_spend_per_transaction=(
            body.max_spend_per_transaction
            if "max_spend_per_transaction" in said
            else lifecycle.UNCHANGED
        ),
    )


def _refused(error: CardRefusedError) -> ApiError:
    return invalid_field(error.field, str(error), _CODES[error.refusal])


def _root(request: Request) -> str:
    """Return the server's root as the caller sees it: what it wrote into the header Host."""
    try:
        url = request.base_url
        parts = urlsplit(str(url))
        has_port = parts.port != 0  # Reading it is what checks it.
    except ValueError:
        parts, has_port = None, False
    if parts is None or not parts.hostname or not has_port:
        message = "the header Host names no server"
        raise ApiError(Code.INVALID_INPUT, message, details={"header": "Host"})
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
