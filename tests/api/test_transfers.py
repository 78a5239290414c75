"""Transfers that agents ask for, what platforms say to them, and the list of all transactions."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from cardledger.api.app import ApiConfig
from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.audit.verification import verify
from cardledger.ledger.storage.engines import sync_engine
from cardledger.ledger.storage.ids import new_id
from tests.api.support import (
    AgentApi,
    Api,
    made,
    new_tenant,
    ok,
    redeem,
    refused,
    webhooks,
)
from tests.waiting import eventually

POLICY: dict[str, Any] = {
    "permissions": ["VIEW_TRANSACTIONS", "CREATE_TRANSFERS", "MANAGE_EXTERNAL_ACCOUNTS"],
    "defaultExecutionMode": "AUTO",
    "spendingLimits": {"currency": "USD", "perTransactionLimit": 1_000_000},
}
OUT = "/agents/me/transfer-out"
IN = "/agents/me/transfer-in"
NOT_PENDING = "TRANSACTION_NOT_PENDING_PLATFORM_APPROVAL"


@dataclass(frozen=True)
class Scene:
    """A customer with 1,000 on an account and nothing on another, and one of its agents."""

    api: Api
    agent: AgentApi
    agent_id: str
    customer_id: str
    source: str
    destination: str

    def body(self, amount: int = 400, **sent_body: object) -> dict[str, Any]:
        return {
            "source": {"accountId": self.source},
            "destination": {"accountId": self.destination},
            "amount": amount,
        } | sent_body

    def asks(self, amount: int = 400, **sent_body: object) -> dict[str, Any]:
        return made(self.agent.post(OUT, self.body(amount, **sent_body)))

    def waiting(self, amount: int = 400) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return an action that waits for approval, and its transaction."""
        action = self.asks(amount)
        assert action["status"] == "PENDING_APPROVAL"
        listed = ok(self.api.get("/transactions", customerId=self.customer_id, status="PENDING"))
        return action, listed["data"][0]

    def balances(self) -> tuple[int, int]:
        listed = ok(self.api.get("/customers/internal-accounts", customerId=self.customer_id))
        by_id = {one["id"]: one["balance"]["amount"] for one in listed["data"]}
        return by_id[self.source], by_id[self.destination]

    def change_policy(self, **policy: object) -> None:
        ok(self.api.patch(f"/agents/{self.agent_id}/policy", policy))

    def action_path(self, action: dict[str, Any]) -> str:
        return f"/agents/{self.agent_id}/actions/{action['id']}"


def scene_of(api: Api, **policy: object) -> Scene:
    customer = api.customer()
    source = api.account(customer["id"])
    opened = {"customerId": customer["id"], "currency": "USD"}
    destination = made(api.post("/customers/internal-accounts", opened))
    api.fund(source["id"], 1_000)
    asked = {"name": "Saver", "customerId": customer["id"], "policy": POLICY | policy}
    created = made(api.post("/agents", asked))
    token = ok(redeem(api.root, created["deviceCode"]["code"]))["accessToken"]
    return Scene(
        api,
        AgentApi(api.root, token),
        created["agent"]["id"],
        customer["id"],
        source["id"],
        destination["id"],
    )


@pytest.fixture(scope="module", autouse=True)
def books(root: str, database_url: DatabaseUrl) -> Iterator[None]:  # noqa: ARG001 - first the server
    """Prove the books once everything has happened."""
    yield
    engine = sync_engine(database_url)
    report = verify(engine)
    engine.dispose()
    assert report.holds, report.differences


@pytest.fixture
def scene(api: Api) -> Iterator[Scene]:
    """A scene whose agent moves money at once."""
    made_up = scene_of(api)
    with made_up.agent:
        yield made_up


@pytest.fixture
def careful(api: Api) -> Iterator[Scene]:
    """A scene whose agent has to wait for an approval."""
    made_up = scene_of(api, defaultExecutionMode="APPROVAL_REQUIRED")
    with made_up.agent:
        yield made_up


# --- at once -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "kind"), [(OUT, "TRANSFER_OUT"), (IN, "TRANSFER_IN")])
def test_a_transfer_within_the_policy_happens_at_once(scene: Scene, path: str, kind: str) -> None:
    sent_body = {"remittanceInformation": "rent of May", "purposeOfPayment": "SELF"}

    action = made(scene.agent.post(path, scene.body(400, **sent_body)))

    assert action["id"].startswith("AgentAction:")
    assert (action["status"], action["type"]) == ("APPROVED", kind)
    assert (action["agentId"], action["customerId"]) == (scene.agent_id, scene.customer_id)
    assert action["platformCustomerId"]
    assert action["transferDetails"] == {
        "amount": 400,
        "currency": "USD",
        "sourceAccountId": scene.source,
        "destinationAccountId": scene.destination,
    }
    transaction = action["transaction"]
    assert transaction["id"].startswith("Transaction:")
    assert (transaction["type"], transaction["direction"]) == ("OUTGOING", "DEBIT")
    assert transaction["status"] == "COMPLETED"
    assert transaction["source"] == {"sourceType": "ACCOUNT", "accountId": scene.source}
    assert transaction["destination"]["accountId"] == scene.destination
    assert transaction["sentAmount"]["amount"] == transaction["receivedAmount"]["amount"] == 400
    assert transaction["agentId"] == scene.agent_id
    assert transaction["settledAt"]
    assert transaction["remittanceInformation"] == "rent of May"
    assert transaction["purposeOfPayment"] == "SELF"
    assert scene.balances() == (600, 400)
    for reader in (scene.api.get("/transactions/" + transaction["id"]),
                   scene.agent.get("/agents/me/transactions/" + transaction["id"])):  # fmt: skip
        assert ok(reader) == transaction
    assert ok(scene.agent.get(f"/agents/me/actions/{action['id']}")) == action


def test_a_transfer_sends_a_webhook_for_each_status(
    scene: Scene, database_url: DatabaseUrl
) -> None:
    transaction = scene.asks()["transaction"]

    sent = webhooks(database_url, transaction["id"], 2)

    assert [kind for kind, _ in sent] == [
        "OUTGOING_PAYMENT.PROCESSING",
        "OUTGOING_PAYMENT.COMPLETED",
    ]
    assert sent[-1][1] == transaction


def test_a_lack_of_funds_is_a_transaction_that_failed(
    scene: Scene, database_url: DatabaseUrl
) -> None:
    action = scene.asks(1_001)

    assert (action["status"], action["transaction"]["status"]) == ("FAILED", "FAILED")
    assert action["transaction"]["failureReason"] == "INSUFFICIENT_FUNDS"
    assert scene.balances() == (1_000, 0)
    sent = webhooks(database_url, action["transaction"]["id"], 2)
    assert sent[-1] == ("OUTGOING_PAYMENT.FAILED", action["transaction"])
    # What failed does not count.
    assert ok(scene.agent.get("/agents/me"))["usage"]["dailySpend"] == 0


def test_what_an_agent_has_spent_is_shown(scene: Scene) -> None:
    scene.asks(100)
    scene.asks(50)

    usage = ok(scene.agent.get("/agents/me"))["usage"]

    assert (usage["dailyTransactionCount"], usage["dailySpend"]) == (2, 150)
    assert usage["monthlySpend"] == 150
    assert ok(scene.api.get(f"/agents/{scene.agent_id}"))["usage"] == usage


@pytest.mark.parametrize("path", [OUT, IN])
def test_a_transfer_with_a_key_happens_once_however_often_it_is_sent(
    scene: Scene, path: str
) -> None:
    def send(_: int) -> dict[str, Any]:
        answered = scene.agent.http.post(
            path, json=scene.body(10), headers={"Idempotency-Key": "the-rent"}
        )
        return made(answered)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(send, range(16)))

    assert all(one == answers[0] for one in answers)
    assert answers[0]["transaction"]["status"] == "PROCESSING"
    action = f"/agents/me/actions/{answers[0]['id']}"
    eventually(lambda: ok(scene.agent.get(action))["transaction"]["status"] == "COMPLETED")
    assert scene.balances() == (990, 10)


# --- refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"amount": None}, 400, "INVALID_AMOUNT"),
        ({"amount": 0}, 400, "INVALID_AMOUNT"),
        ({"amount": -1}, 400, "INVALID_AMOUNT"),
        ({"amount": 2**63}, 400, "INVALID_AMOUNT"),
        ({"amount": "5"}, 400, "INVALID_INPUT"),
        ({"amount": 1.5}, 400, "INVALID_INPUT"),
        ({"amount": True}, 400, "INVALID_INPUT"),
        ({"source": {}}, 400, "INVALID_INPUT"),
        ({"source": None}, 400, "INVALID_INPUT"),
        ({"source": {"accountId": "Card:" + str(uuid4())}}, 400, "INVALID_INPUT"),
        ({"source": {"accountId": 7}}, 400, "INVALID_INPUT"),
        ({"source": {"accountId": "InternalAccount:mine"}}, 400, "INVALID_INPUT"),
        ({"source": {"accountId": f"InternalAccount:{uuid4()}"}}, 404, "REFERENCE_NOT_FOUND"),
        ({"destination": {"accountId": f"InternalAccount:{uuid4()}"}}, 404, "REFERENCE_NOT_FOUND"),
        ({"destination": {"accountId": f"ExternalAccount:{uuid4()}"}}, 404, "REFERENCE_NOT_FOUND"),
        ({"remittanceInformation": "x" * 81}, 400, "INVALID_INPUT"),
        ({"remittanceInformation": "a\u0000b"}, 400, "INVALID_INPUT"),
        ({"purposeOfPayment": "FUN"}, 400, "INVALID_INPUT"),
        ({"urgent": True}, 400, "INVALID_INPUT"),
    ],
)
def test_an_invalid_transfer_is_refused(
    one: Scene, change: dict[str, Any], status: int, code: str
) -> None:
    body = one.body(400) | change

    refused(one.agent.post(OUT, body), status, code)

    assert ok(one.agent.get("/agents/me/actions"))["totalCount"] == 0


@pytest.fixture(scope="module")
def one(api: Api) -> Iterator[Scene]:
    """A scene in which nothing ever succeeds."""
    made_up = scene_of(api)
    with made_up.agent:
        yield made_up


def test_a_transfer_without_an_amount_is_refused(one: Scene) -> None:
    body = one.body()
    del body["amount"]

    refused(one.agent.post(OUT, body), 400, "INVALID_AMOUNT")


def test_an_account_cannot_pay_itself(one: Scene) -> None:
    body = one.body(destination={"accountId": one.source})

    refused(one.agent.post(OUT, body), 400, "SELF_PAYMENT")


def test_accounts_of_two_currencies_are_refused(one: Scene) -> None:
    euros = one.api.account(one.customer_id, "EUR")
    body = one.body(destination={"accountId": euros["id"]})

    refused(one.agent.post(OUT, body), 400, "INVALID_CURRENCY")


def test_a_rail_is_for_external_accounts(one: Scene) -> None:
    body = one.body(destination={"accountId": one.destination, "paymentRail": "ACH"})

    refused(one.agent.post(OUT, body), 400, "INVALID_INPUT")


def test_accounts_of_others_are_not_found(one: Scene, other_platform: Api) -> None:
    neighbour = one.api.account(one.api.customer()["id"])["id"]
    foreign = other_platform.account(other_platform.customer()["id"])["id"]

    for account_id in (neighbour, foreign):
        for side in ("source", "destination"):
            body = one.body() | {side: {"accountId": account_id}}
            refused(one.agent.post(OUT, body), 404, "REFERENCE_NOT_FOUND")


def test_a_limit_of_the_policy_is_forbidden_with_its_reason(api: Api) -> None:
    limits = {"currency": "USD", "perTransactionLimit": 100, "dailyLimit": 150}
    with (scene := scene_of(api, spendingLimits=limits)).agent:
        scene.asks(100)

        at_once = refused(scene.agent.post(OUT, scene.body(101)), 403, "FORBIDDEN")
        today = refused(scene.agent.post(OUT, scene.body(51)), 403, "FORBIDDEN")

    assert at_once["details"] == {"reason": "PER_TRANSACTION_LIMIT"}
    assert today["details"] == {"reason": "DAILY_LIMIT"}


def test_an_agent_without_the_permission_moves_nothing(api: Api) -> None:
    with (scene := scene_of(api, permissions=[])).agent:
        refusal = refused(scene.agent.post(OUT, scene.body()), 403, "FORBIDDEN")
        unseen = scene.agent.get("/agents/me/transactions")

    assert refusal["details"] == {"permission": "CREATE_TRANSFERS"}
    assert refused(unseen, 403, "FORBIDDEN")["details"] == {"permission": "VIEW_TRANSACTIONS"}


def test_a_paused_agent_cannot_transfer_but_lists_its_actions(scene: Scene) -> None:
    action = scene.asks(1)
    ok(scene.api.patch(f"/agents/{scene.agent_id}", {"isPaused": True}))

    refused(scene.agent.post(OUT, scene.body()), 403, "FORBIDDEN")

    assert ok(scene.agent.get("/agents/me/actions"))["data"] == [action]


def test_platforms_do_not_ask_as_agents(scene: Scene) -> None:
    refused(scene.api.post(OUT, scene.body()), 401, "UNAUTHORIZED")
    refused(scene.agent.get("/agents/approvals"), 401, "UNAUTHORIZED")


# --- with an approval --------------------------------------------------------------------------


def test_what_needs_an_approval_waits_and_moves_nothing(
    careful: Scene, database_url: DatabaseUrl
) -> None:
    action, transaction = careful.waiting()

    assert "transaction" not in action
    assert (transaction["status"], transaction["type"]) == ("PENDING", "OUTGOING")
    assert careful.balances() == (1_000, 0)
    sent = webhooks(database_url, transaction["id"], 2)
    assert sent == [
        ("OUTGOING_PAYMENT.PENDING", transaction),
        ("AGENT_ACTION.PENDING_APPROVAL", action),
    ]
    assert ok(careful.agent.get("/agents/me"))["usage"]["dailySpend"] == 400


def test_only_what_is_above_the_threshold_waits(api: Api) -> None:
    threshold = {"currency": "USD", "amount": 100}
    with (scene := scene_of(api, approvalThresholds=threshold)).agent:
        assert scene.asks(100)["status"] == "APPROVED"
        assert scene.asks(101)["status"] == "PENDING_APPROVAL"


@pytest.mark.parametrize("route", ["transaction", "action"])
def test_an_approval_moves_the_money_once(
    careful: Scene, database_url: DatabaseUrl, route: str
) -> None:
    action, transaction = careful.waiting()
    path = {
        "transaction": f"/transactions/{transaction['id']}",
        "action": careful.action_path(action),
    }

    # No body and no content type are needed.
    approved = ok(careful.api.http.post(path[route] + "/approve"))

    shown = approved if route == "transaction" else approved["transaction"]
    assert (shown["id"], shown["status"]) == (transaction["id"], "COMPLETED")
    assert careful.balances() == (600, 400)
    for again in (path["transaction"], path["action"]):
        for decision in ("approve", "reject"):
            refused(careful.api.http.post(f"{again}/{decision}"), 409, NOT_PENDING)
    assert careful.balances() == (600, 400)
    assert ok(careful.agent.get(f"/agents/me/actions/{action['id']}"))["status"] == "APPROVED"
    sent = webhooks(database_url, transaction["id"], 4)
    assert [kind for kind, _ in sent][2:] == [
        "OUTGOING_PAYMENT.PROCESSING",
        "OUTGOING_PAYMENT.COMPLETED",
    ]


@pytest.mark.parametrize("route", ["transaction", "action"])
def test_a_rejection_ends_a_pending_transfer(
    careful: Scene, database_url: DatabaseUrl, route: str
) -> None:
    action, transaction = careful.waiting()
    path = {
        "transaction": f"/transactions/{transaction['id']}",
        "action": careful.action_path(action),
    }

    ok(careful.api.post(path[route] + "/reject", {"reason": "not this month"}))

    ended = ok(careful.api.get(f"/transactions/{transaction['id']}"))
    assert (ended["status"], ended["failureReason"]) == ("FAILED", "REJECTED_BY_PLATFORM")
    rejected = ok(careful.agent.get(f"/agents/me/actions/{action['id']}"))
    assert (rejected["status"], rejected["rejectionReason"]) == ("REJECTED", "not this month")
    assert "transaction" not in rejected
    assert careful.balances() == (1_000, 0)
    assert ok(careful.agent.get("/agents/me"))["usage"]["dailySpend"] == 0
    assert webhooks(database_url, transaction["id"], 3)[-1][0] == "OUTGOING_PAYMENT.FAILED"
    refused(careful.api.http.post(path["transaction"] + "/approve"), 409, NOT_PENDING)


def test_an_approved_transfer_fails_when_the_funds_were_spent(careful: Scene) -> None:
    _, first = careful.waiting(700)
    action, second = careful.waiting(700)
    ok(careful.api.http.post(f"/transactions/{first['id']}/approve"))

    failed = ok(careful.api.http.post(f"/transactions/{second['id']}/approve"))

    assert (failed["status"], failed["failureReason"]) == ("FAILED", "INSUFFICIENT_FUNDS")
    assert ok(careful.agent.get(f"/agents/me/actions/{action['id']}"))["status"] == "FAILED"
    assert careful.balances() == (300, 700)


def test_an_approval_is_judged_by_the_policy_of_its_moment(careful: Scene) -> None:
    _, transaction = careful.waiting(500)
    careful.change_policy(spendingLimits={"perTransactionLimit": 499})

    failed = ok(careful.api.http.post(f"/transactions/{transaction['id']}/approve"))

    assert (failed["status"], failed["failureReason"]) == ("FAILED", "LIMIT_EXCEEDED")
    assert careful.balances() == (1_000, 0)


@pytest.mark.parametrize("_attempt", range(3))
def test_of_many_decisions_at_once_one_wins(careful: Scene, _attempt: int) -> None:
    action, transaction = careful.waiting()
    paths = [
        f"/transactions/{transaction['id']}/approve",
        f"/transactions/{transaction['id']}/reject",
        f"{careful.action_path(action)}/approve",
        f"{careful.action_path(action)}/reject",
    ] * 2

    with ThreadPoolExecutor(len(paths)) as pool:
        answers = list(pool.map(careful.api.http.post, paths))

    assert sorted(one.status_code for one in answers) == [200] + [409] * 7
    winner = next(path for path, one in zip(paths, answers, strict=True) if one.is_success)
    moved = 400 if winner.endswith("approve") else 0
    assert careful.balances() == (1_000 - moved, moved)


def test_an_approval_with_a_key_is_answered_again(careful: Scene) -> None:
    _, transaction = careful.waiting()
    path = f"/transactions/{transaction['id']}"
    headers = {"Idempotency-Key": f"yes-to-{transaction['id']}"}

    first = ok(careful.api.http.post(path + "/approve", headers=headers))
    again = ok(careful.api.http.post(path + "/approve", headers=headers))

    assert first == again
    assert first["status"] == "PROCESSING"
    eventually(lambda: ok(careful.api.get(path))["status"] == "COMPLETED")
    assert careful.balances() == (600, 400)


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_a_transaction_that_needs_no_approval_cannot_be_decided(
    scene: Scene, decision: str
) -> None:
    done = scene.asks(1)["transaction"]
    deposit = ok(scene.api.get("/transactions", customerId=scene.customer_id, type="INCOMING"))[
        "data"
    ][0]
    card = scene.api.active_card()
    card_transaction = scene.api.authorize(card["id"], 100)

    for one in (done, deposit, card_transaction):
        refusal = refused(
            scene.api.http.post(f"/transactions/{one['id']}/{decision}"), 409, NOT_PENDING
        )
        assert refusal["details"] == {"status": one["status"]}


def test_a_transfer_of_another_platform_cannot_be_approved(
    careful: Scene, other_platform: Api
) -> None:
    action, transaction = careful.waiting()
    path = f"/transactions/{transaction['id']}/approve"

    refused(other_platform.http.post(path), 404, "TRANSACTION_NOT_FOUND")
    refused(
        other_platform.http.post(f"{careful.action_path(action)}/approve"),
        404,
        "REFERENCE_NOT_FOUND",
    )
    other = f"/agents/Agent:{new_id()}/actions/{action['id']}/approve"
    refused(careful.api.http.post(other), 404, "REFERENCE_NOT_FOUND")
    for unknown in (f"Transaction:{uuid4()}", f"CardTransaction:{uuid4()}", "x", "Card:1"):
        answered = careful.api.http.post(f"/transactions/{unknown}/approve")
        refused(answered, 404, "TRANSACTION_NOT_FOUND")
    assert ok(other_platform.get("/agents/approvals"))["totalCount"] == 0


def test_a_decision_takes_a_body_or_none(careful: Scene) -> None:
    path = f"/transactions/{careful.waiting()[1]['id']}"

    refused(careful.api.post(path + "/approve", {"sure": True}), 400, "INVALID_INPUT")
    refused(careful.api.post(path + "/reject", {"reason": 7}), 400, "INVALID_INPUT")
    ok(careful.api.post(path + "/approve", {"receiverCustomerInfo": {"fullName": "Ada"}}))


def test_a_decision_needs_the_permission_to_transact(careful: Scene, api_config: ApiConfig) -> None:
    action, transaction = careful.waiting()
    viewer = new_tenant(
        api_config.database_url, permissions=("VIEW", "MANAGE"), of=careful.api.tenant
    )

    with Api(careful.api.root, viewer) as weak:
        for path in (f"/transactions/{transaction['id']}", careful.action_path(action)):
            for decision in ("approve", "reject"):
                refused(weak.http.post(f"{path}/{decision}"), 403, "FORBIDDEN")
        assert ok(weak.get("/agents/approvals", agentId=careful.agent_id))["totalCount"] == 1


def test_a_pending_approval_is_listed_until_it_is_decided(careful: Scene) -> None:
    first, _ = careful.waiting(1)
    second, transaction = careful.waiting(2)

    def listed(**query: object) -> list[dict[str, Any]]:
        data = ok(careful.api.get("/agents/approvals", customerId=careful.customer_id, **query))
        found: list[dict[str, Any]] = data["data"]
        return found

    assert listed() == [second, first]
    assert listed(sortOrder="asc", agentId=careful.agent_id) == [first, second]
    assert listed(agentId=f"Agent:{uuid4()}") == []
    assert listed(endDate=first["createdAt"]) == [first]
    assert listed(startDate=second["createdAt"]) == [second]
    ok(careful.api.http.post(f"/transactions/{transaction['id']}/reject"))
    assert listed() == [first]


def test_an_agent_lists_what_it_asked_for_by_status(careful: Scene) -> None:
    _, approved = careful.waiting(1)
    ok(careful.api.http.post(f"/transactions/{approved['id']}/approve"))
    _, rejected = careful.waiting(2)
    ok(careful.api.http.post(f"/transactions/{rejected['id']}/reject"))
    _, failed = careful.waiting(5_000)
    ok(careful.api.http.post(f"/transactions/{failed['id']}/approve"))
    careful.waiting(4)

    def amounts(**query: object) -> list[int]:
        listed = ok(careful.agent.get("/agents/me/actions", **query))
        assert listed["totalCount"] == len(listed["data"])
        return [one["transferDetails"]["amount"] for one in listed["data"]]

    assert amounts() == [4, 5_000, 2, 1]
    assert amounts(status="PENDING_APPROVAL") == [4]
    assert amounts(status="APPROVED") == [1]
    assert amounts(status="REJECTED") == [2]
    assert amounts(status="FAILED") == [5_000]
    refused(careful.agent.get("/agents/me/actions", status="DONE"), 400, "INVALID_INPUT")


def test_an_agent_does_not_see_the_actions_of_another(api: Api, scene: Scene) -> None:
    action = scene.asks(1)

    with (other := scene_of(api)).agent:
        refused(other.agent.get(f"/agents/me/actions/{action['id']}"), 404, "REFERENCE_NOT_FOUND")
        transaction = f"/agents/me/transactions/{action['transaction']['id']}"
        refused(other.agent.get(transaction), 404, "TRANSACTION_NOT_FOUND")
        assert ok(other.agent.get("/agents/me/actions"))["totalCount"] == 0


# --- all transactions --------------------------------------------------------------------------


def test_a_deposit_is_an_incoming_transaction(api: Api, database_url: DatabaseUrl) -> None:
    customer = api.customer()
    account = api.account(customer["id"])
    api.fund(account["id"], 700)

    [deposit] = ok(api.get("/transactions", customerId=customer["id"]))["data"]

    assert deposit["id"].startswith("Transaction:")
    assert (deposit["type"], deposit["direction"]) == ("INCOMING", "CREDIT")
    assert deposit["status"] == "COMPLETED"
    assert deposit["receivedAmount"]["amount"] == 700
    assert deposit["receivedAmount"]["currency"]["code"] == "USD"
    assert deposit["destination"]["accountId"] == account["id"]
    assert deposit["customerId"] == customer["id"]
    assert deposit["platformCustomerId"] == customer["platformCustomerId"]
    assert ok(api.get(f"/transactions/{deposit['id']}")) == deposit
    assert webhooks(database_url, deposit["id"], 1) == [("INCOMING_PAYMENT.COMPLETED", deposit)]
    refused(api.get(f"/transactions/{deposit['id']}/events"), 404, "TRANSACTION_NOT_FOUND")


@pytest.fixture(scope="module")
def mixed(root: str, api_config: ApiConfig) -> Iterator[Scene]:
    """A platform of its own with 14 transactions of every type, in a known order."""
    with Api(root, new_tenant(api_config.database_url)) as api:
        scene = scene_of(api)  # 1: a deposit.
        card = api.card(scene.customer_id, [scene.source])
        api.wait_for_state(card["id"], "ACTIVE")
        for number in range(4):
            scene.asks(10 + number, remittanceInformation=f"no {number}")
            api.authorize(card["id"], 5)
            api.fund(scene.destination, 3)
        scene.asks(5_000)  # It fails.
        with scene.agent:
            yield scene


def kinds(listed: dict[str, Any]) -> list[str]:
    return [one["type"] for one in listed["data"]]


def test_all_types_are_listed_in_one_order(mixed: Scene) -> None:
    newest = ok(mixed.api.get("/transactions"))
    oldest = ok(mixed.api.get("/transactions", sortOrder="asc"))

    assert newest["totalCount"] == 14
    assert kinds(oldest) == ["INCOMING", *["OUTGOING", "CARD", "INCOMING"] * 4, "OUTGOING"]
    assert newest["data"] == oldest["data"][::-1]
    times = [one["createdAt"] for one in oldest["data"]]
    assert times == sorted(times)


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 13, 14])
@pytest.mark.parametrize("order", ["asc", "desc"])
def test_pages_over_all_types_miss_nothing_and_repeat_nothing(
    mixed: Scene, limit: int, order: str
) -> None:
    whole = ok(mixed.api.get("/transactions", sortOrder=order))["data"]
    seen: list[dict[str, Any]] = []
    query: dict[str, object] = {"limit": limit, "sortOrder": order}

    while True:
        page = ok(mixed.api.get("/transactions", **query))
        assert page["totalCount"] == 14
        seen += page["data"]
        if not page["hasMore"]:
            assert "nextCursor" not in page
            break
        query["cursor"] = page["nextCursor"]

    assert seen == whole


def test_filters_apply_to_every_type(mixed: Scene) -> None:
    def count(**query: object) -> dict[str, int]:
        listed = ok(mixed.api.get("/transactions", limit=100, **query))
        assert listed["totalCount"] == len(listed["data"])
        found = kinds(listed)
        return {kind: found.count(kind) for kind in sorted(set(found))}

    source, destination = mixed.source, mixed.destination
    every = {"CARD": 4, "INCOMING": 5, "OUTGOING": 5}
    assert count(type="CARD") == {"CARD": 4}
    assert count(type="OUTGOING") == {"OUTGOING": 5}
    assert count(type="INCOMING") == {"INCOMING": 5}
    assert count(status="COMPLETED") == {"INCOMING": 5, "OUTGOING": 4}
    assert count(status="FAILED") == {"OUTGOING": 1}
    assert count(status="AUTHORIZED") == {"CARD": 4}
    assert count(status="REFUNDED") == {}
    assert count(type="CARD", status="COMPLETED") == {}
    assert count(customerId=mixed.customer_id) == every
    assert count(customerId=f"Customer:{uuid4()}") == {}
    named = ok(mixed.api.get(f"/customers/{mixed.customer_id}"))["platformCustomerId"]
    assert count(platformCustomerId=named) == every
    assert count(platformCustomerId="unknown") == {}
    assert count(accountIdentifier=source) == {"CARD": 4, "INCOMING": 1, "OUTGOING": 5}
    assert count(accountIdentifier=destination) == {"INCOMING": 4, "OUTGOING": 5}
    assert count(senderAccountIdentifier=source) == {"CARD": 4, "OUTGOING": 5}
    assert count(senderAccountIdentifier=destination) == {}
    assert count(receiverAccountIdentifier=destination) == {"INCOMING": 4, "OUTGOING": 5}
    assert count(receiverAccountIdentifier=source) == {"INCOMING": 1}
    assert count(senderAccountIdentifier=source, receiverAccountIdentifier=destination) == {
        "OUTGOING": 5
    }
    assert count(accountIdentifier=destination, senderAccountIdentifier=source) == {"OUTGOING": 5}
    assert count(accountIdentifier=source, receiverAccountIdentifier=destination) == {"OUTGOING": 5}
    assert count(accountIdentifier=f"InternalAccount:{uuid4()}") == {}
    assert count(reference="no 2") == {"OUTGOING": 1}
    token = ok(mixed.api.get("/transactions", type="CARD"))["data"][0]["issuerTransactionToken"]
    assert count(reference=token) == {"CARD": 1}
    card = ok(mixed.api.get("/transactions", type="CARD"))["data"][0]["cardId"]
    assert count(cardId=card) == {"CARD": 4}
    now = datetime.now(UTC)
    assert count(startDate=now.isoformat()) == {}
    assert count(endDate=now.isoformat()) == every
    assert count(startDate=(now - timedelta(days=1)).isoformat()) == every
    third = ok(mixed.api.get("/transactions", sortOrder="asc"))["data"][2]
    assert sum(count(endDate=third["createdAt"]).values()) == 3
    assert sum(count(startDate=third["createdAt"]).values()) == 12


def test_an_agent_sees_the_transactions_of_its_customer_only(mixed: Scene) -> None:
    neighbour = mixed.api.customer()
    whole = ok(mixed.api.get("/transactions", customerId=mixed.customer_id))

    seen = ok(mixed.agent.get("/agents/me/transactions"))

    assert seen["data"] == whole["data"]
    account = mixed.api.account(neighbour["id"])["id"]
    assert ok(mixed.agent.get("/agents/me/transactions", accountIdentifier=account))["data"] == []
    refused(
        mixed.agent.get("/agents/me/transactions", customerId=mixed.customer_id),
        400,
        "INVALID_INPUT",
    )
    card_transaction = next(one for one in whole["data"] if one["type"] == "CARD")
    path = f"/agents/me/transactions/{card_transaction['id']}"
    assert ok(mixed.agent.get(path)) == card_transaction


def test_an_agent_sees_only_transactions_of_accounts_that_its_policy_allows(mixed: Scene) -> None:
    everything = ok(mixed.api.get("/transactions", customerId=mixed.customer_id))["data"]
    of_destination = [one for one in everything if mixed.destination in str(one)]
    hidden = [one for one in everything if one not in of_destination]
    assert {one["type"] for one in hidden} == {"CARD", "INCOMING"}

    mixed.change_policy(accountRestrictions={"allowedAccountIds": [mixed.destination]})
    try:
        seen = ok(mixed.agent.get("/agents/me/transactions"))
        single = {
            one["id"]: mixed.agent.get(f"/agents/me/transactions/{one['id']}").status_code
            for one in everything
        }
        mixed.change_policy(accountRestrictions={"allowedAccountIds": []})
        nothing = ok(mixed.agent.get("/agents/me/transactions"))
    finally:
        mixed.change_policy(accountRestrictions=None)

    assert seen["data"] == of_destination
    assert seen["totalCount"] == len(of_destination)
    assert single == {one["id"]: 404 if one in hidden else 200 for one in everything}
    assert nothing["data"] == []


def test_transactions_of_another_platform_are_not_found(mixed: Scene, other_platform: Api) -> None:
    for one in ok(mixed.api.get("/transactions"))["data"]:
        refused(other_platform.get(f"/transactions/{one['id']}"), 404, "TRANSACTION_NOT_FOUND")
    listed = other_platform.get("/transactions", customerId=mixed.customer_id)
    assert ok(listed)["totalCount"] == 0


# --- one more account --------------------------------------------------------------------------


def test_a_customer_gets_one_more_account(api: Api) -> None:
    customer = api.customer(currencies=["USD"])

    opened = made(
        api.post("/customers/internal-accounts", {"customerId": customer["id"], "currency": "EUR"})
    )

    assert (opened["status"], opened["type"]) == ("ACTIVE", "INTERNAL_FIAT")
    assert opened["balance"]["amount"] == 0
    assert api.account(customer["id"], "EUR") == opened
    assert ok(api.get(f"/customers/{customer['id']}"))["currencies"] == ["USD", "EUR"]
    assert api.fund(opened["id"], 5)["balance"]["amount"] == 5


def test_an_account_is_opened_for_customers_in_currencies_of_the_platform(
    api: Api, other_platform: Api
) -> None:
    path, customer = "/customers/internal-accounts", api.customer()["id"]
    gone = api.customer()["id"]
    ok(api.delete(f"/customers/{gone}"))

    refused(api.post(path, {"customerId": customer, "currency": "JPY"}), 400, "INVALID_CURRENCY")
    for unknown in (gone, f"Customer:{uuid4()}", other_platform.customer()["id"]):
        refused(api.post(path, {"customerId": unknown, "currency": "USD"}), 400, "INVALID_INPUT")
    refused(api.post(path, {"customerId": customer}), 400, "INVALID_INPUT")
    refused(
        api.post(path, {"customerId": customer, "currency": "USD", "type": "EMBEDDED_WALLET"}),
        400,
        "INVALID_INPUT",
    )
