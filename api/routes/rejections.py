"""Rejected events of a platform, and their retry."""

from typing import Annotated

from fastapi import Query, Response

from cardledger.api.http.errors import ApiError, not_found
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall, PlatformContext
from cardledger.api.http.responses import Listing, resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.ledger.messaging import rejections
from cardledger.ledger.messaging.rejections import Filter, Rejection
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.storage import paging
from cardledger.ledger.storage.engines import driver_async
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import Page, RejectionId
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.outcomes import RejectionResource, RejectionsQuery

_PATH = "/rejections"
_ONE = _PATH + "/{rejection_id}"

router = guarded_router("Transactions")


@router.get(_PATH, response_model=Page[RejectionResource])
@requires(Permission.VIEW)
async def list_rejections(
    query: Annotated[RejectionsQuery, Query()], call: PlatformCall
) -> Response:
    """List rejected events, newest first, without the events themselves."""
    listing = Listing(call, "rejections", query)
    wanted = listing.wanted(newest_first=True)
    which = Filter(
        platform_id=call.platform_id, reason=query.reason, since=query.since, before=wanted.after
    )
    async with call.reading() as connection:
        # One more than is returned shows whether there is a next page.
        found = await rejections.find(await driver_async(connection), which, limit=wanted.limit + 1)
    shown = found[: wanted.limit]
    last = shown[-1].id if len(found) > len(shown) else None
    items = [_resource(rejection, with_event=False) for rejection in shown]
    return listing.response(paging.Page(items=items, last=last, total_count=None))


@router.get(_ONE, response_model=RejectionResource)
@requires(Permission.VIEW)
async def get_rejection(rejection_id: RejectionId, call: PlatformCall) -> Response:
    """Return a rejection with the event as it was received; of a large malformed one a part.

    Of one above 4,096 bytes `event` has the main fields, and `truncated`: its size, its SHA-256 and
    its beginning.
    """
    async with call.reading() as connection:
        found = await rejections.find(
            await driver_async(connection), _one(call, rejection_id), limit=1
        )
    return resource_response(_resource(_only(found), with_event=True))


@router.post(
    _ONE + "/retry",
    response_model=RejectionResource,
    responses=error_responses(Code.CONFLICT),
)
@requires(Permission.TRANSACT, Permission.VIEW)
async def retry_rejection(rejection_id: RejectionId, call: PlatformCall) -> Response:
    """Enqueue a rejected event again, once, with the same source and reference.

    Not an authorization of a purchase: the network was refused it by the rejection, and has to ask
    again. Nor an event with `expectedSequence`, except for `INTERNAL_ERROR`. The response shows the
    event, hence the permission `VIEW`.
    """
    which = _one(call, rejection_id)
    async with call.writing() as outer:
        connection = await driver_async(outer)
        found = _only(await rejections.find(connection, which, limit=1))
        retries = await rejections.retry(connection, [found], call.client.inbox_key, now=call.now())
        again = _only(await rejections.find(connection, which, limit=1))
    if found.id in retries.refused:
        raise ApiError(Code.CONFLICT, retries.refused[found.id])
    return resource_response(_resource(again, with_event=True))


def _one(call: PlatformContext, rejection_id: Id) -> Filter:
    return Filter(platform_id=call.platform_id, ids=[rejection_id])


def _only(found: list[Rejection]) -> Rejection:
    """Return the rejection that was asked for.

    Raises: ApiError REFERENCE_NOT_FOUND.
    """
    if not found:
        raise not_found(Code.REFERENCE_NOT_FOUND, "rejection")
    return found[0]


def _resource(rejection: Rejection, *, with_event: bool) -> RejectionResource:
    return RejectionResource(
        id=rejection.id,
        source=rejection.source,
        reference=rejection.reference,
        reason=rejection.reason,
        detail=rejection.detail,
        event=rejection.body if with_event else None,
        retried_at=rejection.retried_at,
        created_at=rejection.recorded_at,
    )
