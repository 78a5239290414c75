"""Responses to requests for approval, which a worker reads a page at a time."""

import re
from collections.abc import Iterator

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.payments import approvals, requests
from cardledger.ledger.payments.approvals import ApprovalAnswers
from cardledger.ledger.payments.messages import Arrival
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import connections
from cardledger.schema.ids import Id
from cardledger.schema.wire.webhooks.envelope import WebhookType
from tests.due import enqueue_due
from tests.integration.test_forged_payments import ANSWERED
from tests.payments import Desk
from tests.world import INBOX_KEY, Cardholder, World, open_world


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    """A world whose books are proved once everything has happened in it."""
    with open_world(database_url, app_database_url) as made:
        yield made
        report = made.verify()
        assert report.holds, report.differences


@pytest.fixture(scope="module")
def desk(world: World) -> Desk:
    return Desk(world)


def arrived(desk: Desk, receiver: Cardholder) -> Id:
    """Return a payment that has arrived, and whose platform has answered 200."""
    payment = Arrival(
        id=new_id(),
        owner=receiver.owner,
        account_id=receiver.account_id,
        amount=100,
        currency="USD",
        needs_approval=True,
    )

    async def receive(connection: AsyncConnection) -> None:
        await requests.receive(connection, payment, inbox_key=INBOX_KEY, reply_to=None, at=desk.now)

    desk.written(receiver.owner.platform_id, receive)
    desk.drain()
    desk.world.connection.execute(
        ANSWERED,
        {
            "platform": receiver.owner.platform_id,
            "customer": receiver.owner.customer_id,
            "payment": payment.id,
        },
    )
    return payment.id


def test_a_page_of_payments_that_cannot_be_decided_keeps_no_others_back(
    world: World, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their messages wait in the inbox, as those of an account that another session has locked."""
    monkeypatch.setattr("cardledger.ledger.payments.approvals.PAGE_LIMIT", 2)
    receivers = [world.cardholder(world.platform(), 0) for _ in range(3)]
    payments = [arrived(desk, receiver) for receiver in receivers]
    answers = ApprovalAnswers(INBOX_KEY)

    written = []
    for _ in range(4):
        with connections.connect(world.url) as connection:
            written.append(enqueue_due(connection, answers, desk.now))
    waiting = [desk.stored(payment).status for payment in payments]
    desk.drain()

    assert written == [2, 1, 0, 0]
    assert waiting == ["PENDING"] * 3
    assert [desk.stored(payment).status for payment in payments] == ["COMPLETED"] * 3
    assert [world.balance(receiver) for receiver in receivers] == [100] * 3


def test_a_page_of_answers_is_read_from_its_place_in_an_index(world: World) -> None:
    with connections.connect(world.url) as connection:
        connection.execute("SET LOCAL enable_seqscan = off")
        arguments = [WebhookType.INCOMING_PAYMENT_PENDING.value, *approvals._FIRST, 500]
        plan = connection.execute(f"EXPLAIN {approvals._ANSWERED}".encode(), arguments)
        text = "\n".join(line for (line,) in plan)

    _, _, scan = text.partition("using transfers_approval_idx")
    assert re.match(r".*\n +Index Cond: \(created_at >=", scan), text
