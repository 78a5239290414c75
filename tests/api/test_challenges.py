"""Challenges of external accounts: two small amounts, few guesses."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from cardledger.api.app import ApiConfig
from cardledger.ledger.storage.ids import new_id
from tests.api.support import Api, at_once, made, new_tenant, ok, refused, server, webhooks
from tests.external_accounts import body as external_account

RIGHT = {"amounts": [12, 34]}
WRONG = {"amounts": [1, 2]}


def unproven(**fields: object) -> dict[str, Any]:
    """Return the body of an account that has to be challenged."""
    wish = external_account("USD_ACCOUNT", **fields)
    wish["accountInfo"]["accountNumber"] = f"{uuid4().int % 10**9}108"
    return wish


@pytest.fixture
def path(api: Api) -> str:
    """The path of a customer's account that has to be challenged."""
    wish = unproven(customerId=api.customer()["id"])
    return path_of(made(api.post("/customers/external-accounts", wish)))


def path_of(account: dict[str, Any], of: str = "customers") -> str:
    assert account["status"] == "PENDING"
    return f"/{of}/external-accounts/{account['id']}"


def challenge(api: Api, path: str) -> dict[str, Any]:
    return made(api.post(f"{path}/challenge", None))


def verify(api: Api, path: str, body: object = RIGHT) -> httpx2.Response:
    return api.post(f"{path}/verify", body)


def conflict(response: httpx2.Response) -> str:
    return str(refused(response, 409, "CONFLICT")["details"]["reason"])


@pytest.mark.parametrize("amounts", [[12, 34], [34, 12]])
def test_an_account_is_active_once_its_owner_names_the_amounts(
    api: Api, database_url: str, path: str, amounts: list[int]
) -> None:
    started = challenge(api, path)
    active = ok(verify(api, path, {"amounts": amounts}))

    assert started == {
        "id": started["id"],
        "externalAccountId": active["id"],
        "type": "MICRO_DEPOSITS",
        "currency": "USD",
        "attemptsLeft": 5,
        "createdAt": started["createdAt"],
        "expiresAt": started["expiresAt"],
    }
    assert active["status"] == "ACTIVE"
    assert ok(api.get(path)) == active
    sent = webhooks(database_url, active["id"], 1)
    assert sent == [("EXTERNAL_ACCOUNT.STATUS_UPDATED", active)]
    assert conflict(verify(api, path)) == "NOT_PENDING"
    assert conflict(api.post(f"{path}/challenge", None)) == "NOT_PENDING"


def test_the_platform_proves_its_own_accounts(api: Api, database_url: str) -> None:
    account = made(api.post("/platform/external-accounts", unproven()))
    path = path_of(account, "platform")

    challenge(api, path)
    active = ok(verify(api, path))

    assert active == account | {"status": "ACTIVE"}
    assert webhooks(database_url, account["id"], 1)[0][1] == active


def test_an_account_of_a_customer_is_none_of_the_platform(api: Api, path: str) -> None:
    own = path.replace("/customers/", "/platform/")

    refused(api.post(f"{own}/challenge", None), 404, "REFERENCE_NOT_FOUND")
    refused(verify(api, own), 404, "REFERENCE_NOT_FOUND")


def test_a_challenge_that_is_guessed_100_times_is_locked_and_so_is_the_account(
    api: Api, path: str
) -> None:
    guesses = iter(itertools.combinations(range(1, 30), 2))
    statuses: list[tuple[int, str]] = []

    for _ in range(100):
        guess = next(each for each in guesses if each != (12, 34))
        answer = verify(api, path, {"amounts": list(guess)})
        if answer.status_code == 409:
            begun = api.post(f"{path}/challenge", None)
            statuses.append((begun.status_code, conflict(answer)))
        else:
            statuses.append((answer.status_code, answer.json()["code"]))

    assert statuses.count((400, "INVALID_AMOUNT")) == 15
    assert statuses.count((201, "NO_CHALLENGE")) == 1
    assert statuses.count((201, "CHALLENGE_LOCKED")) == 2
    assert conflict(verify(api, path)) == "CHALLENGE_LOCKED"
    assert conflict(api.post(f"{path}/challenge", None)) == "TOO_MANY_CHALLENGES"
    assert ok(api.get(path))["status"] == "PENDING"


@pytest.mark.parametrize("of", ["customers", "platform"])
def test_an_account_that_is_registered_again_gets_no_new_guesses(api: Api, of: str) -> None:
    wish = unproven(**({"customerId": api.customer()["id"]} if of == "customers" else {}))
    for _ in range(3):
        path = path_of(made(api.post(f"/{of}/external-accounts", wish)), of)
        challenge(api, path)
        refused(verify(api, path, WRONG), 400, "INVALID_AMOUNT")
        assert api.delete(path).status_code == 204
    path = path_of(made(api.post(f"/{of}/external-accounts", wish)), of)

    assert conflict(api.post(f"{path}/challenge", None)) == "TOO_MANY_CHALLENGES"


def test_a_wrong_answer_says_how_many_are_left_and_is_counted_under_a_key(
    api: Api, path: str
) -> None:
    challenge(api, path)

    first = refused(verify(api, path, WRONG), 400, "INVALID_AMOUNT")
    key = {"Idempotency-Key": str(uuid4())}
    again = [api.http.post(f"{path}/verify", json=WRONG, headers=key) for _ in range(2)]

    assert first["details"] == {"attemptsLeft": 4}
    assert [refused(one, 400, "INVALID_AMOUNT")["details"] for one in again] == [
        {"attemptsLeft": 3}
    ] * 2
    assert ok(verify(api, path))["status"] == "ACTIVE"


def test_guesses_at_one_instant_are_counted_one_by_one(api: Api, path: str) -> None:
    challenge(api, path)

    answers = at_once(12, lambda: verify(api, path, WRONG))

    assert sorted(answer.status_code for answer in answers) == [400] * 5 + [409] * 7


def test_a_challenge_comes_first_and_one_at_a_time(api: Api, path: str) -> None:
    assert conflict(verify(api, path)) == "NO_CHALLENGE"
    challenge(api, path)
    assert conflict(api.post(f"{path}/challenge", None)) == "CHALLENGE_OPEN"


def test_an_answer_after_the_end_does_not_count(api_config: ApiConfig) -> None:
    later = timedelta()
    with (
        server(api_config, clock=lambda: datetime.now(UTC) + later) as root,
        Api(root, new_tenant(api_config.database_url)) as api,
    ):
        path = path_of(made(api.post("/platform/external-accounts", unproven())), "platform")
        challenge(api, path)

        later = timedelta(days=8)
        reason = conflict(verify(api, path))
        challenge(api, path)

        assert reason == "CHALLENGE_EXPIRED"
        assert ok(verify(api, path))["status"] == "ACTIVE"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"amounts": []},
        {"amounts": [1]},
        {"amounts": [1, 2, 3]},
        {"amounts": [0, 1]},
        {"amounts": ["12", 34]},
        {"amounts": [12.5, 34]},
        {"amounts": [12, 2**63]},
    ],
)
def test_an_answer_of_another_shape_is_no_attempt(api: Api, path: str, body: object) -> None:
    challenge(api, path)

    refused(verify(api, path, body), 400, "INVALID_INPUT")

    assert ok(verify(api, path))["status"] == "ACTIVE"


def test_an_account_that_is_active_or_gone_or_unknown_is_not_challenged(api: Api) -> None:
    active = made(api.post("/platform/external-accounts", external_account("GBP_ACCOUNT")))
    gone = made(api.post("/platform/external-accounts", unproven()))
    assert api.delete(f"/platform/external-accounts/{gone['id']}").is_success

    reason = conflict(api.post(f"/platform/external-accounts/{active['id']}/challenge", None))

    assert reason == "NOT_PENDING"
    for key in (gone["id"], f"ExternalAccount:{new_id()}"):
        for of, end in itertools.product(("platform", "customers"), ("challenge", "verify")):
            body = RIGHT if end == "verify" else None
            answer = api.post(f"/{of}/external-accounts/{key}/{end}", body)
            refused(answer, 404, "REFERENCE_NOT_FOUND")


@pytest.fixture
def production(api_config: ApiConfig) -> Iterator[Api]:
    config = replace(api_config, sandbox=False)
    with server(config) as url, Api(url, new_tenant(config.database_url)) as client:
        yield client


def test_without_a_payment_rail_a_challenge_is_501(production: Api) -> None:
    wish = external_account("GBP_ACCOUNT")
    account = made(production.post("/platform/external-accounts", wish))

    answer = production.post(f"{path_of(account, 'platform')}/challenge", None)

    refused(answer, 501, "NOT_IMPLEMENTED")
