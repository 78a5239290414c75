"""Payments that arrive and need the platform's approval: the response to a webhook decides."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from cardledger.api.app import ApiConfig
from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.messaging.inbox import Owner
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.payments import requests
from cardledger.ledger.payments.messages import Arrival
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from cardledger.schema.roles import Role
from cardledger.webhooks.receiver import Listener, Reply
from tests.api.payments.support import Payer, payer, settled
from tests.api.support import (
    SECRET_KEY,
    Api,
    at_once,
    made,
    new_tenant,
    ok,
    refused,
    webhooks,
)
from tests.databases import as_role
from tests.waiting import eventually, limit_s

ASKED = "INCOMING_PAYMENT.PENDING"
NOT_PENDING = "TRANSACTION_NOT_PENDING_PLATFORM_APPROVAL"


@dataclass(frozen=True)
class Scene:
    """A payer of a platform of its own, to whom money is sent from outside."""

    payer: Payer
    config: ApiConfig

    @property
    def api(self) -> Api:
        return self.payer.api

    def arrives(self, amount: int = 400, fields: list[str] | None = None) -> dict[str, Any]:
        """Return the transaction of money that has arrived from outside."""
        key = new_id()
        platform_id = self.api.tenant.platform_id
        arrival = Arrival(
            id=key,
            owner=Owner(id_in(self.payer.customer_id), platform_id),
            account_id=id_in(self.payer.account_id),
            amount=amount,
            currency="USD",
            needs_approval=True,
            uma_address="$success.usd@sandbox.uma.money",
            requested_fields=fields,
        )

        async def send() -> None:
            engine = async_engine(as_role(self.config.database_url, Role.APP))
            async with engine.begin() as connection:
                await requests.receive(
                    connection,
                    arrival,
                    inbox_key=InboxKey(SECRET_KEY),
                    reply_to=None,
                    at=datetime.now(UTC),
                )
            await engine.dispose()

        asyncio.run(send())
        path = f"/transactions/Transaction:{key}"
        eventually(lambda: self.api.get(path).status_code == 200)
        return ok(self.api.get(path))


def id_in(public_id: str) -> Id:
    return Id.parse(public_id.partition(":")[2])


@pytest.fixture
def scene(root: str, api_config: ApiConfig) -> Iterator[Scene]:
    with Api(root, new_tenant(api_config.database_url)) as client:
        yield Scene(payer(client), api_config)


@contextmanager
def answering(api: Api, reply: Callable[[dict[str, Any]], Reply]) -> Iterator[list[str]]:
    """Let a receiver respond to requests for approval with `reply`; yields the types it got."""
    received: list[str] = []

    def take(_: dict[str, str], body: bytes) -> Reply:
        content = json.loads(body)
        received.append(content["type"])
        return reply(content["data"]) if content["type"] == ASKED else Reply()

    with Listener(take) as listener:
        ok(api.patch("/config", {"webhookEndpoint": listener.url}))
        yield received


def answer(status: int, body: object = None) -> Callable[[dict[str, Any]], Reply]:
    content = b"" if body is None else json.dumps(body).encode()
    return lambda _: Reply(status=status, body=content)


# --- the response decides ----------------------------------------------------------------------


def test_the_webhook_has_the_whole_payment_and_what_is_requested(
    scene: Scene, database_url: DatabaseUrl
) -> None:
    asked: list[dict[str, Any]] = []

    def reply(data: dict[str, Any]) -> Reply:
        asked.append(data)
        return Reply(status=403)

    with answering(scene.api, reply):
        arrived = scene.arrives(400, ["FULL_NAME"])
        settled(scene.api, arrived, "REJECTED")

    [data] = asked
    assert (data["type"], data["status"]) == ("INCOMING", "PENDING")
    assert data["id"] == arrived["id"]
    assert data["receivedAmount"]["amount"] == 400
    assert data["source"]["umaAddress"] == "$success.usd@sandbox.uma.money"
    assert data["requestedReceiverCustomerInfoFields"] == [{"name": "FULL_NAME", "mandatory": True}]
    assert webhooks(database_url, arrived["id"], 2)[1][0] == "INCOMING_PAYMENT.FAILED"


def test_200_approves_and_the_account_is_credited(scene: Scene, database_url: DatabaseUrl) -> None:
    with answering(scene.api, answer(200)) as received:
        done = settled(scene.api, scene.arrives(), "COMPLETED")
        sent = [kind for kind, _ in webhooks(database_url, done["id"], 2)]

    assert scene.payer.balance() == 1_400
    assert sent == [ASKED, "INCOMING_PAYMENT.COMPLETED"]
    assert received.count(ASKED) == 1


def test_200_with_what_was_requested_approves(scene: Scene) -> None:
    given = {"receiverCustomerInfo": {"FULL_NAME": "Ada Lovelace"}}

    with answering(scene.api, answer(200, given)):
        settled(scene.api, scene.arrives(fields=["FULL_NAME"]), "COMPLETED")

    assert scene.payer.balance() == 1_400


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (200, {"receiverCustomerInfo": {}}, "MISSING_MANDATORY_PAYEE_DATA"),
        (200, "Ada", "MISSING_MANDATORY_PAYEE_DATA"),
        (422, {"requiredFields": ["NATIONALITY"]}, "MISSING_MANDATORY_PAYEE_DATA"),
        (400, None, "PAYMENT_APPROVAL_WEBHOOK_ERROR"),
        (409, None, "PAYMENT_APPROVAL_WEBHOOK_ERROR"),
        (500, None, "PAYMENT_APPROVAL_WEBHOOK_ERROR"),
        (302, None, "PAYMENT_APPROVAL_WEBHOOK_ERROR"),
    ],
)
def test_any_other_response_fails_the_payment_with_a_reason(
    scene: Scene, status: int, body: object, reason: str
) -> None:
    with answering(scene.api, answer(status, body)) as received:
        failed = settled(scene.api, scene.arrives(fields=["FULL_NAME"]), "FAILED")
        eventually(lambda: "INCOMING_PAYMENT.FAILED" in received)

    assert failed["failureReason"] == reason
    assert scene.payer.balance() == 1_000
    assert received.count(ASKED) == 1  # It is not sent again.


def test_403_rejects_with_the_words_of_the_platform(scene: Scene) -> None:
    with answering(scene.api, answer(403, {"reason": "unknown sender \u0000", "code": "X"})):
        rejected = settled(scene.api, scene.arrives(), "REJECTED")

    assert rejected["rejectionReason"] == "unknown sender "
    assert "failureReason" not in rejected
    assert scene.payer.balance() == 1_000


def test_no_connection_fails_the_payment(scene: Scene) -> None:
    with Listener(lambda _headers, _body: Reply()) as listener:
        url = listener.url
    ok(scene.api.patch("/config", {"webhookEndpoint": url}))

    failed = settled(scene.api, scene.arrives(), "FAILED")

    assert failed["failureReason"] == "PAYMENT_APPROVAL_WEBHOOK_ERROR"


def test_no_response_in_time_fails_the_payment(scene: Scene) -> None:
    is_over = threading.Event()

    def never(_: dict[str, Any]) -> Reply:
        is_over.wait(limit_s())
        return Reply()

    with answering(scene.api, never):
        try:
            failed = settled(scene.api, scene.arrives(), "FAILED")
        finally:
            is_over.set()

    assert failed["failureReason"] == "PAYMENT_APPROVAL_TIMED_OUT"
    assert scene.payer.balance() == 1_000


def test_without_an_endpoint_and_a_decision_the_payment_fails(scene: Scene) -> None:
    failed = settled(scene.api, scene.arrives(), "FAILED")

    assert failed["failureReason"] == "PAYMENT_APPROVAL_TIMED_OUT"
    assert scene.payer.balance() == 1_000


def test_only_the_response_of_the_configured_endpoint_decides(scene: Scene) -> None:
    with Listener(lambda _headers, _body: Reply()) as other:
        made(scene.api.post("/webhooks/endpoints", {"url": other.url}))
        with answering(scene.api, answer(403)):
            settled(scene.api, scene.arrives(), "REJECTED")

    assert scene.payer.balance() == 1_000


# --- 202: the platform decides within five seconds ----------------------------------------------


def test_after_202_the_platform_approves(scene: Scene) -> None:
    with answering(scene.api, answer(202)) as received:
        arrived = scene.arrives(fields=["FULL_NAME"])
        eventually(lambda: ASKED in received)
        path = f"/transactions/{arrived['id']}/approve"
        refusal = refused(scene.api.http.post(path), 400, "MISSING_MANDATORY_USER_INFO")
        given = {"receiverCustomerInfo": {"FULL_NAME": "Ada Lovelace"}}
        approved = ok(scene.api.post(path, given))

    assert refusal["details"]["errors"][0]["field"] == "receiverCustomerInfo.FULL_NAME"
    assert approved["status"] == "COMPLETED"
    assert scene.payer.balance() == 1_400
    refused(scene.api.post(path, given), 409, NOT_PENDING)


def test_after_202_the_platform_rejects(scene: Scene) -> None:
    with answering(scene.api, answer(202)) as received:
        arrived = scene.arrives()
        eventually(lambda: ASKED in received)
        path = f"/transactions/{arrived['id']}/reject"
        rejected = ok(scene.api.post(path, {"reason": "unknown sender"}))

    assert (rejected["status"], rejected["rejectionReason"]) == ("REJECTED", "unknown sender")
    assert scene.payer.balance() == 1_000


def test_after_202_without_a_decision_the_payment_is_rejected(scene: Scene) -> None:
    with answering(scene.api, answer(202)):
        rejected = settled(scene.api, scene.arrives(), "REJECTED")

    assert "5 seconds" in rejected["rejectionReason"]
    assert scene.payer.balance() == 1_000


def test_of_many_decisions_at_once_one_counts(scene: Scene) -> None:
    with answering(scene.api, answer(202)) as received:
        arrived = scene.arrives()
        eventually(lambda: ASKED in received)
        steps = iter(["approve", "reject"] * 4)
        answers = at_once(
            8, lambda: scene.api.http.post(f"/transactions/{arrived['id']}/{next(steps)}")
        )

    won = [one for one in answers if one.status_code == 200]
    assert {one.json()["status"] for one in won} in ({"COMPLETED"}, {"REJECTED"})
    lost = [one for one in answers if one.status_code != 200]
    for one in lost:
        refused(one, 409, NOT_PENDING)
    is_approved = won[0].json()["status"] == "COMPLETED"
    assert scene.payer.balance() == (1_400 if is_approved else 1_000)


def test_another_platform_does_not_decide(scene: Scene, other_platform: Api) -> None:
    with answering(scene.api, answer(202)) as received:
        arrived = scene.arrives()
        eventually(lambda: ASKED in received)
        path = f"/transactions/{arrived['id']}/approve"
        refused(other_platform.http.post(path), 404, "TRANSACTION_NOT_FOUND")
        ok(scene.api.http.post(path))

    assert scene.payer.balance() == 1_400


def test_a_payment_that_awaits_approval_cannot_be_cancelled(scene: Scene) -> None:
    with answering(scene.api, answer(202)) as received:
        arrived = scene.arrives()
        eventually(lambda: ASKED in received)
        path = f"/transactions/{arrived['id']}"
        refused(scene.api.http.post(f"{path}/cancel"), 400, "INVALID_INPUT")
        ok(scene.api.http.post(f"{path}/reject"))
