"""Cards."""

from contextlib import suppress
from typing import Annotated

from fastapi import Query, Request, Response

from cardledger.api.http.errors import ApiError, invalid_field, not_found
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall, public_root
from cardledger.api.http.responses import CREATED, Listing, capped, granting, resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.api.routes import card_embed
from cardledger.ledger.cards import issuing, lifecycle, reveals
from cardledger.ledger.cards import registry as cards
from cardledger.ledger.cards.lifecycle import CardConflict
from cardledger.ledger.cards.refusals import CardRefusal, CardRefusedError
from cardledger.ledger.core.card import CardState
from cardledger.ledger.platforms.scopes import Permission
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

router = guarded_router(_TAG)

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


@router.post(
    "/cards",
    status_code=CREATED,
    response_model=CardResource,
    responses=error_responses(
        Code.CARDHOLDER_KYC_NOT_APPROVED, Code.FUNDING_SOURCE_INELIGIBLE, Code.NOT_IMPLEMENTED
    ),
)
@requires(Permission.MANAGE)
async def create_card(body: CardCreate, call: PlatformCall) -> Response:
    """Issue a card; it is `PROCESSING` until the issuer responds. 501 without an issuer.

    In the sandbox the last three characters of `platformCardId`, or else of `cardholderId`, decide
    the issuer's response: `001` none, `002` rejected, `005` delayed.
    A funding source whose id ends in `002` or `003` is rejected. A cardholder has 1,000 cards at
    most that are not closed: one more is 409 `CONFLICT`.
    """
    application = issuing.CardApplication(
        cardholder_id=body.cardholder_id,
        platform_card_id=body.platform_card_id,
        funding_sources=body.funding_sources,
        max_spend_per_transaction=body.max_spend_per_transaction,
    )
    try:
        with capped():
            async with call.writing() as connection:
                created = await issuing.create(
                    connection,
                    platform_id=call.platform_id,
                    application=application,
                    issuer=call.services.adapters.issuer,
                    at=call.now(),
                )
    except CardRefusedError as error:
        raise _refusal_error(error) from None
    await call.notify(doorbell.CARDS)
    return resource_response(created, CREATED)


@router.get("/cards", response_model=Page[CardResource])
@requires(Permission.VIEW)
async def list_cards(query: Annotated[CardsQuery, Query()], call: PlatformCall) -> Response:
    """List cards by creation, newest first unless `sortOrder` is `asc`.

    `accountId` selects the cards funded by an account; a closed card has no funding account.
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
    return listing.response(page)


@router.get("/cards/{card_id}", response_model=CardResource)
@requires(Permission.VIEW)
async def get_card(card_id: CardId, call: PlatformCall) -> Response:
    """Return a card."""
    async with call.reading() as connection:
        card = await cards.get(connection, platform_id=call.platform_id, card_id=card_id)
    if card is None:
        raise no_card()
    return resource_response(card)


@router.patch(
    "/cards/{card_id}",
    response_model=CardResource,
    responses=error_responses(
        Code.FUNDING_SOURCE_INELIGIBLE,
        Code.INVALID_STATE_TRANSITION,
        Code.CARD_ALREADY_CLOSED,
        Code.CARD_NOT_MUTABLE,
    ),
)
@requires(Permission.MANAGE, waits=True)
async def update_card(card_id: CardId, body: CardUpdate, call: PlatformCall) -> Response:
    """Freeze, unfreeze or close a card, or change its funding sources or spend limit.

    All changes of one request are applied together or not at all. `fundingSources` replaces the
    whole list; `maxSpendPerTransaction` null removes the limit.

    `CLOSED` must be the only field and is final. Open authorizations are voided and their holds
    released; the response waits for that up to the usual time-out, and it happens in any case.
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
                inbox_key=call.client.inbox_key,
                at=call.now(),
                issuer=call.services.adapters.issuer,
            )
    except CardRefusedError as error:
        raise _refusal_error(error) from None
    except lifecycle.CardConflictError as error:
        raise ApiError(_CONFLICTS[error.conflict], str(error)) from None
    if changed is None:
        raise no_card()
    await call.notify(doorbell.WEBHOOKS)
    if changed.closing is not None:
        with suppress(ReplyTimeoutError):  # The card is closed; holds are released later.
            await call.client.outcome_of(changed.closing)
    return resource_response(changed.card)


@router.post(
    "/cards/{card_id}/reveal",
    response_model=RevealResource,
    responses=error_responses(Code.NOT_IMPLEMENTED),
)
@requires(Permission.MANAGE)
async def reveal_card(card_id: CardId, call: PlatformCall, request: Request) -> Response:
    """Return the URL of a page that shows number, CVV and expiry of a card, made for a frame.

    The page works for one minute, in the browser that shows the number first: at once in a frame,
    elsewhere after a button, so link previews do not use it up. Every call returns a new URL; a
    card has at most ten that have not expired. Calls and views are recorded. 501 without an issuer.
    """
    if call.services.adapters.issuer is None:
        raise NotConnectedError("card issuer")
    root = public_root(request)
    try:
        with capped(), granting():
            async with call.giving_access() as connection:
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
    revealed = resource_response(RevealResource(pan_embed_url=url, expires_at=reveal.expires_at))
    revealed.headers["Cache-Control"] = "no-store"
    return revealed


def no_card() -> ApiError:
    """Return the error for a card id that the platform does not have."""
    return not_found(Code.REFERENCE_NOT_FOUND, "card")


def _change(body: CardUpdate) -> lifecycle.CardChange:
    fields = body.model_fields_set
    if not fields:
        message = "Nothing to change; send state, fundingSources or maxSpendPerTransaction."
        raise ApiError(Code.INVALID_INPUT, message)
    if body.state == "CLOSED" and len(fields) > 1:
        message = "cannot be CLOSED together with fundingSources or maxSpendPerTransaction"
        raise invalid_field("state", message)
    return lifecycle.CardChange(
        state=None if body.state is None else CardState(body.state),
        funding_sources=body.funding_sources,
        max_spend_per_transaction=(
            body.max_spend_per_transaction
            if "max_spend_per_transaction" in fields
            else lifecycle.UNCHANGED
        ),
    )


def _refusal_error(error: CardRefusedError) -> ApiError:
    return invalid_field(error.field, str(error), _CODES[error.refusal])
