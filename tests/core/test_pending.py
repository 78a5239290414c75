"""Which pending messages are looked up when there are too many for one query."""

import asyncio
import sys
import time
from datetime import UTC, datetime

import pytest

from cardledger.ledger.messaging.inbox import Lane, Message
from cardledger.ledger.storage.database_clock import elapsed_s
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.wire.outcomes import Outcome, OutcomeType
from cardledger.workers.client.pending import PendingOutcomes

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
