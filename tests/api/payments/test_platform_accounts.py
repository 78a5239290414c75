"""The platform's own internal accounts: funded, paid out of, and moved between."""

from collections.abc import Iterator
from typing import Any

import pytest

from cardledger.api.app import ApiConfig
from cardledger.embedded.servers import DatabaseUrl
from tests.api.payments.support import OUT, bank, payer, settled
from tests.api.support import Api, at_once, made, new_tenant, ok, refused, webhooks

ACCOUNTS = "/platform/internal-accounts"


@pytest.fixture
def own(root: str, api_config: ApiConfig) -> Iterator[Api]:
    """A platform of its own."""
    with Api(root, new_tenant(api_config.database_url)) as client:
        yield client


def account(api: Api, currency: str = "USD") -> dict[str, Any]:
    [found] = ok(api.get(ACCOUNTS, currency=currency))["data"]
    assert isinstance(found, dict)
    return found


def test_a_platform_has_an_account_in_each_of_its_currencies(own: Api) -> None:
    listed = ok(own.get(ACCOUNTS))["data"]

    assert {one["balance"]["currency"]["code"] for one in listed} == {"USD", "EUR", "USDC"}
    assert {one["status"] for one in listed} == {"ACTIVE"}
    assert not any("customerId" in one for one in listed)
    assert ok(own.get(ACCOUNTS))["data"] == listed
    [crypto] = ok(own.get(ACCOUNTS, type="INTERNAL_CRYPTO"))["data"]
    assert crypto["balance"]["currency"]["code"] == "USDC"
    assert ok(own.get(f"/internal-accounts/{crypto['id']}")) == crypto
    assert ok(own.get("/customers/internal-accounts"))["data"] == []
    refused(own.get(ACCOUNTS, currency="dollars"), 400, "INVALID_INPUT")


def test_accounts_of_a_platform_are_opened_once_by_requests_at_once(own: Api) -> None:
    answers = at_once(8, lambda: own.get(ACCOUNTS))

    ids = [sorted(one["id"] for one in ok(answer)["data"]) for answer in answers]
    assert all(found == ids[0] for found in ids)
    assert len(ids[0]) == 3


def test_a_platforms_account_is_funded_and_the_deposit_is_its_transaction(
    own: Api, database_url: DatabaseUrl
) -> None:
    key = account(own)["id"]

    funded = own.fund(key, 5_000)

    assert funded["balance"]["amount"] == 5_000
    assert "customerId" not in funded
    platform_id = ok(own.get("/config"))["id"]
    [deposit] = ok(own.get("/transactions", customerId=platform_id))["data"]
    assert (deposit["type"], deposit["status"]) == ("INCOMING", "COMPLETED")
    assert deposit["customerId"] == platform_id
    assert webhooks(database_url, deposit["id"], 1) == [("INCOMING_PAYMENT.COMPLETED", deposit)]
    assert webhooks(database_url, key, 1) == [("INTERNAL_ACCOUNT.BALANCE_UPDATED", funded)]


def test_a_platform_pays_out_of_its_account(own: Api) -> None:
    source = account(own)["id"]
    own.fund(source, 5_000)
    body = {
        "source": {"accountId": source},
        "destination": {"accountId": bank(own)},
        "amount": 2_000,
    }

    paid = made(own.post(OUT, body))
    failed = made(
        own.post(OUT, body | {"destination": {"accountId": bank(own, "004")}, "amount": 1_000})
    )

    assert paid["status"] == "COMPLETED"
    assert paid["customerId"] == ok(own.get("/config"))["id"]
    assert failed["refund"]["status"] == "COMPLETED"
    assert account(own)["balance"]["amount"] == 3_000


def test_a_platform_pays_the_bank_of_a_customer(own: Api) -> None:
    source = account(own)["id"]
    own.fund(source, 5_000)
    ada = payer(own, 0)
    body = {
        "source": {"accountId": source},
        "destination": {"accountId": ada.bank()},
        "amount": 2_000,
    }

    assert made(own.post(OUT, body))["status"] == "COMPLETED"


def moved(api: Api, source: str, destination: str, amount: int) -> dict[str, Any]:
    body = {
        "source": {"accountId": source},
        "destination": {"accountId": destination},
        "amount": amount,
    }
    return settled(api, made(api.post(OUT, body)), "COMPLETED")


def test_a_platform_moves_money_between_itself_and_customers(
    own: Api, database_url: DatabaseUrl
) -> None:
    treasury = account(own)["id"]
    own.fund(treasury, 5_000)
    ada, bob = payer(own, 0), payer(own, 0)

    given = moved(own, treasury, ada.account_id, 3_000)
    passed_on = moved(own, ada.account_id, bob.account_id, 1_000)
    moved(own, bob.account_id, treasury, 400)

    assert (given["type"], passed_on["customerId"]) == ("OUTGOING", ada.customer_id)
    assert (ada.balance(), bob.balance()) == (2_000, 600)
    assert account(own)["balance"]["amount"] == 2_400
    [arrived] = ok(own.get("/transactions", customerId=bob.customer_id, type="INCOMING"))["data"]
    assert arrived["status"] == "COMPLETED"
    assert arrived["source"]["accountId"] == ada.account_id
    assert arrived["receivedAmount"]["amount"] == 1_000
    assert webhooks(database_url, arrived["id"], 1)[0][0] == "INCOMING_PAYMENT.COMPLETED"


def test_two_accounts_of_one_customer_exchange_money_at_once(own: Api) -> None:
    ada = payer(own)
    opened = {"customerId": ada.customer_id, "currency": "USD"}
    second = made(own.post("/customers/internal-accounts", opened))["id"]
    body = ada.out(second, 400)

    paid = made(own.post(OUT, body))

    assert paid["status"] == "COMPLETED"
    assert ada.balance() == 600
    assert ok(own.get(f"/internal-accounts/{second}"))["balance"]["amount"] == 400


def test_transfers_between_internal_accounts_are_refused_as_others_are(own: Api) -> None:
    ada, bob = payer(own), payer(own, 0)
    euros = own.account(bob.customer_id, "EUR")["id"]
    named = {"accountId": bob.account_id, "paymentRail": "ACH"}

    refused(own.post(OUT, ada.out(ada.account_id)), 400, "SELF_PAYMENT")
    refused(own.post(OUT, ada.out(euros)), 400, "INVALID_CURRENCY")
    refused(own.post(OUT, ada.out(bob.account_id, 1_001)), 400, "INVALID_AMOUNT")
    refused(own.post(OUT, ada.out(bob.account_id, destination=named)), 400, "INVALID_INPUT")
    assert (ada.balance(), bob.balance()) == (1_000, 0)


def test_transfers_out_of_a_platforms_account_never_exceed_its_balance(own: Api) -> None:
    treasury = account(own)["id"]
    own.fund(treasury, 1_000)
    body = {
        "source": {"accountId": treasury},
        "destination": {"accountId": bank(own)},
        "amount": 300,
    }

    answers = at_once(8, lambda: own.post(OUT, body))

    paid = [one.json() for one in answers if one.status_code == 201]
    assert sum(one["status"] == "COMPLETED" for one in paid) == 3
    assert account(own)["balance"]["amount"] == 100


def test_another_platform_sees_and_moves_nothing_of_it(own: Api, other_platform: Api) -> None:
    treasury = account(own)["id"]
    own.fund(treasury, 1_000)
    theirs = account(other_platform)["id"]
    body = {
        "source": {"accountId": treasury},
        "destination": {"accountId": theirs},
        "amount": 300,
    }

    refused(other_platform.get(f"/internal-accounts/{treasury}"), 404, "REFERENCE_NOT_FOUND")
    refused(other_platform.post(OUT, body), 404, "REFERENCE_NOT_FOUND")
    refused(own.post(OUT, body), 404, "REFERENCE_NOT_FOUND")
    path = f"/sandbox/internal-accounts/{treasury}/fund"
    refused(other_platform.post(path, {"amount": 1}), 404, "REFERENCE_NOT_FOUND")
    platform_id = ok(own.get("/config"))["id"]
    assert ok(other_platform.get("/transactions", customerId=platform_id))["data"] == []
    assert account(own)["balance"]["amount"] == 1_000


def test_a_card_is_not_funded_by_an_account_of_the_platform(own: Api) -> None:
    treasury = account(own)["id"]
    customer = own.customer()
    request = {"cardholderId": customer["id"], "form": "VIRTUAL", "fundingSources": [treasury]}

    refused(own.post("/cards", request), 400, "FUNDING_SOURCE_INELIGIBLE")
