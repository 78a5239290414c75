"""A client that stops writes the reversals of approvals whose callers were told otherwise."""

import asyncio
from asyncio import Future
from collections.abc import Iterator, MutableMapping, Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
import structlog
from structlog.testing import capture_logs

from cardledger.ledger.messaging.inbox import UNROUTED, Lane, Message
from cardledger.ledger.messaging.timeout_reversals import TIMEOUT_REVERSAL
from cardledger.ledger.storage.database_clock import elapsed_s
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.wire.outcomes import Outcome, OutcomeType
from cardledger.workers.client import Client, UnavailableError
from cardledger.workers.client.parsing import Submission
from cardledger.workers.client.timeout_reversals import TimeoutReversals
from tests.waiting import limit_s
from tests.world import SECRET_KEY

NOWHERE = "postgresql://client@127.0.0.1:1/none"
NO_REDIS = "redis://127.0.0.1:1/0"


Lines = list[MutableMapping[str, Any]]


@pytest.fixture
def logs() -> Iterator[Lines]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.BoundLogger)
    with capture_logs() as captured:
        yield captured
    structlog.configure(**before)


class Inbox:
    """Takes what `TimeoutReversals` writes, after it has failed some times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, failures: int) -> None:
        self.accepted: list[Message] = []
        self.attempts = 0
        self._failures = failures
        monkeypatch.setattr(TimeoutReversals, "_accept", lambda _, sent: self._accept(sent))

    async def _accept(self, messages: Sequence[Message]) -> None:
        self.attempts += 1
        if self.attempts <= self._failures:
            raise psycopg.OperationalError("the server is being promoted")
        self.accepted += messages


def authorization() -> Message:
    reference = str(new_id())
    body: dict[str, Any] = {
        "type": "AUTHORIZATION",
        "source": "visa",
        "reference": reference,
        "issuerTransactionToken": "T1",
        "cardId": str(new_id()),
        "currency": "USD",
    }
    return Message(
        lane=Lane.LIVE,
        shard=0,
        id=new_id(),
        customer_id=UNROUTED.customer_id,
        platform_id=UNROUTED.platform_id,
        source="visa",
        reference=reference,
        body=body,
        body_hash=b"",
        reply_to=None,
        received_at=datetime.now(UTC),
    )


def client_without_servers() -> Client:
    return Client(async_engine(NOWHERE), NO_REDIS, secret_key=SECRET_KEY)


async def closed(reversed_one: Message, within_s: float) -> "Future[None]":
    """Close a queue that has the reversal of `reversed_one`; return what tells it is durable."""
    reversals = client_without_servers()._reversals
    durable = reversals.put(reversed_one)
    await reversals.close(within_s)
    with pytest.raises(UnavailableError, match="stopped"):
        await reversals.put(reversed_one)
    return durable


def test_writes_that_fail_while_a_client_stops_are_repeated(
    monkeypatch: pytest.MonkeyPatch, logs: Lines
) -> None:
    inbox = Inbox(monkeypatch, failures=2)

    async def is_durable() -> bool:
        return (await closed(authorization(), limit_s())).done()

    assert asyncio.run(is_durable())
    assert [message.body["type"] for message in inbox.accepted] == [TIMEOUT_REVERSAL]
    assert "timeout reversals may not be written" not in {line["event"] for line in logs}


def test_what_cannot_be_written_in_time_is_logged(
    monkeypatch: pytest.MonkeyPatch, logs: Lines
) -> None:
    inbox = Inbox(monkeypatch, failures=1_000)
    lost = authorization()

    async def is_durable() -> bool:
        return (await closed(lost, 0.35)).done()

    assert not asyncio.run(is_durable())
    [line] = [line for line in logs if line["event"] == "timeout reversals may not be written"]
    assert line["log_level"] == "error"
    assert line["authorizations"] == [("visa", lost.reference, lost.body["cardId"])]
    assert inbox.attempts > 1


def test_what_a_deadline_settles_while_a_client_stops_is_reversed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its reversal was queued when the last had been written."""
    inbox = Inbox(monkeypatch, failures=0)

    async def outcome() -> Outcome:
        client = client_without_servers()
        late = authorization()
        future: Future[Any] = asyncio.get_running_loop().create_future()
        submission = Submission(late.body, None, Lane.LIVE, future, message=late)
        client._reversing.start(client._reversals.write_next)
        client._deadlines._expire(submission, elapsed_s())
        await client.stop()
        return submission.outcome.result()

    reported = asyncio.run(outcome())

    assert [message.body["type"] for message in inbox.accepted] == [TIMEOUT_REVERSAL]
    assert (reported.outcome, reported.reason) == (OutcomeType.DECLINED, "DECISION_TIMEOUT")
