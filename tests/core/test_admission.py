"""Authorizations that could not be decided in time are refused; nothing else is."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache, wraps
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy.ext.asyncio import create_async_engine

from cardledger.api.http import errors
from cardledger.api.ingestion_limits import UNDECIDED_IN_ALL
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.storage.ids import new_id
from cardledger.workers.client import Client, OverloadedError, parsing
from cardledger.workers.client.admission import ALWAYS_ADMITTED, UNDECIDED_LIMIT, Admission
from cardledger.workers.client.parsing import Submission, parse

RATE = 1000  # Decisions a second.


class Queue:
    """A queue of events that are decided in order, on a clock of its own."""

    def __init__(self) -> None:
        self.now = 100.0
        self.ahead = timedelta(0)  # PostgreSQL's clock, of the clock of this process.
        self.admission = Admission(
            now=lambda: datetime.now(UTC) + self.ahead, clock=lambda: self.now
        )
        self.undecided: list[Submission] = []

    def submit(self, *batch: Submission) -> None:
        self.admission.admit(batch)
        self.undecided += batch

    async def decide(self, count: int) -> None:
        decided, self.undecided = self.undecided[:count], self.undecided[count:]
        for submission in decided:
            submission.outcome.set_result(None)  # type: ignore[arg-type]
        await asyncio.sleep(0)  # The callbacks of futures.

    async def fill(self, seconds: float) -> None:
        """Let twice as many facts come as are decided, until an event waits for `seconds`."""
        for _ in range(int(seconds * 10)):
            for _ in range(2 * RATE // 10):
                self.submit(event("CLEARING"))
            self.now += 0.1
            await self.decide(RATE // 10)


def event(kind: str = "AUTHORIZATION", *, within_s: float | None = None) -> Submission:
    """Return an event that is submitted now. Events of a kind are parsed once: many are needed."""
    like = _parsed(kind, has_deadline=within_s is not None)
    body = {**like.body, "reference": str(new_id())}
    if within_s is not None:
        body["decideBy"] = (datetime.now(UTC) + timedelta(seconds=within_s)).isoformat()
    outcome = asyncio.get_running_loop().create_future()
    return replace(like, body=body, outcome=outcome)


@cache
def _parsed(kind: str, *, has_deadline: bool) -> Submission:
    fields: dict[str, Any] = {
        "type": kind,
        "source": "test",
        "reference": str(new_id()),
        "issuerTransactionToken": "T",
        "cardId": f"Card:{new_id()}",
        "amount": 1,
        "currency": "USD",
    }
    if has_deadline:
        fields["decideBy"] = datetime.now(UTC).isoformat()
    parsed = parse(fields, None, Lane.LIVE)
    assert isinstance(parsed, Submission), parsed.malformed
    return parsed


def in_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


@in_a_loop
async def test_an_authorization_that_would_wait_too_long_is_refused() -> None:
    queue = Queue()
    await queue.fill(1.5)

    with pytest.raises(OverloadedError):
        queue.submit(event(within_s=2))
    queue.submit(event(within_s=30))
    queue.submit(event())  # Without a deadline nothing is late.


@in_a_loop
async def test_what_would_be_refused_is_refused_before_it_is_read() -> None:
    """At twice the capacity, the process had no time left for what it had admitted."""
    queue = Queue()
    await queue.fill(1.5)
    soon = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()
    late = {"type": "AUTHORIZATION", "decideBy": soon}  # Nothing else of it is looked at.

    with pytest.raises(OverloadedError):
        queue.admission.refuse_unread([late])
    with pytest.raises(OverloadedError):
        queue.admission.refuse_unread([late, late])


def test_a_client_asks_before_it_reads_in_the_live_lane_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class ReadError(Exception):
        """An event was read."""

    def read(*_: object) -> None:
        raise ReadError

    def refuse(*_: object) -> None:
        raise OverloadedError

    client = Client(
        create_async_engine("postgresql+psycopg://ada@127.0.0.1:1/none"),
        "redis://127.0.0.1:1/0",
        secret_key="k" * 32,
    )
    monkeypatch.setattr(parsing, "parse", read)
    monkeypatch.setattr(Admission, "refuse_unread", refuse)

    with pytest.raises(OverloadedError):
        client.put([{}], None, Lane.LIVE)
    with pytest.raises(ReadError):
        client.put([{}], None, Lane.BULK)


@pytest.mark.parametrize(
    "other",
    [
        {"type": "CLEARING"},
        {"type": "AUTHORIZATION"},
        {"type": "AUTHORIZATION", "decideBy": "soon"},
        {"type": "AUTHORIZATION", "decideBy": "2026-01-01T00:00:00"},
        {"type": "AUTHORIZATION", "decideBy": 2},
        {"type": ["AUTHORIZATION"]},
        {},
        None,
        "AUTHORIZATION",
    ],
)
def test_what_cannot_be_judged_unread_is_read(other: object) -> None:
    @in_a_loop
    async def judge() -> None:
        queue = Queue()
        await queue.fill(1.5)
        queue.admission.refuse_unread([other])

    judge()


@in_a_loop
async def test_the_time_left_is_counted_by_the_clock_of_postgresql() -> None:
    """By the clock of the process, one 20 s ahead refused authorizations that were in time."""
    queue = Queue()
    await queue.fill(1.5)
    queue.ahead = timedelta(seconds=-28)  # This process is ahead of PostgreSQL.

    queue.submit(event(within_s=2))

    queue.ahead = timedelta(seconds=28)
    with pytest.raises(OverloadedError):
        queue.submit(event(within_s=30))


@in_a_loop
async def test_what_has_happened_is_never_refused() -> None:
    queue = Queue()
    await queue.fill(3)

    for kind in ("CLEARING", "RETURN", "STAND_IN_AUTHORIZATION", "AUTHORIZATION_REVERSAL"):
        queue.submit(event(kind))
    queue.submit(event(within_s=2), event("CLEARING"))  # Submitted together: all or none.


@in_a_loop
async def test_authorizations_are_accepted_again_once_the_queue_is_shorter() -> None:
    queue = Queue()
    await queue.fill(1.5)
    with pytest.raises(OverloadedError):
        queue.submit(event(within_s=2))

    for _ in range(8):
        queue.now += 0.1
        await queue.decide(RATE // 10)

    queue.submit(event(within_s=2))


@in_a_loop
async def test_a_burst_after_a_quiet_time_is_accepted() -> None:
    queue = Queue()
    queue.submit(event(within_s=2))
    await queue.decide(1)
    queue.now += 60

    for _ in range(RATE):
        queue.submit(event(within_s=2))
        queue.now += 0.0001


@in_a_loop
async def test_a_few_events_that_cannot_be_decided_refuse_nothing() -> None:
    queue = Queue()
    for _ in range(ALWAYS_ADMITTED - 1):
        queue.submit(event())
    queue.now += 60

    queue.submit(event(within_s=2))


@in_a_loop
async def test_events_of_a_locked_cardholder_refuse_nothing_while_others_are_decided() -> None:
    """A hundred of them had every authorization refused while fewer a second were decided."""
    queue = Queue()
    for _ in range(2 * ALWAYS_ADMITTED):
        queue.submit(event())
    locked, queue.undecided = queue.undecided, []
    for _ in range(60):
        queue.now += 0.2
        queue.submit(event("CLEARING"))
        await queue.decide(1)

    queue.submit(event(within_s=2))
    queue.undecided = locked
    await queue.decide(len(locked))


@in_a_loop
async def test_one_authorization_a_second_shows_whether_the_engine_decides_again() -> None:
    """When all that waited were of a locked cardholder, the refusals had kept refusing."""
    queue = Queue()
    for _ in range(ALWAYS_ADMITTED):
        queue.submit(event("CLEARING"))
    queue.now += 60

    queue.submit(event(within_s=2))
    queue.now += 0.5
    with pytest.raises(OverloadedError):
        queue.submit(event(within_s=2))
    queue.now += 1
    queue.submit(event(within_s=2))


@in_a_loop
async def test_when_nothing_is_decided_any_more_authorizations_are_refused() -> None:
    queue = Queue()
    for _ in range(ALWAYS_ADMITTED):
        queue.submit(event(within_s=2))
    queue.now += 1

    with pytest.raises(OverloadedError):
        queue.submit(event(within_s=2))


@in_a_loop
async def test_what_callers_gave_up_is_not_counted_as_decided() -> None:
    queue = Queue()
    for _ in range(2 * ALWAYS_ADMITTED):
        queue.submit(event(within_s=2))
    queue.now += 1

    for submission in queue.undecided[:ALWAYS_ADMITTED]:
        submission.outcome.cancel()
    await asyncio.sleep(0)

    with pytest.raises(OverloadedError):
        queue.submit(event(within_s=2))


@in_a_loop
async def test_the_number_of_undecided_authorizations_has_a_limit() -> None:
    queue = Queue()
    for _ in range(UNDECIDED_LIMIT):
        queue.submit(event("CLEARING"))

    with pytest.raises(OverloadedError):
        queue.submit(event())
    queue.submit(event("CLEARING"))


@in_a_loop
async def test_what_one_platform_may_have_undecided_refuses_nothing_of_another() -> None:
    """As many events as refuse the authorizations of all were what one platform might have."""
    queue = Queue()
    for _ in range(UNDECIDED_IN_ALL[Lane.LIVE]):
        queue.submit(event("CLEARING"))
    queue.now += 60

    queue.submit(event())
    queue.now += 2
    queue.submit(event(within_s=2))


@in_a_loop
async def test_events_that_were_overtaken_refuse_nothing_however_many_they_are() -> None:
    queue = Queue()
    for _ in range(UNDECIDED_LIMIT):
        queue.submit(event("CLEARING"))
    stalled, queue.undecided = queue.undecided, []
    queue.now += 6
    queue.submit(event("CLEARING"))
    await queue.decide(1)

    queue.submit(event())
    queue.submit(event(within_s=2))
    queue.undecided = stalled
    await queue.decide(len(stalled))


@pytest.mark.parametrize("factor", [1, 2, 3, 10])
def test_at_several_times_the_capacity_nine_tenths_of_it_are_decided_in_time(factor: int) -> None:
    seconds, tick_s, deadline_s = 20, 0.01, 2.0
    per_tick = int(RATE * tick_s)

    @in_a_loop
    async def goodput() -> None:
        queue, due, in_time = Queue(), deque[float](), 0
        for _ in range(int(seconds / tick_s)):
            submitted = event(within_s=deadline_s)
            for _ in range(factor * per_tick):
                with suppress(OverloadedError):  # Refused, it was not counted: it comes again.
                    queue.submit(submitted)
                    due.append(queue.now + deadline_s)
                    submitted = event(within_s=deadline_s)
            queue.now += tick_s
            decided = [due.popleft() for _ in range(min(per_tick, len(due)))]
            in_time += sum(queue.now <= deadline for deadline in decided)
            await queue.decide(per_tick)

        assert in_time >= 0.9 * RATE * seconds

    goodput()


def test_over_http_a_refusal_says_when_to_retry() -> None:
    app = FastAPI()
    errors.install(app)
    handler: Any = app.exception_handlers[OverloadedError]

    response = asyncio.run(handler(None, OverloadedError("full")))

    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert b'"SERVICE_UNAVAILABLE"' in response.body
