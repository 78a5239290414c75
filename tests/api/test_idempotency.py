"""A request that is sent again with its key is answered again, and done once."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, cycle, islice
from typing import Any, Final
from uuid import uuid4

import httpx2
import psycopg
import pytest

from cardledger.api import BASE_PATH
from cardledger.api.app import ApiConfig
from cardledger.ledger.storage.secrets.key_ring import KeyRing, ServerKey
from cardledger.ledger.storage.secrets.sealed_columns import ANSWER
from cardledger.webhooks.receiver import Reply
from tests.api import contract
from tests.api.support import (
    AGENT_POLICY,
    SECRET_KEY,
    TIMEOUT_S,
    AgentApi,
    Api,
    authorization,
    closed_port,
    made,
    new_tenant,
    ok,
    refused,
    rejected,
    server,
)
from tests.api.test_beneficial_owners import INFO
from tests.api.test_beneficial_owners import PERSON as OWNER
from tests.api.test_transfers import scene_of
from tests.external_accounts import body as external_account
from tests.receiver import Receiver
from tests.waiting import eventually

PERSON = {"customerType": "INDIVIDUAL", "fullName": "Ada"}
BUSINESS = {"customerType": "BUSINESS", "businessInfo": INFO}


def post(api: Api, path: str, body: object, key: str | bytes) -> httpx2.Response:
    sent = key if isinstance(key, bytes) else key.encode()
    return api.http.post(path, json=body, headers={b"Idempotency-Key": sent})


def count(url: str, table: str) -> int:
    with psycopg.connect(url) as connection:
        [row] = connection.execute(f"SELECT count(*) FROM {table}").fetchall()
    return int(row[0])


def lose_answers(owner_url: str) -> None:
    """Leave the record as a crash does that comes after the effect and before the answer."""
    with psycopg.connect(owner_url) as connection:
        connection.execute("UPDATE idempotency_keys SET status = NULL, answer = NULL")


@pytest.fixture(scope="module")
def other_process(api_config: ApiConfig, api: Api) -> Iterator[Api]:
    """The same platform's token at another server on the same database."""
    with server(api_config) as url, Api(url, api.tenant) as client:
        yield client


@dataclass(frozen=True)
class Post:
    """A POST that can be sent, with all that it needs."""

    caller: Api
    path: str
    body: object

    def send(self, key: str) -> httpx2.Response:
        return post(self.caller, self.path, self.body, key)

    def at(self, root: str) -> Api:
        """Return its caller as a client of another server."""
        if isinstance(self.caller, AgentApi):
            return AgentApi(root, self.caller.access_token)
        return Api(root, self.caller.tenant)


ELSEWHERE: Final = {
    "/agents/me/quotes",
    "/agents/me/quotes/{quoteId}/execute",
    "/crypto/estimate-withdrawal-fee",
    "/customers/bulk/csv",
    "/customers/external-accounts/{externalAccountId}/challenge",
    "/customers/external-accounts/{externalAccountId}/trust",
    "/customers/external-accounts/{externalAccountId}/trust/confirm",
    "/customers/external-accounts/{externalAccountId}/untrust",
    "/customers/external-accounts/{externalAccountId}/untrust/confirm",
    "/customers/external-accounts/{externalAccountId}/verify",
    "/customers/{customerId}/kyc-link",
    "/customers/{customerId}/verify-email",
    "/customers/{customerId}/verify-email/confirm",
    "/customers/{customerId}/verify-phone",
    "/customers/{customerId}/verify-phone/confirm",
    "/documents",
    "/platform/external-accounts/{externalAccountId}/challenge",
    "/platform/external-accounts/{externalAccountId}/verify",
    "/quotes",
    "/quotes/{quoteId}/authorize",
    "/quotes/{quoteId}/authorize/resend",
    "/quotes/{quoteId}/execute",
    "/sandbox/exchange-rates",
    "/sandbox/send",
    "/sca/factors",
    "/sca/factors/confirm",
    "/sca/factors/reset",
    "/sca/factors/reset/{resetId}/complete",
    "/sca/login/complete",
    "/sca/login/start",
    "/sca/record-event",
    "/transactions/{transactionId}/cancel",
    "/transactions/{transactionId}/confirm",
    "/transfer-in",
    "/transfer-out",
}
"""Operations that need a customer, code, file or quote of their own to succeed.

`test_repetitions.py` sends each of them twice.
"""


def requests_of(api: Api, database_url: str) -> Iterator[Post]:
    """Yield a request for every POST of the interface that is built."""
    for area in (
        of_customers,
        of_accounts,
        of_cards,
        of_simulators,
        of_agents,
        of_decisions,
        by_agents,
        of_webhooks,
        of_the_sandboxes_webhook,
        of_uma,
    ):
        yield from area(api)
    yield from of_rejections(api, database_url)


def of_customers(api: Api) -> Iterator[Post]:
    yield Post(api, "/customers", PERSON)
    acme = made(api.post("/customers", BUSINESS))["id"]
    share = {"customerId": acme, "roles": ["UBO"], "ownershipPercentage": 1, "personalInfo": OWNER}
    yield Post(api, "/beneficial-owners", share)
    yield Post(api, "/verifications", {"customerId": acme})
    yield Post(api, "/tokens", {"name": "till", "permissions": ["VIEW"]})
    till = made(api.post("/tokens", {"name": "till", "permissions": ["VIEW"]}))["id"]
    yield Post(api, f"/tokens/{till}/rotate-secret", {})


def of_accounts(api: Api) -> Iterator[Post]:
    customer = api.customer()["id"]
    account = api.account(customer)["id"]
    yield Post(api, f"/sandbox/internal-accounts/{account}/fund", {"amount": 5})
    yield Post(api, "/customers/internal-accounts", {"customerId": customer, "currency": "USD"})
    theirs = external_account("EUR_ACCOUNT", customerId=customer)
    yield Post(api, "/customers/external-accounts", theirs)
    yield Post(api, "/platform/external-accounts", external_account("USD_ACCOUNT"))


def of_cards(api: Api) -> Iterator[Post]:
    card = api.active_card()
    same = {name: card[name] for name in ("cardholderId", "form", "fundingSources")}
    yield Post(api, "/cards", same)
    yield Post(api, f"/cards/{card['id']}/reveal", {})


def of_simulators(api: Api) -> Iterator[Post]:
    card = api.active_card()
    simulate = f"/sandbox/cards/{card['id']}/simulate"

    def parent(*, cleared: bool = False) -> dict[str, Any]:
        bought = api.authorize(card["id"], 100)
        if cleared:
            api.clear(card["id"], bought["id"], 100)
        return {"cardTransactionId": bought["id"]}

    def refund() -> dict[str, Any]:
        sent_body = parent(cleared=True)
        ok(api.simulate(card["id"], "return", sent_body | {"amount": 40}))
        return sent_body

    yield Post(api, f"{simulate}/balance_inquiry", {"merchant": {"descriptor": "SHOP"}})
    yield Post(api, f"{simulate}/authorization", authorization(100))
    yield Post(api, f"{simulate}/financial_authorization", authorization(100))
    yield Post(api, f"{simulate}/financial_credit_authorization", authorization(100))
    yield Post(api, f"{simulate}/credit_authorization", authorization(100))
    yield Post(api, f"{simulate}/credit_authorization_advice", authorization(100))
    yield Post(api, f"{simulate}/clearing", parent() | {"amount": 120})
    yield Post(api, f"{simulate}/authorization_advice", parent() | {"amount": 120})
    yield Post(api, f"{simulate}/authorization_reversal", parent())
    yield Post(api, f"{simulate}/authorization_expiry", parent())
    yield Post(api, f"{simulate}/return", parent(cleared=True) | {"amount": 60})
    yield Post(api, f"{simulate}/return_reversal", refund())


def of_agents(api: Api) -> Iterator[Post]:
    wish = {"name": "bookkeeper", "customerId": api.customer()["id"], "policy": AGENT_POLICY}
    yield Post(api, "/agents", wish)
    created = made(api.post("/agents", wish))
    yield Post(api, f"/agents/{created['agent']['id']}/device-codes", {})
    created = made(api.post("/agents", wish))
    yield Post(api, f"/agents/device-codes/{created['deviceCode']['code']}/redeem", {})


def of_decisions(api: Api) -> Iterator[Post]:
    for decision in ("approve", "reject"):
        yield Post(api, f"/transactions/{waiting(api)[1]}/{decision}", {})
        yield Post(api, f"{waiting(api)[0]}/{decision}", {})


def waiting(api: Api) -> tuple[str, str]:
    """Return the path of an action that waits for approval, and the id of its transaction.

    Approved, it fails, because its agent is paused by then; so nothing moves.
    """
    scene = scene_of(api, defaultExecutionMode="APPROVAL_REQUIRED")
    with scene.agent:
        action, transaction = scene.waiting()
    ok(api.patch(f"/agents/{scene.agent_id}", {"isPaused": True}))
    return scene.action_path(action), transaction["id"]


def by_agents(api: Api) -> Iterator[Post]:
    # What has to be approved moves nothing; what happens at once is in test_transfers.py.
    scene = scene_of(api, defaultExecutionMode="APPROVAL_REQUIRED")
    with scene.agent as agent:
        yield Post(agent, "/agents/me/transfer-out", scene.body())
        yield Post(agent, "/agents/me/transfer-in", scene.body())
        yield Post(agent, "/agents/me/external-accounts", external_account("GBP_ACCOUNT"))


def of_webhooks(api: Api) -> Iterator[Post]:
    nowhere = {"url": f"http://127.0.0.1:{closed_port()}/", "state": "DISABLED"}
    endpoint = made(api.post("/webhooks/endpoints", nowhere))["id"]
    tested = ok(api.post("/webhooks/test", {"endpointId": endpoint}))
    yield Post(api, "/webhooks/endpoints", nowhere)
    yield Post(api, f"/webhooks/endpoints/{endpoint}/rotate-secret", {})
    yield Post(api, "/webhooks/signing-keys/rotate", {})
    yield Post(api, "/webhooks/test", {"endpointId": endpoint})
    yield Post(api, f"/webhooks/deliveries/{tested['deliveryId']}/retry", {})
    since = "2020-01-01T00:00:00Z"
    yield Post(api, "/webhooks/replay", {"since": since, "endpointId": endpoint})


def of_the_sandboxes_webhook(api: Api) -> Iterator[Post]:
    with Receiver() as receiver:
        receiver.reply_always(Reply())
        ok(api.patch("/config", {"webhookEndpoint": receiver.url}))
        [default] = [one for one in ok(api.get("/webhooks/endpoints"))["data"] if one["isDefault"]]
        # Otherwise what the others have done might be counted while this one is.
        ok(api.patch(f"/webhooks/endpoints/{default['id']}", {"state": "DISABLED"}))
        yield Post(api, "/sandbox/webhooks/test", None)


def of_uma(api: Api) -> Iterator[Post]:
    inviter, invitee = api.customer(), api.customer()

    def invitation() -> str:
        wish = {"inviterUma": inviter["umaAddress"]}
        return f"/invitations/{made(api.post('/invitations', wish))['code']}"

    yield Post(api, "/invitations", {"inviterUma": inviter["umaAddress"], "amountToSend": 5})
    yield Post(api, f"{invitation()}/claim", {"inviteeUma": invitee["umaAddress"]})
    yield Post(api, f"{invitation()}/cancel", {})
    arriving = {
        # It ends at once: what awaits an approval would be counted later.
        "senderUmaAddress": "$fail.compliance.usd@sandbox.uma.money",
        "receivingCurrencyCode": "USD",
        "receivingCurrencyAmount": 5,
        "customerId": inviter["id"],
    }
    yield Post(api, "/sandbox/uma/receive", arriving)


def of_rejections(api: Api, database_url: str) -> Iterator[Post]:
    event = {  # It is parked, so that nothing is counted later.
        "type": "AUTHORIZATION_REVERSAL",
        "source": "visa",
        "reference": str(uuid4()),
        "issuerTransactionToken": "none",
        "cardId": api.active_card()["id"],
        "currency": "USD",
    }
    yield Post(api, f"/rejections/{rejected(database_url, api, event)}/retry", {})


TABLES = (
    "api_tokens",
    "customers",
    "cards",
    "card_reveals",
    "external_accounts",
    "beneficial_owners",
    "verifications",
    "agents",
    "agent_device_codes",
    "agent_actions",
    "transfers",
    "invitations",
    "internal_accounts",
    "entries",
    "card_transaction_events",
    "deposits",
    "webhook_endpoints",
    "webhook_signing_keys",
    "webhook_attempts",
)


def counted(url: str) -> dict[str, int]:
    return {table: count(url, table) for table in TABLES}


UNSTORED: Final = {
    "/tokens": ["clientSecret"],
    "/tokens/{tokenId}/rotate-secret": ["clientSecret"],
    "/agents": ["deviceCode.code"],
    "/agents/{agentId}/device-codes": ["code"],
    "/agents/device-codes/{code}/redeem": ["accessToken"],
    "/webhooks/deliveries/{webhookDeliveryId}/retry": ["attemptList", "payload"],
    "/webhooks/endpoints": ["secret"],
    "/webhooks/endpoints/{webhookEndpointId}/rotate-secret": ["secret"],
}
"""The fields of a response that a repetition does not have, by operation."""


def as_stored(request: Post, answer: dict[str, Any]) -> dict[str, Any]:
    """Return `answer` as a repetition of `request` has it, after checking that it has the rest."""
    answer = deepcopy(answer)
    for path in UNSTORED.get(contract.path_of(BASE_PATH + request.path) or "", ()):
        *parents, name = path.split(".")
        part = answer
        for parent in parents:
            part = part[parent]
        assert part.pop(name), request.path
    return answer


def test_every_post_is_done_once_and_answered_again(api: Api, app_database_url: str) -> None:
    for one in requests_of(api, app_database_url):
        key = str(uuid4())
        first = one.send(key)
        assert first.status_code in {200, 201}, (one.path, first.text)
        before = counted(app_database_url)

        again = one.send(key)

        assert again.status_code == first.status_code, one.path
        assert again.json() == as_stored(one, first.json()), one.path
        assert again.headers["idempotent-replayed"] == "true"
        assert "idempotent-replayed" not in first.headers
        assert counted(app_database_url) == before, one.path


def test_every_post_of_the_interface_is_among_the_tested_requests(
    api: Api, app_database_url: str
) -> None:
    posts = {
        path
        for path, method, sent_body in contract.operations()
        if method == "post" and "x-unimplemented" not in sent_body
        if not contract.takes_events(sent_body)
    }

    tried = {contract.path_of(BASE_PATH + one.path) for one in requests_of(api, app_database_url)}

    assert tried | ELSEWHERE == posts
    assert tried & ELSEWHERE == set()


def test_a_key_stands_for_one_request(api: Api, app_database_url: str) -> None:
    key = str(uuid4())
    made(post(api, "/customers", PERSON, key))
    account = api.account(api.customer()["id"])["id"]
    before = counted(app_database_url)

    refused(post(api, "/customers", PERSON | {"fullName": "Bob"}, key), 409, "CONFLICT")
    refused(post(api, f"/cards/Card:{uuid4()}/reveal", {}, key), 409, "CONFLICT")
    fund = f"/sandbox/internal-accounts/{account}/fund"
    refused(post(api, fund, {"amount": 5}, key), 409, "CONFLICT")

    assert counted(app_database_url) == before


def test_the_order_of_names_in_a_body_says_nothing(api: Api) -> None:
    key = str(uuid4())

    first = made(post(api, "/customers", PERSON, key))

    assert made(post(api, "/customers", dict(reversed(PERSON.items())), key)) == first


def test_an_id_in_the_path_is_the_same_percent_encoded(api: Api) -> None:
    card, key = api.active_card(balance=0), str(uuid4())
    path = f"/cards/{card['id']}/reveal"

    first = ok(post(api, path, {}, key))

    assert ok(post(api, path.replace(":", "%3A"), {}, key)) == first


def test_keys_of_two_platforms_are_two_keys(api: Api, other_platform: Api) -> None:
    key = str(uuid4())

    mine = made(post(api, "/customers", PERSON, key))
    theirs = made(post(other_platform, "/customers", PERSON | {"fullName": "Bob"}, key))

    assert mine["id"] != theirs["id"]


@pytest.mark.parametrize("key", ["", "x" * 256, "two words", "schl\u00fcssel".encode()])
def test_an_invalid_idempotency_key_is_refused(
    api: Api, app_database_url: str, key: str | bytes
) -> None:
    before = counted(app_database_url)

    body = refused(post(api, "/customers", PERSON, key), 400, "INVALID_INPUT")

    assert body["details"] == {"header": "Idempotency-Key"}
    assert counted(app_database_url) == before


def test_two_keys_on_one_request_are_refused(api: Api) -> None:
    headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]

    refused(api.http.post("/customers", json=PERSON, headers=headers), 400, "INVALID_INPUT")


def test_a_key_has_up_to_255_characters(api: Api) -> None:
    made(post(api, "/customers", PERSON, str(uuid4()).ljust(255, "x")))


def test_a_replay_needs_the_permission_of_the_first(
    api: Api, root: str, api_config: ApiConfig
) -> None:
    key = str(uuid4())
    made(post(api, "/customers", PERSON, key))
    viewer = new_tenant(api_config.database_url, permissions=("VIEW",), of=api.tenant)

    with Api(root, viewer) as looking:
        refused(post(looking, "/customers", PERSON, key), 403, "FORBIDDEN")


def test_a_secret_that_an_earlier_release_stored_is_not_returned(
    api: Api, database_url: str
) -> None:
    key, wish = str(uuid4()), {"name": "till", "permissions": ["VIEW"]}
    first = post(api, "/tokens", wish, key)
    earlier = KeyRing(ServerKey(SECRET_KEY, binds=False))
    sealed = earlier.encrypt(first.content, ANSWER.of(api.tenant.platform_id, key))
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE idempotency_keys SET answer = %s WHERE key = %s", [sealed, key])

    again = made(post(api, "/tokens", wish, key))

    assert "clientSecret" not in again
    assert again["id"] == made(first)["id"]


def test_a_secret_is_not_stored_with_a_key(api: Api, database_url: str) -> None:
    key = str(uuid4())
    secret = made(post(api, "/tokens", {"name": "till", "permissions": ["VIEW"]}, key))

    with psycopg.connect(database_url) as connection:
        [row] = connection.execute(
            "SELECT answer FROM idempotency_keys WHERE key = %s", [key]
        ).fetchall()

    location = ANSWER.of(api.tenant.platform_id, key)
    assert secret["clientSecret"].encode() not in KeyRing(SECRET_KEY).decrypt(row[0], location)


def test_a_refused_request_is_decided_again_under_the_same_key(api: Api) -> None:
    key, identifier = str(uuid4()), str(uuid4())
    owner = api.customer(platformCustomerId=identifier)
    wish = PERSON | {"platformCustomerId": identifier}
    refused(post(api, "/customers", wish, key), 409, "CONFLICT")

    refused(post(api, "/customers", wish, key), 409, "CONFLICT")
    other = made(post(api, "/customers", PERSON, key))

    assert other["id"] != owner["id"]


def test_many_at_once_make_one_resource_and_equal_answers(
    api: Api, other_process: Api, app_database_url: str
) -> None:
    key = str(uuid4())
    before = count(app_database_url, "customers")

    with ThreadPoolExecutor(32) as pool:
        clients = islice(cycle([api, other_process]), 200)
        answers = list(pool.map(lambda one: post(one, "/customers", PERSON, key), clients))

    assert {(answer.status_code, answer.content) for answer in answers} == {
        (201, answers[0].content)
    }
    assert count(app_database_url, "customers") == before + 1


def test_requests_with_keys_do_not_wait_for_each_others_connections(api: Api) -> None:
    card = api.active_card()
    spent = api.authorize(card["id"], 5)
    path = f"{api.root}{BASE_PATH}/transactions/{spent['id']}/approve"
    sender = api.tenant.client_id, api.tenant.client_secret

    async def send() -> list[int]:
        async with httpx2.AsyncClient(auth=sender, timeout=TIMEOUT_S) as client:
            keys = [{"Idempotency-Key": str(uuid4())} for _ in range(250)]
            answers = await asyncio.gather(*(client.post(path, headers=key) for key in keys))
        return [answer.status_code for answer in answers]

    # More than there are connections, each of which reads while its key has one.
    assert set(asyncio.run(send())) == {409}


def test_many_at_once_move_money_once(api: Api, other_process: Api, app_database_url: str) -> None:
    card = api.active_card(balance=1000)
    path = f"/sandbox/cards/{card['id']}/simulate/authorization"
    before = count(app_database_url, "card_transactions")

    def ask(asked: tuple[Api, str]) -> httpx2.Response:
        return post(asked[0], path, authorization(10), asked[1])

    for key in (str(uuid4()) for _ in range(5)):
        with ThreadPoolExecutor(16) as pool:
            clients = islice(cycle([api, other_process]), 40)
            answers = list(pool.map(ask, ((client, key) for client in clients)))
        assert {(answer.status_code, answer.content) for answer in answers} == {
            (200, answers[0].content)
        }

    assert count(app_database_url, "card_transactions") == before + 5
    assert api.account(card["cardholderId"])["balance"]["amount"] == 950


def answered(request: Post, key: str) -> httpx2.Response:
    """Send `request` until it has been processed: a busy server asks to send it again later."""

    def look() -> httpx2.Response | None:
        response = request.send(key)
        return None if response.status_code in {429, 503} else response

    return eventually(look)


def test_every_post_that_comes_often_at_once_is_done_once(
    root: str, other_process: Api, other_platform: Api, app_database_url: str
) -> None:
    # One of each kind is done alone before, so that we know what one does.
    tenant = new_tenant(app_database_url)
    with Api(root, tenant) as api:
        for here, alone in zip(
            requests_of(api, app_database_url),
            requests_of(other_platform, app_database_url),
            strict=True,
        ):
            before = counted(app_database_url)
            single = alone.send(str(uuid4()))
            between = counted(app_database_url)

            with here.at(other_process.root) as there, ThreadPoolExecutor(16) as pool:
                asked = [here, replace(here, caller=there)] * 8  # All at once.
                key = f"key-of-{here.path}"
                answers = list(pool.map(partial(answered, key=key), asked))

            firsts = [one for one in answers if "idempotent-replayed" not in one.headers]
            assert len(firsts) == 1, (here.path, [(one.status_code, one.text) for one in firsts])
            [first] = firsts
            repeated = as_stored(here, first.json())
            for answer in answers:
                assert answer.status_code == single.status_code, here.path
                assert answer is first or answer.json() == repeated, here.path
            assert single.status_code in {200, 201}, single.text
            after = counted(app_database_url)
            assert {table: after[table] - between[table] for table in TABLES} == {
                table: between[table] - before[table] for table in TABLES
            }, here.path


def test_of_two_requests_at_once_with_one_key_one_is_done(
    api: Api, other_process: Api, app_database_url: str
) -> None:
    before = count(app_database_url, "customers")
    wishes = [PERSON, PERSON | {"fullName": "Bob"}]

    for key in (str(uuid4()) for _ in range(5)):
        with ThreadPoolExecutor(16) as pool:
            asked = islice(zip(cycle([api, api, other_process]), cycle(wishes), strict=False), 24)
            answers = list(
                pool.map(lambda one, key=key: post(one[0], "/customers", one[1], key), asked)
            )

        done = {answer.content for answer in answers if answer.status_code == 201}
        assert len(done) == 1
        for answer in answers:
            if answer.status_code != 201:
                refused(answer, 409, "CONFLICT")
        assert {answer.status_code for answer in answers} == {201, 409}

    assert count(app_database_url, "customers") == before + 5


def test_an_answer_that_was_lost_in_a_crash_is_given_without_a_second_effect(
    api: Api, database_url: str
) -> None:
    for one in chain(of_simulators(api), of_accounts(api)):
        if not one.path.startswith("/sandbox"):
            continue  # Elsewhere the answer is in the commit of the effect.
        key = str(uuid4())
        first = ok(one.send(key))
        before = counted(database_url)
        lose_answers(database_url)

        again = ok(one.send(key))

        assert again.get("id") == first.get("id")
        assert again.get("status") == first.get("status")
        assert counted(database_url) == before, one.path


def test_a_replay_does_not_judge_a_card_transaction_that_was_modified_since(
    api: Api, database_url: str
) -> None:
    card = api.active_card()
    bought = api.authorize(card["id"], 100)
    sent_body = {"cardTransactionId": bought["id"], "amount": 100}
    path, key = f"/sandbox/cards/{card['id']}/simulate/clearing", str(uuid4())
    ok(post(api, path, sent_body, key))
    lose_answers(database_url)

    again = ok(post(api, path, sent_body, key))

    assert again["settlementSummary"] == {"count": 1, "totalAmount": 100}
    late = ok(post(api, path, sent_body, str(uuid4())))
    assert late["settlementSummary"] == {"count": 2, "totalAmount": 200}


def test_a_row_is_there_with_its_key_or_not_at_all(
    api: Api, database_url: str, app_database_url: str
) -> None:
    key, before = str(uuid4()), count(app_database_url, "customers")
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "ALTER TABLE idempotency_keys ADD CONSTRAINT broken CHECK (status IS NULL) NOT VALID"
        )
    refused(post(api, "/customers", PERSON, key), 500, "INTERNAL_ERROR")
    with psycopg.connect(database_url) as connection:
        connection.execute("ALTER TABLE idempotency_keys DROP CONSTRAINT broken")

    assert count(app_database_url, "customers") == before
    made(post(api, "/customers", PERSON, key))
    assert count(app_database_url, "customers") == before + 1


def test_a_message_that_was_not_decided_in_time_is_sent_again_and_done_once(
    api: Api, api_config: ApiConfig
) -> None:
    # A notification without a listener, so that no worker decides too early.
    account = api.account(api.customer()["id"])
    path, key = f"/sandbox/internal-accounts/{account['id']}/fund", str(uuid4())
    impatient = replace(
        api_config, reply_timeout_s=0.001, redis_url=f"redis://127.0.0.1:{closed_port()}"
    )
    with server(impatient) as url, Api(url, api.tenant) as hasty:
        message = refused(post(hasty, path, {"amount": 5}, key), 503, "SERVICE_UNAVAILABLE")

    assert "same Idempotency-Key" in message["message"]
    first = ok(post(api, path, {"amount": 5}, key))
    assert first["balance"]["amount"] == 5
    assert ok(post(api, path, {"amount": 5}, key)) == first
    assert api.account(account["customerId"])["balance"]["amount"] == 5


def test_an_answer_is_not_kept_in_clear(api: Api, database_url: str) -> None:
    key = str(uuid4())
    person = PERSON | {"fullName": f"Name {uuid4()}"}
    made(post(api, "/customers", person, key))

    with psycopg.connect(database_url) as connection:
        [row] = connection.execute(
            "SELECT answer, event FROM idempotency_keys WHERE key = %s", [key]
        ).fetchall()

    assert person["fullName"].encode() not in row[0]
    assert row[1] is None


def test_an_idempotency_key_can_be_neither_deleted_nor_changed_by_the_application(
    app_database_url: str,
) -> None:
    with psycopg.connect(app_database_url) as connection:
        for statement in (
            "DELETE FROM idempotency_keys",
            "UPDATE idempotency_keys SET request_hash = 'x'",
            "UPDATE idempotency_keys SET event = NULL",
            "UPDATE idempotency_keys SET key = 'x'",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                connection.execute(statement.encode())
