"""Agents: programs that act for a customer, within a policy, with an access token."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import httpx2
import psycopg
import pytest

from cardledger.api import BASE_PATH
from cardledger.api.app import ApiConfig
from cardledger.ledger.agents import device_codes
from cardledger.ledger.agents.device_codes import CODE_LIMIT
from cardledger.ledger.agents.registry import AGENT_LIMIT
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets.key_ring import KeyRing, Purpose, ServerKey
from tests.api.support import (
    SECRET_KEY,
    TIMEOUT_S,
    AgentApi,
    Api,
    Tenant,
    at_once,
    check_cap,
    logged,
    made,
    new_tenant,
    ok,
    redeem,
    refused,
    server,
)
from tests.external_accounts import body as external_account
from tests.external_accounts import info

LIMITS: dict[str, Any] = {"currency": "USD", "perTransactionLimit": 1000}
POLICY: dict[str, Any] = {
    "permissions": ["VIEW_TRANSACTIONS", "MANAGE_EXTERNAL_ACCOUNTS"],
    "defaultExecutionMode": "AUTO",
    "spendingLimits": LIMITS,
}
EXTERNAL = "/agents/me/external-accounts"


@pytest.fixture
def own(root: str, api_config: ApiConfig) -> Iterator[Api]:
    """The interface as seen by a platform that has no agent yet."""
    with Api(root, new_tenant(api_config.database_url)) as client:
        yield client


@pytest.fixture(scope="module")
def customer(api: Api) -> str:
    return str(api.customer()["id"])


@pytest.fixture
def agent(api: Api, customer: str) -> Iterator[AgentApi]:
    """The interface as seen by a connected agent of `customer` that may view and register."""
    with connected(api, create(api, customer)) as client:
        yield client


def agent_request(customer: str, **policy: object) -> dict[str, Any]:
    return {"name": "Bookkeeper", "customerId": customer, "policy": POLICY | policy}


def create(api: Api, customer: str, **policy: object) -> dict[str, Any]:
    return made(api.post("/agents", agent_request(customer, **policy)))


def connected(api: Api, created: dict[str, Any]) -> AgentApi:
    redeemed = ok(redeem(api.root, created["deviceCode"]["code"]))
    return AgentApi(api.root, redeemed["accessToken"])


def path_of(created: dict[str, Any]) -> str:
    return f"/agents/{created['agent']['id']}"


def usd(number: str, **fields: object) -> dict[str, Any]:
    return external_account(
        "USD_ACCOUNT", accountInfo=info("USD_ACCOUNT", accountNumber=number), **fields
    )


# --- making and connecting ---------------------------------------------------------------------


def test_a_new_agent_is_returned_with_its_device_code(api: Api, customer: str) -> None:
    answered = api.post("/agents", agent_request(customer))

    created = made(answered)
    agent, code = created["agent"], created["deviceCode"]
    assert answered.headers["cache-control"] == "no-store"
    assert agent["id"].startswith("Agent:")
    assert (agent["name"], agent["customerId"]) == ("Bookkeeper", customer)
    assert (agent["isPaused"], agent["isConnected"]) == (False, False)
    assert agent["policy"] == POLICY
    usage = agent["usage"]
    assert (usage["dailyTransactionCount"], usage["dailySpend"], usage["monthlySpend"]) == (0, 0, 0)
    assert usage["dailyResetDate"].startswith(usage["monthlyResetMonth"])
    assert re.fullmatch(r"[2-9A-HJ-NP-Z]{5}(-[2-9A-HJ-NP-Z]{5}){2}", code["code"])
    assert (code["agentId"], code["redeemed"]) == (agent["id"], False)
    assert ok(api.get(path_of(created))) == agent


def test_a_code_connects_a_program_once(api: Api, customer: str) -> None:
    created = create(api, customer)
    code = created["deviceCode"]["code"]
    status = f"/agents/device-codes/{code}/status"
    assert ok(api.get(status)) == {"code": code, "redeemed": False}

    answered = redeem(api.root, code)

    redeemed = ok(answered)
    assert answered.headers["cache-control"] == "no-store"
    assert set(redeemed) == {"agentId", "agentName", "accessToken", "policy"}
    assert redeemed["agentId"] == created["agent"]["id"]
    assert redeemed["policy"] == POLICY
    agent_id = redeemed["agentId"].removeprefix("Agent:").replace("-", "")
    assert re.fullmatch(rf"clat_{agent_id}_[A-Za-z0-9_-]{{43}}", redeemed["accessToken"])
    with AgentApi(api.root, redeemed["accessToken"]) as agent:
        shown = ok(agent.get("/agents/me"))
    assert shown["isConnected"] is True
    assert shown == ok(api.get(path_of(created)))
    assert ok(api.get(status)) == {"code": code, "redeemed": True}
    again = refused(redeem(api.root, code), 400, "INVALID_INPUT")
    assert again["details"] == {"reason": "CODE_REDEEMED"}


@pytest.mark.parametrize("change", ["agent_id = %(other)s", "agent_hash = NULL"])
def test_a_code_connects_no_other_agent_and_none_of_an_earlier_release(
    api: Api, customer: str, other_platform: Api, database_url: str, change: str
) -> None:
    mine, customer_of_others = create(api, customer), other_platform.customer()["id"]
    theirs = create(other_platform, customer_of_others)
    ids = {
        name: made["agent"]["id"].removeprefix("Agent:")
        for name, made in (("own", mine), ("other", theirs))
    }
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "UPDATE agent_device_codes SET replaced_at = now() WHERE agent_id = %(other)s", ids
        )
        connection.execute(
            f"UPDATE agent_device_codes SET {change} WHERE agent_id = %(own)s".encode(), ids
        )

    answered = redeem(api.root, mine["deviceCode"]["code"])

    assert refused(answered, 400, "INVALID_INPUT")["details"] == {"reason": "CODE_REPLACED"}
    assert ok(other_platform.get(path_of(theirs)))["isConnected"] is False


@pytest.mark.parametrize("binds", [True, False])
def test_the_hash_of_a_code_and_an_agent_is_that_of_no_other(*, binds: bool) -> None:
    keys = KeyRing(ServerKey(SECRET_KEY, binds=binds))
    code, agents = "22222-33333-44444", (new_id(), new_id())

    hashes = {device_codes._for_agent(keys, code, agent).digest for agent in agents}

    assert len(hashes | {device_codes.presented(keys, code).digest}) == 3


def test_a_code_of_an_earlier_release_that_was_redeemed_says_so(
    api: Api, customer: str, database_url: str
) -> None:
    created = create(api, customer)
    code = created["deviceCode"]["code"]
    ok(redeem(api.root, code))
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "UPDATE agent_device_codes SET agent_hash = NULL WHERE agent_id = %s",
            [created["agent"]["id"].removeprefix("Agent:")],
        )

    again = refused(redeem(api.root, code), 400, "INVALID_INPUT")

    assert again["details"] == {"reason": "CODE_REDEEMED"}


def test_a_code_is_accepted_in_lower_case_and_percent_encoded(api: Api, customer: str) -> None:
    code = create(api, customer)["deviceCode"]["code"]

    encoded = code.lower().replace("-", "%2D")

    assert ok(api.get(f"/agents/device-codes/{encoded}/status"))["code"] == code
    ok(redeem(api.root, encoded))


@pytest.mark.parametrize(
    "code", ["AAAAA-AAAAA-AAAAA", "x", "%00", "%F0%9F%92%A9", "A" * 5000, "--"]
)
def test_an_unknown_code_is_not_found(api: Api, code: str) -> None:
    refused(redeem(api.root, code), 404, "REFERENCE_NOT_FOUND")
    refused(api.get(f"/agents/device-codes/{code}/status"), 404, "REFERENCE_NOT_FOUND")


def test_a_code_expires_after_fifteen_minutes(api: Api, customer: str, database_url: str) -> None:
    created = create(api, customer)
    with psycopg.connect(database_url) as connection:
        [lifetime] = connection.execute(
            "UPDATE agent_device_codes SET created_at = created_at - interval '15 minutes',"
            " expires_at = expires_at - interval '15 minutes' WHERE agent_id = %s"
            " RETURNING extract(epoch FROM expires_at - created_at)::int",
            [created["agent"]["id"].removeprefix("Agent:")],
        ).fetchall()

    late = refused(redeem(api.root, created["deviceCode"]["code"]), 400, "INVALID_INPUT")

    assert lifetime == (15 * 60,)
    assert late["details"] == {"reason": "CODE_EXPIRED"}
    assert ok(api.get(path_of(created)))["isConnected"] is False


def test_a_new_code_replaces_the_earlier_code(api: Api, customer: str) -> None:
    created = create(api, customer)
    old = created["deviceCode"]["code"]

    answered = api.http.post(f"{path_of(created)}/device-codes")

    new = made(answered)
    assert answered.headers["cache-control"] == "no-store"
    assert set(new) == {"code", "agentId", "expiresAt", "redeemed"}
    replaced = refused(redeem(api.root, old), 400, "INVALID_INPUT")
    assert replaced["details"] == {"reason": "CODE_REPLACED"}
    ok(redeem(api.root, new["code"]))
    refused(api.http.post(f"{path_of(created)}/device-codes"), 409, "CONFLICT")


def test_a_platform_gets_exactly_as_many_agents_as_it_may_have(own: Api, database_url: str) -> None:
    customer = own.customer()["id"]
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "INSERT INTO agents (id, platform_id, customer_id, name, is_paused, policy,"
            " created_at, updated_at, deleted_at) SELECT gen_random_uuid(), %s, %s, 'x', false,"
            " '{}', now(), now(), CASE WHEN number > %s THEN now() END"
            " FROM generate_series(1, %s) AS number",
            [
                own.tenant.platform_id,
                customer.removeprefix("Customer:"),
                AGENT_LIMIT - 5,
                AGENT_LIMIT + 100,  # Deleted agents do not count.
            ],
        )

    answers = at_once(20, lambda: own.post("/agents", agent_request(customer)))

    check_cap(answers, made=5, limit=AGENT_LIMIT)
    created = next(answer for answer in answers if answer.status_code == 201).json()
    assert own.delete(path_of(created)).status_code == 204
    create(own, customer)


def test_an_agent_gets_exactly_as_many_codes_as_it_may_have(api: Api, customer: str) -> None:
    path = f"{path_of(create(api, customer))}/device-codes"

    answers = at_once(CODE_LIMIT + 5, lambda: api.http.post(path))

    check_cap(answers, made=CODE_LIMIT - 1, limit=CODE_LIMIT)


def test_of_concurrent_redemptions_exactly_one_wins(
    api: Api, customer: str, api_config: ApiConfig
) -> None:
    code = create(api, customer)["deviceCode"]["code"]
    with server(api_config) as elsewhere, ThreadPoolExecutor(8) as pool:
        roots = [api.root, elsewhere] * 4

        answers = list(pool.map(lambda root: redeem(root, code), roots))

    assert sorted(answer.status_code for answer in answers) == [200] + [400] * 7
    [winner] = [answer for answer in answers if answer.status_code == 200]
    with AgentApi(api.root, ok(winner)["accessToken"]) as agent:
        ok(agent.get("/agents/me"))


def test_concurrent_new_codes_and_redemptions_leave_one_access_token_or_code(
    api: Api, customer: str
) -> None:
    created = create(api, customer)

    def again(_: int) -> httpx2.Response:
        return api.http.post(f"{path_of(created)}/device-codes")

    with ThreadPoolExecutor(8) as pool:
        renewed = [pool.submit(again, number) for number in range(6)]
        first = pool.submit(redeem, api.root, created["deviceCode"]["code"])

    codes = [
        future.result().json()["code"] for future in renewed if future.result().status_code == 201
    ]
    later = [redeem(api.root, code) for code in codes]
    assert {future.result().status_code for future in renewed} <= {201, 409}
    answers = [first.result(), *later]
    assert [answer.status_code for answer in answers].count(200) == 1
    assert {answer.status_code for answer in answers} <= {200, 400}


def test_a_repeated_redemption_does_not_return_the_token_again(api: Api, customer: str) -> None:
    code = create(api, customer)["deviceCode"]["code"]
    key = str(uuid4())
    first = redeem(api.root, code, Idempotency_Key=key)

    again = redeem(api.root, code, Idempotency_Key=key)

    assert ok(first).pop("accessToken")
    assert ok(again) == {name: ok(first)[name] for name in ("agentId", "agentName", "policy")}
    assert again.headers["idempotent-replayed"] == "true"
    refused(redeem(api.root, code, Idempotency_Key=str(uuid4())), 400, "INVALID_INPUT")
    other = create(api, customer)["deviceCode"]["code"]
    assert ok(redeem(api.root, other, Idempotency_Key=key)) != ok(first)


def test_an_expired_code_does_not_return_its_token_again(
    api: Api, customer: str, database_url: str
) -> None:
    created = create(api, customer)
    code, key = created["deviceCode"]["code"], "1"
    ok(redeem(api.root, code, Idempotency_Key=key))
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "UPDATE agent_device_codes SET expires_at = now() WHERE agent_id = %s",
            [created["agent"]["id"].removeprefix("Agent:")],
        )

    late = refused(redeem(api.root, code, Idempotency_Key=key), 400, "INVALID_INPUT")

    assert late["details"] == {"reason": "CODE_REDEEMED"}


def test_no_token_and_no_code_is_stored_in_plain_text(
    api: Api, customer: str, database_url: str
) -> None:
    sent = api.http.post(
        "/agents", json=agent_request(customer), headers={"Idempotency-Key": str(uuid4())}
    )
    code = made(sent)["deviceCode"]["code"]
    token = ok(redeem(api.root, code, Idempotency_Key=str(uuid4())))["accessToken"]

    with psycopg.connect(database_url) as connection:
        for table in ("agents", "agent_device_codes", "idempotency_keys"):
            rows = connection.execute(f"SELECT t::text, t.* FROM {table} t").fetchall()
            assert rows
            for secret in (code, token):
                assert secret not in str(rows)
                assert secret.encode().hex() not in str(rows)


def test_no_code_is_in_the_log(api: Api, customer: str) -> None:
    code = create(api, customer)["deviceCode"]["code"]

    with logged() as lines:
        ok(api.get(f"/agents/device-codes/{code}/status"))
        ok(redeem(api.root, code))

    paths = [line["path"] for line in lines if line["event"] == "request"]
    assert [path.removeprefix(BASE_PATH) for path in paths] == [
        "/agents/device-codes/…/status",
        "/agents/device-codes/…/redeem",
    ]
    assert code not in str(lines)


# --- who is let in -----------------------------------------------------------------------------

WRONG: list[list[tuple[str, str]]] = [
    [],
    [("Authorization", "")],
    [("Authorization", "Bearer")],
    [("Authorization", "Bearer nonsense")],
    [("Authorization", "Bearer clat_" + "A" * 43)],
    [("Authorization", "Bearer clat_" + "0" * 32 + "_" + "A" * 43)],
    [("Authorization", "Bearer " + "x" * 10_000)],
    [("Authorization", "Bearer caf\u00e9 \u00ff")],
    [("Authorization", "Token abc")],
    [("Authorization", "Basic bm9uc2Vuc2U=")],
]


@pytest.mark.parametrize("headers", WRONG)
def test_invalid_agent_credentials_are_refused(root: str, headers: list[tuple[str, str]]) -> None:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]

    answered = httpx2.get(f"{root}{BASE_PATH}/agents/me", headers=raw, timeout=TIMEOUT_S)

    refused(answered, 401, "UNAUTHORIZED")
    assert answered.headers["www-authenticate"].startswith('Bearer realm="api"')


def test_a_token_of_an_earlier_release_stays_valid(
    api: Api, customer: str, database_url: str
) -> None:
    created, token = create(api, customer), "clat_" + "A1b2" * 10 + "C3-"
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "UPDATE agents SET access_token_hash = %s WHERE id = %s",
            [
                KeyRing(ServerKey(SECRET_KEY, binds=False)).hash_secret(token, Purpose.AGENT),
                created["agent"]["id"].removeprefix("Agent:"),
            ],
        )

    with AgentApi(api.root, token) as agent:
        assert ok(agent.get("/agents/me"))["id"] == created["agent"]["id"]


def test_two_authorization_headers_are_refused(root: str, agent: AgentApi) -> None:
    twice = [("Authorization", f"Bearer {agent.access_token}")] * 2

    answered = httpx2.get(f"{root}{BASE_PATH}/agents/me", headers=twice, timeout=TIMEOUT_S)

    refused(answered, 401, "UNAUTHORIZED")


def test_the_name_of_the_scheme_may_be_written_in_any_case(root: str, agent: AgentApi) -> None:
    headers = {"Authorization": f"bEARER  {agent.access_token}"}

    ok(httpx2.get(f"{root}{BASE_PATH}/agents/me", headers=headers, timeout=TIMEOUT_S))


def test_platform_and_agent_credentials_are_not_interchangeable(api: Api, agent: AgentApi) -> None:
    me = ok(agent.get("/agents/me"))

    for path in ("/agents/me", "/agents/me/internal-accounts", EXTERNAL):
        refused(api.get(path), 401, "UNAUTHORIZED")
    for path in ("/config", "/agents", f"/agents/{me['id']}", "/customers/external-accounts"):
        answered = agent.get(path)
        refused(answered, 401, "UNAUTHORIZED")
        assert answered.headers["www-authenticate"].startswith("Basic ")
    refused(agent.patch(f"/agents/{me['id']}/policy", {}), 401, "UNAUTHORIZED")
    refused(agent.post("/tokens", {}), 401, "UNAUTHORIZED")


def test_a_deleted_agent_loses_access_at_once_on_every_server(
    api: Api, customer: str, api_config: ApiConfig
) -> None:
    created = create(api, customer)
    with (
        connected(api, created) as near,
        server(api_config) as elsewhere,
        AgentApi(elsewhere, near.access_token) as far,
    ):
        ok(far.get("/agents/me"))

        deleted = api.delete(path_of(created))

        assert (deleted.status_code, deleted.content) == (204, b"")
        refused(near.get("/agents/me"), 401, "UNAUTHORIZED")
        refused(far.get("/agents/me"), 401, "UNAUTHORIZED")
    refused(api.get(path_of(created)), 404, "REFERENCE_NOT_FOUND")
    refused(api.delete(path_of(created)), 404, "REFERENCE_NOT_FOUND")
    refused(api.patch(path_of(created), {"name": "x"}), 404, "REFERENCE_NOT_FOUND")
    refused(api.http.post(f"{path_of(created)}/device-codes"), 404, "REFERENCE_NOT_FOUND")
    code = created["deviceCode"]["code"]
    refused(redeem(api.root, code), 404, "REFERENCE_NOT_FOUND")
    refused(api.get(f"/agents/device-codes/{code}/status"), 404, "REFERENCE_NOT_FOUND")
    assert created["agent"]["id"] not in [item["id"] for item in ok(api.get("/agents"))["data"]]


def test_an_agent_is_deleted_with_its_customer(api: Api) -> None:
    customer = api.customer()["id"]
    created, waiting = create(api, customer), create(api, customer)
    with connected(api, created) as agent:
        ok(api.delete(f"/customers/{customer}"))

        refused(agent.get("/agents/me"), 401, "UNAUTHORIZED")
    refused(redeem(api.root, waiting["deviceCode"]["code"]), 404, "REFERENCE_NOT_FOUND")
    assert ok(api.get("/agents", customerId=customer))["data"] == []
    refused(api.post("/agents", agent_request(customer)), 400, "INVALID_INPUT")


def test_no_agent_is_created_for_a_customer_that_is_deleted_concurrently(
    api: Api, database_url: str
) -> None:
    for _ in range(10):
        customer = api.customer()["id"]
        with ThreadPoolExecutor(2) as pool:
            created = pool.submit(api.post, "/agents", agent_request(customer))
            deleted = pool.submit(api.delete, f"/customers/{customer}")

        assert deleted.result().status_code == 200
        assert created.result().status_code in {201, 400}
    with psycopg.connect(database_url) as connection:
        [row] = connection.execute(
            "SELECT count(*) FROM agents a JOIN customers c ON c.id = customer_id"
            " WHERE c.is_deleted AND a.deleted_at IS NULL"
        ).fetchall()
    assert row == (0,)


def test_a_customer_that_is_not_deleted_keeps_its_agents(api: Api) -> None:
    customer = api.customer()["id"]
    api.fund(api.account(customer)["id"], 5)
    with connected(api, create(api, customer)) as agent:
        refused(api.delete(f"/customers/{customer}"), 409, "CONFLICT")

        ok(agent.get("/agents/me"))


def test_a_paused_agent_reads_and_does_not_write(api: Api, customer: str) -> None:
    created = create(api, customer)
    with connected(api, created) as agent:
        account = made(agent.post(EXTERNAL, usd("8800000001")))

        paused = ok(api.patch(path_of(created), {"isPaused": True}))

        assert paused["isPaused"] is True
        assert ok(agent.get("/agents/me"))["isPaused"] is True
        ok(agent.get(f"{EXTERNAL}/{account['id']}"))
        error = refused(agent.post(EXTERNAL, usd("8800000002")), 403, "FORBIDDEN")
        assert error["details"] == {"reason": "AGENT_PAUSED"}
        refused(agent.delete(f"{EXTERNAL}/{account['id']}"), 403, "FORBIDDEN")
        ok(api.patch(path_of(created), {"isPaused": False}))
        made(agent.post(EXTERNAL, usd("8800000002")))


def test_a_changed_policy_applies_from_the_next_request_on(api: Api, customer: str) -> None:
    created = create(api, customer, permissions=[])
    with connected(api, created) as agent:
        ok(agent.get("/agents/me"))
        unseen = refused(agent.get("/agents/me/internal-accounts"), 403, "FORBIDDEN")
        refused(agent.get(EXTERNAL), 403, "FORBIDDEN")
        refused(agent.delete(f"{EXTERNAL}/nonsense"), 403, "FORBIDDEN")
        unregistered = refused(agent.post(EXTERNAL, {}), 403, "FORBIDDEN")

        granted = {"permissions": ["MANAGE_EXTERNAL_ACCOUNTS", "VIEW_TRANSACTIONS"]}
        ok(api.patch(f"{path_of(created)}/policy", granted))

        ok(agent.get("/agents/me/internal-accounts"))
        made(agent.post(EXTERNAL, usd("8800000003")))
    assert unseen["details"] == {"permission": "VIEW_TRANSACTIONS"}
    assert unregistered["details"] == {"permission": "MANAGE_EXTERNAL_ACCOUNTS"}


def test_the_pause_is_reported_before_a_missing_permission(api: Api, customer: str) -> None:
    created = create(api, customer, permissions=[])
    with connected(api, created) as agent:
        ok(api.patch(path_of(created), {"isPaused": True}))

        error = refused(agent.post(EXTERNAL, {}), 403, "FORBIDDEN")

    assert error["details"] == {"reason": "AGENT_PAUSED"}


# --- the platform's side -----------------------------------------------------------------------


@pytest.mark.parametrize("permission", ["VIEW", "TRANSACT", "MANAGE", "TOKENS", "AGENTS"])
def test_a_token_without_agents_can_only_read_agents(
    api: Api, customer: str, api_config: ApiConfig, permission: str
) -> None:
    created = create(api, customer, permissions=["VIEW_TRANSACTIONS"])
    path, code = path_of(created), created["deviceCode"]["code"]
    permissions = tuple({permission, "VIEW"})
    tenant = new_tenant(api_config.database_url, permissions=permissions, of=api.tenant)
    with Api(api.root, tenant) as held:
        ok(held.get("/agents"))
        ok(held.get(path))
        ok(held.get(f"/agents/device-codes/{code}/status"))
        writes = [
            held.patch(path, {"name": "x"}),
            held.patch(f"{path}/policy", {"permissions": []}),
            held.http.post(f"{path}/device-codes"),
            held.post("/agents", agent_request(customer, permissions=[])),
            held.delete(path),
        ]

    if permission == "AGENTS":
        assert [answer.status_code for answer in writes] == [200, 200, 201, 201, 204]
    else:
        for answer in writes:
            assert refused(answer, 403, "FORBIDDEN")["details"] == {"permission": "AGENTS"}


@pytest.mark.parametrize(
    ("granted", "needed"),
    [
        ("VIEW_TRANSACTIONS", {"VIEW"}),
        ("CREATE_TRANSFERS", {"VIEW", "TRANSACT"}),
        ("CREATE_QUOTES", {"VIEW", "TRANSACT"}),
        ("EXECUTE_QUOTES", {"VIEW", "TRANSACT"}),
        ("MANAGE_EXTERNAL_ACCOUNTS", {"VIEW", "MANAGE"}),
    ],
)
def test_a_token_grants_an_agent_at_most_its_own_permissions(
    api: Api, customer: str, api_config: ApiConfig, granted: str, needed: set[str]
) -> None:
    created = create(api, customer, permissions=[granted])
    path = path_of(created)
    ok(api.patch(path, {"isPaused": True}))
    for missing in needed:
        permissions = ("AGENTS", *(needed - {missing}))
        tenant = new_tenant(api_config.database_url, permissions=permissions, of=api.tenant)
        with Api(api.root, tenant) as weak:
            for answer in (
                weak.post("/agents", agent_request(customer, permissions=[granted])),
                weak.http.post(f"{path}/device-codes"),
                weak.patch(path, {"isPaused": False}),
                weak.patch(f"{path}/policy", {"spendingLimits": {"perTransactionLimit": 9}}),
            ):
                details = refused(answer, 403, "FORBIDDEN")["details"]
                assert details == {"missingPermissions": [missing]}
            ok(weak.patch(path, {"isPaused": True}))

    tenant = new_tenant(api_config.database_url, permissions=("AGENTS", *needed), of=api.tenant)
    with Api(api.root, tenant) as enough:
        made(enough.post("/agents", agent_request(customer, permissions=[granted])))
        made(enough.http.post(f"{path}/device-codes"))
        ok(enough.patch(path, {"isPaused": False}))


def test_permissions_are_taken_from_an_agent_without_having_them(
    api: Api, customer: str, api_config: ApiConfig
) -> None:
    path = path_of(create(api, customer, permissions=["CREATE_TRANSFERS"]))
    tenant = new_tenant(api_config.database_url, permissions=("VIEW", "AGENTS"), of=api.tenant)

    with Api(api.root, tenant) as weak:
        changed = ok(weak.patch(f"{path}/policy", {"permissions": []}))

    assert changed["policy"]["permissions"] == []


def test_an_agent_of_another_platform_is_not_found(
    api: Api, other_platform: Api, customer: str
) -> None:
    created = create(api, customer)
    path, code = path_of(created), created["deviceCode"]["code"]

    answers = [
        other_platform.get(path),
        other_platform.patch(path, {"name": "x"}),
        other_platform.patch(f"{path}/policy", {"permissions": []}),
        other_platform.http.post(f"{path}/device-codes"),
        other_platform.delete(path),
        other_platform.get(f"/agents/device-codes/{code}/status"),
    ]

    for answer in answers:
        refused(answer, 404, "REFERENCE_NOT_FOUND")
    assert created["agent"]["id"] not in [
        item["id"] for item in ok(other_platform.get("/agents"))["data"]
    ]
    refused(other_platform.post("/agents", agent_request(customer)), 400, "INVALID_INPUT")
    assert ok(api.get(path)) == created["agent"]
    ok(redeem(api.root, code))


def test_an_agent_can_be_renamed(api: Api, customer: str) -> None:
    created = create(api, customer)

    changed = ok(api.patch(path_of(created), {"name": "Clerk"}))

    assert changed["updatedAt"] > created["agent"]["updatedAt"]
    expected = {"name": "Clerk", "updatedAt": changed["updatedAt"]}
    assert changed == created["agent"] | expected


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": None},
        {"name": ""},
        {"isPaused": None},
        {"isPaused": "true"},
        {"isPaused": 1},
        {"policy": POLICY},
        {"customerId": f"Customer:{uuid4()}"},
    ],
)
def test_an_invalid_change_is_refused(api: Api, customer: str, body: dict[str, Any]) -> None:
    refused(api.patch(path_of(create(api, customer)), body), 400, "INVALID_INPUT")


def test_agents_are_listed_newest_first_and_filtered(own: Api) -> None:
    ada, eve = own.customer()["id"], own.customer()["id"]
    first, second, third = create(own, ada), create(own, ada), create(own, eve)
    ok(redeem(own.root, first["deviceCode"]["code"]))
    ok(own.patch(path_of(second), {"isPaused": True}))
    ids = [created["agent"]["id"] for created in (first, second, third)]

    def listed(**query: object) -> list[int]:
        return [ids.index(item["id"]) for item in ok(own.get("/agents", **query))["data"]]

    assert listed() == [2, 1, 0]
    assert listed(customerId=ada) == [1, 0]
    assert listed(customerId=f"Customer:{new_id()}") == []
    assert (listed(isPaused="true"), listed(isPaused="false")) == ([1], [2, 0])
    assert (listed(isConnected="true"), listed(isConnected="false")) == ([0], [2, 1])
    at = second["agent"]["createdAt"]
    assert (listed(createdAfter=at), listed(createdBefore=at)) == ([2, 1], [1, 0])
    assert listed(updatedAfter=third["agent"]["createdAt"]) == [2, 1, 0]
    assert listed(updatedBefore=second["agent"]["createdAt"]) == []
    page = ok(own.get("/agents", limit=2))
    assert (page["hasMore"], page["totalCount"]) == (True, 3)
    assert listed(limit=2, cursor=page["nextCursor"]) == [0]
    refused(own.get("/agents", isPaused="yes"), 400, "INVALID_INPUT")
    elsewhere = own.get("/agents", limit=2, cursor=page["nextCursor"], isPaused="true")
    refused(elsewhere, 400, "INVALID_INPUT")


# --- the policy --------------------------------------------------------------------------------


def test_a_policy_is_returned_as_it_was_sent(api: Api, customer: str) -> None:
    account = api.account(customer)["id"]
    policy = {
        "permissions": ["CREATE_TRANSFERS"],
        "defaultExecutionMode": "APPROVAL_REQUIRED",
        "spendingLimits": LIMITS
        | {"dailyLimit": 0, "dailyTransactionLimit": 3, "monthlyLimit": 2**63 - 1},
        "accountRestrictions": {
            "allowedAccountIds": [account],
            "accountRules": [{"accountId": account, "executionMode": "AUTO"}],
        },
        "approvalThresholds": {"currency": "USD", "amount": 500},
    }

    created = create(api, customer, **policy)

    assert created["agent"]["policy"] == policy


def test_a_policy_changes_in_part(api: Api, customer: str) -> None:
    account = api.account(customer)["id"]
    created = create(api, customer, approvalThresholds={"currency": "USD", "amount": 5})
    path = f"{path_of(created)}/policy"

    ok(api.patch(path, {"spendingLimits": {"dailyLimit": 7}}))
    ok(api.patch(path, {"accountRestrictions": {"allowedAccountIds": [account]}}))
    changed = ok(api.patch(path, {"permissions": ["EXECUTE_QUOTES"], "approvalThresholds": None}))

    assert changed["policy"] == {
        "permissions": ["EXECUTE_QUOTES"],
        "defaultExecutionMode": "AUTO",
        "spendingLimits": LIMITS | {"dailyLimit": 7},
        "accountRestrictions": {"allowedAccountIds": [account]},
    }
    assert changed == ok(api.get(path_of(created)))


def test_concurrent_changes_of_a_policy_are_all_kept(api: Api, customer: str) -> None:
    path = f"{path_of(create(api, customer))}/policy"
    parts = [
        {"spendingLimits": {"dailyLimit": 7}},
        {"spendingLimits": {"monthlyLimit": 8}},
        {"spendingLimits": {"dailyTransactionLimit": 9}},
        {"defaultExecutionMode": "APPROVAL_REQUIRED"},
    ]

    with ThreadPoolExecutor(4) as pool:
        for answer in pool.map(lambda part: api.patch(path, part), parts):
            ok(answer)

    policy = ok(api.get(path.removesuffix("/policy")))["policy"]
    limits = {"dailyLimit": 7, "monthlyLimit": 8, "dailyTransactionLimit": 9}
    assert policy["spendingLimits"] == LIMITS | limits
    assert policy["defaultExecutionMode"] == "APPROVAL_REQUIRED"


SOMEBODYS = f"InternalAccount:{uuid4()}"
RULE = {"accountId": SOMEBODYS}


@pytest.mark.parametrize(
    "part",
    [
        {"permissions": None},
        {"permissions": ["VIEW"]},
        {"permissions": ["VIEW_TRANSACTIONS", "VIEW_TRANSACTIONS"]},
        {"permissions": "VIEW_TRANSACTIONS"},
        {"defaultExecutionMode": "auto"},
        {"defaultExecutionMode": None},
        {"spendingLimits": None},
        {"spendingLimits": LIMITS | {"perTransactionLimit": -1}},
        {"spendingLimits": LIMITS | {"perTransactionLimit": 1.5}},
        {"spendingLimits": LIMITS | {"perTransactionLimit": "5"}},
        {"spendingLimits": LIMITS | {"perTransactionLimit": True}},
        {"spendingLimits": LIMITS | {"perTransactionLimit": 2**63}},
        {"spendingLimits": LIMITS | {"perTransactionLimit": None}},
        {"spendingLimits": LIMITS | {"dailyLimit": -1}},
        {"spendingLimits": LIMITS | {"monthlyLimit": -1}},
        {"spendingLimits": LIMITS | {"dailyTransactionLimit": -1}},
        {"spendingLimits": LIMITS | {"dailyTransactionLimit": 2**31}},
        {"spendingLimits": LIMITS | {"currency": "XXX"}},
        {"spendingLimits": LIMITS | {"weeklyLimit": 5}},
        {"accountRestrictions": {"allowedAccountIds": [SOMEBODYS]}},
        {"accountRestrictions": {"allowedAccountIds": ["Customer:1"]}},
        {"accountRestrictions": {"accountRules": [RULE]}},
        {"accountRestrictions": {"accountRules": [RULE, RULE]}},
        {"accountRestrictions": {"accountRules": [{"executionMode": "AUTO"}]}},
        {"accountRestrictions": {"accountRules": [RULE | {"perTransactionLimit": -1}]}},
        {"accountRestrictions": {"allowedAccountIds": [SOMEBODYS] * 2}},
        {"approvalThresholds": {"amount": 5}},
        {"approvalThresholds": {"currency": "USD"}},
        {"approvalThresholds": {"currency": "EUR", "amount": 5}},
        {"approvalThresholds": {"currency": "USD", "amount": -5}},
        {"surprise": True},
    ],
)
def test_an_invalid_policy_is_refused_at_creation_and_at_change(
    api: Api, customer: str, agent: AgentApi, part: dict[str, Any]
) -> None:
    path = f"/agents/{ok(agent.get('/agents/me'))['id']}"

    error = refused(api.post("/agents", agent_request(customer, **part)), 400, "INVALID_INPUT")
    refused(api.patch(f"{path}/policy", part), 400, "INVALID_INPUT")

    assert all(item["field"].startswith("policy") for item in error["details"]["errors"])
    assert ok(api.get(path))["policy"] == POLICY


def test_a_policy_names_only_accounts_of_its_customer(api: Api, customer: str) -> None:
    mine, others = api.account(customer)["id"], api.account(api.customer()["id"])["id"]
    restrictions = {
        "allowedAccountIds": [mine, others],
        "accountRules": [{"accountId": others}, {"accountId": mine}],
    }

    error = refused(
        api.post("/agents", agent_request(customer, accountRestrictions=restrictions)),
        400,
        "INVALID_INPUT",
    )

    assert [item["field"] for item in error["details"]["errors"]] == [
        "policy.accountRestrictions.allowedAccountIds.1",
        "policy.accountRestrictions.accountRules.0.accountId",
    ]


def test_limits_are_in_a_currency_of_the_platform(api: Api, customer: str) -> None:
    pounds = {"spendingLimits": {"currency": "GBP", "perTransactionLimit": 5}}
    path = f"{path_of(create(api, customer))}/policy"

    error = refused(api.post("/agents", agent_request(customer, **pounds)), 400, "INVALID_CURRENCY")
    refused(api.patch(path, pounds), 400, "INVALID_CURRENCY")

    assert error["details"]["errors"][0]["field"] == "policy.spendingLimits.currency"


@pytest.mark.parametrize("missing", ["permissions", "defaultExecutionMode", "spendingLimits"])
def test_a_policy_without_a_required_field_is_refused(
    api: Api, customer: str, missing: str
) -> None:
    body = agent_request(customer)
    body["policy"] = {name: value for name, value in POLICY.items() if name != missing}

    error = refused(api.post("/agents", body), 400, "INVALID_INPUT")

    assert error["details"]["errors"][0]["field"] == f"policy.{missing}"


def test_an_empty_change_is_refused(api: Api, customer: str) -> None:
    refused(api.patch(f"{path_of(create(api, customer))}/policy", {}), 400, "INVALID_INPUT")


# --- what an agent sees and registers ----------------------------------------------------------


def test_an_agent_sees_the_accounts_of_its_customer(
    api: Api, customer: str, agent: AgentApi
) -> None:
    there = ok(api.get("/customers/internal-accounts", customerId=customer))

    seen = ok(agent.get("/agents/me/internal-accounts"))

    assert seen == there
    assert seen["totalCount"] == 3
    euros = ok(agent.get("/agents/me/internal-accounts", currency="EUR"))["data"]
    assert [item["balance"]["currency"]["code"] for item in euros] == ["EUR"]
    crypto = ok(agent.get("/agents/me/internal-accounts", type="INTERNAL_CRYPTO"))["data"]
    assert [item["balance"]["currency"]["code"] for item in crypto] == ["USDC"]
    refused(agent.get("/agents/me/internal-accounts", customerId=customer), 400, "INVALID_INPUT")


def test_an_agent_sees_only_accounts_that_its_policy_allows(api: Api, customer: str) -> None:
    account = api.account(customer)
    created = create(api, customer, accountRestrictions={"allowedAccountIds": [account["id"]]})
    with connected(api, created) as agent:
        assert ok(agent.get("/agents/me/internal-accounts"))["data"] == [account]

        none: dict[str, Any] = {"accountRestrictions": {"allowedAccountIds": []}}
        ok(api.patch(f"{path_of(created)}/policy", none))

        assert ok(agent.get("/agents/me/internal-accounts"))["data"] == []


def test_a_cursor_of_another_agent_is_refused(api: Api, customer: str) -> None:
    with (
        connected(api, create(api, customer)) as agent,
        connected(api, create(api, customer)) as other_agent,
    ):
        path = "/agents/me/internal-accounts"
        cursor = ok(agent.get(path, limit=1))["nextCursor"]

        ok(agent.get(path, limit=1, cursor=cursor))
        refused(other_agent.get(path, limit=1, cursor=cursor), 400, "INVALID_INPUT")


def test_an_agent_registers_an_account_for_its_customer(
    api: Api, customer: str, agent: AgentApi
) -> None:
    created = made(agent.post(EXTERNAL, usd("8800000010", platformAccountId="mine")))

    path = f"{EXTERNAL}/{created['id']}"
    assert created["customerId"] == customer
    assert ok(agent.get(path)) == created
    assert ok(api.get(f"/customers/external-accounts/{created['id']}")) == created
    assert created in ok(agent.get(EXTERNAL, currency="USD"))["data"]
    assert created not in ok(agent.get(EXTERNAL, currency="EUR"))["data"]
    named = made(agent.post(EXTERNAL, usd("8800000011", customerId=customer)))
    assert named["customerId"] == customer
    deleted = agent.delete(path)
    assert (deleted.status_code, deleted.content) == (204, b"")
    refused(agent.get(path), 404, "REFERENCE_NOT_FOUND")
    refused(agent.delete(path), 404, "REFERENCE_NOT_FOUND")
    refused(agent.get(f"{EXTERNAL}/nonsense"), 404, "REFERENCE_NOT_FOUND")


def test_an_account_is_registered_once_by_platform_or_agent(
    api: Api, customer: str, agent: AgentApi
) -> None:
    made(agent.post(EXTERNAL, usd("8800000020")))

    refused(agent.post(EXTERNAL, usd("8800000020")), 409, "CONFLICT")
    refused(
        api.post("/customers/external-accounts", usd("8800000020", customerId=customer)),
        409,
        "CONFLICT",
    )
    with connected(api, create(api, customer)) as another:
        refused(another.post(EXTERNAL, usd("8800000020")), 409, "CONFLICT")
    with connected(api, create(api, api.customer()["id"])) as elsewhere:
        made(elsewhere.post(EXTERNAL, usd("8800000020")))


@pytest.mark.parametrize(
    "body",
    [
        {},
        usd("8800000030", customerId=f"Customer:{uuid4()}"),
        usd("8800000030", customerId="nonsense"),
        usd("8800000030", surprise=1),
        {"currency": "USD"},
    ],
)
def test_an_invalid_account_is_refused(agent: AgentApi, body: dict[str, Any]) -> None:
    refused(agent.post(EXTERNAL, body), 400, "INVALID_INPUT")


def test_an_agent_cannot_register_an_account_for_another_customer(
    api: Api, agent: AgentApi
) -> None:
    other = api.customer()["id"]

    error = refused(agent.post(EXTERNAL, usd("8800000031", customerId=other)), 400, "INVALID_INPUT")

    assert error["details"]["errors"][0]["field"] == "customerId"
    assert ok(api.get("/customers/external-accounts", customerId=other))["data"] == []


def test_an_agent_reaches_only_accounts_of_its_customer(
    api: Api, other_platform: Api, agent: AgentApi
) -> None:
    other = api.customer()["id"]
    others = [
        made(api.post("/customers/external-accounts", usd("8800000040", customerId=other))),
        made(api.post("/platform/external-accounts", usd("8800000041"))),
        made(other_platform.post("/platform/external-accounts", usd("8800000042"))),
    ]

    for item in others:
        refused(agent.get(f"{EXTERNAL}/{item['id']}"), 404, "REFERENCE_NOT_FOUND")
        refused(agent.delete(f"{EXTERNAL}/{item['id']}"), 404, "REFERENCE_NOT_FOUND")
        assert item not in ok(agent.get(EXTERNAL))["data"]
    assert ok(api.get(f"/customers/external-accounts/{others[0]['id']}")) == others[0]


def test_a_customer_has_one_default_account_registered_by_platform_or_agent(
    api: Api, customer: str, agent: AgentApi
) -> None:
    first = made(agent.post(EXTERNAL, usd("8800000050", defaultUmaDepositAccount=True)))
    body = usd("8800000051", customerId=customer, defaultUmaDepositAccount=True)
    made(api.post("/customers/external-accounts", body))

    assert ok(agent.get(f"{EXTERNAL}/{first['id']}"))["defaultUmaDepositAccount"] is False


# --- keys of requests --------------------------------------------------------------------------


def keyed(client: Api, path: str, body: object, key: str) -> httpx2.Response:
    return client.http.post(path, json=body, headers={"Idempotency-Key": key})


def test_a_repeated_request_of_an_agent_is_executed_once(agent: AgentApi) -> None:
    key = str(uuid4())
    first = keyed(agent, EXTERNAL, usd("8800000060"), key)

    again = keyed(agent, EXTERNAL, usd("8800000060"), key)

    assert made(again) == made(first)
    assert again.headers["idempotent-replayed"] == "true"
    refused(keyed(agent, EXTERNAL, usd("8800000061"), key), 409, "CONFLICT")


def test_an_idempotency_key_of_an_agent_is_its_own(
    api: Api, customer: str, agent: AgentApi
) -> None:
    key = str(uuid4())
    mine = made(keyed(agent, EXTERNAL, usd("8800000062"), key))
    with connected(api, create(api, api.customer()["id"])) as other:
        others = made(keyed(other, EXTERNAL, usd("8800000062"), key))
    person = {"customerType": "INDIVIDUAL", "fullName": "Ada"}
    platforms = made(keyed(api, "/customers", person, key))
    me = ok(agent.get("/agents/me"))["id"]
    spelled = made(keyed(api, "/customers", person, f"{me}{key}"))

    assert mine["customerId"] == customer
    assert len({item["id"] for item in (mine, others, platforms, spelled)}) == 4


def test_a_paused_agent_gets_no_stored_response(api: Api, customer: str) -> None:
    created, key = create(api, customer), str(uuid4())
    with connected(api, created) as agent:
        made(keyed(agent, EXTERNAL, usd("8800000063"), key))
        ok(api.patch(path_of(created), {"isPaused": True}))

        refused(keyed(agent, EXTERNAL, usd("8800000063"), key), 403, "FORBIDDEN")


def test_a_platform_token_of_no_tenant_sees_no_agent(api: Api, root: str) -> None:
    with Api(root, Tenant(api.tenant.platform_id, "clid_x", "clsk_x")) as unknown:
        refused(unknown.get("/agents"), 401, "UNAUTHORIZED")
        refused(unknown.post("/agents", {}), 401, "UNAUTHORIZED")
