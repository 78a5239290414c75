"""Forms of operations: read within the limits of size, time and number, then prepared.

A form is work before its request has a slot, so it is received only as long as its file has room,
whatever its head says of its size, and counts against the rate limit by its size. It occupies what
has arrived of it, so a form that is declared and not sent keeps no other one out. The content of a
file is held until what it is prepared for has been made of it, and no longer.

Source: docs/decisions/0073-documents.md
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from fastapi import Request
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.datastructures import MutableHeaders

from cardledger.api.fair_slots import Work
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
from cardledger.api.time_limit import untimed
from cardledger.api.uploads.limits import FORM_REST
from cardledger.api.uploads.multipart import (
    PIECE,
    FileTooLargeError,
    FormReader,
    ReceivedFile,
    boundary_of,
)
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

Prepare = Callable[[Request, ReceivedFile], Awaitable[Any]]
"""Returns what the file of a request is stored as, in turns of the event loop or in a thread.

Raises: ApiError for a file that is refused.
"""

_FILE: Final = "file"
_STEP: Final = MAX_BODY  # Bytes of a large form that are counted at a time.


def form_with_file(*, max_file: int, prepare: Prepare, check_room: CheckRoom) -> Form:
    """Return a form with a `file` of at most `max_file` bytes, which is received if it has room.

    What `prepare` makes of the file, before a connection to the database is used, is what
    `prepared` returns.
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
            held.callback(reader.close)
            try:
                await _read(request, reader, limit, held)
            except FileTooLargeError:
                raise room.refusal from None
            body = dict(reader.finish())
            reader.close()
            await _prepare(request, body, prepare)
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
    async with slot_of(request, Work.READ), call.reading() as connection:
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


async def _prepare(request: Request, body: dict[str, Any], prepare: Prepare) -> None:
    """Prepare the file of `body`; each of its files is replaced by what identifies it."""
    call: RequestContext = request.state.call
    for name, value in body.items():
        if isinstance(value, ReceivedFile):
            if name == _FILE and value.content:
                call.prepared.append(await prepare(request, value))
            digest = await asyncio.to_thread(_digest, value.content)
            body[name] = Upload(value.name, len(value.content), digest)


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()


async def _read(request: Request, reader: FormReader, limit: int, held: ExitStack) -> None:
    """Feed the body of `request` to `reader`; a large one counts as in progress until `held`.

    It counts with the bytes that have arrived, and is refused at once when there is no room for
    those that its head declares. As many bytes as other operations take count as a request.
    Raises: ApiError INVALID_INPUT, RATE_LIMITED; FileTooLargeError.
    """
    call: RequestContext = request.state.call
    uploads, limits = services_of(request).uploads, services_of(request).limits
    turns, declared = services_of(request).loop_turns, declared_length(request)
    size = counted_size = 0
    async for chunk in arriving(request):
        if (more := _to_count(size + len(chunk)) - counted_size) > 0:
            try:
                if not counted_size:
                    uploads.check(call.platform_id, declared or 0)
                uploads.begin(call.platform_id, more)
            except TooManyEventsError as error:
                counted.refuse(counted.Refusal.IN_PROGRESS)
                message = f"{str(error).capitalize()}; send this one again when they are answered."
                raise too_many_waiting(message) from None
            held.callback(uploads.end, call.platform_id, more)
            counted_size += more
        requests = (size + len(chunk)) // MAX_BODY - size // MAX_BODY
        limits.count_more(REQUESTS, str(call.platform_id), requests)
        is_first = not size
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        with untimed(request.scope):
            await turns.run(_fed(reader, chunk), at_once=is_first)
    if not size:
        raise invalid_field(_FILE, "is required")


def _to_count(size: int) -> int:
    """Return how many bytes a form counts with, of which `size` have arrived; 0: it is small."""
    return 0 if size <= MAX_BODY else -(-size // _STEP) * _STEP


def _fed(reader: FormReader, chunk: bytes) -> Generator[None, None, None]:
    for start in range(0, len(chunk), PIECE):
        reader.feed(chunk[start : start + PIECE])
        yield


def _as_json(request: Request, body: dict[str, Any]) -> Request:
    """Return `request` with the form as its JSON body, which FastAPI reads and validates."""
    scope = {**request.scope, "headers": list(request.scope["headers"])}
    MutableHeaders(scope=scope)["content-type"] = "application/json"
    return ParsedRequest(Request(scope, request.receive), b"{}", body)
