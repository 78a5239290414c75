"""Where platforms are told: endpoints, their secrets, the keys that sign, and tests of them."""

import asyncio
import time
from datetime import timedelta
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response

from cardledger.api.http import routing
from cardledger.api.http.errors import ApiError, invalid_field, not_found
from cardledger.api.http.operations import answers
from cardledger.api.http.request_context import Call, PlatformCall, services_of
from cardledger.api.http.responses import CREATED, Listing, answer
from cardledger.api.routes.platform_config import check_production
from cardledger.ledger.platforms.api_tokens import Permission
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.webhooks import deliveries, endpoints, signing_keys
from cardledger.ledger.webhooks.retry_policy import Attempt
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import Page, PlatformConfigId, WebhookEndpointId, public_id
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.webhooks.endpoints import (
    SandboxWebhookTestResource,
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
# Whoever asks for a test waits for it, so it has less time than others.
_TEST_TIMEOUT_S: Final = 10.0
_KEYS_MAY_BE_KEPT: Final = "public, max-age=300"

reads = routing.routes(Permission.VIEW, tag=_TAG)
writes = routing.routes(Permission.MANAGE, tag=_TAG)
sandbox = routing.routes(Permission.TRANSACT, tag=routing.SANDBOX)
router = APIRouter(tags=[_TAG])
"""What anybody may read: public keys."""


@writes.post(_PATH, status_code=CREATED, response_model=WebhookEndpointResource)
async def create_webhook_endpoint(body: WebhookEndpointCreate, call: PlatformCall) -> Response:
    """Set up an endpoint; its `secret` is in this answer and in no other.

    It is sent one `TEST` at once. The `webhookEndpoint` of the settings is an endpoint as well,
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
        message = f"The platform already has {endpoints.ENDPOINT_LIMIT} endpoints; delete one."
        raise ApiError(Code.CONFLICT, message) from None
    await call.ring(doorbell.WEBHOOKS)
    return _secret(answer(created, CREATED))


@reads.get(_PATH, response_model=Page[WebhookEndpointResource])
async def list_webhook_endpoints(
    query: Annotated[WebhookEndpointsQuery, Query()], call: PlatformCall
) -> Response:
    """List the platform's endpoints, oldest first, without their secrets."""
    listing = Listing(call, "webhook-endpoints", query)
    async with call.reading() as connection:
        page = await endpoints.page(
            connection, platform_id=call.platform_id, wanted=listing.wanted(newest_first=False)
        )
    return listing.answer(page)


@reads.get(_ONE, response_model=WebhookEndpointResource)
async def get_webhook_endpoint(
    webhook_endpoint_id: WebhookEndpointId, call: PlatformCall
) -> Response:
    """Return an endpoint, without its secret."""
    async with call.reading() as connection:
        found = await endpoints.get(
            connection, platform_id=call.platform_id, endpoint_id=webhook_endpoint_id
        )
    return answer(_found(found))


@writes.patch(_ONE, response_model=WebhookEndpointResource)
async def update_webhook_endpoint(
    webhook_endpoint_id: WebhookEndpointId, body: WebhookEndpointUpdate, call: PlatformCall
) -> Response:
    """Change an endpoint; what waits for it goes where it is then.

    A new URL is sent one `TEST`. A disabled endpoint is sent nothing, and everything that it
    missed once it is enabled again.
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
    found = _found(changed)
    await call.ring(doorbell.WEBHOOKS)
    return answer(found)


@writes.delete(_ONE, status_code=_NO_CONTENT)
async def delete_webhook_endpoint(
    webhook_endpoint_id: WebhookEndpointId, call: PlatformCall
) -> Response:
    """Take an endpoint away; what waited for it is kept, and not sent."""
    async with call.writing() as connection:
        was_there = await endpoints.delete(
            connection,
            platform_id=call.platform_id,
            endpoint_id=webhook_endpoint_id,
            at=call.now(),
        )
    if not was_there:
        raise _no_endpoint()
    return Response(status_code=_NO_CONTENT)


@writes.post(_ONE + "/rotate-secret", response_model=WebhookEndpointResource)
async def rotate_webhook_secret(
    webhook_endpoint_id: WebhookEndpointId, call: PlatformCall
) -> Response:
    """Give an endpoint a new secret, which is in this answer and in no other.

    For 24 hours webhooks carry a signature with each of both, so there is time to change over.
    """
    async with call.writing() as connection:
        changed = await endpoints.rotate_secret(
            connection,
            platform_id=call.platform_id,
            endpoint_id=webhook_endpoint_id,
            keys=call.keys,
            at=call.now(),
        )
    return _secret(answer(_found(changed)))


# --- keys of X-Grid-Signature ------------------------------------------------------------------


@reads.get("/webhooks/signing-keys", response_model=SigningKeys)
async def list_webhook_signing_keys(call: PlatformCall) -> Response:
    """Return the public keys that a receiver should accept, the one that signs first."""
    async with call.reading() as connection:
        found = await signing_keys.published_at(connection, call.platform_id, call.now())
    assert found is not None, "whoever calls has a platform"
    return answer(SigningKeys(data=found))


@writes.post("/webhooks/signing-keys/rotate", response_model=SigningKeys)
async def rotate_webhook_signing_key(body: SigningKeyRotate, call: PlatformCall) -> Response:
    """Make a new signing key: published now, in use after `overlapHours`.

    The one before stays published for as long again. 0 is for a key that is known to others: the
    new one signs within seconds, and receivers have to ask for it.
    """
    async with call.writing() as connection:
        published = await signing_keys.rotate(
            connection,
            platform_id=call.platform_id,
            keys=call.keys,
            overlap=timedelta(hours=body.overlap_hours),
            at=call.now(),
        )
    return answer(SigningKeys(data=published))


@router.get("/.well-known/cardledger/webhook-keys/{platform_id}", response_model=SigningKeys)
async def get_published_webhook_keys(platform_id: PlatformConfigId, request: Request) -> Response:
    """Return the public keys of a platform's webhooks to anybody: they are no secret.

    `platformId` is the `id` of `GET /config`. Ask again when a signature has another key.
    """
    services = services_of(request)
    async with services.reader.connect() as connection:
        found = await signing_keys.published_at(connection, platform_id, services.clock())
    if found is None:
        raise not_found(Code.REFERENCE_NOT_FOUND, "platform")
    response = answer(SigningKeys(data=found))
    response.headers["Cache-Control"] = _KEYS_MAY_BE_KEPT
    return response


# --- tests -------------------------------------------------------------------------------------


@writes.post(
    "/webhooks/test",
    response_model=WebhookTestResource,
    responses=answers(Code.REFERENCE_NOT_FOUND, Code.WEBHOOK_ENDPOINT_NOT_SET),
)
async def send_test_webhook(body: WebhookTest, call: PlatformCall) -> Response:
    """Send an endpoint one signed `TEST` now, and say what came of it, whatever that is.

    Without `endpointId` to the `webhookEndpoint` of the settings. Also to a disabled endpoint.
    """
    return answer(await _test(call, body.endpoint_id))


@sandbox.post(
    "/sandbox/webhooks/test",
    response_model=SandboxWebhookTestResource,
    responses=answers(Code.WEBHOOK_ENDPOINT_NOT_SET, Code.WEBHOOK_DELIVERY_ERROR),
)
async def send_sandbox_test_webhook(call: PlatformCall) -> Response:
    """Send the `webhookEndpoint` of the settings one signed `TEST` now, and say what came back."""
    tested = await _test(call, None)
    if tested.response_status is None:
        message = f"the webhook was not answered: {tested.error}; check webhookEndpoint"
        raise ApiError(Code.WEBHOOK_DELIVERY_ERROR, message, details={"url": tested.url})
    return answer(
        SandboxWebhookTestResource(
            url=tested.url,
            response_status=tested.response_status,
            response_body=tested.response_body or "",
        )
    )


async def _test(call: Call, endpoint_id: Id | None) -> WebhookTestResource:
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


def _send(call: Call, url: str, body: bytes, signed: dict[str, str]) -> Attempt:
    """Make one attempt; in a thread, for it may take its time."""
    http = HttpClient(
        timeout_s=_TEST_TIMEOUT_S, connections=1, allow_loopback=call.services.allow_loopback
    )
    at, started = call.now(), time.monotonic_ns()
    try:
        came = http.post(url, body, HEADERS | signed)
    finally:
        http.close()
    return Attempt(
        at=at,
        ended_at=call.now(),
        duration_ms=(time.monotonic_ns() - started) // 1_000_000,
        status=came.status,
        error=came.error,
        response_head=came.head,
    )


# --- words -------------------------------------------------------------------------------------


def _changes(body: WebhookEndpointUpdate) -> dict[str, Any]:
    sent = {name: getattr(body, name) for name in body.model_fields_set}
    if not sent:
        message = "nothing to change; send url, description, eventTypes or state"
        raise ApiError(Code.INVALID_INPUT, message)
    for name, field in (("url", "url"), ("event_types", "eventTypes"), ("state", "state")):
        if name in sent and sent[name] is None:
            raise invalid_field(field, "must not be null; leave it out to keep it")
    return sent


def _check_url(call: Call, url: str) -> None:
    if not call.services.allow_loopback:
        check_production(url, "url")


def _secret(response: Response) -> Response:
    response.headers["Cache-Control"] = "no-store"
    return response


def _found(endpoint: WebhookEndpointResource | None) -> WebhookEndpointResource:
    if endpoint is None:
        raise _no_endpoint()
    return endpoint


def _no_endpoint() -> ApiError:
    return not_found(Code.REFERENCE_NOT_FOUND, "webhook endpoint")


def _not_set() -> ApiError:
    message = "the platform has no webhookEndpoint; set one with PATCH /config"
    return ApiError(Code.WEBHOOK_ENDPOINT_NOT_SET, message)
