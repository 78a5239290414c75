"""Runs actors on a real PostgreSQL, one interaction with the server at a time.

An actor is a thread that does what a process of ours does: an engine that drains a queue, a request
that changes a card, a client that looks up an outcome. It runs until it is about to talk to
PostgreSQL (a statement, a COPY, a commit: a *boundary*) and waits there until the driver lets it go
on. So a schedule, which says who goes on and where a fault strikes, is played the same way each
time, and Hypothesis can search and shrink schedules.

An actor that waits for a lock of another inside PostgreSQL is left there; it arrives at its next
boundary when it has got the lock, or when PostgreSQL has given up.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, Final, TypeVar, cast

import psycopg
from sqlalchemy import Engine as Database
from sqlalchemy import NullPool, event
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.ext.asyncio import AsyncEngine

from cardledger.ledger.storage.engines import async_engine, sync_engine
from tests.waiting import Deadline

_POLL_S: Final = 0.003  # How soon a wait for a lock is noticed.
_T = TypeVar("_T")


class Fault(Enum):
    """What happens to an actor at a boundary."""

    CRASH_BEFORE = "the process ends before it sends"
    CRASH_AFTER = "the process ends before it receives the answer"
    ANSWER_LOST = "PostgreSQL has done it and the connection breaks"
    FROZEN = "the process stops, holding its locks, until no other can go on"


Faults = Mapping[int, Fault]
"""Which boundary of an actor is struck, counted from 0."""


class ProcessKilledError(BaseException):
    """Ends the thread of an actor whose process has been killed; no `except Exception` sees it."""


class Actor:
    """One process, as a thread that stops at every boundary."""

    def __init__(self, name: str, run: Callable[[], object], faults: Faults | None = None) -> None:
        """Do `run`; `faults` strike."""
        self.name: Final = name
        self.boundaries = 0  # Passed so far.
        self.error: BaseException | None = None
        self.is_frozen = False
        self._has_ended = False
        self._faults: Final = faults or {}
        self._run: Final = run
        self._is_killed = False
        self._moved = threading.Condition()  # The driver's, once started.
        self._has_arrived: Final = threading.Event()
        self._may_go_on: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._live, name=name, daemon=True)
        self.backend: int | None = None  # The backend whose answer it awaits.

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return not self._has_ended

    @property
    def has_arrived(self) -> bool:
        """Whether it stands at a boundary."""
        return self._has_arrived.is_set()

    @property
    def next_fault(self) -> Fault | None:
        """What strikes it at the boundary where it stands."""
        return self._faults.get(self.boundaries)

    def start(self, moved: threading.Condition) -> None:
        """Start it; it runs to its first boundary. It notifies `moved` when it arrives or ends."""
        self._moved = moved
        self._thread.start()

    def go_on(self) -> None:
        """Let it pass the boundary where it stands."""
        self._has_arrived.clear()
        self._may_go_on.set()

    def arrive(self, connection: "psycopg.BaseConnection[Any]") -> "Passage":
        """Wait at a boundary; return how it is passed. Called by its own thread."""
        if self._is_killed:
            raise ProcessKilledError
        self.backend = connection.info.backend_pid
        with self._moved:
            self._has_arrived.set()
            self._moved.notify()
        self._may_go_on.wait()
        self._may_go_on.clear()
        fault = self.next_fault
        self.boundaries += 1
        if fault is Fault.CRASH_BEFORE:
            self._kill(connection)
        return Passage(self, connection, fault)

    def _kill(self, connection: "psycopg.BaseConnection[Any]") -> None:
        connection.pgconn.finish()
        self._is_killed = True
        raise ProcessKilledError

    def end_passage(self, passage: "Passage") -> None:
        """Strike with what comes after the answer, if anything."""
        self.backend = None
        if passage.fault is Fault.CRASH_AFTER:
            self._kill(passage.connection)
        if passage.fault is Fault.ANSWER_LOST:
            passage.connection.pgconn.finish()
            message = "server closed the connection unexpectedly"
            raise psycopg.OperationalError(message)

    def _live(self) -> None:
        _actor_of_thread.actor = self
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 - the driver raises it
            if not self._is_killed:
                self.error = error
        finally:
            with self._moved:
                self._has_ended = True
                self._moved.notify()


class Passage:
    """One boundary being passed."""

    def __init__(
        self, actor: Actor, connection: "psycopg.BaseConnection[Any]", fault: Fault | None
    ) -> None:
        self.connection: Final = connection
        self.fault: Final = fault
        self._actor: Final = actor

    def answered(self, answer: _T) -> _T:
        """Return `answer`, which PostgreSQL has given, unless a fault strikes now."""
        self._actor.end_passage(self)
        return answer


_actor_of_thread = threading.local()


def _actor() -> Actor | None:
    return getattr(_actor_of_thread, "actor", None)


class SteppedConnection(psycopg.Connection[Any]):
    """A connection whose every interaction with the server is a boundary of its actor."""

    def wait(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as psycopg's
        """Interact with the server when the driver says so."""
        actor = _actor()
        if actor is None:
            return super().wait(*arguments, **options)
        passage = actor.arrive(self)
        return passage.answered(super().wait(*arguments, **options))


class SteppedAsyncConnection(psycopg.AsyncConnection[Any]):
    """Its counterpart for an event loop; at a boundary the whole loop stands still."""

    async def wait(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as psycopg's
        """Interact with the server when the driver says so."""
        actor = _actor()
        if actor is None:
            return await super().wait(*arguments, **options)
        passage = actor.arrive(self)
        return passage.answered(await super().wait(*arguments, **options))


def stepped_database(url: str) -> Database:
    """Return an engine on `url` with one connection, which is open, for one actor."""
    database = sync_engine(url, keyed=True, pool_size=1, max_overflow=0)

    def connect(
        _dialect: Dialect, _record: object, arguments: Sequence[Any], options: dict[str, Any]
    ) -> SteppedConnection:
        return SteppedConnection.connect(*arguments, **options)

    # The first listener that returns a connection decides, and `insert` is not for this event.
    database.dialect.dispatch.do_connect.clear()
    event.listen(database, "do_connect", connect)
    reconnect([database])
    return database


@cache
def stepped_async_database(url: str) -> AsyncEngine:
    """Return an engine on `url` for event loops of actors; each database transaction connects.

    Connecting is no part of a schedule, and neither is what an engine asks the server once. An API
    process has one engine all its life: a new one for each request took most of its time.
    """
    database = async_engine(url, poolclass=NullPool)

    def connect(
        _dialect: Dialect, _record: object, _arguments: object, options: dict[str, Any]
    ) -> None:
        options["async_creator_fn"] = SteppedAsyncConnection.connect

    event.listen(database.sync_engine, "do_connect", connect, insert=True)
    asyncio.run(_connect_once(database))
    return database


async def _connect_once(database: AsyncEngine) -> None:
    async with database.connect():
        pass


def reconnect(databases: Iterable[Database]) -> None:
    """Replace connections that an earlier fault has broken: connecting is no part of a schedule."""
    for database in databases:
        with database.connect():
            pass


Choice = Callable[[Sequence[Actor]], Actor]
"""Chooses who goes on, among the actors that can."""


class Driver:
    """Plays schedules."""

    def __init__(self, url: str) -> None:
        """Watch for locks at the server of `url`."""
        self._monitor: Final = psycopg.connect(url, autocommit=True)
        self._moved: Final = threading.Condition()

    def close(self) -> None:
        """Close its own connection."""
        self._monitor.close()

    def play(self, actors: Sequence[Actor], choose: Choice) -> None:
        """Run `actors` to their ends.

        Raises: what an actor has raised, unless its process was killed.
        """
        for actor in actors:
            actor.start(self._moved)
        while self._settle(actors):
            standing = [actor for actor in actors if actor.has_arrived]
            ready = [actor for actor in standing if not actor.is_frozen]
            if ready:
                _let(choose(ready))
            elif standing:
                for actor in standing:  # No other can go on: the frozen ones wake up.
                    actor.is_frozen = False
                    actor.go_on()
            else:
                # Each waits for a lock of another: PostgreSQL ends that, by its time limits.
                self._wait(lambda: any(actor.has_arrived or not actor.is_alive for actor in actors))
        for actor in actors:
            if actor.error:
                raise actor.error

    def _settle(self, actors: Sequence[Actor]) -> bool:
        """Wait until every actor has ended, has arrived or is blocked; return whether any lives."""
        self._wait(lambda: all(self._has_settled(actor) for actor in actors))
        return any(actor.is_alive for actor in actors)

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = Deadline()
        with self._moved:
            while not condition():
                assert not deadline.has_passed, "an actor neither ends nor arrives"
                self._moved.wait(_POLL_S)

    def _has_settled(self, actor: Actor) -> bool:
        return not actor.is_alive or actor.has_arrived or self._is_blocked(actor)

    def _is_blocked(self, actor: Actor) -> bool:
        backend = actor.backend
        if backend is None:
            return False
        row = self._monitor.execute("SELECT pg_blocking_pids(%s) <> '{}'", [backend]).fetchone()
        return cast("tuple[bool]", row)[0]


def _let(actor: Actor) -> None:
    """Let `actor` go on, or freeze it where it stands."""
    if actor.next_fault is Fault.FROZEN:
        actor.is_frozen = True
    else:
        actor.go_on()


def in_turn(actors: Sequence[Actor]) -> Actor:
    """Choose the first actor: each runs to its end, or until it is blocked."""
    return actors[0]


def with_preemptions(preemptions: Mapping[int, int]) -> Choice:
    """Return a choice that stays with an actor, except at some steps.

    Shape of `preemptions`: the number of the step → the index of the actor that goes on.
    """
    step = 0
    current: Actor | None = None

    def choose(ready: Sequence[Actor]) -> Actor:
        nonlocal step, current
        if step in preemptions:
            current = ready[preemptions[step] % len(ready)]
        elif current not in ready:
            current = ready[0]
        step += 1
        assert current is not None
        return current

    return choose
