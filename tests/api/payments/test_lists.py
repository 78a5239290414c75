"""Payments in the list of all transactions: every filter, over internal and external accounts."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from cardledger.api.app import ApiConfig
from tests.api.payments.support import OUT, Payer, bank, payer, settled
from tests.api.support import Api, made, new_tenant, ok, refused


@dataclass(frozen=True)
class Scene:
    """A platform of its own with payments of a customer and of the platform itself."""

    api: Api
    ada: Payer
    banks: tuple[str, str]
    treasury: str
    platform_bank: str
    platform_id: str

    def count(self, **query: object) -> dict[str, int]:
        """Return how many transactions of each type match."""
        listed = ok(self.api.get("/transactions", limit=100, **query))
        assert listed["totalCount"] == len(listed["data"])
        found = [transaction["type"] for transaction in listed["data"]]
        return {kind: found.count(kind) for kind in sorted(set(found))}


@pytest.fixture(scope="module")
def scene(root: str, api_config: ApiConfig) -> Iterator[Scene]:
    with Api(root, new_tenant(api_config.database_url)) as api:
        ada = payer(api)  # A deposit.
        banks = (ada.bank("111"), ada.bank("004"))
        ada.pays(banks[0], 100, remittanceInformation="Invoice 7")
        ada.pays(banks[1], 100)  # It fails.
        settled(api, ada.collects(banks[0], 50), "COMPLETED")
        [account] = ok(api.get("/platform/internal-accounts", currency="USD"))["data"]
        api.fund(account["id"], 5_000)  # A deposit of the platform.
        platform_bank = bank(api, "222")
        for destination in (platform_bank, ada.account_id):
            body = {
                "source": {"accountId": account["id"]},
                "destination": {"accountId": destination},
                "amount": 10,
            }
            settled(api, made(api.post(OUT, body)), "COMPLETED")
        yield Scene(
            api, ada, banks, account["id"], platform_bank, str(ok(api.get("/config"))["id"])
        )


def test_payments_are_listed_by_their_owner(scene: Scene) -> None:
    assert scene.count() == {"INCOMING": 4, "OUTGOING": 4}
    assert scene.count(customerId=scene.ada.customer_id) == {"INCOMING": 3, "OUTGOING": 2}
    assert scene.count(customerId=scene.platform_id) == {"INCOMING": 1, "OUTGOING": 2}
    named = ok(scene.api.get(f"/customers/{scene.ada.customer_id}"))["platformCustomerId"]
    assert scene.count(platformCustomerId=named) == {"INCOMING": 3, "OUTGOING": 2}


def test_payments_are_listed_by_either_account(scene: Scene) -> None:
    first, second = scene.banks
    own, treasury = scene.ada.account_id, scene.treasury

    assert scene.count(accountIdentifier=first) == {"INCOMING": 1, "OUTGOING": 1}
    assert scene.count(senderAccountIdentifier=first) == {"INCOMING": 1}
    assert scene.count(receiverAccountIdentifier=first) == {"OUTGOING": 1}
    assert scene.count(receiverAccountIdentifier=second) == {"OUTGOING": 1}
    assert scene.count(senderAccountIdentifier=own) == {"OUTGOING": 2}
    # A deposit, a collection, and both sides of what the platform gave.
    assert scene.count(receiverAccountIdentifier=own) == {"INCOMING": 3, "OUTGOING": 1}
    assert scene.count(senderAccountIdentifier=treasury) == {"INCOMING": 1, "OUTGOING": 2}
    assert scene.count(accountIdentifier=scene.platform_bank) == {"OUTGOING": 1}
    assert scene.count(senderAccountIdentifier=own, receiverAccountIdentifier=first) == {
        "OUTGOING": 1
    }


def test_payments_are_listed_by_type_status_and_reference(scene: Scene) -> None:
    assert scene.count(type="OUTGOING", status="FAILED") == {"OUTGOING": 1}
    assert scene.count(type="INCOMING") == {"INCOMING": 4}
    assert scene.count(type="CARD") == {}
    assert scene.count(status="COMPLETED") == {"INCOMING": 4, "OUTGOING": 3}
    assert scene.count(status="REJECTED") == {}
    assert scene.count(reference="Invoice 7") == {"OUTGOING": 1}


def test_pages_over_payments_miss_nothing_and_repeat_nothing(scene: Scene) -> None:
    whole = ok(scene.api.get("/transactions", sortOrder="asc"))["data"]
    seen = []
    query: dict[str, object] = {"limit": 3, "sortOrder": "asc"}

    while True:
        page = ok(scene.api.get("/transactions", **query))
        seen += page["data"]
        if not page["hasMore"]:
            break
        query["cursor"] = page["nextCursor"]

    assert seen == whole
    times = [transaction["createdAt"] for transaction in whole]
    assert times == sorted(times)


def test_another_platform_finds_nothing(scene: Scene, other_platform: Api) -> None:
    for query in (
        {"accountIdentifier": scene.banks[0]},
        {"accountIdentifier": scene.treasury},
        {"customerId": scene.platform_id},
    ):
        assert ok(other_platform.get("/transactions", **query))["totalCount"] == 0
    refused(other_platform.get("/transactions", accountIdentifier="Card:1"), 400, "INVALID_INPUT")
