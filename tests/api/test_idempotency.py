"""A request that is sent again with its key is answered again, and done once."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import cycle, islice
from typing import Any
from uuid import uuid4

import httpx2
import psycopg
import pytest

from api.app import ApiConfig, create_app
from tests.api.support import (
    Api,
    authorization,
    closed_port,
    made,
    new_tenant,
    ok,
    refused,
    server,
)
from tests.external_accounts import body as external_account

PERSON = {"customerType": "INDIVIDUAL", "fullName": "Ada"}


def post(api: Api, path: str, body: object, key: str) -> httpx2.Response:
    return api.http.post(path, json=body, headers={"Idempotency-Key": key})


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


def requests_of(api: Api) -> Iterator[tuple[str, object]]:
    """Yield a request for every POST of the interface, each with all that it needs."""
    card = api.active_card()
    customer, account = card["cardholderId"], card["fundingSources"][0]
    simulate = f"/sandbox/cards/{card['id']}/simulate"

    def parent(*, cleared: bool = False) -> dict[str, Any]:
        bought = api.authorize(card["id"], 100)
        if cleared:
            api.clear(card["id"], bought["id"], 100)
        return {"cardTransactionId": bought["id"]}

    def refund() -> dict[str, Any]:
        said = parent(cleared=True)
        ok(api.simulate(card["id"], "return", said | {"amount": 40}))
        return said

    yield "/customers", PERSON
    yield (
        "/cards",
        {"cardholderId": customer, "form": "VIRTUAL", "fundingSources": [account]},
    )
    yield f"/cards/{card['id']}/reveal", {}
    yield f"/sandbox/internal-accounts/{account}/fund", {"amount": 5}
    yield f"{simulate}/authorization", authorization(100)
    yield f"{simulate}/financial_authorization", authorization(100)
    yield f"{simulate}/financial_credit_authorization", authorization(100)
    yield f"{simulate}/clearing", parent() | {"amount": 120}
    yield f"{simulate}/authorization_advice", parent() | {"amount": 120}
    yield f"{simulate}/authorization_reversal", parent()
    yield f"{simulate}/authorization_expiry", parent()
    yield f"{simulate}/return", parent(cleared=True) | {"amount": 60}
    yield f"{simulate}/return_reversal", refund()
    yield "/platform/external-accounts", external_account("USD_ACCOUNT")
    yield "/customers/external-accounts", external_account("EUR_ACCOUNT", customerId=customer)
    yield "/tokens", {"name": "till", "permissions": ["VIEW"]}
    yield f"{simulate}/balance_inquiry", {"merchant": {"descriptor": "SHOP"}}


TABLES = (
    "api_tokens",
    "customers",
    "cards",
    "card_reveals",
    "external_accounts",
    "entries",
    "card_transaction_events",
    "deposits",
)


def counted(url: str) -> dict[str, int]:
    return {table: count(url, table) for table in TABLES}


def test_every_post_is_done_once_and_answered_again(api: Api, app_database_url: str) -> None:
    for path, body in requests_of(api):
        key = str(uuid4())
        first = post(api, path, body, key)
        assert first.status_code in {200, 201}, (path, first.text)
        before = counted(app_database_url)

        again = post(api, path, body, key)

        assert (again.status_code, again.content) == (first.status_code, first.content), path
        assert again.headers["idempotent-replayed"] == "true"
        assert "idempotent-replayed" not in first.headers
        assert counted(app_database_url) == before, path


def test_no_post_is_forgotten_here(api: Api, api_config: ApiConfig) -> None:
    posts = {
        path.rpartition("/")[2]
        for path, operations in create_app(api_config).openapi()["paths"].items()
        if "post" in operations
    }

    tried = {path.rpartition("/")[2] for path, _ in requests_of(api)}

    never_succeed = {"credit_authorization", "credit_authorization_advice"}
    assert posts == tried | never_succeed


def test_a_key_stands_for_one_request(api: Api, app_database_url: str) -> None:
    key = str(uuid4())
    made(post(api, "/customers", PERSON, key))
    account = api.account(api.customer()["id"])["id"]
    before = counted(app_database_url)

    refused(post(api, "/customers", PERSON | {"fullName": "Bob"}, key), 409, "CONFLICT")
    refused(post(api, f"/cards/Card:{uuid4()}/reveal", PERSON, key), 409, "CONFLICT")
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


def test_keys_of_two_platforms_are_two_keys(api: Api, stranger: Api) -> None:
    key = str(uuid4())

    mine = made(post(api, "/customers", PERSON, key))
    theirs = made(post(stranger, "/customers", PERSON | {"fullName": "Bob"}, key))

    assert mine["id"] != theirs["id"]


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_a_key_that_is_none_is_refused(api: Api, app_database_url: str, key: str) -> None:
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


def test_what_was_refused_is_judged_anew(api: Api) -> None:
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


def test_an_answer_that_was_lost_in_a_crash_is_given_without_a_second_effect(
    api: Api, database_url: str
) -> None:
    for path, body in requests_of(api):
        if not path.startswith("/sandbox"):
            continue  # Elsewhere the answer is in the commit of the effect.
        key = str(uuid4())
        first = ok(post(api, path, body, key))
        before = counted(database_url)
        lose_answers(database_url)

        again = ok(post(api, path, body, key))

        assert again.get("id") == first.get("id")
        assert again.get("status") == first.get("status")
        assert counted(database_url) == before, path


def test_a_card_transaction_that_went_on_meanwhile_is_not_judged_again(
    api: Api, database_url: str
) -> None:
    card = api.active_card()
    bought = api.authorize(card["id"], 100)
    said = {"cardTransactionId": bought["id"], "amount": 100}
    path, key = f"/sandbox/cards/{card['id']}/simulate/clearing", str(uuid4())
    ok(post(api, path, said, key))
    lose_answers(database_url)

    again = ok(post(api, path, said, key))

    assert again["settlementSummary"] == {"count": 1, "totalAmount": 100}
    refused(post(api, path, said, str(uuid4())), 400, "INVALID_INPUT")


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


def test_a_message_that_nobody_decided_in_time_is_sent_again_and_done_once(
    api: Api, api_config: ApiConfig
) -> None:
    # A doorbell that nobody hears, so that nobody decides before we want it.
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


def test_a_key_stays(app_database_url: str) -> None:
    with psycopg.connect(app_database_url) as connection:
        for statement in (
            "DELETE FROM idempotency_keys",
            "UPDATE idempotency_keys SET request_hash = 'x'",
            "UPDATE idempotency_keys SET event = NULL",
            "UPDATE idempotency_keys SET key = 'x'",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                connection.execute(statement.encode())
