"""Webhook endpoints: their secrets, signing keys and tests."""

import asyncio
import time
from datetime import timedelta
from typing import Annotated, Any, Final

from fastapi import Query, Response

from cardledger.api.http.errors import ApiError, invalid_field, not_found
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall, PlatformContext
from cardledger.api.http.responses import CREATED, Listing, resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.api.routes.platform_config import check_production
from cardledger.ledger.platforms.api_tokens import Permission
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.webhooks import deliveries, endpoints, signing_keys
from cardledger.ledger.webhooks.retry_policy import Attempt
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import Page, WebhookEndpointId, public_id
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.webhooks.endpoints import (
    SigningKeyRotate,
    SigningKeys,
    WebhookEndpointCreate,
    WebhookEndpointResource,
    WebhookEndpointsQuery,
    WebhookEndpointUpdate,
    WebhookTest,
    WebhookTestResource,
)
from cardledger.schema.wire.webhooks.envelope import WebhookType, envelope
from cardledger.workers.signals import doorbell
from cardledger.workers.webhooks.http_client import HEADERS, HttpClient

_TAG = "Webhooks"
_PATH = "/webhooks/endpoints"
_ONE = _PATH + "/{webhook_endpoint_id}"
_NO_CONTENT = 204
# Shorter than for other webhooks: the caller waits for the test.
_TEST_TIMEOUT_S: Final = 10.0

router = guarded_router(_TAG)


@router.post(_PATH, status_code=CREATED, response_model=WebhookEndpointResource)
@requires(Permission.MANAGE)
async def create_webhook_endpoint(body: WebhookEndpointCreate, call: PlatformCall) -> Response:
    """Create an endpoint; only this response contains its `secret`.

    It receives one `TEST` webhook. The `webhookEndpoint` of the settings is an endpoint as well,
    with `isDefault`.
    """
    _check_url(call, body.url)
    new = endpoints.NewEndpoint(
        url=body.url,
        description=body.description,
        event_types=body.event_types,
        mode=body.mode,
        state=body.state,
    )
    try:
        async with call.writing() as connection:
            created = await endpoints.create(
                connection,
                platform_id=call.platform_id,
                new=new,
                keys=call.keys,
                at=call.now(),
            )
    except endpoints.TooManyEndpointsError:
        limit = endpoints.ENDPOINT_LIMIT
        message = f"The platform has {limit} endpoints, the maximum; delete one first."
        raise ApiError(Code.CONFLICT, message) from None
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
@requires(Permission.MANAGE)
async def update_webhook_endpoint(
    webhook_endpoint_id: WebhookEndpointId, body: WebhookEndpointUpdate, call: PlatformCall
) -> Response:
    """Change an endpoint; pending deliveries go to its new URL.

    A new URL receives one `TEST` webhook. A disabled endpoint receives nothing until it is enabled
    again; then it receives everything that is pending.
    """
    changes = _changes(body)
    if body.url is not None:
        _check_url(call, body.url)
    async with call.writing() as connection:
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
    """Delete an endpoint; its pending deliveries are kept and not sent."""
    async with call.writing() as connection:
        existed = await endpoints.delete(
            connection,
            platform_id=call.platform_id,
            endpoint_id=webhook_endpoint_id,
            at=call.now(),
        )
    if not existed:
        raise _no_endpoint()
    return Response(status_code=_NO_CONTENT)


@router.post(_ONE + "/rotate-secret", response_model=WebhookEndpointResource)
@requires(Permission.MANAGE)
async def rotate_webhook_secret(
    webhook_endpoint_id: WebhookEndpointId, call: PlatformCall
) -> Response:
    """Replace the secret of an endpoint; only this response contains the new one.

    For 24 hours webhooks are signed with both secrets, so that receivers can change over.
    """
    async with call.writing() as connection:
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
    signs within seconds, and receivers must fetch it.
    """
    async with call.writing() as connection:
        published = await signing_keys.rotate(
            connection,
            platform_id=call.platform_id,
            keys=call.keys,
            overlap=timedelta(hours=body.overlap_hours),
            at=call.now(),
        )
    return resource_response(SigningKeys(data=published))


# --- tests -------------------------------------------------------------------------------------


@router.post(
    "/webhooks/test",
    response_model=WebhookTestResource,
    responses=error_responses(Code.REFERENCE_NOT_FOUND, Code.WEBHOOK_ENDPOINT_NOT_SET),
)
@requires(Permission.MANAGE)
async def send_test_webhook(call: PlatformCall, body: WebhookTest | None = None) -> Response:
    """Send one signed `TEST` to an endpoint now and return the result of the attempt.

    Without `endpointId`, or without a body, to the `webhookEndpoint` of the settings. Disabled
    endpoints are tested as well.
    """
    return resource_response(await send_test(call, None if body is None else body.endpoint_id))


async def send_test(call: PlatformContext, endpoint_id: Id | None) -> WebhookTestResource:
    """Send one `TEST` now and return the result; without `endpoint_id` to the default endpoint.

    Raises: ApiError REFERENCE_NOT_FOUND; WEBHOOK_ENDPOINT_NOT_SET.
    """
    async with call.reading() as connection:
        target = await endpoints.target(
            connection,
            platform_id=call.platform_id,
            endpoint_id=endpoint_id,
            keys=call.keys,
            at=call.now(),
        )
    if target is None:
        raise _no_endpoint() if endpoint_id else _not_set()
    key, at = new_id(), call.now()
    body = envelope(key, WebhookType.TEST, at, {})
    signed = target.signer.sign(body, webhook_id=public_id("Webhook", key), at=at)
    attempt = await asyncio.to_thread(_send, call, target.url, body, signed)
    async with call.writing() as connection:
        delivery_id = await deliveries.record_test(
            connection,
            platform_id=call.platform_id,
            endpoint_id=target.endpoint_id,
            webhook_id=key,
            body=body,
            attempt=attempt,
        )
    return WebhookTestResource(
        delivery_id=delivery_id,
        webhook_id=key,
        endpoint_id=target.endpoint_id,
        url=target.url,
        delivered=attempt.delivered,
        duration_ms=attempt.duration_ms,
        response_status=attempt.status,
        response_body=attempt.response_head,
        error=attempt.error,
    )


def _send(call: PlatformContext, url: str, body: bytes, signed: dict[str, str]) -> Attempt:
    """Make one attempt; runs in a thread, because it blocks."""
    http = HttpClient(
        timeout_s=_TEST_TIMEOUT_S, connections=1, allow_loopback=call.services.allow_loopback
    )
    at, started = call.now(), time.monotonic_ns()
    try:
        result = http.post(url, body, HEADERS | signed)
    finally:
        http.close()
    return Attempt(
        at=at,
        ended_at=call.now(),
        duration_ms=(time.monotonic_ns() - started) // 1_000_000,
        status=result.status,
        error=result.error,
        response_head=result.head,
    )


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


def _not_set() -> ApiError:
    message = "The platform has no webhookEndpoint; set one with PATCH /config."
    return ApiError(Code.WEBHOOK_ENDPOINT_NOT_SET, message)
