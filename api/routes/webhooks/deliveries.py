"""Webhook deliveries: their attempts, retries and replays."""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, Final

from fastapi import Query, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.fair_slots import Work
from cardledger.api.http import idempotency
from cardledger.api.http.errors import ApiError, invalid_field, not_found, unavailable
from cardledger.api.http.in_flight import Turn
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall, PlatformContext, RequestContext
from cardledger.api.http.responses import Listing, resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.webhooks import backlogs, deliveries, dispatch_lock, endpoints, replays
from cardledger.ledger.webhooks.replays import NoEndpointError, RetriedTooOftenError, Window
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import Page, WebhookDeliveryId
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.webhooks.endpoints import (
    WebhookDeliveriesQuery,
    WebhookDeliveryResource,
    WebhookReplay,
    WebhookReplayed,
)
from cardledger.workers.signals import doorbell

_TAG = "Webhooks"
_PATH = "/webhooks/deliveries"
_ONE = _PATH + "/{webhook_delivery_id}"
_REPLAY_LIMIT: Final = 10_000
# A window of years may hold millions of deliveries that need no replay; the caller must not wait
# until all of them are read.
_BATCH_LIMIT: Final = 20
# Pauses between two looks whether a dispatch is over, in seconds: most take less than the first.
_FIRST_PAUSE_S: Final = 0.02
_PAUSE_FACTOR: Final = 1.5
_PAUSE_LIMIT_S: Final = 0.5

router = guarded_router(_TAG)


@router.get(_PATH, response_model=Page[WebhookDeliveryResource])
@requires(Permission.VIEW)
async def list_webhook_deliveries(
    query: Annotated[WebhookDeliveriesQuery, Query()], call: PlatformCall
) -> Response:
    """List webhook deliveries, newest first: one for each webhook and endpoint."""
    listing = Listing(call, "webhook-deliveries", query)
    filters = deliveries.DeliveryFilters(
        endpoint_id=query.endpoint_id,
        type=query.type,
        subject_ids=[key for key in (query.subject_id, query.card_transaction_id) if key],
        state=query.state,
        since=query.since,
        until=query.until,
    )
    async with call.reading() as connection:
        page = await deliveries.page(
            connection,
            platform_id=call.platform_id,
            filters=filters,
            wanted=listing.wanted(newest_first=True),
        )
    return listing.response(page)


@router.get(_ONE, response_model=WebhookDeliveryResource)
@requires(Permission.VIEW)
async def get_webhook_delivery(
    webhook_delivery_id: WebhookDeliveryId, call: PlatformCall
) -> Response:
    """Return a delivery with its payload and its last 20 attempts."""
    return await _delivery_response(call, webhook_delivery_id)


@router.post(_ONE + "/retry", response_model=WebhookDeliveryResource)
@requires(Permission.MANAGE, Permission.VIEW, large=("payload", "attemptList"))
async def retry_webhook_delivery(
    webhook_delivery_id: WebhookDeliveryId, call: PlatformCall
) -> Response:
    """Send a delivery again, whatever its state, with the same webhook id.

    A delivery that waits for its retry is due at once; one that is being sent is not changed. After
    100 attempts it is a `CONFLICT`. The response shows the payload, hence the permission `VIEW`; a
    repetition with the same `Idempotency-Key` has neither the payload nor the attempts.
    """
    try:
        async with call.writing() as connection:
            exists = await replays.retry(
                connection,
                platform_id=call.platform_id,
                delivery_id=webhook_delivery_id,
                at=call.now(),
            )
            # In the same transaction: with a key, other connections do not see the change yet.
            delivery = await deliveries.get(
                connection, platform_id=call.platform_id, delivery_id=webhook_delivery_id
            )
    except NoEndpointError:
        message = (
            "The delivery has no endpoint; POST /webhooks/replay sends what endpoints have missed."
        )
        raise ApiError(Code.CONFLICT, message) from None
    except RetriedTooOftenError:
        limit = replays.RETRY_LIMIT
        message = f"The delivery has had {limit} attempts or more; it is not retried on request."
        raise ApiError(Code.CONFLICT, message, details={"limit": limit}) from None
    if not exists or delivery is None:
        raise _no_delivery()
    await call.notify(doorbell.WEBHOOKS)
    return resource_response(delivery)


async def _replay_again(call: RequestContext, event: Mapping[str, Any]) -> Response:
    """Replay what `event` describes after a lost response."""
    async with _turn(call):
        await _check_room(call)
        return await _replay(call, event)


def _turn(call: RequestContext) -> AbstractAsyncContextManager[None]:
    """Have one replay of a platform at a time: each counts, reads and locks many deliveries.

    One more waits, without a connection, but in a slot that other writes of the platform need.
    """
    turn = Turn(f"replays of {call.platform_id}", at_once=1, may_wait=1)
    return call.services.turns.take(turn)


async def _replay(call: RequestContext, event: Mapping[str, Any]) -> Response:
    body = WebhookReplay.model_validate(event["replay"])
    if body.endpoint_id is not None and body.until is None:
        # Committed before anything is replayed: what is dispatched from now on waits behind it.
        async with call.writing() as connection:
            await endpoints.collect(
                connection,
                platform_id=call.platform_id,
                endpoint_id=body.endpoint_id,
                at=call.now(),
            )
    await _wait_for_dispatch(call)
    window = Window(
        endpoint_id=body.endpoint_id,
        since=body.since,
        until=body.until,
        only_failed=body.only_failed,
    )
    count, after, is_full = 0, body.cursor, False
    for _ in range(_BATCH_LIMIT):
        # One commit per batch: locks are short, and an interrupted replay keeps its progress.
        async with call.writing() as connection:
            # Each time: several replays at once make deliveries wait.
            is_full = await _is_full(call, connection)
            if is_full:
                break
            batch = await replays.replay(
                connection,
                platform_id=call.platform_id,
                window=window,
                after=after,
                at=call.now(),
            )
        count, after = count + batch.count, batch.after
        if after is None or count >= _REPLAY_LIMIT:
            break
    await call.notify(doorbell.WEBHOOKS)
    if is_full and after == body.cursor:
        raise _too_many_wait(call)
    return resource_response(
        WebhookReplayed(count=count, has_more=after is not None, next_cursor=after)
    )


async def _wait_for_dispatch(call: RequestContext) -> None:
    """Wait until the dispatch that is under way is over, without a connection between two looks.

    It may have read an endpoint as disabled that is enabled or collects webhooks by now: what it
    stores as missed is to be replayed.
    Raises: ApiError SERVICE_UNAVAILABLE.
    """
    wait_s = call.services.wait_limit.total_seconds()
    loop, pause_s = asyncio.get_running_loop(), _FIRST_PAUSE_S
    deadline = loop.time() + wait_s
    first = await _dispatch_under_way(call)
    while first is not None and await _dispatch_under_way(call) == first:
        if loop.time() + pause_s > deadline:
            message = f"Webhooks are being dispatched for more than {wait_s:g} s; retry the replay."
            raise unavailable(message)
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * _PAUSE_FACTOR, _PAUSE_LIMIT_S)


async def _dispatch_under_way(call: RequestContext) -> str | None:
    async with call.reading() as connection:
        return await dispatch_lock.under_way(connection)


@router.post(
    "/webhooks/replay",
    response_model=WebhookReplayed,
    responses=error_responses(Code.REFERENCE_NOT_FOUND, Code.CONFLICT),
)
@requires(Permission.MANAGE, send=_replay_again, work=Work.WRITE)
async def replay_webhooks(body: WebhookReplay, call: PlatformCall) -> Response:
    """Send the deliveries of a time window again: all of them, or only the failed ones.

    What an endpoint has missed while it was disabled, or before the platform had one, counts as
    failed: it is sent to the endpoints that are enabled now. With `endpointId`, to that one, even
    if it did not exist at the time. If that one is disabled, all of it waits in order until it is
    enabled; without `until`, new webhooks wait behind it for 24 hours. Webhook ids stay the same.
    One request replays about 10,000 deliveries at most, out of 100,000; `nextCursor` continues the
    replay. Left out are deliveries with many attempts: delivered ones with 100, others with 1,000.
    While 100,000 deliveries of the platform wait, or as many as this installation allows, it is a
    `CONFLICT`.
    """
    if body.until is not None and body.until < body.since:
        raise invalid_field("until", "must not be before since")
    async with _turn(call):
        await _check_endpoint(call, body.endpoint_id)
        await _check_room(call)
        event = {"replay": body.model_dump(mode="json", by_alias=True)}
        return await _replay(call, await idempotency.settle(call, event))


async def _check_endpoint(call: PlatformContext, endpoint_id: Id | None) -> None:
    """Check that the endpoint is the platform's: an empty replay would look like success.

    Raises: ApiError REFERENCE_NOT_FOUND.
    """
    if endpoint_id is None:
        return
    async with call.reading() as connection:
        endpoint = await endpoints.get(
            connection, platform_id=call.platform_id, endpoint_id=endpoint_id
        )
    if endpoint is None:
        raise not_found(Code.REFERENCE_NOT_FOUND, "webhook endpoint")


async def _check_room(call: RequestContext) -> None:
    """Check that fewer deliveries of the platform wait than may.

    Raises: ApiError CONFLICT.
    """
    async with call.reading() as connection:
        is_full = await _is_full(call, connection)
    if is_full:
        raise _too_many_wait(call)


async def _is_full(call: RequestContext, connection: AsyncConnection) -> bool:
    limit = call.services.webhook_waiting_limit
    return await backlogs.is_full(connection, call.platform_id, limit)


def _too_many_wait(call: RequestContext) -> ApiError:
    limit = call.services.webhook_waiting_limit
    message = (
        f"{limit:,} webhook deliveries of this platform wait. Send the replay again when fewer do:"
        " enable or delete the endpoints that they wait for, or make them respond."
    )
    return ApiError(Code.CONFLICT, message, details={"limit": limit})


async def _delivery_response(call: PlatformContext, delivery_id: Id) -> Response:
    async with call.reading() as connection:
        delivery = await deliveries.get(
            connection, platform_id=call.platform_id, delivery_id=delivery_id
        )
    if delivery is None:
        raise _no_delivery()
    return resource_response(delivery)


def _no_delivery() -> ApiError:
    return not_found(Code.REFERENCE_NOT_FOUND, "webhook delivery")
