"""Collections from external accounts: credited when the money has arrived."""

from typing import Any
from uuid import uuid4

import pytest

from cardledger.embedded.servers import DatabaseUrl
from tests.api.payments.support import IN, Payer, bank, payer, settled
from tests.api.support import Api, ok, refused, webhooks


@pytest.fixture(scope="module")
def ada(api: Api) -> Payer:
    """A customer who collects nothing."""
    return payer(api)


def wanted(ada: Payer, bank_id: str, amount: object = 400, **fields: object) -> dict[str, Any]:
    return {
        "source": {"accountId": bank_id},
        "destination": {"accountId": ada.account_id},
        "amount": amount,
    } | fields


def test_a_collection_credits_the_account_when_it_has_arrived(
    api: Api, database_url: DatabaseUrl
) -> None:
    ada = payer(api)
    bank_id = ada.bank()

    arrived = settled(api, ada.collects(bank_id, 400), "COMPLETED")

    assert (arrived["type"], arrived["direction"]) == ("INCOMING", "CREDIT")
    assert arrived["source"] == {
        "sourceType": "ACCOUNT",
        "accountId": bank_id,
        "currency": "USD",
    }
    assert arrived["destination"]["accountId"] == ada.account_id
    assert arrived["receivedAmount"]["amount"] == 400
    assert arrived["settledAt"]
    assert ada.balance() == 1_400
    assert webhooks(database_url, arrived["id"], 1) == [("INCOMING_PAYMENT.COMPLETED", arrived)]


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ("002", "INSUFFICIENT_FUNDS"),
        ("003", "ACCOUNT_INVALID"),
        ("004", "REJECTED_BY_BANK"),
        ("005", "REJECTED_BY_BANK"),
    ],
)
def test_a_collection_that_fails_changes_no_balance(
    api: Api, database_url: DatabaseUrl, ending: str, reason: str
) -> None:
    ada = payer(api)

    failed = settled(api, ada.collects(ada.bank(ending)), "FAILED")

    assert failed["failureReason"] == reason
    assert "refund" not in failed
    assert ada.balance() == 1_000
    assert webhooks(database_url, failed["id"], 1) == [("INCOMING_PAYMENT.FAILED", failed)]


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"amount": None}, 400, "INVALID_AMOUNT"),
        ({"amount": 0}, 400, "INVALID_AMOUNT"),
        ({"amount": -1}, 400, "INVALID_AMOUNT"),
        ({"amount": 2**63}, 400, "INVALID_AMOUNT"),
        ({"source": {"accountId": f"ExternalAccount:{uuid4()}"}}, 404, "REFERENCE_NOT_FOUND"),
        ({"destination": {"accountId": f"InternalAccount:{uuid4()}"}}, 404, "REFERENCE_NOT_FOUND"),
        ({"remittanceInformation": "Rent"}, 400, "INVALID_INPUT"),
    ],
)
def test_an_invalid_collection_is_refused(
    ada: Payer, change: dict[str, Any], status: int, code: str
) -> None:
    body = wanted(ada, f"ExternalAccount:{uuid4()}") | change

    refused(ada.api.post(IN, body), status, code)


def test_an_internal_account_is_not_collected_from(ada: Payer) -> None:
    refused(ada.api.post(IN, wanted(ada, ada.account_id)), 400, "INVALID_INPUT")


def test_an_external_account_is_no_destination(ada: Payer) -> None:
    bank_id = ada.bank("555")
    body = wanted(ada, bank_id, destination={"accountId": ada.bank("556")})

    refused(ada.api.post(IN, body), 400, "INVALID_INPUT")


def test_only_accounts_that_can_be_collected_from_are_sources(api: Api) -> None:
    ada = payer(api, 0, "EUR")

    refusal = refused(
        api.post(IN, wanted(ada, ada.bank(account_type="EUR_ACCOUNT"))), 400, "INVALID_INPUT"
    )

    assert refusal["details"]["reason"] == "NOT_PULLABLE"


def test_an_account_of_another_owner_is_not_collected_from(ada: Payer, other_platform: Api) -> None:
    neighbour = payer(ada.api)

    refused(ada.api.post(IN, wanted(ada, neighbour.bank())), 400, "INVALID_INPUT")
    refused(ada.api.post(IN, wanted(ada, bank(ada.api, "777"))), 400, "INVALID_INPUT")
    refused(ada.api.post(IN, wanted(ada, payer(other_platform).bank())), 404, "REFERENCE_NOT_FOUND")
    assert ada.balance() == 1_000


def test_a_collection_that_the_account_has_no_room_for_is_returned(api: Api) -> None:
    ada = payer(api, 1)
    bank_id = ada.bank()

    failed = settled(api, ada.collects(bank_id, 2**63 - 1), "FAILED")

    assert failed["failureReason"] == "ACCOUNT_CANNOT_RECEIVE"
    assert ada.balance() == 1
    assert ok(api.get(f"/transactions/{failed['id']}")) == failed
