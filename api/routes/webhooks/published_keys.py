"""The public keys of webhook signatures, at the server's root and without credentials."""

from typing import Final

from fastapi import Request, Response

from cardledger.api.http.errors import not_found
from cardledger.api.http.rate_limits import address_of
from cardledger.api.http.request_context import services_of
from cardledger.api.http.responses import resource_response
from cardledger.api.http.routing import public_router
from cardledger.api.http.strangers import looking_up
from cardledger.ledger.webhooks import signing_keys
from cardledger.schema.wire.common import PlatformConfigId
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.webhooks.endpoints import SigningKeys

router = public_router("Webhooks")

_CACHE_CONTROL: Final = "public, max-age=300"
_READERS: Final = "readers of published webhook keys"


@router.get("/.well-known/cardledger/webhook-keys/{platform_id}", response_model=SigningKeys)
async def get_published_webhook_keys(platform_id: PlatformConfigId, request: Request) -> Response:
    """Return the public keys of a platform's webhooks; they are public, so no credentials.

    `platformId` is the `id` of `GET /config`. Fetch the keys again when a signature has another
    key.
    """
    services = services_of(request)
    async with (
        looking_up(services.turns, _READERS, address_of(request)),
        services.platforms.reading(platform_id) as connection,
    ):
        keys = await signing_keys.published_at(connection, platform_id, services.clock())
    if keys is None:
        raise not_found(Code.REFERENCE_NOT_FOUND, "platform")
    response = resource_response(SigningKeys(data=keys))
    response.headers["Cache-Control"] = _CACHE_CONTROL
    return response
