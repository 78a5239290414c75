"""Deadlines of live authorizations: no approval is reported after `decideBy`.

A caller that has no outcome by then receives a decline. A timeout reversal, durable before that
answer, settles the authorization accordingly (docs/decisions/0036).
"""

import asyncio
from asyncio import Task
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from cardledger.ledger.core.events import DeclineReason
from cardledger.ledger.messaging.timeout_reversals import DETAIL
from cardledger.ledger.storage.database_clock import elapsed_s
from cardledger.schema.wire import outcomes
from cardledger.schema.wire.network_events import AUTHORIZATIONS, parse_time
from cardledger.schema.wire.outcomes import Outcome, OutcomeType
from cardledger.workers.client.database_clock import DatabaseClock
from cardledger.workers.client.errors import STOPPED, UnavailableError
from cardledger.workers.client.parsing import MalformedSubmission, Submission
from cardledger.workers.client.pending import resolve
from cardledger.workers.client.timeout_reversals import TimeoutReversals

_MARGIN_S: Final = 0.01  # For an approval on its way from here to the caller.
_DURABLE_WITHIN_S: Final = 1.0
_TIMER_LIMIT_S: Final = 3600.0  # A deadline may be years away, a timer of an event loop may not.

_NOT_ACCEPTED: Final = (
    "the authorization was not accepted before its decideBy and is not recorded; submit it again"
    " with the same reference"
)
_TIME_UNKNOWN: Final = (
    "the time of PostgreSQL is not known yet, so decideBy cannot be kept; the authorization is not"
    " recorded: submit it again with the same reference"
)
_UNKNOWN: Final = (
    "the authorization has no outcome by its decideBy, and its reversal is not recorded yet: it is"
    " not approved; submit it again with the same reference to read its outcome"
)


class Deadlines:
    """Ends the wait for outcomes at their deadlines, by PostgreSQL's clock."""

    def __init__(self, clock: DatabaseClock, reversals: TimeoutReversals) -> None:
        self._clock: Final = clock
        self._reversals: Final = reversals
        self._settling: Final[set[Task[None]]] = set()

    def watch(self, submission: Submission) -> None:
        """Give the outcome of `submission` its time limit, if it has a deadline.

        A repetition of an authorization whose reversal is not durable yet fails at once: decided
        before that reversal, it would be reported as approved and then reversed. So does an
        authorization with a deadline while the time of PostgreSQL is not known. One that certainly
        comes after its deadline needs no wait: the engine declines it, and of one that was decided
        before, the sender gets the record. One that may come after it is settled at once, for the
        engine may still approve it.
        """
        body = submission.body
        if body["type"] not in AUTHORIZATIONS:
            return
        if self._reversals.has_queued(body):
            _withdraw(submission, _UNKNOWN)
            return
        decide_by = parse_time(body.get("decideBy"))
        if decide_by is None:
            return
        bounds = self._clock.bounds
        if bounds is None:
            _withdraw(submission, _TIME_UNKNOWN)
        elif bounds.passed_from(decide_by) > elapsed_s():
            submission.report_by = bounds.reached_from(decide_by) - _MARGIN_S
            self._wait(submission, submission.report_by)

    async def reported(
        self, submissions: Sequence[Submission | MalformedSubmission], results: Sequence[Outcome]
    ) -> list[Outcome]:
        """Return `results` as they may be reported now: approvals in time, or declined.

        Raises: UnavailableError.
        """
        return await _without_late(submissions, results, self._settle)

    async def reported_each(
        self, submissions: Sequence[Submission | MalformedSubmission]
    ) -> list[Outcome]:
        """Return the outcomes of `submissions`, each of which is there, as they may be reported.

        One that failed, or that is not settled in time, is ACCEPTED, which is no approval.
        """
        results = [_result(each) for each in submissions]
        return await _without_late(submissions, results, self._settled_or_undecided)

    async def stop(self) -> None:
        """Return when every deadline that has passed is settled."""
        if self._settling:
            await asyncio.wait(self._settling)

    def _wait(self, submission: Submission, until: float) -> None:
        delay_s = min(until - elapsed_s(), _TIMER_LIMIT_S)
        timer = asyncio.get_running_loop().call_later(delay_s, self._expire, submission, until)
        submission.outcome.add_done_callback(lambda _: timer.cancel())

    def _expire(self, submission: Submission, until: float) -> None:
        if submission.outcome.done():
            return
        if until - elapsed_s() > _TIMER_LIMIT_S / 2:
            self._wait(submission, until)
        else:
            task = asyncio.create_task(self._end(submission))
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)

    async def _end(self, submission: Submission) -> None:
        try:
            outcome = await self._settle(submission)
        except UnavailableError as error:
            if not submission.outcome.done():
                submission.outcome.set_exception(error)
        else:
            resolve(submission.outcome, outcome)

    async def _settled_or_undecided(self, submission: Submission) -> Outcome:
        try:
            return await self._settle(submission)
        except UnavailableError as error:
            return undecided(submission, str(error))

    async def _settle(self, submission: Submission) -> Outcome:
        """Return the outcome of `submission` once its reversal is durable.

        Raises: UnavailableError when it was never accepted, or the reversal is not durable soon.
        """
        if submission.message is None:
            submission.is_withdrawn = True
            raise UnavailableError(_NOT_ACCEPTED)
        durable = self._reversals.put(submission.message)
        try:
            async with asyncio.timeout(_DURABLE_WITHIN_S):
                await asyncio.shield(durable)
        except TimeoutError:
            raise UnavailableError(_UNKNOWN) from None
        return outcomes.outcome(
            submission.message.reference,
            OutcomeType.DECLINED,
            reason=DeclineReason.DECISION_TIMEOUT,
            detail=DETAIL,
        )


def _withdraw(submission: Submission, detail: str) -> None:
    """Fail `submission`, which is queued and not being written yet."""
    submission.is_withdrawn = True
    submission.outcome.set_exception(UnavailableError(detail))


async def _without_late(
    submissions: Sequence[Submission | MalformedSubmission],
    results: Sequence[Outcome],
    settle: Callable[[Submission], Awaitable[Outcome]],
) -> list[Outcome]:
    """Return `results` with what `settle` makes of late approvals; that takes time, too.

    Those that are late are settled at the same time: one after the other, each would let those
    behind it wait, and make others late.
    """
    outcomes_now = list(results)
    while late := late_approvals(submissions, outcomes_now):
        settled = await asyncio.gather(*(settle(submission) for _, submission in late))
        for (place, _), outcome in zip(late, settled, strict=True):
            outcomes_now[place] = outcome
    return outcomes_now


def _result(submission: Submission | MalformedSubmission) -> Outcome:
    if submission.outcome.cancelled():
        return undecided(submission, STOPPED)
    try:
        return submission.outcome.result()
    except UnavailableError as error:
        return undecided(submission, str(error))


def undecided(submission: Submission | MalformedSubmission, detail: str) -> Outcome:
    """Return what a caller gets that stops waiting for the outcome of `submission`."""
    reference = (
        submission.body["reference"] if isinstance(submission, Submission) else submission.reference
    )
    return outcomes.outcome(reference, OutcomeType.ACCEPTED, detail=detail)


def late_approvals(
    submissions: Sequence[Submission | MalformedSubmission], results: Sequence[Outcome]
) -> list[tuple[int, Submission]]:
    """Return the approvals among `results` whose deadline has passed, with their places."""
    now = elapsed_s()
    return [
        (place, submission)
        for place, (submission, outcome) in enumerate(zip(submissions, results, strict=True))
        if isinstance(submission, Submission)
        and submission.report_by is not None
        and submission.report_by < now
        and outcome.is_approval
    ]
