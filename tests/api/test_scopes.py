"""What a token can reach by any sequence of requests, it could reach at the start."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cardledger.api.app import ApiConfig
from tests.api.documents import document
from tests.api.support import (
    AGENT_POLICY,
    ALL,
    AgentApi,
    Api,
    Tenant,
    made,
    new_tenant,
    ok,
    redeem,
    rejected,
)

POLICY_PERMISSIONS = (
    "VIEW_TRANSACTIONS",
    "CREATE_TRANSFERS",
    "CREATE_QUOTES",
    "EXECUTE_QUOTES",
    "MANAGE_EXTERNAL_ACCOUNTS",
)

# Operations of agents, and the permission of a token by which a platform has the same effect.
AGENT_OPERATIONS = {
    "GET /agents/me": "VIEW",
    "GET /agents/me/actions": "VIEW",
    "GET /agents/me/actions/{actionId}": "VIEW",
    "GET /agents/me/internal-accounts": "VIEW",
    "GET /agents/me/transactions": "VIEW",
    "GET /agents/me/transactions/{transactionId}": "VIEW",
    "GET /agents/me/external-accounts": "VIEW",
    "GET /agents/me/external-accounts/{externalAccountId}": "VIEW",
    "POST /agents/me/external-accounts": "MANAGE",
    "DELETE /agents/me/external-accounts/{externalAccountId}": "MANAGE",
    "POST /agents/me/transfer-in": "TRANSACT",
    "POST /agents/me/transfer-out": "TRANSACT",
    "POST /agents/me/quotes": "TRANSACT",
    "GET /agents/me/quotes/{quoteId}": "VIEW",
    "POST /agents/me/quotes/{quoteId}/execute": "TRANSACT",
}

# A request for each permission of a token. All are invalid: with the permission they are 400 or
# 404, without it 403, and none has an effect.
TOKEN_PROBES = {
    "VIEW": ("GET", "/customers?limit=0"),
    "TRANSACT": ("POST", f"/sandbox/internal-accounts/InternalAccount:{uuid4()}/fund"),
    "MANAGE": ("POST", "/customers"),
    "TOKENS": ("POST", "/tokens"),
    "AGENTS": ("POST", "/agents"),
    "INGEST": ("GET", "/network-events/visa/1"),
}


@dataclass(frozen=True)
class Step:
    """An attempt to gain access; `who` and `target` choose among what there is by then."""

    action: str
    who: int = 0
    target: int = 0
    permissions: tuple[str, ...] = ALL
    policy: tuple[str, ...] = POLICY_PERMISSIONS


@dataclass
class Intruder:
    """Holds one token, and every credential that its requests have brought."""

    root: str
    owner: Api
    customer: str
    agents: list[str]
    other_token: str
    rejection: Callable[[], str]
    tokens: list[Api] = field(default_factory=list)
    connected: list[AgentApi] = field(default_factory=list)
    is_receiver: bool = False
    has_read: bool = False

    def take(self, step: Step) -> None:
        """Send the requests of `step`, and keep the credentials in their responses."""
        getattr(self, step.action)(self.tokens[step.who % len(self.tokens)], step)

    def create_token(self, api: Api, step: Step) -> None:
        wish = {"name": "x", "permissions": step.permissions}
        self._keep_token(api.post("/tokens", wish))

    def repeat_creation_of_token(self, api: Api, _: Step) -> None:
        """Repeat a request of the owner, whose key is known from a log."""
        key, wish = {"Idempotency-Key": str(uuid4())}, {"name": "x", "permissions": ALL}
        made(self.owner.http.post("/tokens", json=wish, headers=key))
        self._keep_token(api.http.post("/tokens", json=wish, headers=key))

    def rotate_secret(self, api: Api, _: Step) -> None:
        """Rotate the secret of a token of the owner."""
        self._keep_token(api.post(f"/tokens/{self.other_token}/rotate-secret", {}))

    def create_agent(self, api: Api, step: Step) -> None:
        self._keep_agent(api.post("/agents", self._agent(step.policy)))

    def repeat_creation_of_agent(self, api: Api, _: Step) -> None:
        key, wish = {"Idempotency-Key": str(uuid4())}, self._agent(POLICY_PERMISSIONS)
        made(self.owner.http.post("/agents", json=wish, headers=key))
        self._keep_agent(api.http.post("/agents", json=wish, headers=key))

    def change_policy(self, api: Api, step: Step) -> None:
        api.patch(f"{self._agent_path(step)}/policy", {"permissions": step.policy})

    def resume_agent(self, api: Api, step: Step) -> None:
        api.patch(self._agent_path(step), {"isPaused": False})

    def request_code(self, api: Api, step: Step) -> None:
        answer = api.http.post(f"{self._agent_path(step)}/device-codes")
        if answer.is_success:
            self._connect(answer.json())

    def receive_webhooks(self, api: Api, step: Step) -> None:
        url = "http://127.0.0.1:9/"
        if step.target % 2:
            answer = api.patch("/config", {"webhookEndpoint": url})
        else:
            answer = api.post("/webhooks/endpoints", {"url": url, "state": "DISABLED"})
        self.is_receiver |= answer.is_success

    def retry_rejection(self, api: Api, _: Step) -> None:
        answer = api.post(f"/rejections/{self.rejection()}/retry", None)
        self.has_read |= "event" in answer.json()

    def reach(self) -> set[str]:
        """Return what the credentials can do now, as permissions of tokens."""
        reached = {"VIEW"} if self.is_receiver or self.has_read else set()
        for api in self.tokens:
            for permission, (method, path) in TOKEN_PROBES.items():
                url = path if permission != "INGEST" else self.root + path
                if _is_admitted(api.http.request(method, url, json=_body(method))):
                    reached.add(permission)
        for agent in self.connected:
            for operation, permission in AGENT_OPERATIONS.items():
                method, path = operation.split(" ")
                sent = path.replace("{", "").replace("}", "")
                if _is_admitted(agent.http.request(method, sent, json=_body(method))):
                    reached.add(permission)
        return reached

    def _keep_token(self, answer: httpx2.Response) -> None:
        held = answer.json()
        if "clientSecret" in held:
            platform_id = self.owner.tenant.platform_id
            tenant = Tenant(platform_id, held["clientId"], held["clientSecret"])
            self.tokens.append(Api(self.root, tenant))

    def _keep_agent(self, answer: httpx2.Response) -> None:
        if answer.is_success:
            self.agents.append(answer.json()["agent"]["id"])
            self._connect(answer.json()["deviceCode"])

    def _connect(self, device_code: dict[str, object]) -> None:
        if "code" in device_code:
            token = ok(redeem(self.root, str(device_code["code"])))["accessToken"]
            self.connected.append(AgentApi(self.root, token))

    def _agent(self, permissions: tuple[str, ...]) -> dict[str, object]:
        policy = AGENT_POLICY | {"permissions": permissions}
        return {"name": "x", "customerId": self.customer, "policy": policy}

    def _agent_path(self, step: Step) -> str:
        return f"/agents/{self.agents[step.target % len(self.agents)]}"

    def close(self) -> None:
        for api in (*self.tokens, *self.connected):
            api.http.close()


def _body(method: str) -> dict[str, int] | None:
    return {"x": 0} if method == "POST" else None


def _is_admitted(answer: httpx2.Response) -> bool:
    return answer.status_code not in {401, 403}


@pytest.fixture(scope="module")
def owner(root: str, api_config: ApiConfig) -> Iterator[Api]:
    with Api(root, new_tenant(api_config.database_url)) as client:
        yield client


@pytest.fixture(scope="module")
def customer(owner: Api) -> str:
    return str(owner.customer()["id"])


@pytest.fixture(scope="module")
def rejection(owner: Api, api_config: ApiConfig) -> Callable[[], str]:
    """Return what makes a rejection that can be retried, and returns its id."""
    card_id = owner.active_card()["id"]

    def make() -> str:
        event: dict[str, object] = {"type": "CLEARING", "source": "visa", "reference": str(uuid4())}
        event |= {"issuerTransactionToken": event["reference"], "cardId": card_id}
        event |= {"amount": 5, "currency": "USD"}
        return rejected(api_config.database_url, owner, event, reason="INTERNAL_ERROR")

    return make


def subsets(*names: str) -> st.SearchStrategy[tuple[str, ...]]:
    return st.sets(st.sampled_from(names), min_size=1).map(sorted).map(tuple)


ACTIONS = (
    "create_token",
    "repeat_creation_of_token",
    "rotate_secret",
    "create_agent",
    "repeat_creation_of_agent",
    "change_policy",
    "resume_agent",
    "request_code",
    "receive_webhooks",
    "retry_rejection",
)
steps = st.builds(
    Step,
    action=st.sampled_from(ACTIONS),
    who=st.integers(0, 3),
    target=st.integers(0, 3),
    permissions=subsets(*ALL),
    policy=subsets(*POLICY_PERMISSIONS),
)
EVERYTHING = [
    Step(action, target=target, permissions=permissions, policy=policy)
    for action in ACTIONS
    for target in range(2)
    for permissions, policy in ((("VIEW",), ("VIEW_TRANSACTIONS",)), (ALL, POLICY_PERMISSIONS))
]


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@example(start=("AGENTS",), sequence=EVERYTHING)
@example(start=("TOKENS",), sequence=EVERYTHING)
@example(start=("MANAGE",), sequence=EVERYTHING)
@example(start=("TRANSACT",), sequence=EVERYTHING)
@example(start=("AGENTS", "VIEW"), sequence=EVERYTHING)
@example(start=("AGENTS", "TOKENS", "VIEW"), sequence=EVERYTHING)
@given(start=subsets(*ALL), sequence=st.lists(steps, min_size=1, max_size=6))
def test_a_sequence_of_requests_reaches_no_more_than_the_first_token(  # noqa: PLR0913, PLR0917 - fixtures
    owner: Api,
    customer: str,
    rejection: Callable[[], str],
    api_config: ApiConfig,
    start: tuple[str, ...],
    sequence: list[Step],
) -> None:
    strong = AGENT_POLICY | {"permissions": POLICY_PERMISSIONS}
    wish = {"name": "strong", "customerId": customer, "policy": strong}
    agents = [made(owner.post("/agents", wish))["agent"]["id"] for _ in range(2)]
    ok(owner.patch(f"/agents/{agents[1]}", {"isPaused": True}))
    other = made(owner.post("/tokens", {"name": "other", "permissions": ALL}))["id"]
    intruder = Intruder(owner.root, owner, customer, agents, other, rejection)
    tenant = new_tenant(api_config.database_url, permissions=start, of=owner.tenant)
    intruder.tokens.append(Api(owner.root, tenant))
    try:
        for step in sequence:
            intruder.take(step)

        assert intruder.reach() <= set(start)
    finally:
        intruder.close()
        for token in ok(owner.get("/tokens", limit=100))["data"]:
            if token["name"] != "test" or token["clientId"] == tenant.client_id:
                owner.delete(f"/tokens/{token['id']}")


def test_a_token_with_every_permission_reaches_everything(
    owner: Api, customer: str, rejection: Callable[[], str], api_config: ApiConfig
) -> None:
    """The property would hold as well if the probes, or the steps, reached nothing."""
    tenant = new_tenant(api_config.database_url, of=owner.tenant)
    intruder = Intruder(owner.root, owner, customer, [], "", rejection)
    intruder.tokens.append(Api(owner.root, tenant))
    for action in ("create_token", "create_agent", "receive_webhooks", "retry_rejection"):
        intruder.take(Step(action))

    try:
        by_agent = replace(intruder, tokens=[], is_receiver=False, has_read=False)

        assert intruder.reach() == set(ALL)
        assert by_agent.reach() == {"VIEW", "TRANSACT", "MANAGE"}
        assert (len(intruder.tokens), intruder.is_receiver, intruder.has_read) == (2, True, True)
    finally:
        intruder.close()


def test_every_operation_of_agents_has_its_permission() -> None:
    operations = {
        f"{method.upper()} {path}"
        for path, item in document()["paths"].items()
        for method, operation in item.items()
        if method != "servers" and "x-unimplemented" not in operation
        if {"AgentAuth"} & {scheme for part in operation["security"] for scheme in part}
    }

    assert operations == set(AGENT_OPERATIONS)


def test_every_operation_that_shows_messages_needs_the_permission_to_view() -> None:
    """Its caller has not sent them, unlike the fields of a resource that it changes."""
    shown = {
        f"{method.upper()} {path}": operation["security"]
        for path, item in document()["paths"].items()
        for method, operation in item.items()
        if method != "servers"
        if _response_of(operation) in {"Rejection", "WebhookDelivery"}
    }

    assert {"POST /rejections/{rejectionId}/retry"} < set(shown)
    for operation, [scheme] in shown.items():
        assert "VIEW" in scheme["BasicAuth"], operation


def test_every_operation_that_shows_a_person_needs_the_permission_to_view() -> None:
    """Its caller has named one field, or a code, and the response has all that is known.

    One that creates has sent it all.
    """
    shown = {
        f"{method.upper()} {path}": operation["security"]
        for path, item in document()["paths"].items()
        for method, operation in item.items()
        if method != "servers"
        and _response_of(operation)
        in {"Customer", "BeneficialOwner", "ExternalAccount", "Transaction", "AgentAction"}
    }

    assert {"PATCH /customers/{customerId}", "GET /customers/{customerId}"} < set(shown)
    assert {"POST /transactions/{transactionId}/confirm"} < set(shown)
    for operation, [scheme, *_] in shown.items():
        assert "VIEW" in scheme.get("BasicAuth", ["VIEW"]), operation


def _response_of(operation: dict[str, Any]) -> str:
    """Return the name of the schema of an operation's success; "" when there is none."""
    schema = operation["responses"].get("200", {}).get("content", {}).get("application/json", {})
    return str(schema.get("schema", {}).get("$ref", "")).rpartition("/")[2]
