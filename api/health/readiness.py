"""Observe the installation while it is probed, and answer whether it is ready.

A loop observes it twice a second over a connection of its own, and an answer says what was observed
last. So an answer takes no longer when PostgreSQL is silent or all connections are in use, and any
number of callers cost one observation.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.pool import QueuePool

from cardledger.ledger.messaging import (
    canaries,
    enqueued_events,
    forged_messages,
    inbox,
    undecided,
)
from cardledger.ledger.messaging.canaries import Queue
from cardledger.ledger.messaging.enqueued_events import Waiting
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.messaging.undecided import Undecided
from cardledger.ledger.queries.console import running_workers
from cardledger.ledger.storage import database_clock
from cardledger.ledger.storage.engines import UNAVAILABLE_ERRORS, driver_async, is_refusal
from cardledger.schema import compatibility
from cardledger.workers.client import Client
from cardledger.workers.signals.repeated_warning import RepeatedFailure

_INTERVAL_S: Final = 0.5
_OBSERVATION_LIMIT_S: Final = 2.0  # Of one observation: PostgreSQL is silent after that.
_STALE_S: Final = 2.5  # An older observation is out of date.
_ANSWER_LIMIT_S: Final = 1.5  # What the first caller waits for the first observation.
_POLL_S: Final = 0.01
_LINGER_S: Final = 30.0  # The loop runs for so long after the last probe.

_STALLS: Final = """
    SELECT count(*) FILTER (WHERE is_whole_queue), count(*) FILTER (WHERE NOT is_whole_queue),
        min(since) FILTER (WHERE is_whole_queue)
    FROM stalled_queues
"""
_UNDEFINED_TABLE: Final = "42P01"
_NONE_WAITS: Final = Waiting(count=0, age_s=None)
_QUEUES: Final = frozenset((lane, shard) for lane in Lane for shard in range(inbox.SHARDS))

_FAILED: Final = RepeatedFailure("readiness check failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A check that failed: what is wrong, and what to do."""

    check: str
    detail: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Standstill:
    """Messages are not decided: those of all queues, or of some.

    It `is_whole` at once when no worker is connected, which is no failure of `/readyz` before a
    queue has not moved. Times are those of the tables, whenever this process was asked first.
    """

    is_whole: bool
    detail: str
    fix: str
    undecided: Undecided

    @property
    def since(self) -> datetime | None:
        """Since when no message was decided, as far as the tables tell; None: they do not.

        Not of some queues, because what waits may be in others; and not where nothing waits,
        because canaries, which leave no row, may have been decided meanwhile.
        """
        oldest, last = self.undecided.oldest_received_at, self.undecided.last_decided_at
        if not self.is_whole or oldest is None:
            return None
        return oldest if last is None else max(oldest, last)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What one observation found; times are of the monotonic clock."""

    at: float
    revision: str | None
    clock_ahead: timedelta  # Of this process, compared with PostgreSQL; zero within the round trip.
    stuck: dict[Queue, float]
    schema_problem: str | None  # Why this release may not use it; what to do.
    stalled_queues: int = 0  # In which every message fails by a fault of ours.
    stalled_cardholders: int = 0  # Whose messages fail, while their queue moves.
    stalled_since: datetime | None = None  # By PostgreSQL's clock.
    forged_messages: int = 0  # Refused in the last day; at most 1000 are counted.
    enqueued: Waiting = _NONE_WAITS  # Not moved to the inbox yet.
    standstill: Standstill | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What `/readyz` says; for the console, whether messages are decided."""

    state: dict[str, Any]
    failures: list[Failure]
    standstill: Standstill | None


class Readiness:
    """Checks PostgreSQL, the schema, the clock and the queues for `/readyz`."""

    def __init__(
        self,
        engine: AsyncEngine,
        client: Client,
        *,
        schema_head: str,
        clock: Callable[[], datetime],
    ) -> None:
        """Observe over `engine`; nothing happens before the first question.

        `clock` is the one that is compared with PostgreSQL's.
        """
        self._engine: Final = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._client: Final = client
        self._clock: Final = clock
        self._schema_head: Final = schema_head
        self._watch: Final = canaries.QueueWatch()
        self._observed: Observed | None = None
        self._failure: Failure | None = None  # Of the last observation, when it failed.
        self._redis = "does not answer"
        self._asked_at = 0.0
        self._since: Final[dict[str, datetime]] = {}
        self._first: Final = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    async def answer(self) -> Answer:
        """Return the state as of the last observation, within two seconds whatever happens."""
        self._asked_at = monotonic()
        if self._loop is None or self._loop.done():
            self._first.clear()
            self._loop = asyncio.create_task(self._run(), name="readiness")
        with suppress(TimeoutError):
            await asyncio.wait_for(self._first.wait(), _ANSWER_LIMIT_S)
        failures = list(self._failures(monotonic()))
        failing = {failure.check for failure in failures}
        for check in self._since.keys() - failing:
            del self._since[check]
        is_known = failing.isdisjoint({"postgresql", "schema"})
        standstill = self._observed.standstill if self._observed and is_known else None
        now = self._clock()
        checks = {
            failure.check: {
                "since": self._since_of(failure, standstill, now).isoformat(),
                "detail": failure.detail,
                "fix": failure.fix,
            }
            for failure in failures
        }
        revision = self._observed.revision if self._observed else None
        state = {
            "postgresql": _postgresql(failures),
            "redis": self._redis,
            "schema": revision or "none",
            "schemaWanted": self._schema_head,
            "stalledCardholders": self._observed.stalled_cardholders if self._observed else 0,
            "forgedMessages": self._observed.forged_messages if self._observed else 0,
            **_enqueued(self._observed),
            "failedChecks": checks,
        }
        return Answer(state=state, failures=failures, standstill=standstill)

    def _since_of(self, failure: Failure, standstill: Standstill | None, now: datetime) -> datetime:
        """Return since when it fails, as the tables know it, or this process."""
        noticed = self._since.setdefault(failure.check, now)
        if failure.check != "queues" or standstill is None:
            return noticed
        return standstill.since or noticed

    async def close(self) -> None:
        """Stop observing."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
            await self._connection_returned()

    async def _connection_returned(self) -> None:
        """Wait for the connection of a cancelled observation, which a task of its own gives back.

        In a pool that was disposed of meanwhile it would stay open.
        """
        pool = self._engine.pool
        assert isinstance(pool, QueuePool)
        with suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_LIMIT_S):
                while pool.checkedout():  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(_POLL_S)

    # --- what failed -----------------------------------------------------------------------------

    def _failures(self, now: float) -> Iterator[Failure]:
        observed = self._observed
        if observed is None or self._failure or now - observed.at > _STALE_S:
            yield self._failure or _silent("PostgreSQL does not answer.")
            return  # The other results are out of date.
        if observed.schema_problem is not None:
            what, _, fix = observed.schema_problem.partition("; ")
            yield Failure(check="schema", detail=_sentence(what), fix=_sentence(fix))
            return
        if observed.clock_ahead:
            yield Failure(
                check="clock",
                detail=f"The clock of this process differs from PostgreSQL's by"
                f" {observed.clock_ahead.total_seconds():+.3f} s.",
                fix="Synchronize the clocks of both machines (NTP).",
            )
        if observed.stalled_queues:
            yield Failure(
                check="stalls",
                detail=f"{observed.stalled_queues} queues have been stalled since"
                f" {observed.stalled_since}: every event in them fails with an internal error.",
                fix="See stalled_queues.error; the queues continue by themselves after the repair.",
            )
        if observed.stuck and observed.standstill is not None:
            standstill = observed.standstill
            yield Failure(check="queues", detail=standstill.detail, fix=standstill.fix)

    # --- observing -------------------------------------------------------------------------------

    async def _run(self) -> None:
        await asyncio.gather(self._observe(), self._ping())
        self._first.set()
        # Concurrently: a Redis that hangs must not delay the observation of PostgreSQL.
        await asyncio.gather(self._repeat(self._observe), self._repeat(self._ping))

    async def _repeat(self, check: Callable[[], Awaitable[None]]) -> None:
        while monotonic() - self._asked_at < _LINGER_S:
            await asyncio.sleep(_INTERVAL_S)
            await check()

    async def _ping(self) -> None:
        is_available = await self._client.is_redis_available()
        self._redis = "answers" if is_available else "does not answer"

    async def _observe(self) -> None:
        try:
            async with asyncio.timeout(_OBSERVATION_LIMIT_S):
                self._observed = await self._read()
            self._failure = None
        except TimeoutError:
            self._failure = _silent(
                f"PostgreSQL did not answer within {_OBSERVATION_LIMIT_S:.0f} s."
            )
        except Exception as error:  # noqa: BLE001 - a defect of ours must not stop the loop
            # An error of PostgreSQL can name hosts and roles, and `/readyz` is public.
            if is_refusal(error):
                self._failure = _REFUSED
            elif isinstance(error, (*UNAVAILABLE_ERRORS, DBAPIError)):
                self._failure = _silent("PostgreSQL is unavailable.")
                return
            else:
                self._failure = _UNREAD
            _FAILED.note(error)

    async def _read(self) -> Observed:
        async with self._engine.connect() as outer:
            try:
                revision = await outer.scalar(text("SELECT version_num FROM alembic_version"))
            except DBAPIError as error:
                if getattr(error.orig, "sqlstate", None) != _UNDEFINED_TABLE:
                    raise
                revision = None
            problem = await self._schema_problem(outer, revision)
            if problem is not None:
                return Observed(
                    at=monotonic(),
                    revision=revision,
                    clock_ahead=timedelta(0),
                    stuck={},
                    schema_problem=problem,
                )
            queues, cardholders, since = (await outer.execute(text(_STALLS))).one()
            connection = await driver_async(outer)
            asked, asked_at = self._clock(), monotonic()
            observation = await canaries.observe_async(connection, self._watch.outstanding)
            now = monotonic()
            self._watch.observe(observation, now)
            stuck = self._watch.stuck(now)
            sent = [canaries.canary(queue, observation.at) for queue in self._watch.due(now)]
            if sent:
                # A commit that waits for the disk, unlike those of other canaries: where commits
                # stall, a server that accepts nothing else must not be ready either.
                await inbox.accept_async(connection, sent, self._client.inbox_key)
                self._watch.sent(sent, now)
            standstill = await self._standstill(outer, stuck, now)
            took = timedelta(seconds=now - asked_at)
            return Observed(
                at=now,
                revision=revision,
                clock_ahead=database_clock.ahead(asked, observation.at, took),
                stuck=stuck,
                schema_problem=None,
                stalled_queues=queues,
                stalled_cardholders=cardholders,
                stalled_since=since,
                forged_messages=await forged_messages.recent(connection, observation.at),
                enqueued=await enqueued_events.waiting_async(connection),
                standstill=standstill,
            )

    async def _standstill(
        self, outer: AsyncConnection, stuck: Mapping[Queue, float], now: float
    ) -> Standstill | None:
        """Return what is not decided; of workers that decide, nothing more is asked."""
        connection = await driver_async(outer)
        are_gone = not self._watch.has_moved(now) and await running_workers.are_gone_async(
            connection
        )
        if not stuck and not are_gone:
            return None
        queues = _QUEUES if are_gone else stuck.keys()
        found = await undecided.read_async(connection, queues)
        return _standstill(stuck, found, are_gone=are_gone)

    async def _schema_problem(
        self, connection: AsyncConnection, revision: str | None
    ) -> str | None:
        """Return why this release may not use the schema of `revision`; None when it may."""
        head, oldest_head = self._schema_head, None
        if revision is not None and revision > head:
            oldest_head = await connection.scalar(
                text("SELECT oldest_head FROM schema_compatibility")
            )
        return compatibility.problem(revision, head=head, oldest_head=oldest_head)


_SEE_LOG: Final = "See `readiness check failed` in the log of this process."
_REFUSED: Final = Failure(
    check="postgresql",
    detail="PostgreSQL refuses a statement of this check.",
    fix=f"{_SEE_LOG} Grant the right, or undo the change of the table, that it names.",
)
_UNREAD: Final = Failure(check="postgresql", detail="The state could not be read.", fix=_SEE_LOG)


def _silent(detail: str) -> Failure:
    fix = "Check DATABASE_URL, the server and the network to it."
    return Failure(check="postgresql", detail=detail, fix=fix)


def _postgresql(failures: Sequence[Failure]) -> str:
    if _REFUSED in failures:
        return "refuses a statement"
    return "does not answer" if any(one.check == "postgresql" for one in failures) else "answers"


def _enqueued(observed: Observed | None) -> dict[str, Any]:
    """Return how many events wait to be moved to the inbox, and since when, if any."""
    waiting = observed.enqueued if observed else _NONE_WAITS
    count = {"enqueuedEvents": waiting.count}
    if waiting.age_s is None:
        return count
    return count | {"oldestEnqueuedEventSeconds": round(waiting.age_s, 3)}


def _standstill(stuck: Mapping[Queue, float], found: Undecided, *, are_gone: bool) -> Standstill:
    made = Standstill(
        is_whole=are_gone or stuck.keys() >= _QUEUES,
        detail="No worker that decides is connected to PostgreSQL.",
        fix="Check that workers run: cardledger doctor.",
        undecided=found,
    )
    if not stuck:
        return made
    for_s = (found.at - made.since).total_seconds() if made.since else 0.0
    return replace(
        made,
        detail=_sentence(canaries.stuck_in_words(stuck, for_s=for_s)),
        fix="Check that workers run, and which session locks their rows: cardledger doctor.",
    )


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
