"""Approvals of one call that are late are settled together."""

import asyncio
from asyncio import Future
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

from cardledger.ledger.messaging.inbox import UNROUTED, Lane, Message
from cardledger.ledger.storage.database_clock import elapsed_s
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.wire import outcomes
from cardledger.schema.wire.outcomes import Outcome, OutcomeType
from cardledger.workers.client import deadlines
from cardledger.workers.client.database_clock import DatabaseClock
from cardledger.workers.client.deadlines import Deadlines
from cardledger.workers.client.parsing import Submission
from cardledger.workers.client.timeout_reversals import TimeoutReversals

COUNT = 5


class Unwritten:
    """Timeout reversals that are queued and never written."""

    def __init__(self) -> None:
        self.queued: Counter[str] = Counter()

    def put(self, authorization: Message) -> "Future[None]":
        self.queued[authorization.reference] += 1
        return asyncio.get_running_loop().create_future()

    def has_queued(self, authorization: Mapping[str, Any]) -> bool:
        return authorization["reference"] in self.queued


def late(reference: str) -> Submission:
    """Return an authorization that was approved and whose deadline has passed since."""
    message = Message(
        lane=Lane.LIVE,
        shard=0,
        id=new_id(),
        customer_id=UNROUTED.customer_id,
        platform_id=UNROUTED.platform_id,
        source="visa",
        reference=reference,
        body={"type": "AUTHORIZATION", "source": "visa", "reference": reference},
        body_hash=b"",
        reply_to=None,
        received_at=datetime.now(UTC),
    )
    approved: Future[Outcome] = asyncio.get_running_loop().create_future()
    approved.set_result(outcomes.outcome(reference, OutcomeType.APPLIED))
    return Submission(
        body=message.body,
        platform_id=None,
        lane=Lane.LIVE,
        outcome=approved,
        report_by=elapsed_s() - 1,
        message=message,
    )


def test_reversals_of_late_approvals_are_queued_and_waited_for_together() -> None:
    reversals = Unwritten()

    async def reported() -> tuple[int, list[Outcome], float]:
        settling = Deadlines(cast(DatabaseClock, None), cast(TimeoutReversals, reversals))
        submissions = [late(f"r{number}") for number in range(COUNT)]
        began = elapsed_s()
        waiting = asyncio.create_task(settling.reported_each(submissions))
        for _ in range(2):  # Of the event loop: the task begins, and those that it starts.
            await asyncio.sleep(0)
        queued = len(reversals.queued)
        return queued, await waiting, elapsed_s() - began

    queued, found, took_s = asyncio.run(reported())

    assert queued == COUNT
    assert {each.outcome for each in found} == {OutcomeType.ACCEPTED}
    assert took_s < 2 * deadlines._DURABLE_WITHIN_S
