"""What platforms were told, what came of it, and telling it again."""

from typing import Annotated, Final

from fastapi import Query, Response

from cardledger.api.http import routing
from cardledger.api.http.errors import ApiError, invalid_field, not_found
from cardledger.api.http.operations import answers
from cardledger.api.http.request_context import Call, PlatformCall
from cardledger.api.http.responses import Listing, answer
from cardledger.ledger.platforms.api_tokens import Permission
from cardledger.ledger.webhooks import deliveries, endpoints
from cardledger.ledger.webhooks.deliveries import NoEndpointError, Window
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
_MOST_AT_ONCE: Final = 10_000
# A window of years may hold millions that need nothing; whoever asks must not wait for a look at
# all of them.
_MOST_LOOKS: Final = 20

reads = routing.routes(Permission.VIEW, tag=_TAG)
writes = routing.routes(Permission.MANAGE, tag=_TAG)


@reads.get(_PATH, response_model=Page[WebhookDeliveryResource])
async def list_webhook_deliveries(
    query: Annotated[WebhookDeliveriesQuery, Query()], call: PlatformCall
) -> Response:
    """List what the platform was told, newest first: one entry for each endpoint."""
    listing = Listing(call, "webhook-deliveries", query)
    filters = deliveries.DeliveryFilters(
        endpoint_id=query.endpoint_id,
        type=query.type,
        subject_ids=[one for one in (query.subject_id, query.card_transaction_id) if one],
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
    return listing.answer(page)


@reads.get(_ONE, response_model=WebhookDeliveryResource)
async def get_webhook_delivery(
    webhook_delivery_id: WebhookDeliveryId, call: PlatformCall
) -> Response:
    """Return a delivery with its payload and every attempt that was made."""
    return await _answer(call, webhook_delivery_id)


@writes.post(_ONE + "/retry", response_model=WebhookDeliveryResource)
async def retry_webhook_delivery(
    webhook_delivery_id: WebhookDeliveryId, call: PlatformCall
) -> Response:
    """Send one delivery again, whatever came of it, with the same webhook id.

    One that waits for its retry is due at once; one that is being sent is left alone.
    """
    try:
        async with call.writing() as connection:
            found = await deliveries.retry(
                connection,
                platform_id=call.platform_id,
                delivery_id=webhook_delivery_id,
                at=call.now(),
            )
            # Within the block: what is written shows only there when the request has a key.
            shown = await deliveries.get(
                connection, platform_id=call.platform_id, delivery_id=webhook_delivery_id
            )
    except NoEndpointError:
        message = "its endpoint was deleted, or there is none; set one up and ask again"
        raise ApiError(Code.CONFLICT, message) from None
    if not found or shown is None:
        raise _no_delivery()
    await call.ring(doorbell.WEBHOOKS)
    return answer(shown)


@writes.post(
    "/webhooks/replay",
    response_model=WebhookReplayed,
    responses=answers(Code.REFERENCE_NOT_FOUND),
)
async def replay_webhooks(body: WebhookReplay, call: PlatformCall) -> Response:
    """Send everything again that was made in a window of time: what failed, or all of it.

    With the same webhook ids. At most 10,000 or so at once, out of 100,000 at most: `nextCursor`
    says where to go on.
    """
    if body.until is not None and body.until < body.since:
        raise invalid_field("until", "must not be before since")
    await _check_endpoint(call, body.endpoint_id)
    window = Window(
        endpoint_id=body.endpoint_id,
        since=body.since,
        until=body.until,
        only_failed=body.only_failed,
    )
    count, after = 0, body.cursor
    for _ in range(_MOST_LOOKS):
        # A commit each: a long replay holds nobody up, and what is done stays done.
        async with call.services.writer.begin() as connection:
            done = await deliveries.replay(
                connection,
                platform_id=call.platform_id,
                window=window,
                after=after,
                at=call.now(),
            )
        count, after = count + done.count, done.after
        if after is None or count >= _MOST_AT_ONCE:
            break
    await call.ring(doorbell.WEBHOOKS)
    return answer(WebhookReplayed(count=count, has_more=after is not None, next_cursor=after))


async def _check_endpoint(call: Call, endpoint_id: Id | None) -> None:
    """Refuse an endpoint that is not the platform's: nothing to send would look like success.

    Raises: ApiError REFERENCE_NOT_FOUND.
    """
    if endpoint_id is None:
        return
    async with call.reading() as connection:
        found = await endpoints.get(
            connection, platform_id=call.platform_id, endpoint_id=endpoint_id
        )
    if found is None:
        raise not_found(Code.REFERENCE_NOT_FOUND, "webhook endpoint")


async def _answer(call: Call, delivery_id: Id) -> Response:
    async with call.reading() as connection:
        found = await deliveries.get(
            connection, platform_id=call.platform_id, delivery_id=delivery_id
        )
    if found is None:
        raise _no_delivery()
    return answer(found)


def _no_delivery() -> ApiError:
    return not_found(Code.REFERENCE_NOT_FOUND, "webhook delivery")
