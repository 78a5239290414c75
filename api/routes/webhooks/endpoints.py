"""Webhook endpoints: their secrets and signing keys."""

from datetime import timedelta
from typing import Annotated, Any

from fastapi import Query, Response

from cardledger.api.http.errors import ApiError, invalid_field, not_found
from cardledger.api.http.request_context import PlatformCall, PlatformContext
from cardledger.api.http.responses import CREATED, Listing, capped, granting, resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.api.routes.platform_config import check_production
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.webhooks import endpoints, signing_keys
from cardledger.schema.wire.common import Page, WebhookEndpointId
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.webhooks.endpoints import (
    SigningKeyRotate,
    SigningKeys,
    WebhookEndpointCreate,
    WebhookEndpointResource,
    WebhookEndpointsQuery,
    WebhookEndpointUpdate,
)
from cardledger.workers.signals import doorbell

_TAG = "Webhooks"
_PATH = "/webhooks/endpoints"
_ONE = _PATH + "/{webhook_endpoint_id}"
_NO_CONTENT = 204

router = guarded_router(_TAG)


@router.post(_PATH, status_code=CREATED, response_model=WebhookEndpointResource)
@requires(Permission.MANAGE, Permission.VIEW, secrets=("secret",))
async def create_webhook_endpoint(body: WebhookEndpointCreate, call: PlatformCall) -> Response:
    """Create an endpoint; only this response contains its `secret`, and no repetition does.

    Its receiver reads what happens on the platform, hence the permission `VIEW`. It receives one
    `TEST` webhook. The `webhookEndpoint` of the settings is an endpoint as well,
    with `isDefault`. Besides it, a platform has 100 endpoints at most: one more is 409 `CONFLICT`.
    """
    _check_url(call, body.url)
    new = endpoints.NewEndpoint(
        url=body.url,
        description=body.description,
        event_types=body.event_types,
        mode=body.mode,
        state=body.state,
    )
    with capped(), granting():
        async with call.giving_access() as connection:
            created = await endpoints.create(
                connection,
                platform_id=call.platform_id,
                new=new,
                keys=call.keys,
                at=call.now(),
            )
    await call.notify(doorbell.WEBHOOKS)
    return _secret(resource_response(created, CREATED))


@router.get(_PATH, response_model=Page[WebhookEndpointResource])
@requires(Permission.VIEW)
async def list_webhook_endpoints(
    query: Annotated[WebhookEndpointsQuery, Query()], call: PlatformCall
) -> Response:
    """List the platform's endpoints, oldest first, without their secrets."""
    listing = Listing(call, "webhook-endpoints", query)
    async with call.reading() as connection:
        page = await endpoints.page(
            connection, platform_id=call.platform_id, wanted=listing.wanted(newest_first=False)
        )
    return listing.response(page)


@router.get(_ONE, response_model=WebhookEndpointResource)
@requires(Permission.VIEW)
async def get_webhook_endpoint(
    webhook_endpoint_id: WebhookEndpointId, call: PlatformCall
) -> Response:
    """Return an endpoint, without its secret."""
    async with call.reading() as connection:
        endpoint = await endpoints.get(
            connection, platform_id=call.platform_id, endpoint_id=webhook_endpoint_id
        )
    return resource_response(_existing(endpoint))


@router.patch(_ONE, response_model=WebhookEndpointResource)
@requires(Permission.MANAGE, Permission.VIEW)
async def update_webhook_endpoint(
    webhook_endpoint_id: WebhookEndpointId, body: WebhookEndpointUpdate, call: PlatformCall
) -> Response:
    """Change an endpoint; pending deliveries go to its new URL.

    A new URL receives one `TEST` webhook. A disabled endpoint receives nothing, and has no new
    deliveries. Enabled again, it receives what is still pending; `POST /webhooks/replay` with its
    id sends what it has missed: before it is enabled, to receive all in order.
    """
    changes = _changes(body)
    if body.url is not None:
        _check_url(call, body.url)
    with granting():
        async with call.giving_access() as connection:
            changed = await endpoints.change(
                connection,
                platform_id=call.platform_id,
                endpoint_id=webhook_endpoint_id,
                changes=changes,
                at=call.now(),
            )
    endpoint = _existing(changed)
    await call.notify(doorbell.WEBHOOKS)
    return resource_response(endpoint)


@router.delete(_ONE, status_code=_NO_CONTENT)
@requires(Permission.MANAGE)
async def delete_webhook_endpoint(
    webhook_endpoint_id: WebhookEndpointId, call: PlatformCall
) -> Response:
    """Delete an endpoint; its pending deliveries are kept and not sent.

    Within seconds they have the state `NO_ENDPOINT`. One of which nothing was sent, and whose
    webhook is also stored as missed, is deleted: the missed webhook can be replayed.
    """
    async with call.writing() as connection:
        existed = await endpoints.delete(
            connection,
            platform_id=call.platform_id,
            endpoint_id=webhook_endpoint_id,
            at=call.now(),
        )
    if not existed:
        raise _no_endpoint()
    await call.notify(doorbell.WEBHOOKS)
    return Response(status_code=_NO_CONTENT)


@router.post(_ONE + "/rotate-secret", response_model=WebhookEndpointResource)
@requires(Permission.MANAGE, secrets=("secret",))
async def rotate_webhook_secret(
    webhook_endpoint_id: WebhookEndpointId, call: PlatformCall
) -> Response:
    """Replace the secret of an endpoint; only this response contains the new one.

    A repetition with the same `Idempotency-Key` does not. When it was lost, rotate again within ten
    minutes: the secret before the first rotation goes on signing.
    For 24 hours webhooks are signed with both secrets, so that receivers can change over.
    """
    with granting():
        async with call.giving_access() as connection:
            changed = await endpoints.rotate_secret(
                connection,
                platform_id=call.platform_id,
                endpoint_id=webhook_endpoint_id,
                keys=call.keys,
                at=call.now(),
            )
    return _secret(resource_response(_existing(changed)))


# --- keys of X-Grid-Signature ------------------------------------------------------------------


@router.get("/webhooks/signing-keys", response_model=SigningKeys)
@requires(Permission.VIEW)
async def list_webhook_signing_keys(call: PlatformCall) -> Response:
    """Return the public keys that a receiver must accept, the signing key first."""
    async with call.reading() as connection:
        keys = await signing_keys.published_at(connection, call.platform_id, call.now())
    assert keys is not None, "the caller has a platform"
    return resource_response(SigningKeys(data=keys))


@router.post("/webhooks/signing-keys/rotate", response_model=SigningKeys)
@requires(Permission.MANAGE)
async def rotate_webhook_signing_key(body: SigningKeyRotate, call: PlatformCall) -> Response:
    """Create a new signing key: published now, in use after `overlapHours`.

    The previous key stays published for as long again. 0 is for a compromised key: the new key
    signs within seconds, and receivers must fetch it. A platform has 10 published keys at most: one
    more is 409 `CONFLICT`. 0 replaces the current one, so it is possible then as well; it is 409
    after 100 keys within an hour.
    """
    with capped():
        async with call.writing() as connection:
            published = await signing_keys.rotate(
                connection,
                platform_id=call.platform_id,
                keys=call.keys,
                overlap=timedelta(hours=body.overlap_hours),
                at=call.now(),
            )
    return resource_response(SigningKeys(data=published))


def _changes(body: WebhookEndpointUpdate) -> dict[str, Any]:
    sent = {name: getattr(body, name) for name in body.model_fields_set}
    if not sent:
        message = "Nothing to change; send url, description, eventTypes or state."
        raise ApiError(Code.INVALID_INPUT, message)
    for name, field in (("url", "url"), ("event_types", "eventTypes"), ("state", "state")):
        if name in sent and sent[name] is None:
            raise invalid_field(field, "must not be null; leave it out to keep its value")
    return sent


def _check_url(call: PlatformContext, url: str) -> None:
    if not call.services.allow_loopback:
        check_production(url, "url")


def _secret(response: Response) -> Response:
    response.headers["Cache-Control"] = "no-store"
    return response


def _existing(endpoint: WebhookEndpointResource | None) -> WebhookEndpointResource:
    if endpoint is None:
        raise _no_endpoint()
    return endpoint


def _no_endpoint() -> ApiError:
    return not_found(Code.REFERENCE_NOT_FOUND, "webhook endpoint")
