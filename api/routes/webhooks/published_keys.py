"""The public keys of webhook signatures, at the server's root and without credentials."""

from contextlib import AsyncExitStack
from typing import Final

from fastapi import Request, Response

from cardledger.api.addresses import counted_as
from cardledger.api.http.errors import not_found
from cardledger.api.http.in_flight import Turn
from cardledger.api.http.rate_limits import address_of
from cardledger.api.http.request_context import services_of
from cardledger.api.http.responses import resource_response
from cardledger.api.http.routing import public_router
from cardledger.ledger.webhooks import signing_keys
from cardledger.schema.wire.common import PlatformConfigId
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.webhooks.endpoints import SigningKeys

router = public_router("Webhooks")

_CACHE_CONTROL: Final = "public, max-age=300"
_READERS: Final = Turn("readers of published webhook keys", 4)
_READERS_AT_AN_ADDRESS: Final = 2


@router.get("/.well-known/cardledger/webhook-keys/{platform_id}", response_model=SigningKeys)
async def get_published_webhook_keys(platform_id: PlatformConfigId, request: Request) -> Response:
    """Return the public keys of a platform's webhooks; they are public, so no credentials.

    `platformId` is the `id` of `GET /config`. Fetch the keys again when a signature has another
    key.
    """
    services = services_of(request)
    async with AsyncExitStack() as held:
        # Of a stranger: few hold connections, and those of one address let others in between. As
        # many wait as have a connection to this process.
        for turn in turns_of(address_of(request)):
            await held.enter_async_context(services.turns.take(turn, may_refuse=False))
        connection = await held.enter_async_context(services.platforms.reading(platform_id))
        keys = await signing_keys.published_at(connection, platform_id, services.clock())
    if keys is None:
        raise not_found(Code.REFERENCE_NOT_FOUND, "platform")
    response = resource_response(SigningKeys(data=keys))
    response.headers["Cache-Control"] = _CACHE_CONTROL
    return response


def turns_of(address: str) -> tuple[Turn, ...]:
    """Return the turns that a reader at `address` waits for.

    Behind a Unix socket the address of none is known: all of them share one turn.
    """
    counted = counted_as(address)
    if not counted:
        return (_READERS,)
    return Turn(f"reader of published webhook keys at {counted}", _READERS_AT_AN_ADDRESS), _READERS
