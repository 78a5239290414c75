"""Network events: accept many with one request, return their outcomes, look an outcome up."""

import time
from contextlib import AsyncExitStack
from typing import Annotated, Final
from urllib.parse import unquote

from fastapi import Query, Request, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.fair_slots import Work
from cardledger.api.http.errors import ApiError, invalid_field
from cardledger.api.http.in_flight import Turn
from cardledger.api.http.operations import EventStream, error_responses
from cardledger.api.http.request_context import PlatformCall, PlatformContext
from cardledger.api.http.responses import resource_response
from cardledger.api.http.routing import (
    MAX_BODY,
    REQUESTS,
    guarded_router,
    read_body,
    requires,
    slot_of,
)
from cardledger.api.ingestion import bodies
from cardledger.api.ingestion.bodies import PATH, Body
from cardledger.api.ingestion.stream import OutcomeStream
from cardledger.api.ingestion_limits import LIVE_EVENTS
from cardledger.api.time_limit import untimed
from cardledger.ledger.engine import outcomes
from cardledger.ledger.engine.outcomes import SeveralEventsError
from cardledger.ledger.messaging import inbox, rejections
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.storage.engines import driver_async
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import Name, ShortName
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.ingestion import (
    AcceptedEvents,
    IngestionQuery,
    NetworkEventQuery,
    OutcomeResource,
)
from cardledger.schema.wire.network_events import NetworkEvent
from cardledger.schema.wire.outcomes import Outcome
from cardledger.workers.client.parsing import MalformedSubmission, Submission

_ACCEPTED: Final = 202
_SHORT: Final = 4096  # Bytes of a body in which events are found within some milliseconds.
_CHUNK: Final = 50  # Events that are parsed and written together.
_EVENTS_OF_A_REQUEST: Final = 100  # So many of a file count as one request against the rate limit.

_NO_OUTCOME: Final = (
    "No outcome of an event with this source and reference: it is not decided yet, or was never"
    " accepted. Send it again with the same source and reference; it is applied once."
)
_SEVERAL: Final = (
    "Several cardholders have an event with this source and reference; add the parameter cardId."
)

_Batch = list[Submission | MalformedSubmission]

router = guarded_router("Network Events", prefix="")


@router.post(PATH, response_model=OutcomeResource)
@requires(Permission.INGEST, stream=EventStream(item=NetworkEvent, accepted=AcceptedEvents))
async def submit_network_events(
    request: Request, query: Annotated[IngestionQuery, Query()], call: PlatformCall
) -> Response:
    """Accept network events and return the outcome of each, in their order.

    The body has at most 10,000 events: one JSON object a line (`application/x-ndjson`), or a JSON
    array (`application/json`); the response has the same form. The response begins once all events
    are accepted and goes on while they are decided. An event is decided even if the connection is
    lost: send it again, or look its outcome up; `source` and `reference` are its permanent
    idempotency key, and no event is applied twice.

    A line that is not a valid event is `REJECTED` and does not stop the others. An event that is
    not decided in time is `ACCEPTED`. With `wait=false` the response is 202 once the events are
    accepted, and answers no network. `decideBy` of a live authorization is met: without an approval
    by then it is `DECLINED`. Of an authorization that is sent again later, the response has the
    record.
    """
    async with AsyncExitStack() as held:
        media_type = bodies.media_type_of(request)
        raw = await _received(request, call, held)
        body = await _split(request, call, raw, media_type)
        lane = _lane(query, body)
        call.subjects["network_events"] = body.count
        call.services.limits.count_more(
            REQUESTS, str(call.platform_id), _requests_of(body, lane) - 1
        )
        async with slot_of(request, Work.EVENT):
            batch = await _accepted(request, call, body, lane)
        if query.wait == "false":
            return resource_response(_summary(batch), _ACCEPTED)
        outcomes_in_order = call.client.in_order(
            batch, patience_s=call.services.wait_limit.total_seconds()
        )
        return OutcomeStream(outcomes_in_order, body.media_type, close=held.pop_all().aclose)


async def _received(request: Request, call: PlatformContext, held: AsyncExitStack) -> bytes:
    """Return the body of `request`; a large one is in progress until `held` is closed.

    Raises: ApiError INVALID_INPUT, TooManyEventsError.
    """
    files = call.services.ingestion.files

    def begin() -> None:
        files.begin(call.platform_id)
        held.callback(files.end, call.platform_id)

    return await read_body(request, bodies.MAX_BODY, on_large=begin)


async def _split(request: Request, call: PlatformContext, raw: bytes, media_type: str) -> Body:
    """Return the events of `raw`, the body of `request`.

    One body of a platform is split at a time: computations of other platforms wait for one at most.
    Raises: ApiError INVALID_INPUT; RATE_LIMITED when too many wait.
    """
    steps = bodies.split(raw, media_type)
    if len(raw) <= _SHORT:
        return await call.services.loop_turns.run(steps)
    async with call.services.turns.take(Turn(f"events of {call.platform_id}", at_once=1)):
        with untimed(request.scope):
            return await call.services.loop_turns.run(steps)


def _lane(query: IngestionQuery, body: Body) -> Lane:
    if query.lane is None:
        return Lane.LIVE if body.count <= LIVE_EVENTS else Lane.BULK
    lane = Lane[query.lane]
    if lane is Lane.LIVE and body.count > LIVE_EVENTS:
        message = f"has {body.count} events; send at most {LIVE_EVENTS} with lane=LIVE"
        raise invalid_field("", message)
    return lane


def _requests_of(body: Body, lane: Lane) -> int:
    """Return as how many requests `body` counts: by its events, or by its bytes if they are more.

    What is not a valid event is kept as well, as a rejection.
    """
    events = 1 if lane is Lane.LIVE else _EVENTS_OF_A_REQUEST
    return max(-(-body.count // events), -(-body.size // MAX_BODY))


async def _accepted(request: Request, call: PlatformContext, body: Body, lane: Lane) -> _Batch:
    """Return the events of `body` once all of them are accepted.

    While several platforms send requests, a file rests three times as long after each part as it
    took until its commit.

    Raises: TooManyEventsError, before one is accepted; UnavailableError when PostgreSQL is, or a
    deadline has passed: some may have been accepted.
    """
    batch: _Batch = []
    with call.services.ingestion.undecided.reserve(call.platform_id, lane, body.count) as room:
        began = time.perf_counter()
        for events in body.chunks(_CHUNK):
            chunk = await call.client.accept(events, platform_id=call.platform_id, lane=lane)
            room.take([item.outcome for item in chunk])
            batch += chunk
            if lane is Lane.BULK and len(batch) < body.count:
                with untimed(request.scope):
                    await call.services.loop_turns.rest(time.perf_counter() - began)
                began = time.perf_counter()
    return batch


def _summary(batch: _Batch) -> AcceptedEvents:
    rejected = sum(isinstance(item, MalformedSubmission) for item in batch)
    return AcceptedEvents(accepted=len(batch) - rejected, rejected=rejected)


@router.get(
    PATH + "/{source}/{reference:path}",
    response_model=OutcomeResource,
    responses=error_responses(Code.CONFLICT),
)
@requires(Permission.INGEST)
async def get_network_event(
    source: ShortName,
    reference: Name,
    request: Request,
    query: Annotated[NetworkEventQuery, Query()],
    call: PlatformCall,
) -> Response:
    """Return the outcome of an event by the source and the reference that it was sent with.

    Outcomes are kept permanently; `PARKED` stays the outcome of an event that was applied later.
    Without an outcome it is the last rejection, also while a corrected event waits. 404 means that
    the event is not decided yet, or was never accepted: send it again with the same source and
    reference, it is applied once. `source` and `reference` in its `details` tell it from a 404 of
    an unknown path.
    """
    source, reference = _key_in(request) or (source, reference)
    call.subjects["network_event"] = f"{source}/{reference}"
    async with call.reading() as outer:
        outcome = await _outcome(outer, call, source, reference, query.card_id)
    if outcome is None:
        # Named, so that this is told from a 404 of an unknown path or of another server.
        key = {"source": source, "reference": reference}
        raise ApiError(Code.REFERENCE_NOT_FOUND, _NO_OUTCOME, details=key)
    return Response(outcome.json, media_type=bodies.JSON)


async def _outcome(
    outer: AsyncConnection,
    call: PlatformContext,
    source: str,
    reference: str,
    card_id: Id | None,
) -> Outcome | None:
    """Return the outcome of an event; it has one, or a rejection, or none yet.

    Raises: ApiError CONFLICT when the key stands for events of several cardholders.
    """
    connection, customer_id = await driver_async(outer), None
    if card_id is not None:
        route = (await inbox.routes_of(connection, [card_id])).get(card_id)
        customer_id = route.owner.customer_id if route else inbox.UNROUTED.customer_id
    try:
        outcome = await outcomes.find_by_key(
            connection,
            platform_id=call.platform_id,
            source=source,
            reference=reference,
            inbox_key=call.client.inbox_key,
            customer_id=customer_id,
        )
    except SeveralEventsError:
        raise ApiError(Code.CONFLICT, _SEVERAL, details={"parameter": "cardId"}) from None
    return outcome or await rejections.find_by_key(
        connection, platform_id=call.platform_id, source=source, reference=reference
    )


def _key_in(request: Request) -> tuple[str, str] | None:
    """Return source and reference as they were sent, where one of them has an encoded slash."""
    raw: bytes = request.scope.get("raw_path") or b""
    sent = raw.decode("ascii", "replace").partition(f"{PATH}/")[2]
    source, slash, reference = sent.partition("/")
    return (unquote(source), unquote(reference)) if slash else None
