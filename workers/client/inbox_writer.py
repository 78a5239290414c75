"""Writes submissions to the inbox: those that arrive while one write runs share the next one.

A client has a writer for each lane, so that no live event waits for the write of a file. A write
that takes longer than a moment, on a connection that is silent perhaps, does not hold up the next
one. Callers have no order among each other, and a caller that needs one waits for the acceptance of
its earlier events.
"""

import asyncio
from asyncio import CancelledError, Future, Task
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from cardledger.ledger.engine import rejections
from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import TRACEPARENT, Lane, Message, address
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.storage.engines import driver_async, is_answer_lost
from cardledger.workers.client.card_routes import CardRoutes
from cardledger.workers.client.errors import DATABASE_UNAVAILABLE, STOPPED, UnavailableError
from cardledger.workers.client.parsing import MalformedSubmission, Submission
from cardledger.workers.client.pending import PendingOutcomes, abandon, fail, resolve
from cardledger.workers.client.redis_gateway import RedisGateway
from cardledger.workers.signals import database_failures
from cardledger.workers.signals.doorbell import drain_all
from cardledger.workers.signals.outage_log import DATABASE
from cardledger.workers.signals.repeated_warning import RepeatedFailure

_PATIENCE_S: Final = 0.25  # How long a write may take before the next one begins.
_CONCURRENT_WRITES: Final = {Lane.LIVE: 4, Lane.BULK: 2}  # Each has a connection of its own.
_AT_A_TIME: Final = 128
"""From which on nothing more joins a write, which takes time of the event loop; what was queued
together is written together, whatever its number."""

_log = structlog.get_logger()
_NOT_ACCEPTED: Final = RepeatedFailure("events not accepted")


@dataclass(slots=True)
class _Queued:
    """Submissions that were queued together, and are written together."""

    submissions: Sequence[Submission | MalformedSubmission]
    accepted: "Future[None] | None" = None  # Of a caller that waits for their commit.
    is_repeated: bool = False  # It is unknown whether an earlier write has committed them.

    def may_be_accepted(self, error: Exception) -> bool:
        """Return whether a write that failed with `error` may have committed these submissions.

        Only of those that their deadlines settle, each by its outcome or a timeout reversal; of
        others the caller learns the error, and submits them again.
        """
        if not all(
            isinstance(item, Submission) and item.report_by is not None and item.message is not None
            for item in self.submissions
        ):
            return False
        return self.is_repeated or is_answer_lost(error)


class InboxWriter:
    """Coalesces submissions: load makes the writes larger, not more."""

    def __init__(  # noqa: PLR0913 - the parts of a client
        self,
        engine: AsyncEngine,
        redis: RedisGateway,
        pending: PendingOutcomes,
        routes: CardRoutes,
        key: InboxKey,
        *,
        lane: Lane,
        now: Callable[[], datetime],
        gather_s: float,
    ) -> None:
        """Write what is queued for `lane` through `engine`, signed with `key`.

        It is received at `now`, by the clock of PostgreSQL: without a time of its own an event is
        posted on that day. Under load a write waits up to `gather_s` for more events.
        """
        self._engine: Final = engine
        self._autocommit: Final = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._redis: Final = redis
        self._pending: Final = pending
        self._routes: Final = routes
        self._key: Final = key
        self._now: Final = now
        self._concurrent_writes: Final = _CONCURRENT_WRITES[lane]
        self._gather_s: Final = gather_s
        self._queue: Final[deque[_Queued]] = deque()
        self._has_queued: Final = asyncio.Event()
        self._writes: Final[set[Task[None]]] = set()  # Under way.
        self._is_closed = False

    def put(self, submissions: Sequence[Submission | MalformedSubmission]) -> None:
        """Queue `submissions` for one of the next writes, all of them for the same.

        Raises: UnavailableError once closed.
        """
        if not submissions:
            return
        if self._is_closed:
            raise UnavailableError(STOPPED)
        self._queue.append(_Queued(submissions))
        self._has_queued.set()

    def acceptance(self) -> "Future[None]":
        """Return a future that is set when what was queued last is committed."""
        accepted: Future[None] = asyncio.get_running_loop().create_future()
        self._queue[-1].accepted = accepted
        return accepted

    async def write_next(self) -> None:
        """Write what is queued; meanwhile the next write fills up.

        Returns when the write has ended, or is slow and few are under way.
        """
        try:
            await self._has_queued.wait()
            await self._gather()
            write = asyncio.create_task(self._write_queued())
            self._writes.add(write)
            write.add_done_callback(self._forget)
            await asyncio.wait([write], timeout=_PATIENCE_S)
            while len(self._writes) >= self._concurrent_writes:
                await asyncio.wait(self._writes, return_when=asyncio.FIRST_COMPLETED)
        except CancelledError:
            await self._cancel_writes()
            raise

    async def _cancel_writes(self) -> None:
        """End the writes under way; a further cancellation of this task is one of theirs."""
        while self._writes:
            for write in self._writes:
                write.cancel()
            with suppress(CancelledError):
                await asyncio.wait(self._writes)

    def _forget(self, write: "Task[None]") -> None:
        self._writes.discard(write)
        if not write.cancelled() and (error := write.exception()) is not None:
            _log.error("writing to the inbox failed", exc_info=error)

    async def _write_queued(self) -> None:
        queued = self._take()
        batch = [submission for each in queued for submission in each.submissions]
        try:
            messages, suspensions = await self._accept(batch)
        except CancelledError as error:
            _end_spans(batch, error)
            abandon(submission.outcome for submission in batch)
            abandon(_accepted_of(queued))
            raise
        except Exception as error:  # noqa: BLE001 - whatever failed, the callers must not wait on
            # Before the log, which may fail too.
            self._fail(queued, error)
            if isinstance(error, DATABASE_UNAVAILABLE):
                database_failures.note(error)
            else:
                _NOT_ACCEPTED.note(error, count=len(batch))
            return
        self._pending.accepted(messages)
        _end_spans(batch)
        for accepted in _accepted_of(queued):
            if not accepted.done():
                accepted.set_result(None)
        DATABASE.succeeded()
        written = [*messages, *suspensions]
        self._redis.notify(drain_all((message.lane, message.shard) for message in written))

    def _fail(self, queued: Sequence[_Queued], error: Exception) -> None:
        """Tell the callers of `queued` that the write has failed, except where that is unknown.

        What may be accepted is written once more: its idempotency key makes one of the two a
        duplicate. If that fails too, its deadline settles it.
        """
        for each in queued:
            if not each.may_be_accepted(error):
                fail((submission.outcome for submission in each.submissions), error)
                fail(_accepted_of([each]), error)
                _end_spans(each.submissions, error)
                continue
            # Perhaps they are not. What the record says of them is their outcome in any case.
            self._pending.accepted(_messages_of(each))
            if each.is_repeated:
                _end_spans(each.submissions, error)
            else:
                each.is_repeated = True
                self._queue.append(each)
                self._has_queued.set()

    def _take(self) -> list[_Queued]:
        """Return what the next write has."""
        taken: list[_Queued] = []
        size = 0
        while self._queue and size < _AT_A_TIME:
            taken.append(self._queue.popleft())
            size += len(taken[-1].submissions)
        if not self._queue:
            self._has_queued.clear()
        return taken

    def close(self) -> None:
        """Accept no more submissions."""
        self._is_closed = True

    def abandon(self) -> None:
        """Cancel the futures of everything that was not written."""
        for queued in self._queue:
            abandon(submission.outcome for submission in queued.submissions)
        abandon(_accepted_of(self._queue))

    async def _gather(self) -> None:
        """Let more events arrive while earlier ones are being decided, up to the first reply.

        Nagle's algorithm does the same with small packets: a lone event goes at once, and under
        load a write, a doorbell and a batch of the engine serve several events. A caller that
        waits for acceptance only submits many events at once anyway.
        """
        if len(self._queue) >= _AT_A_TIME:
            return
        if self._pending and all(queued.accepted is None for queued in self._queue):
            await self._pending.wait_for_reply(self._gather_s)

    async def _accept(
        self, batch: "Sequence[Submission | MalformedSubmission]"
    ) -> tuple[list[Message], list[Message]]:
        """Commit `batch` to the inbox; from then on its outcomes are pending.

        Returns its messages, and those that book what its rejections have moved.
        """
        now = self._now()
        malformed = [item for item in batch if isinstance(item, MalformedSubmission)]
        valid = [item for item in batch if isinstance(item, Submission)]
        # One statement is a database transaction by itself, without the round trips around it.
        writing = self._engine.begin() if malformed else self._autocommit.connect()
        async with writing as outer:
            connection = await driver_async(outer)
            card_ids = filter(None, (item.card_id for item in valid))
            routes = await self._routes.load(connection, card_ids)
            owners = [await self._routes.owner_of(connection, item, routes) for item in valid]
            messages: list[Message] = []
            suspensions: list[Message] = []
            for item, owner in zip(valid, owners, strict=True):
                if item.is_withdrawn:
                    continue
                item.message = address(
                    _with_trace(item),
                    owner,
                    lane=item.lane,
                    reply_to=self._redis.reply_list,
                    at=now,
                )
                messages.append(item.message)
                # Before the commit: a worker may reply before this coroutine runs again.
                self._pending.add(item.message, item.outcome, item.report_by)
            await inbox.accept_async(connection, messages, self._key)
            if malformed:
                records = [item.rejection(now) for item in malformed]
                suspensions = await rejections.keep(connection, records, self._key)
        for rejected in malformed:
            resolve(rejected.outcome, rejected.rejection_outcome())
        return messages, suspensions


def _accepted_of(queued: Iterable[_Queued]) -> "list[Future[None]]":
    """Return the futures of the callers that wait for the commit of `queued`."""
    return [each.accepted for each in queued if each.accepted is not None]


def _messages_of(queued: _Queued) -> Iterator[Message]:
    for item in queued.submissions:
        if isinstance(item, Submission) and item.message is not None:
            yield item.message


def _with_trace(item: Submission) -> Mapping[str, Any]:
    """Return the body of `item`, with the trace that it belongs to, if it is sampled."""
    return item.body if item.span is None else {**item.body, TRACEPARENT: item.span.traceparent}


def _end_spans(
    batch: Sequence[Submission | MalformedSubmission], error: BaseException | None = None
) -> None:
    """End the spans of the writes in `batch`; events that were queued together share one."""
    spans = {item.span for item in batch if isinstance(item, Submission)}
    for span in filter(None, spans):
        span.end(error)
