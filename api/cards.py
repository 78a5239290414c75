"""Cards."""

from fastapi import Response

from api import routing
from api.answers import CREATED, answer
from api.context import Here
from api.errors import ApiError, invalid_field, not_found
from ledger import cards
from ledger.cards import Refusal
from ledger.tokens import Permission
from schema.wire.cards import CardCreate, CardResource
from schema.wire.common import CardId
from schema.wire.errors import Code
from workers import doorbell

_TAG = "Cards"

reads = routing.routes(Permission.VIEW, tag=_TAG)
writes = routing.routes(Permission.MANAGE, tag=_TAG)

_CODES = {
    Refusal.DUPLICATE_FUNDING_SOURCE: Code.INVALID_INPUT,
    Refusal.UNKNOWN_CARDHOLDER: Code.INVALID_INPUT,
    Refusal.KYC_NOT_APPROVED: Code.CARDHOLDER_KYC_NOT_APPROVED,
    Refusal.FUNDING_SOURCE_INELIGIBLE: Code.FUNDING_SOURCE_INELIGIBLE,
    Refusal.PLATFORM_CARD_ID_TAKEN: Code.CONFLICT,
}


@writes.post("/cards", status_code=CREATED, response_model=CardResource)
async def create_card(body: CardCreate, call: Here) -> Response:
    """Issue a card; it is `PROCESSING` until the issuer has answered.

    In the sandbox the end of `platformCardId` says how: `001` never, `002` refused, `005` late.
    """
    application = cards.Application(
        cardholder_id=body.cardholder_id,
        platform_card_id=body.platform_card_id,
        funding_sources=body.funding_sources,
        max_spend_per_transaction=body.max_spend_per_transaction,
    )
    try:
        async with call.writing() as connection:
            created = await cards.create(
                connection,
                platform_id=call.platform_id,
                application=application,
                at=call.now(),
                sandbox_delay=call.services.sandbox_delay,
                is_sandbox=call.services.is_sandbox,
            )
    except cards.RefusedError as error:
        raise invalid_field(error.field, str(error), _CODES[error.refusal]) from None
    await call.client.ring(doorbell.CARDS)
    return answer(created, CREATED)


@reads.get("/cards/{card_id}", response_model=CardResource)
async def get_card(card_id: CardId, call: Here) -> Response:
    """Return a card."""
    async with call.reading() as connection:
        found = await cards.get(connection, platform_id=call.platform_id, card_id=card_id)
    if found is None:
        raise no_card()
    return answer(found)


def no_card() -> ApiError:
    """Return the refusal of a card id that the platform does not have."""
    return not_found(Code.REFERENCE_NOT_FOUND, "card")
