"""Payments by UMA: between customers of this installation, and from addresses elsewhere."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from cardledger.api.app import ApiConfig
from cardledger.embedded.servers import DatabaseUrl
from cardledger.webhooks.receiver import Listener, Reply
from tests.api.payments.support import Payer, payer, settled
from tests.api.support import Api, made, new_tenant, ok, refused, webhooks
from tests.waiting import eventually

Json = dict[str, Any]

ELSEWHERE = "$success.usd@sandbox.uma.money"


@pytest.fixture
def ours(root: str, api_config: ApiConfig) -> Iterator[Payer]:
    with Api(root, new_tenant(api_config.database_url)) as client:
        yield payer(client)


@pytest.fixture
def theirs(root: str, api_config: ApiConfig) -> Iterator[Payer]:
    with Api(root, new_tenant(api_config.database_url)) as client:
        yield payer(client)


def address_of(one: Payer) -> str:
    return str(ok(one.api.get(f"/customers/{one.customer_id}"))["umaAddress"])


def pays(sender: Payer, receiver: Payer, amount: int) -> Json:
    """Return the outgoing transaction of a payment by UMA."""
    address = address_of(receiver)
    found = ok(sender.api.get(f"/receiver/uma/{address}"))
    quote = made(
        sender.api.post(
            "/quotes",
            {
                "source": {"sourceType": "ACCOUNT", "accountId": sender.account_id},
                "destination": {
                    "destinationType": "UMA_ADDRESS",
                    "umaAddress": address,
                    "currency": "USD",
                },
                "lockedCurrencySide": "SENDING",
                "lockedCurrencyAmount": amount,
                "lookupId": found["lookupId"],
                "immediatelyExecute": True,
            },
        )
    )
    return settled(sender.api, {"id": quote["transactionId"]}, "COMPLETED")


def incoming_of(receiver: Payer) -> Json:
    """Return the one payment by UMA that has arrived."""
    listed = receiver.api.get("/transactions", customerId=receiver.customer_id, type="INCOMING")
    [found] = [one for one in ok(listed)["data"] if one["source"]["sourceType"] == "UMA_ADDRESS"]
    return dict(found)


# --- between customers of this installation ------------------------------------------------------


def test_two_customers_of_two_platforms_pay_each_other(
    ours: Payer, theirs: Payer, database_url: DatabaseUrl
) -> None:
    sent = pays(ours, theirs, 300)
    back = pays(theirs, ours, 100)

    eventually(lambda: (ours.balance(), theirs.balance()) == (800, 1_200))
    for sender, receiver, transaction in ((ours, theirs, sent), (theirs, ours, back)):
        arrived = incoming_of(receiver)
        assert transaction["destination"]["umaAddress"] == address_of(receiver)
        assert arrived["status"] == "COMPLETED"
        assert arrived["source"]["umaAddress"] == address_of(sender)
        # No id of the other platform's reaches the receiver.
        assert sender.account_id not in json.dumps(arrived)
        assert sender.customer_id not in json.dumps(arrived)
        [(kind, webhook)] = webhooks(database_url, arrived["id"], 1)
        assert (kind, webhook["source"]) == ("INCOMING_PAYMENT.COMPLETED", arrived["source"])


def test_two_customers_of_one_platform_pay_each_other(ours: Payer) -> None:
    friend = payer(ours.api)

    pays(ours, friend, 300)

    eventually(lambda: (ours.balance(), friend.balance()) == (700, 1_300))
    assert incoming_of(friend)["source"]["umaAddress"] == address_of(ours)


def test_a_platform_that_pays_by_uma_shows_no_account(ours: Payer, theirs: Payer) -> None:
    platform = ours.api
    listed = ok(platform.get("/platform/internal-accounts"))["data"]
    [own] = [one for one in listed if one["balance"]["currency"]["code"] == "USD"]
    platform.fund(own["id"], 500)

    pays(Payer(platform, ours.customer_id, own["id"]), theirs, 200)

    eventually(lambda: theirs.balance() == 1_200)
    listed = theirs.api.get("/transactions", customerId=theirs.customer_id, type="INCOMING")
    assert own["id"] not in listed.text


# --- from elsewhere ------------------------------------------------------------------------------


def receives(one: Payer, **fields: object) -> httpx2.Response:
    body = {
        "senderUmaAddress": ELSEWHERE,
        "receivingCurrencyCode": "USD",
        "receivingCurrencyAmount": 400,
        "customerId": one.customer_id,
    }
    sent = {name: value for name, value in (body | fields).items() if value is not None}
    return one.api.post("/sandbox/uma/receive", sent)


@contextmanager
def answering(api: Api, reply: Reply) -> Iterator[None]:
    with Listener(lambda _headers, _body: reply) as listener:
        ok(api.patch("/config", {"webhookEndpoint": listener.url}))
        yield


@pytest.mark.parametrize("by_address", [True, False])
def test_the_platform_approves_what_arrives(ours: Payer, *, by_address: bool) -> None:
    named: Json = {"customerId": None, "receiverUmaAddress": address_of(ours)} if by_address else {}

    with answering(ours.api, Reply()):
        arrived = ok(receives(ours, **named))
        done = settled(ours.api, arrived, "COMPLETED")

    assert arrived["status"] in {"PENDING", "COMPLETED"}
    assert done["source"] == {
        "sourceType": "UMA_ADDRESS",
        "umaAddress": ELSEWHERE,
        "currency": "USD",
    }
    assert done["destination"]["accountId"] == ours.account_id
    assert ours.balance() == 1_400


def test_the_platform_rejects_what_arrives(ours: Payer) -> None:
    with answering(ours.api, Reply(status=403)):
        settled(ours.api, ok(receives(ours)), "REJECTED")

    assert ours.balance() == 1_000


def test_an_institution_asks_for_the_receivers_name(ours: Payer) -> None:
    given = json.dumps({"receiverCustomerInfo": {"FULL_NAME": "Ada Lovelace"}}).encode()
    with answering(ours.api, Reply(body=given)):
        arrived = ok(receives(ours, senderUmaAddress="$asks.usd@sandbox.uma.money"))
        settled(ours.api, arrived, "COMPLETED")

    assert arrived["requestedReceiverCustomerInfoFields"] == [
        {"name": "FULL_NAME", "mandatory": True}
    ]


def test_compliance_refuses_a_sender(ours: Payer) -> None:
    arrived = ok(receives(ours, senderUmaAddress="$fail.compliance.usd@sandbox.uma.money"))

    assert (arrived["status"], arrived["failureReason"]) == ("FAILED", "COMPLIANCE_REJECTED")
    assert arrived["refund"]["status"] == "COMPLETED"
    assert ours.balance() == 1_000


def test_a_repetition_receives_once(ours: Payer) -> None:
    headers = {"Idempotency-Key": str(uuid4())}
    body = {
        "senderUmaAddress": ELSEWHERE,
        "receivingCurrencyCode": "USD",
        "receivingCurrencyAmount": 400,
        "customerId": ours.customer_id,
    }
    with answering(ours.api, Reply()):
        first = ok(ours.api.http.post("/sandbox/uma/receive", json=body, headers=headers))
        again = ok(ours.api.http.post("/sandbox/uma/receive", json=body, headers=headers))
        settled(ours.api, first, "COMPLETED")

    assert again == first
    assert ours.balance() == 1_400


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"receiverUmaAddress": "$ada@bank.example"}, 400, "INVALID_INPUT"),
        ({"customerId": None}, 400, "INVALID_INPUT"),
        ({"customerId": f"Customer:{uuid4()}"}, 404, "USER_NOT_FOUND"),
        ({"customerId": None, "receiverUmaAddress": "$ada@bank.example"}, 404, "UMA_NOT_FOUND"),
        ({"senderUmaAddress": "$ada@sandbox.uma.money"}, 404, "UMA_NOT_FOUND"),
        ({"senderUmaAddress": "$ada@blocked.example"}, 403, "COUNTERPARTY_NOT_ALLOWED"),
        ({"senderUmaAddress": "$fail.keys.usd@sandbox.uma.money"}, 424,
         "COUNTERPARTY_PUBKEY_FETCH_ERROR"),
        ({"receivingCurrencyCode": "JPY"}, 400, "INVALID_CURRENCY"),
        ({"receivingCurrencyAmount": 0}, 400, "INVALID_INPUT"),
        ({"receivingCurrencyAmount": 2**63 - 1}, 400, "INVALID_INPUT"),
    ],
)  # fmt: skip
def test_what_cannot_arrive_is_refused(
    ours: Payer, fields: dict[str, object], status: int, code: str
) -> None:
    refused(receives(ours, **fields), status, code)


def test_a_customer_whose_identity_is_not_approved_receives_nothing(ours: Payer) -> None:
    pending = ours.api.customer(fullName="Ada 001")

    refused(receives(ours, customerId=pending["id"]), 403, "USER_NOT_READY")


def test_a_customer_of_another_platform_receives_nothing(ours: Payer, theirs: Payer) -> None:
    refused(receives(ours, customerId=theirs.customer_id), 404, "USER_NOT_FOUND")
    named: Json = {"customerId": None, "receiverUmaAddress": address_of(theirs)}
    refused(receives(ours, **named), 404, "UMA_NOT_FOUND")
