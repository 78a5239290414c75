"""Deliveries of webhooks: the list, and one with its payload and every attempt."""

import json
from typing import Annotated, Final, get_args

from fastapi import Query, Request, Response

from cardledger.api.console import ROOT, navigation
from cardledger.api.console.access import forms
from cardledger.api.console.access.context import Viewer
from cardledger.api.console.access.forms import Managing
from cardledger.api.console.access.refusals import form_on
from cardledger.api.console.html import rendering, shown_json
from cardledger.api.console.lists.filtered_list import FilteredList
from cardledger.api.console.lists.filters import Filters, LastMoment, Moment
from cardledger.api.console.lists.list_page import list_page
from cardledger.api.console.routing import console_router, redirect
from cardledger.api.http.errors import not_found
from cardledger.ledger.webhooks import deliveries
from cardledger.ledger.webhooks.deliveries import LAST_ATTEMPTS, AttemptPage
from cardledger.schema.wire.common import WebhookDeliveryId, WebhookEndpointId, public_id
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.webhooks.endpoints import DeliveryState, SubjectId
from cardledger.schema.wire.webhooks.envelope import WebhookType

_PART: Final = navigation.WEBHOOKS
_DELIVERIES: Final = navigation.DELIVERIES
_LIST: Final = FilteredList(
    _DELIVERIES,
    "webhook_deliveries.html",
    part=_PART,
    states=get_args(DeliveryState),
    types=sorted(kind.value for kind in WebhookType),
)
_SEARCHED: Final = 20_000  # Deliveries of the platform that a page looks at.
_PAYLOAD_CHARACTERS: Final = 200_000
_ATTEMPTS: Final = 50  # Of a page.
_OTHER_ATTEMPTS: Final = (
    f"The API answers with the last {LAST_ATTEMPTS.limit} attempts; this JSON has those of this"
    " page."
)
_MAX_ATTEMPTS: Final = 2**31 - 1  # `number` is an integer of PostgreSQL.

_PAGES: Final = {
    "CardTransaction": navigation.CARD_TRANSACTIONS.path,
    "Card": f"{ROOT}/cards",
    "Customer": f"{ROOT}/customers",
    "InternalAccount": navigation.ACCOUNTS.path,
    "WebhookEndpoint": f"{_PART.path}/endpoints",
}
"""The pages of what a webhook may be about."""

router = console_router()


class DeliveriesQuery(Filters):
    """The filters of the list; all must match."""

    endpoint_id: WebhookEndpointId | None = None
    state: DeliveryState | None = None
    type: WebhookType | None = None
    subject_id: SubjectId | None = None
    since: Moment | None = None
    until: LastMoment | None = None


@router.get(_LIST.path)
@_LIST.view
async def list_deliveries(
    request: Request, query: Annotated[DeliveriesQuery, Query()], call: Viewer
) -> Response:
    """List deliveries by creation, the newest first."""
    filters = deliveries.DeliveryFilters(
        endpoint_id=query.endpoint_id,
        type=query.type,
        subject_ids=[] if query.subject_id is None else [query.subject_id],
        state=query.state,
        since=query.since,
        until=query.until,
    )
    return await list_page(
        request,
        call,
        query,
        lambda connection, wanted: deliveries.page(
            connection,
            platform_id=call.platform_id,
            filters=filters,
            wanted=wanted,
            count_limit=0,
            distance=_SEARCHED,
        ),
        of=_LIST,
        api=rendering.with_filters(
            "/webhooks/deliveries",
            request.query_params,
            {"since": query.since, "until": query.until},
            endpointId="endpointId",
            state="state",
            type="type",
            subjectId="subjectId",
        ),
    )


@router.get(f"{_DELIVERIES}/{{delivery_id}}")
async def show_delivery(
    request: Request,
    delivery_id: WebhookDeliveryId,
    call: Viewer,
    before: Annotated[int | None, Query(ge=1, le=_MAX_ATTEMPTS)] = None,
) -> Response:
    """Show a delivery with its payload, and a page of its attempts: those before a number."""
    async with call.snapshot() as connection:
        delivery = await deliveries.get(
            connection,
            platform_id=call.platform_id,
            delivery_id=delivery_id,
            attempts=AttemptPage(before=before, limit=_ATTEMPTS + 1),
        )
    if delivery is None:
        raise not_found(Code.REFERENCE_NOT_FOUND, "webhook delivery")
    name = public_id("WebhookDelivery", delivery_id)
    payload = json.dumps(delivery.payload, indent=2, ensure_ascii=False)
    found = delivery.attempt_list or []
    attempts = found[-_ATTEMPTS:][::-1]
    shown = delivery.model_copy(update={"attempt_list": attempts[::-1]})
    has_others = before is not None or len(found) > LAST_ATTEMPTS.limit
    return await rendering.page(
        request,
        "webhook_delivery.html",
        call=call,
        part=_PART,
        delivery=delivery,
        attempts=attempts,
        before=before,
        next_before=attempts[-1].number if len(found) > _ATTEMPTS else None,
        name=name,
        subject_page=_page_of(delivery.subject_id),
        payload=await call.services.loop_turns.run(
            shown_json.visible(payload[:_PAYLOAD_CHARACTERS])
        ),
        key=forms.new_key(),
        api=rendering.api_call(
            request,
            call,
            f"/webhooks/deliveries/{name}",
            shown.wire(),
            note=_OTHER_ATTEMPTS if has_others else None,
        ),
    )


@router.post(f"{_DELIVERIES}/{{delivery_id}}/retry")
@form_on(f"{_DELIVERIES}/{{delivery_id}}")
async def retry_delivery(action: Managing, delivery_id: WebhookDeliveryId) -> Response:
    """Send a delivery again, and lead to it."""
    name = public_id("WebhookDelivery", delivery_id)
    answer = await action.run("POST", f"/webhooks/deliveries/{name}/retry")
    if not answer.is_success:
        raise answer.error()
    return redirect(f"{_DELIVERIES}/{name}")


def _page_of(subject_id: str) -> str | None:
    """Return the page of what a webhook is about; None when there is none."""
    path = _PAGES.get(subject_id.partition(":")[0])
    return None if path is None else f"{path}/{subject_id}"
