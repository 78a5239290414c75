"""Transfers of agents to and from external accounts, within their policies."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from cardledger.embedded.servers import DatabaseUrl
from tests.api.payments.support import Payer, bank, payer, settled
from tests.api.support import AgentApi, Api, made, ok, redeem, refused, webhooks

OUT = "/agents/me/transfer-out"
IN = "/agents/me/transfer-in"


@dataclass(frozen=True)
class Scene:
    """A payer, and an agent that acts for it."""

    payer: Payer
    agent: AgentApi

    def asks(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return made(self.agent.post(path, body))


def collection(ada: Payer, bank_id: str, amount: int = 400) -> dict[str, Any]:
    return {
        "source": {"accountId": bank_id},
        "destination": {"accountId": ada.account_id},
        "amount": amount,
    }


def scene_of(api: Api, **policy: object) -> Scene:
    ada = payer(api)
    allowed = {
        "permissions": ["VIEW_TRANSACTIONS", "CREATE_TRANSFERS", "MANAGE_EXTERNAL_ACCOUNTS"],
        "defaultExecutionMode": "AUTO",
        "spendingLimits": {"currency": "USD", "perTransactionLimit": 1_000_000},
    }
    wanted = {"name": "Payer", "customerId": ada.customer_id, "policy": allowed | policy}
    code = made(api.post("/agents", wanted))["deviceCode"]["code"]
    return Scene(ada, AgentApi(api.root, ok(redeem(api.root, code))["accessToken"]))


@pytest.fixture
def scene(api: Api) -> Iterator[Scene]:
    with (scene := scene_of(api)).agent:
        yield scene


@pytest.fixture
def careful(api: Api) -> Iterator[Scene]:
    with (scene := scene_of(api, defaultExecutionMode="APPROVAL_REQUIRED")).agent:
        yield scene


def test_an_agent_pays_a_bank_of_its_customer(scene: Scene) -> None:
    bank_id = scene.payer.bank()

    action = scene.asks(OUT, scene.payer.out(bank_id, 400))

    assert (action["status"], action["type"]) == ("APPROVED", "TRANSFER_OUT")
    assert action["transferDetails"]["destinationAccountId"] == bank_id
    paid = action["transaction"]
    assert (paid["status"], paid["agentId"]) == ("COMPLETED", action["agentId"])
    assert scene.payer.balance() == 600
    assert ok(scene.agent.get(f"/agents/me/transactions/{paid['id']}")) == paid
    listed = ok(scene.agent.get("/agents/me/transactions", accountIdentifier=bank_id))
    assert listed["data"] == [paid]


def test_an_agent_collects_from_a_bank_of_its_customer(scene: Scene) -> None:
    action = scene.asks(IN, collection(scene.payer, scene.payer.bank()))

    assert (action["status"], action["type"]) == ("APPROVED", "TRANSFER_IN")
    arrived = settled(scene.payer.api, action["transaction"], "COMPLETED")
    assert (arrived["type"], arrived["agentId"]) == ("INCOMING", action["agentId"])
    assert scene.payer.balance() == 1_400


def test_a_payment_that_fails_ends_the_action_as_failed(scene: Scene) -> None:
    action = scene.asks(OUT, scene.payer.out(scene.payer.bank("004")))
    poor = scene.asks(OUT, scene.payer.out(scene.payer.bank(), 1_001))

    assert (action["status"], action["transaction"]["status"]) == ("FAILED", "FAILED")
    assert action["transaction"]["refund"]["status"] == "COMPLETED"
    assert poor["transaction"]["failureReason"] == "INSUFFICIENT_FUNDS"
    assert scene.payer.balance() == 1_000


@pytest.mark.parametrize("path", [OUT, IN])
def test_a_payment_that_needs_an_approval_moves_nothing_until_then(
    careful: Scene, database_url: DatabaseUrl, path: str
) -> None:
    ada, bank_id = careful.payer, careful.payer.bank()
    body = ada.out(bank_id) if path == OUT else collection(ada, bank_id)

    action = careful.asks(path, body)

    assert action["status"] == "PENDING_APPROVAL"
    assert ada.balance() == 1_000
    [pending] = ok(ada.api.get("/transactions", customerId=ada.customer_id, status="PENDING"))[
        "data"
    ]
    assert ("AGENT_ACTION.PENDING_APPROVAL", action) in webhooks(
        database_url, pending["id"], 2 if path == OUT else 1
    )
    approved = ok(ada.api.http.post(f"/transactions/{pending['id']}/approve"))
    settled(ada.api, approved, "COMPLETED")
    assert ada.balance() == (600 if path == OUT else 1_400)


@pytest.mark.parametrize(
    ("path", "reason"), [(OUT, "ACCOUNT_CANNOT_RECEIVE"), (IN, "ACCOUNT_INVALID")]
)
def test_an_approval_fails_when_the_bank_account_was_deleted_before(
    careful: Scene, path: str, reason: str
) -> None:
    ada, bank_id = careful.payer, careful.payer.bank()
    action = careful.asks(path, ada.out(bank_id) if path == OUT else collection(ada, bank_id))
    assert ada.api.http.delete(f"/customers/external-accounts/{bank_id}").status_code == 204
    key = action["id"].replace("AgentAction", "Transaction")

    failed = ok(ada.api.http.post(f"/transactions/{key}/approve"))

    assert (failed["status"], failed["failureReason"]) == ("FAILED", reason)
    assert ada.balance() == 1_000


@pytest.mark.parametrize("step", ["reject", "cancel"])
def test_a_payment_that_awaits_an_approval_is_rejected_or_cancelled(
    careful: Scene, step: str
) -> None:
    ada = careful.payer
    action = careful.asks(OUT, ada.out(ada.bank()))
    key = action["id"].replace("AgentAction", "Transaction")

    ended = ok(ada.api.post(f"/transactions/{key}/{step}", {"reason": "not now"}))

    assert (ended["status"], ended["failureReason"]) == ("FAILED", "REJECTED_BY_PLATFORM")
    assert "refund" not in ended
    rejected = ok(careful.agent.get(f"/agents/me/actions/{action['id']}"))
    assert (rejected["status"], rejected["rejectionReason"]) == ("REJECTED", "not now")
    assert ada.balance() == 1_000


def test_a_policy_limits_payments_to_the_outside(api: Api) -> None:
    limits = {"currency": "USD", "perTransactionLimit": 100, "dailyLimit": 150}
    with (scene := scene_of(api, spendingLimits=limits)).agent:
        ada, bank_id = scene.payer, scene.payer.bank()
        scene.asks(OUT, ada.out(bank_id, 100))

        large = refused(scene.agent.post(OUT, ada.out(bank_id, 101)), 403, "FORBIDDEN")
        late = refused(scene.agent.post(IN, collection(ada, bank_id, 51)), 403, "FORBIDDEN")

    assert large["details"] == {"reason": "PER_TRANSACTION_LIMIT"}
    assert late["details"] == {"reason": "DAILY_LIMIT"}
    assert ada.balance() == 900


def test_a_policy_restricts_the_account_that_a_collection_credits(api: Api) -> None:
    with (scene := scene_of(api, accountRestrictions={"allowedAccountIds": []})).agent:
        ada, bank_id = scene.payer, scene.payer.bank()

        for path, body in ((OUT, ada.out(bank_id)), (IN, collection(ada, bank_id))):
            refusal = refused(scene.agent.post(path, body), 403, "FORBIDDEN")
            assert refusal["details"] == {"reason": "ACCOUNT_NOT_ALLOWED"}


def test_an_agent_reaches_no_account_of_others(scene: Scene, other_platform: Api) -> None:
    ada, bob = scene.payer, payer(scene.payer.api)
    platforms = bank(ada.api, "666")

    for foreign in (bob.bank(), platforms, payer(other_platform).bank()):
        refused(scene.agent.post(OUT, ada.out(foreign)), 404, "REFERENCE_NOT_FOUND")
        refused(scene.agent.post(IN, collection(ada, foreign)), 404, "REFERENCE_NOT_FOUND")
    refused(scene.agent.post(OUT, ada.out(bob.account_id)), 404, "REFERENCE_NOT_FOUND")
    stolen = ada.out(ada.bank("777"), source={"accountId": bob.account_id})
    refused(scene.agent.post(OUT, stolen), 404, "REFERENCE_NOT_FOUND")
    assert bob.balance() == 1_000
