"""Tests of webhook endpoints: a `TEST` that the sender delivers while the request waits.

The request holds no database connection while it waits: it looks for the result again and again.
Source: docs/decisions/0043-webhook-tests.md
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from fastapi import Response

from cardledger.api.http import idempotency
from cardledger.api.http.errors import ApiError, not_found, too_many_waiting
from cardledger.api.http.in_flight import TooManyRequestsError
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall, RequestContext
from cardledger.api.http.responses import resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.webhooks import endpoint_tests
from cardledger.ledger.webhooks.endpoint_tests import EndpointTest, TooManyTestsError
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import public_id
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.webhooks.endpoints import WebhookTest, WebhookTestResource
from cardledger.workers.signals import doorbell

# Pauses between two looks for a result, in seconds: a quick endpoint responds within the first.
_FIRST_PAUSE_S: Final = 0.02
_PAUSE_FACTOR: Final = 1.5
_PAUSE_LIMIT_S: Final = 0.5

router = guarded_router("Webhooks")


async def _send(call: RequestContext, event: Mapping[str, Any]) -> Response:
    return resource_response(await result_of(call, event))


@router.post(
    "/webhooks/test",
    response_model=WebhookTestResource,
    responses=error_responses(Code.REFERENCE_NOT_FOUND, Code.WEBHOOK_ENDPOINT_NOT_SET),
)
@requires(Permission.MANAGE, send=_send)
async def send_test_webhook(call: PlatformCall, body: WebhookTest | None = None) -> Response:
    """Send one signed `TEST` to an endpoint now and return the result of the attempt.

    Without `endpointId`, or without a body, to the `webhookEndpoint` of the settings. Disabled
    endpoints are tested as well. A platform has at most 2 tests at a time; another one gets 429.
    Without a result in time the response is 503 with the `deliveryId`, and the test goes on.
    """
    return await _send(call, await test_event(call, None if body is None else body.endpoint_id))


async def test_event(call: RequestContext, endpoint_id: Id | None) -> Mapping[str, Any]:
    """Return the event of a test of `endpoint_id`, or else of the default endpoint.

    Raises: ApiError REFERENCE_NOT_FOUND; WEBHOOK_ENDPOINT_NOT_SET.
    """
    async with call.reading() as connection:
        found = await endpoint_tests.find_endpoint(
            connection, platform_id=call.platform_id, endpoint_id=endpoint_id
        )
    if found is None:
        raise _no_endpoint() if endpoint_id else _not_set()
    event = {"testId": str(new_id()), "endpointId": str(found)}
    return await idempotency.settle(call, event)


async def result_of(
    call: RequestContext, event: Mapping[str, Any], *, needs_response: bool = False
) -> WebhookTestResource:
    """Have the test of `event` sent, if it was not yet, and return its result.

    With `needs_response`, a test without one is an error, which no key keeps (decision 15): a
    repetition of the request sends another test.
    Raises: ApiError RATE_LIMITED; SERVICE_UNAVAILABLE when there is no result in time.
    """
    test = EndpointTest(
        id=Id.parse(event["testId"]),
        platform_id=call.platform_id,
        endpoint_id=Id.parse(event["endpointId"]),
    )
    if needs_response:
        async with call.reading() as connection:
            test = await endpoint_tests.repetition(connection, test)
    try:
        with call.services.webhook_tests.enter(call.platform_id):
            async with call.writing() as connection:
                await endpoint_tests.request(connection, test, at=call.now())
            await call.notify(doorbell.WEBHOOKS)
            return await _wait_for(call, test)
    except (TooManyRequestsError, TooManyTestsError):
        raise _too_many() from None


async def _wait_for(call: RequestContext, test: EndpointTest) -> WebhookTestResource:
    wait_s = call.services.wait_limit.total_seconds()
    loop, pause_s = asyncio.get_running_loop(), _FIRST_PAUSE_S
    deadline = loop.time() + wait_s
    while True:
        async with call.reading() as connection:
            result = await endpoint_tests.result(connection, test)
        if result is not None:
            return result
        if loop.time() + pause_s > deadline:
            raise _no_result(call, test, wait_s)
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * _PAUSE_FACTOR, _PAUSE_LIMIT_S)


def _too_many() -> ApiError:
    message = (
        f"{endpoint_tests.TEST_LIMIT} webhook tests of the platform wait for their result, the"
        " maximum; retry when one of them has ended."
    )
    return too_many_waiting(message)


def _no_result(call: RequestContext, test: EndpointTest, wait_s: float) -> ApiError:
    delivery_id = public_id("WebhookDelivery", test.id)
    message = (
        f"The test has no result within {wait_s:g} s; it goes on."
        f" Read its result later: GET /webhooks/deliveries/{delivery_id}."
    )
    return ApiError(
        Code.SERVICE_UNAVAILABLE,
        message,
        details={"deliveryId": delivery_id},
        # Without a key, a repetition would be another test.
        headers={} if call.attempt is not None else {"x-should-retry": "false"},
    )


def _no_endpoint() -> ApiError:
    return not_found(Code.REFERENCE_NOT_FOUND, "webhook endpoint")


def _not_set() -> ApiError:
    message = "The platform has no webhookEndpoint; set one with PATCH /config."
    return ApiError(Code.WEBHOOK_ENDPOINT_NOT_SET, message)
