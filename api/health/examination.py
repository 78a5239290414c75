"""What `cardledger doctor` finds about the installation, for a page of the console.

It is examined in a thread, over a connection of its own, and an answer says what was found within
the last minute, or that it is older. So no event loop stands still, and any number of callers cost
one examination in five seconds, which only those wait for who would get nothing newer than that.
"""

import asyncio
from asyncio import Future
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from threading import Thread
from time import monotonic
from typing import Final

import structlog

from cardledger.ledger.queries.console.running_workers import RunningWorker

_PAUSE_S: Final = 5.0  # From one examination to the next.
_FRESH_S: Final = 60.0  # What is younger is answered while the next examination runs.
_STUCK_S: Final = 10.0  # An examination takes less, unless what it asks does not answer.
_ANSWER_LIMIT_S: Final = 1.5  # What a caller waits for an examination.

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A check and its result, `ok`, `warn` or `fail`; `fix` is the command that ends a problem."""

    name: str
    state: str
    detail: str
    fix: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was found; `workers` is None where it is not known which are connected.

    `is_old`: it may not be so any more, for the examination after it has not ended.
    """

    at: datetime
    checks: Sequence[Check]
    workers: Sequence[RunningWorker] | None
    is_old: bool = False


Examine = Callable[[], Report]
"""Examines the installation; it takes seconds at most, and may be called in any thread."""


class Examination:
    """Examines the installation while it is asked."""

    def __init__(self, examine: Examine | None, *, clock: Callable[[], float] = monotonic) -> None:
        """Ask `examine`; None: the process has no way to."""
        self._examine: Final = examine
        self._clock: Final = clock
        self._report: Report | None = None
        self._began_at = float("-inf")
        self._ended_at = float("-inf")
        self._running: asyncio.Task[None] | None = None

    async def answer(self) -> Report | None:
        """Return what was found last, old or not; None: nothing has been found yet."""
        if self._examine is not None and not self._is_running() and self._is_due():
            self._began_at = self._clock()
            self._running = asyncio.create_task(self._look(self._examine), name="examination")
        if self._is_old() and self._running is not None and not self._is_stuck():
            await asyncio.wait([self._running], timeout=_ANSWER_LIMIT_S)
        if self._report is not None and self._is_old():
            return replace(self._report, workers=None, is_old=True)
        return self._report

    async def close(self) -> None:
        """Examine no more; a thread that does is left behind, and ends with the process."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def _is_due(self) -> bool:
        return self._clock() - self._began_at >= _PAUSE_S

    def _is_running(self) -> bool:
        return self._running is not None and not self._running.done()

    def _is_stuck(self) -> bool:
        return self._is_running() and self._clock() - self._began_at >= _STUCK_S

    def _is_old(self) -> bool:
        return self._is_stuck() or self._clock() - self._ended_at >= _FRESH_S

    async def _look(self, examine: Examine) -> None:
        try:
            self._report = await _in_thread(examine)
        except Exception:  # noqa: BLE001 - a defect of ours must not end the page
            self._report = Report(at=datetime.now(UTC), checks=[_FAILED], workers=None)
            _log.exception("examination failed")
        self._ended_at = self._clock()


async def _in_thread(examine: Examine) -> Report:
    """Return what `examine` returns, in a thread that keeps no process from its end.

    The loop waits for the threads of its executor when it ends, an interpreter for others.
    """
    loop = asyncio.get_running_loop()
    report: Future[Report] = loop.create_future()

    def run() -> None:
        try:
            result = examine()
        except Exception as error:  # noqa: BLE001 - raised again in the task
            resolve = partial(_fail, report, error)
        else:
            resolve = partial(_succeed, report, result)
        with suppress(RuntimeError):  # The loop has ended.
            loop.call_soon_threadsafe(resolve)

    Thread(target=run, name="examination", daemon=True).start()
    return await report


def _succeed(report: Future[Report], result: Report) -> None:
    if not report.done():  # Cancelled.
        report.set_result(result)


def _fail(report: Future[Report], error: Exception) -> None:
    if not report.done():
        report.set_exception(error)


_FAILED: Final = Check(
    name="examination",
    state="fail",
    detail="the installation could not be examined; the log of the API says why",
    fix="cardledger doctor",
)
