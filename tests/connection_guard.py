"""A guard on every request: what it holds while it waits, and for what.

While it holds a database connection it waits for the database only. Connections are few
and shared by all platforms: a request that waits for a receiver, Redis, a lock or a second
connection while it holds one takes the connection from all others.

Slots are few as well, each for its kind of work: what waits for a worker takes none of those that
read or write rows.

The request's coroutine is driven by hand: each time it is suspended, this module looks whether its
task holds a connection of a SQLAlchemy pool, and whether psycopg is what it waits for.
"""

import asyncio
import re
import sys
import types
from asyncio import Task
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Generator
from contextlib import asynccontextmanager
from functools import cache, wraps
from threading import Lock
from typing import Any, Final

import psycopg
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.pool import Pool
from starlette.types import ASGIApp, Receive, Scope, Send

from cardledger.api.fair_slots import FairSlots, Work
from cardledger.schema.ids import Id
from cardledger.workers.client import Client

_HOLDER: Final = "holder"
_BLOCKING: Final = ("socket.connect", "socket.getaddrinfo", "subprocess.Popen")
"""Audit events of calls that block the whole event loop."""

_held: Final[Counter[Task[Any]]] = Counter()
_in_database: Final[Counter[Task[Any]]] = Counter()
_guarded: Final[dict[Task[Any], str]] = {}
_work: Final[dict[Task[Any], Work]] = {}

# Most of them write a row; one that is executed at once leaves its slot after half a second.
_MAY_WAIT: Final = re.compile(r"POST /[0-9-]+/quotes")
_violations: Final[list[str]] = []
_installing: Final = Lock()


class GuardedApp:
    """Wraps an application; what its requests do wrong is found by `violations`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app: Final = app
        with _installing:  # Servers may start at once, and `cache` alone lets each of them install.
            _install()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, and look at it whenever it waits."""
        handling = self._app(scope, receive, send)
        if scope["type"] != "http":
            await handling
            return
        task = asyncio.current_task()
        assert task is not None
        _guarded[task] = f"{scope['method']} {scope['path']}"
        try:
            assert isinstance(handling, Coroutine)
            await _watched(handling, task)
        finally:
            del _guarded[task]


def violations() -> list[str]:
    """Return what was found since the last call."""
    found = sorted(set(_violations))
    _violations.clear()
    return found


@types.coroutine
def _watched(handling: Coroutine[Any, Any, None], task: Task[Any]) -> Generator[Any, Any, None]:
    """Do as `await handling` does, and look at every suspension."""
    resume, value = handling.send, None
    while True:
        try:
            awaited = resume(value)
        except StopIteration:
            return
        if _held[task] and not _in_database[task]:
            _note(task, f"waits for {_innermost(handling)}")
        try:
            value, resume = (yield awaited), handling.send
        except BaseException as error:  # noqa: BLE001 - a cancellation is for the request
            value, resume = error, handling.throw


def _innermost(awaiting: object) -> str:
    """Return where the chain of coroutines that begins with `awaiting` is suspended."""
    place = "?"
    while isinstance(awaiting, Coroutine) and (frame := getattr(awaiting, "cr_frame", None)):
        code = frame.f_code
        place = f"{code.co_qualname} ({code.co_filename}:{frame.f_lineno})"
        awaiting = getattr(awaiting, "cr_await", None)
    return f"{place} -> {type(awaiting).__name__}"


def _note(task: Task[Any], problem: str, holds: str = "a database connection") -> None:
    _violations.append(f"{_guarded[task]} holds {holds} and {problem}")


@cache
def _install() -> None:
    """Follow the connections of this process, for as long as it runs."""
    event.listen(Pool, "checkout", _checked_out)
    event.listen(Pool, "checkin", _given_back)
    event.listen(Pool, "close", _given_back)  # A checkout replaces one whose server is gone.
    # Giving a connection back is done by another task, for which this one waits.
    _follow(psycopg.AsyncConnection, "wait")
    _follow(AsyncConnection, "__aexit__")
    sys.addaudithook(_blocking)
    _follow_slots()
    _follow_outcomes()


def _follow(owner: type, name: str) -> None:
    """Note of every call of a method that its task is in the database's hands."""
    method = getattr(owner, name)

    @wraps(method)
    async def followed(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - handed through
        task = asyncio.current_task()
        assert task is not None
        _in_database[task] += 1
        try:
            return await method(*arguments, **named)
        finally:
            _less(_in_database, task)

    setattr(owner, name, followed)


def _follow_slots() -> None:
    """Know of every request what its slot is for."""
    take = FairSlots.take

    @asynccontextmanager
    async def followed(
        slots: FairSlots, platform_id: Id, what: str, work: Work
    ) -> AsyncIterator[None]:
        task = asyncio.current_task()
        async with take(slots, platform_id, what, work):
            if task not in _guarded:
                yield
                return
            assert task is not None
            _work[task] = work
            try:
                yield
            finally:
                del _work[task]

    setattr(FairSlots, "take", followed)  # noqa: B010 - no assignment to a method is typed


def _follow_outcomes() -> None:
    """Note of every wait for a worker in whose slot it is."""
    outcomes = Client._outcomes

    @wraps(outcomes)
    async def followed(client: Client, futures: Any) -> Any:  # noqa: ANN401 - handed through
        task = asyncio.current_task()
        if task is not None and _waits_in_wrong_slot(task):
            _note(task, "waits for a worker", f"a slot of what {_work[task].value}")
        return await outcomes(client, futures)

    setattr(Client, "_outcomes", followed)  # noqa: B010 - no assignment to a method is typed


def _waits_in_wrong_slot(task: Task[Any]) -> bool:
    is_event = _work.get(task, Work.EVENT) is Work.EVENT
    return not is_event and _MAY_WAIT.fullmatch(_guarded[task]) is None


def _checked_out(_connection: object, record: Any, _proxy: object) -> None:  # noqa: ANN401
    task = _current_task()
    if task not in _guarded:
        return
    assert task is not None
    if _held[task]:
        _note(task, "takes a second one")
    _held[task] += 1
    record.info[_HOLDER] = task


def _given_back(_connection: object, record: Any) -> None:  # noqa: ANN401
    task = record.info.pop(_HOLDER, None)
    if task is not None:
        _less(_held, task)


def _blocking(name: str, _arguments: tuple[Any, ...]) -> None:
    if name in _BLOCKING and _held and (task := _current_task()) in _guarded:
        assert task is not None
        if _held[task]:
            _note(task, f"calls {name}")


def _less(counter: Counter[Task[Any]], task: Task[Any]) -> None:
    counter[task] -= 1
    if not counter[task]:
        del counter[task]


def _current_task() -> Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # A thread without an event loop.
        return None
