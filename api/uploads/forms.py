"""Forms of operations: read within the limits of size, time and number, then prepared.

A form is work before its request has a slot, so it is received only as long as its file has room,
whatever its head says of its size, and counts against the rate limit by its size.

Source: docs/decisions/0073-documents.md
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from fastapi import Request
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.datastructures import MutableHeaders

from cardledger.api.http import idempotency
from cardledger.api.http.errors import ApiError, invalid_field, too_many_waiting
from cardledger.api.http.operations import Form
from cardledger.api.http.request_context import RequestContext, services_of
from cardledger.api.http.routing import (
    MAX_BODY,
    REQUESTS,
    ParsedRequest,
    arriving,
    declared_length,
    slot_of,
    too_large,
)
from cardledger.api.ingestion_limits import TooManyEventsError
from cardledger.api.uploads.limits import FORM_REST
from cardledger.api.uploads.multipart import PIECE, FileTooLargeError, FormReader, boundary_of
from cardledger.schema.wire.uploads import Upload
from cardledger.workers.metrics import counted


@dataclass(frozen=True, slots=True)
class Room:
    """How many bytes the file of a request may have, and the error of one that has more."""

    size: int
    refusal: ApiError


CheckRoom = Callable[[Request, AsyncConnection, int], Awaitable[Room | None]]
"""Returns, without a lock, the room for the file of a request: it has so many bytes or more.

None: it may be as large as the form allows. Raises: ApiError when there is no such room.
"""

_FILE: Final = "file"
_TURN_S: Final = 0.001


def form_with_file(
    *, max_file: int, prepare: Callable[[Upload], Any], check_room: CheckRoom
) -> Form:
    """Return a form with a `file` of at most `max_file` bytes, which is received if it has room.

    What `prepare` makes of the file, in a thread and before a connection to the database is used,
    is what `prepared` returns; it raises ApiError for a file that is refused.
    """
    limit = max_file + FORM_REST

    @asynccontextmanager
    async def receive(request: Request) -> AsyncIterator[Request]:
        boundary = boundary_of(
            request.headers.getlist("content-type"), request.headers.get("content-encoding", "")
        )
        declared = declared_length(request)
        if declared is not None and declared > limit:
            raise too_large(max_file)
        whole = Room(max_file, too_large(max_file))
        size = max(0, (declared or 0) - FORM_REST)
        room = await _room(request, check_room, size, whole)
        reader = FormReader(boundary, max_file=room.size)
        with ExitStack() as held:
            try:
                await _read(request, reader, limit, held)
            except FileTooLargeError:
                raise room.refusal from None
            body = dict(reader.finish())
            upload = body.get(_FILE)
            if isinstance(upload, Upload) and upload.content:
                call: RequestContext = request.state.call
                call.prepared.append(await asyncio.to_thread(_prepared, prepare, upload))
            try:
                yield _as_json(request, body)
            finally:
                await _discard_unnamed(request.state.call)

    return Form(receive=receive, max_body=limit)


def prepared(request: Request) -> Any:  # noqa: ANN401 - what the form's `prepare` has returned
    """Return what was made of the file of `request`, whose body is valid."""
    call: RequestContext = request.state.call
    return call.prepared[0]


async def _room(request: Request, check: CheckRoom, size: int, whole: Room) -> Room:
    """Return the room for a file of `size` bytes or more, `whole` where `request` is a repetition.

    A repetition is answered as before, whatever was created since.
    Raises: ApiError.
    """
    call: RequestContext = request.state.call
    async with slot_of(request), call.reading() as connection:
        try:
            room = await check(request, connection, size)
            if room is None or room.size >= whole.size:
                return whole
        except ApiError:
            # After the check: what has filled the room may be the same request.
            if await idempotency.is_repetition(request, connection):
                return whole
            raise
        return whole if await idempotency.is_repetition(request, connection) else room


async def _discard_unnamed(call: RequestContext) -> None:
    """Remove the files that `call` has stored and no row names: it was refused.

    A file that a row names stays whatever happened afterwards: the commit may have succeeded.
    """
    store = call.services.document_files
    if store is not None:
        await store.remove(staged.file.place for staged in call.staged if not staged.is_named)


def _prepared(prepare: Callable[[Upload], Any], upload: Upload) -> Any:  # noqa: ANN401 - as above
    """Return what `prepare` makes of `upload`, whose hash is known afterwards, too."""
    made = prepare(upload)
    _ = upload.digest  # An idempotency key compares it, in the event loop.
    return made


async def _read(request: Request, reader: FormReader, limit: int, held: ExitStack) -> None:
    """Feed the body of `request` to `reader`; a large one counts as in progress until `held`.

    Each `MAX_BODY` bytes count as a request, as those of other operations are.
    Raises: ApiError INVALID_INPUT, RATE_LIMITED; FileTooLargeError.
    """
    call: RequestContext = request.state.call
    files, limits = services_of(request).uploads, services_of(request).limits
    size, turn = 0, LoopTurn()
    async for chunk in arriving(request):
        if size <= MAX_BODY < size + len(chunk):
            try:
                files.begin(call.platform_id)
            except TooManyEventsError as error:
                counted.refuse(counted.Refusal.IN_PROGRESS)
                message = f"{str(error).capitalize()}; send this one again when they are answered."
                raise too_many_waiting(message) from None
            held.callback(files.end, call.platform_id)
        more = (size + len(chunk)) // MAX_BODY - size // MAX_BODY
        limits.count_more(REQUESTS, str(call.platform_id), more)
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        for start in range(0, len(chunk), PIECE):
            reader.feed(chunk[start : start + PIECE])
            await turn.end_if_long()
    if not size:
        raise invalid_field(_FILE, "is required")


class LoopTurn:
    """The present turn of the event loop, which ends after `_TURN_S`: other requests have theirs.

    On a busy loop each turn is a wait, so that there is none more than is needed.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin now, by the seconds of `clock`."""
        self._clock: Final = clock
        self._begin = clock()

    async def end_if_long(self) -> None:
        """Let others have their turn if this one has taken long enough."""
        if self._clock() - self._begin >= _TURN_S:
            await asyncio.sleep(0)
            self._begin = self._clock()


def _as_json(request: Request, body: dict[str, Any]) -> Request:
    """Return `request` with the form as its JSON body, which FastAPI reads and validates."""
    scope = {**request.scope, "headers": list(request.scope["headers"])}
    MutableHeaders(scope=scope)["content-type"] = "application/json"
    return ParsedRequest(Request(scope, request.receive), b"{}", body)
