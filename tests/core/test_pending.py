"""Which pending messages are looked up when there are too many for one query."""

import asyncio
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from types import FrameType
from typing import Any

import pytest

from cardledger.ledger.messaging.inbox import Lane, Message
from cardledger.ledger.storage.database_clock import elapsed_s
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.wire.outcomes import Outcome, OutcomeType
from cardledger.workers.client.pending import PendingOutcomes
from tests.waiting import eventually

MANY = 3000


def message(lane: Lane) -> Message:
    return Message(
        lane=lane,
        shard=0,
        id=new_id(),
        customer_id=new_id(),
        platform_id=new_id(),
        source="visa",
        reference="r",
        body={},
        body_hash=b"",
        reply_to=None,
        received_at=datetime(2026, 1, 31, tzinfo=UTC),
    )


def waiting(pending: PendingOutcomes, lane: Lane, count: int = 1, **add: float) -> list[Message]:
    """Let `count` accepted messages of `lane` wait for their outcomes."""
    loop = asyncio.get_running_loop()
    messages = [message(lane) for _ in range(count)]
    for each in messages:
        pending.add(each, loop.create_future(), **add)
    pending.accepted(messages)
    return messages


def test_a_file_that_cannot_be_decided_does_not_hide_a_live_message() -> None:
    """Without Redis the same oldest thousand were looked up at every poll."""

    async def scenario() -> None:
        pending = PendingOutcomes()
        waiting(pending, Lane.BULK, MANY)
        live = waiting(pending, Lane.LIVE)

        assert pending.take_overdue(0)[0] == live[0]

    asyncio.run(scenario())


def test_each_message_has_its_turn() -> None:
    async def scenario() -> None:
        for lanes in ([Lane.LIVE], [Lane.BULK], [Lane.LIVE, Lane.BULK]):
            pending, seen = PendingOutcomes(), set()
            for lane in lanes:
                waiting(pending, lane, MANY)

            for _ in range(31):
                seen |= {each.id for each in pending.take_overdue(0)}

            assert len(seen) == MANY * len(lanes)

    asyncio.run(scenario())


def test_an_approval_whose_deadline_is_near_is_looked_up_first() -> None:
    async def scenario() -> None:
        pending = PendingOutcomes()
        waiting(pending, Lane.LIVE, MANY)
        [urgent] = waiting(pending, Lane.LIVE, report_by=elapsed_s())

        assert pending.take_overdue(0)[0] == urgent

    asyncio.run(scenario())


def test_what_is_not_overdue_takes_no_time() -> None:
    """Every poll went through all that was pending, which kept the event loop from requests."""

    async def scenario() -> None:
        pending = PendingOutcomes()
        waiting(pending, Lane.BULK, MANY)
        waiting(pending, Lane.LIVE, MANY, report_by=elapsed_s() + 3600)

        before = lines_of(lambda: pending.take_overdue(60))
        looked_up = pending.take_overdue(0, limit=2 * MANY)
        after = lines_of(lambda: pending.take_overdue(60))

        assert len(looked_up) == 2 * MANY
        assert max(before, after) < 100

    asyncio.run(scenario())


def lines_of(work: Callable[[], object]) -> int:
    """Return how many lines of Python `work` runs."""
    count = 0

    def trace(_: FrameType, event: str, __: object) -> Any:  # noqa: ANN401 - as `settrace` has it
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_what_is_not_committed_is_not_looked_up() -> None:
    async def scenario() -> None:
        pending = PendingOutcomes()
        future = asyncio.get_running_loop().create_future()
        pending.add(message(Lane.LIVE), future, report_by=elapsed_s())

        assert pending.take_overdue(0) == []

    asyncio.run(scenario())


def test_what_its_caller_abandons_is_forgotten() -> None:
    async def scenario() -> None:
        pending = PendingOutcomes()
        abandoned, failed = message(Lane.LIVE), message(Lane.BULK)
        futures = [asyncio.get_running_loop().create_future() for _ in range(2)]
        pending.add(abandoned, futures[0], report_by=elapsed_s())
        pending.accepted([abandoned])
        pending.add(failed, futures[1])

        futures[0].cancel()
        futures[1].set_result(Outcome(OutcomeType.IGNORED, b"{}"))
        await asyncio.sleep(0)  # Callbacks of futures run in the next turn of the loop.

        assert not pending
        assert pending.take_overdue(0) == []

    asyncio.run(scenario())


def test_deadlines_of_what_is_resolved_are_not_kept_until_they_pass() -> None:
    async def scenario() -> None:
        pending = PendingOutcomes()
        outcome = Outcome(OutcomeType.DECLINED, b"{}")
        for _ in range(5):
            in_years = waiting(pending, Lane.LIVE, MANY, report_by=elapsed_s() + 10**9)
            pending.resolve([(each.id, outcome) for each in in_years])
            pending.take_overdue(0)

        assert len(pending._deadlines) < MANY

    asyncio.run(scenario())


def test_an_approval_near_its_deadline_is_looked_up_until_it_is_resolved() -> None:
    async def scenario() -> None:
        pending = PendingOutcomes()
        [urgent] = waiting(pending, Lane.BULK, report_by=elapsed_s())

        first = pending.take_overdue(60)
        again = eventually(lambda: pending.take_overdue(60))

        assert first == again == [urgent]

    asyncio.run(scenario())


@pytest.mark.skipif(sys.platform != "linux", reason="its clock goes on during a suspension")
def test_an_approval_after_a_suspension_beyond_its_deadline_is_no_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clock stood still meanwhile: the approval was reported, an hour too late."""
    read = time.clock_gettime

    def after_an_hour(clock: int) -> float:
        return read(clock) + (3600 if clock == time.CLOCK_BOOTTIME else 0)

    async def scenario() -> None:
        pending = PendingOutcomes()
        [asked] = waiting(pending, Lane.LIVE, report_by=elapsed_s() + 60)

        monkeypatch.setattr(time, "clock_gettime", after_an_hour)
        approval = Outcome(OutcomeType.APPLIED, b"{}")
        assert not pending.resolve([(asked.id, approval)])

    asyncio.run(scenario())
