"""Webhooks: endpoints, and what a platform does with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import Annotated, Final

from fastapi import Query, Request, Response
from pydantic import AwareDatetime, Field, TypeAdapter, ValidationError

from cardledger.api.console import navigation
from cardledger.api.console.access import forms
from cardledger.api.console.access.context import ConsoleContext, Viewer
from cardledger.api.console.access.forms import Managing
from cardledger.api.console.access.proven_addresses import Tag, is_proven, proven
from cardledger.api.console.access.refusals import form_on
from cardledger.api.console.html import documents, formats, rendering
from cardledger.api.console.lists.filters import Filters, Moment
from cardledger.api.console.lists.list_page import list_call
from cardledger.api.console.routing import console_router, failure, redirect
from cardledger.api.http.errors import ApiError, invalid_field, not_found
from cardledger.api.http.responses import Listing
from cardledger.ledger.storage import paging
from cardledger.ledger.storage.snapshot_connections import SnapshotError
from cardledger.ledger.webhooks import deliveries, endpoints
from cardledger.ledger.webhooks.deliveries import DeliveryFilters
from cardledger.schema.wire.common import (
    WebhookDeliveryId,
    WebhookEndpointId,
    parse_id,
    public_id,
)
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.webhooks.endpoints import (
    WebhookDeliveryResource,
    WebhookEndpointResource,
)

_PART: Final = navigation.WEBHOOKS
_ENDPOINTS: Final = f"{_PART.path}/endpoints"
_ENDPOINT: Final = f"{_ENDPOINTS}/{{endpoint_id}}"
_DELIVERIES: Final = navigation.DELIVERIES
_LATEST: Final = 10
_STATES: Final = {"enable": "ENABLED", "disable": "DISABLED"}
_REPLAYED_FROM: Final = timedelta(days=1)  # What the form of a replay begins with.
_IN_A_LINK: Final = "%Y-%m-%dT%H:%M:%S"
_MOMENT: Final = TypeAdapter(Moment)
_STATE: Final = TypeAdapter(AwareDatetime)
_CHANGED: Final = (409, "The endpoint has changed since this form was shown; reload its page.")

router = console_router()


class EndpointQuery(Filters):
    """What an endpoint's page says about a replay that was just made, proven by `tag`."""

    replayed: Annotated[int, Field(ge=0, le=10**9)] | None = None
    since: Moment | None = None
    after: WebhookDeliveryId | None = None
    tag: Tag = ""


@router.get(_PART.path)
async def list_endpoints(
    request: Request, query: Annotated[Filters, Query()], call: Viewer
) -> Response:
    """List the endpoints, oldest first, and the latest deliveries."""
    listing = Listing(call, "console webhook endpoints", query)
    async with call.snapshot() as connection:
        page = await endpoints.page(
            connection, platform_id=call.platform_id, wanted=listing.wanted(newest_first=False)
        )
        latest = await deliveries.page(
            connection,
            platform_id=call.platform_id,
            filters=DeliveryFilters(),
            wanted=paging.Wanted(limit=_LATEST, newest_first=True),
            count_limit=0,
        )
    return await rendering.page(
        request,
        "webhooks.html",
        call=call,
        part=_PART,
        endpoints=page.items,
        next_cursor=listing.next_cursor(page),
        deliveries=latest.items,
        api=list_call(
            request,
            call,
            query,
            "/webhooks/endpoints",
            page.items,
            others={"latestDeliveries": latest.items},
            note=documents.MORE,
        ),
    )


@router.get(_ENDPOINT)
async def show_endpoint(
    request: Request,
    endpoint_id: WebhookEndpointId,
    query: Annotated[EndpointQuery, Query()],
    call: Viewer,
) -> Response:
    """Show an endpoint, its latest deliveries, and what can be done with it."""
    shown = await _read(call, endpoint_id)
    made = query if is_proven(request, call.session, call.keys) else None
    return await _endpoint_page(request, call, shown, query=made)


async def _show_again(request: Request, call: ConsoleContext) -> Response:
    endpoint_id = parse_id("WebhookEndpoint", request.path_params["endpoint_id"])
    return await show_endpoint(request, endpoint_id, EndpointQuery(), call)


@router.post(f"{_ENDPOINT}/test")
@form_on(_ENDPOINT)
async def test_endpoint(
    request: Request, action: Managing, endpoint_id: WebhookEndpointId
) -> Response:
    """Send a TEST, and lead to its delivery."""
    name = public_id("WebhookEndpoint", endpoint_id)
    answer = await action.run("POST", "/webhooks/test", {"endpointId": name})
    if not answer.is_success:
        return await failure(request, answer.status, answer.message)
    return redirect(f"{_DELIVERIES}/{answer.body['deliveryId']}")


@router.post(f"{_ENDPOINT}/rotate-secret")
@form_on(_ENDPOINT)
async def rotate_secret(
    request: Request, action: Managing, endpoint_id: WebhookEndpointId
) -> Response:
    """Replace the secret, and show the new one: on this answer alone."""
    if action.fields.get("confirmed") != "yes":
        message = "That the secret of this endpoint is replaced was not confirmed."
        raise ApiError(Code.INVALID_INPUT, message)
    before = await _present(action, endpoint_id)
    as_of = action.fields.get("as_of", "")
    if as_of != before.updated_at.isoformat():
        if not _is_rotated_since(before, as_of):
            return await failure(request, *_CHANGED)
        shown = await _after(action.call, before)
        return await _endpoint_page(request, action.call, shown, was_shown=True)
    name = public_id("WebhookEndpoint", endpoint_id)
    answer = await action.run(
        "POST", f"/webhooks/endpoints/{name}/rotate-secret", key=_rotation_key(before)
    )
    if not answer.is_success:
        return await failure(request, answer.status, answer.message)
    secret = answer.body.get("secret")
    shown = await _after(action.call, before)
    return await _endpoint_page(
        request, action.call, shown, secret=secret, was_shown=secret is None
    )


def _rotation_key(endpoint: WebhookEndpointResource) -> str:
    """Return the Idempotency-Key of the rotation: the same for all forms of this state.

    A second rotation within minutes would replace a secret that another person has just stored.
    """
    return f"console-rotate-{endpoint.id}-{endpoint.updated_at.astimezone(UTC):%Y%m%dT%H%M%S%f}"


def _is_rotated_since(endpoint: WebhookEndpointResource, as_of: str) -> bool:
    """Return whether the secret was rotated after the state that a form belongs to."""
    rotated = endpoints.rotated_at(endpoint.former_secret_until)
    try:
        return rotated is not None and rotated > _STATE.validate_python(as_of)
    except ValidationError:
        return False  # The form was edited.


@router.post(f"{_ENDPOINT}/replay")
@form_on(_ENDPOINT, show=_show_again, labels={"since": "Since (UTC)"})
async def replay_failed(action: Managing, endpoint_id: WebhookEndpointId) -> Response:
    """Send what the endpoint has missed since a time again."""
    name, fields = public_id("WebhookEndpoint", endpoint_id), action.fields
    try:
        since = _MOMENT.validate_python(fields.get("since", ""))
    except ValidationError:
        raise invalid_field("since", "must be a time in UTC, such as 2026-01-31T12:00") from None
    body = {"endpointId": name, "since": formats.iso(since), "onlyFailed": True}
    if fields.get("after"):
        body["cursor"] = fields["after"]
    answer = await action.run("POST", "/webhooks/replay", body)
    if not answer.is_success:
        raise answer.error({"cursor": "after"})
    shown = {"replayed": str(answer.body["count"]), "since": f"{since:{_IN_A_LINK}}"}
    if answer.body.get("nextCursor"):
        shown["after"] = answer.body["nextCursor"]
    page = f"{_ENDPOINTS}/{name}"
    return redirect(proven(page, shown, action.call.session, action.call.keys))


@router.post(f"{_ENDPOINT}/{{change}}")
@form_on(_ENDPOINT)
async def change_state(
    request: Request, action: Managing, endpoint_id: WebhookEndpointId, change: str
) -> Response:
    """Enable or disable an endpoint."""
    if change not in _STATES:
        raise not_found(Code.REFERENCE_NOT_FOUND, "page")
    endpoint = await _present(action, endpoint_id)
    name, state = public_id("WebhookEndpoint", endpoint_id), _STATES[change]
    # A PATCH has no Idempotency-Key: a form that is sent again finds an endpoint that has changed.
    if action.fields.get("as_of") != endpoint.updated_at.isoformat():
        is_applied = endpoint.state == state
        return redirect(f"{_ENDPOINTS}/{name}") if is_applied else await failure(request, *_CHANGED)
    answer = await action.run("PATCH", f"/webhooks/endpoints/{name}", {"state": state})
    if not answer.is_success:
        return await failure(request, answer.status, answer.message)
    return redirect(f"{_ENDPOINTS}/{name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """An endpoint with its latest deliveries; None: they could not be read."""

    endpoint: WebhookEndpointResource
    deliveries: Sequence[WebhookDeliveryResource] | None = None
    has_more: bool = False


async def _present(action: forms.Action, endpoint_id: WebhookEndpointId) -> WebhookEndpointResource:
    """Return the endpoint as it is now: the snapshot may be that of a replica that lags behind."""
    async with action.call.reading() as connection:
        endpoint = await endpoints.get(
            connection, platform_id=action.call.platform_id, endpoint_id=endpoint_id
        )
    return _found(endpoint)


async def _read(call: ConsoleContext, endpoint_id: WebhookEndpointId) -> _Shown:
    async with call.snapshot() as connection:
        endpoint = _found(
            await endpoints.get(connection, platform_id=call.platform_id, endpoint_id=endpoint_id)
        )
        latest = await deliveries.page(
            connection,
            platform_id=call.platform_id,
            filters=DeliveryFilters(endpoint_id=endpoint_id),
            wanted=paging.Wanted(limit=_LATEST, newest_first=True),
            count_limit=0,
        )
    return _Shown(endpoint=endpoint, deliveries=latest.items, has_more=latest.last is not None)


async def _after(call: ConsoleContext, before: WebhookEndpointResource) -> _Shown:
    """Return the endpoint after a rotation, or as it was `before` if it cannot be read.

    The rotation is committed, and no later answer has the secret: it is shown in any case.
    """
    try:
        return await _read(call, before.id)
    except (SnapshotError, ApiError):  # A replica that lags behind may not have the endpoint.
        return _Shown(endpoint=before)


def _found(endpoint: WebhookEndpointResource | None) -> WebhookEndpointResource:
    if endpoint is None:
        raise not_found(Code.REFERENCE_NOT_FOUND, "webhook endpoint")
    return endpoint


async def _endpoint_page(  # noqa: PLR0913 - what a page shows besides the endpoint, by name
    request: Request,
    call: ConsoleContext,
    shown: _Shown,
    *,
    query: EndpointQuery | None = None,
    secret: str | None = None,
    was_shown: bool = False,
) -> Response:
    endpoint, query = shown.endpoint, query or EndpointQuery()
    name = public_id("WebhookEndpoint", endpoint.id)
    return await rendering.page(
        request,
        "webhook_endpoint.html",
        call=call,
        part=_PART,
        endpoint=endpoint,
        name=name,
        deliveries=shown.deliveries,
        has_more=shown.has_more,
        secret=secret,
        was_shown=was_shown,
        replaces_last=endpoints.replaces_last_secret(endpoint.former_secret_until, at=call.now()),
        query=query,
        since=f"{query.since or call.now() - _REPLAYED_FROM:{_IN_A_LINK}}",
        key=forms.new_key,
        api=rendering.api_call(
            request,
            call,
            f"/webhooks/endpoints/{name}",
            {
                **endpoint.wire(),
                "deliveries": shown.deliveries or (),
                "hasMoreDeliveries": shown.has_more,
            },
            note=documents.MORE,
        ),
    )
