"""A process may know a token for seconds after its end: in them it makes no access that lasts."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final
from uuid import uuid4

import httpx2
import pytest

from cardledger.api import app
from cardledger.api.app import ApiConfig
from cardledger.api.http import authentication
from cardledger.api.http.operations import BASIC, Guarded
from tests.api.support import AGENT_POLICY, ALL, Api, Tenant, made, new_tenant, ok, refused, server
from tests.api.test_kyc_links import unverified
from tests.api.test_repeated_secrets import without_names
from tests.api.test_sca import CODE, Person

Attempt = Callable[[Api], httpx2.Response]

_HOOK: Final = {"url": "http://127.0.0.1:9/"}


@pytest.fixture
def own(root: str, api_config: ApiConfig) -> Iterator[Api]:
    """The interface as seen by a platform of this test alone."""
    with Api(root, new_tenant(api_config.database_url)) as client:
        yield client


def posts(path: str, body: object) -> Attempt:
    return lambda api: api.post(path, body)


def changes(path: str, body: Mapping[str, object]) -> Attempt:
    return lambda api: api.patch(path, body)


def attempts(own: Api) -> dict[str, Attempt]:
    """Return a request for each operation that makes access which outlives a token."""
    tokens, agents, endpoints = "/tokens", "/agents", "/webhooks/endpoints"
    customer = own.customer()["id"]
    agent = f"{agents}/{own.agent(customer)['agent']['id']}"
    endpoint = f"{endpoints}/{made(own.post(endpoints, _HOOK | {'state': 'DISABLED'}))['id']}"
    other = made(own.post(tokens, {"name": "other", "permissions": ["VIEW"]}))["id"]
    agent_wish = {"name": "x", "customerId": customer, "policy": AGENT_POLICY}
    return {
        "POST /tokens": posts(tokens, {"name": "x", "permissions": ["VIEW"]}),
        "POST /tokens/{}/rotate-secret": posts(f"{tokens}/{other}/rotate-secret", {}),
        "POST /agents": posts(agents, agent_wish),
        "POST /agents/{}/device-codes": posts(f"{agent}/device-codes", {}),
        "PATCH /agents/{}": changes(agent, {"isPaused": False}),
        "PATCH /agents/{}/policy": changes(f"{agent}/policy", {"permissions": ["CREATE_QUOTES"]}),
        "POST /webhooks/endpoints": posts(endpoints, _HOOK),
        "PATCH /webhooks/endpoints/{}": changes(endpoint, _HOOK),
        "POST /webhooks/endpoints/{}/rotate-secret": posts(f"{endpoint}/rotate-secret", {}),
        "PATCH /config": changes("/config", {"webhookEndpoint": _HOOK["url"]}),
        **to_customers(own),
    }


def to_customers(own: Api) -> dict[str, Attempt]:
    card, person = own.active_card()["id"], unverified(own)["id"]
    enrolling, confirming = Person(own).verify(), Person(own).verify()
    secret = ok(confirming.post("factors", {"type": "TOTP"}))["secret"]
    proof = {"type": "TOTP", "secret": secret, "code": CODE}
    enrol = f"/sca/factors?customerId={enrolling.id}"
    confirm = f"/sca/factors/confirm?customerId={confirming.id}"
    return {
        "POST /cards/{}/reveal": posts(f"/cards/{card}/reveal", None),
        "POST /customers/{}/kyc-link": posts(f"/customers/{person}/kyc-link", None),
        "POST /sca/factors": posts(enrol, {"type": "TOTP"}),
        "POST /sca/factors/confirm": posts(confirm, proof),
    }


def end_by_deletion(own: Api, token_id: str) -> None:
    assert own.delete(f"/tokens/{token_id}").status_code == 204


def end_by_rotation(own: Api, token_id: str) -> None:
    ok(own.post(f"/tokens/{token_id}/rotate-secret", {"overlapHours": 0}))


@pytest.mark.parametrize("end", [end_by_deletion, end_by_rotation])
def test_a_secret_that_has_ended_makes_no_access_where_that_is_not_known_yet(
    own: Api,
    api_config: ApiConfig,
    monkeypatch: pytest.MonkeyPatch,
    end: Callable[[Api, str], None],
) -> None:
    monkeypatch.setattr(authentication, "_CACHE_TTL_S", 3600.0)
    tried = attempts(own)
    held = made(own.post("/tokens", {"name": "stolen", "permissions": ALL}))
    stolen = Tenant(own.tenant.platform_id, held["clientId"], held["clientSecret"])
    with server(api_config) as elsewhere, Api(elsewhere, stolen) as far:
        ok(far.get("/config"))
        end(own, held["id"])
        ok(far.get("/config"))

        answers = {operation: attempt(far) for operation, attempt in tried.items()}

    made_all_the_same = {name for name, answer in answers.items() if answer.status_code != 401}
    assert made_all_the_same == set()
    for answer in answers.values():
        refused(answer, 401, "UNAUTHORIZED")
    # None was refused for another reason.
    assert [name for name, attempt in tried.items() if not attempt(own).is_success] == []


def test_a_former_secret_makes_access_during_its_overlap(own: Api, api_config: ApiConfig) -> None:
    held = made(own.post("/tokens", {"name": "till", "permissions": ALL}))
    till = Tenant(own.tenant.platform_id, held["clientId"], held["clientSecret"])
    with server(api_config) as elsewhere, Api(elsewhere, till) as far:
        ok(far.get("/config"))
        ok(own.post(f"/tokens/{held['id']}/rotate-secret", {"overlapHours": 1}))

        made(far.post("/tokens", {"name": f"x {uuid4()}", "permissions": ["VIEW"]}))
        made(far.post("/webhooks/endpoints", _HOOK))


def test_every_operation_of_platforms_that_returns_a_secret_is_tried(own: Api) -> None:
    """So a new one that does not prove the token again fails the test above."""
    returning: set[str] = {
        f"{method} {without_names(route.path)}"
        for route in app._routes(is_sandbox=True)
        if isinstance(route, Guarded) and route.access.secrets and route.scheme == BASIC
        for method in route.methods or ()
    }

    assert len(returning) > 8
    assert returning <= attempts(own).keys()
