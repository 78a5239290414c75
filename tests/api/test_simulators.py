"""Simulators that ask without taking, and those that give."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import structlog
from structlog.testing import capture_logs

from tests.api.support import Api, another_account, authorization, ok, refused

CREDITS = (
    "financial_credit_authorization",
    "credit_authorization",
    "credit_authorization_advice",
)


def inquire(api: Api, card_id: str, descriptor: str = "RESTAURANT 9") -> dict[str, Any]:
    body = {"merchant": {"descriptor": descriptor}}
    return ok(api.simulate(card_id, "balance_inquiry", body))


def traces(owner_url: str, card: dict[str, Any]) -> list[int]:
    cardholder = card["cardholderId"].removeprefix("Customer:")
    with psycopg.connect(owner_url) as connection:
        return [
            connection.execute(
                f"SELECT count(*) FROM {table} WHERE customer_id = %s", [cardholder]
            ).fetchall()[0][0]
            for table in ("card_transactions", "entries", "outcomes", "inbox", "rejections")
        ]


def test_an_inquiry_returns_the_available_balance_and_records_nothing(
    api: Api, database_url: str
) -> None:
    card = api.active_card(balance=1000)
    api.authorize(card["id"], 300)
    before = traces(database_url, card)

    answer = inquire(api, card["id"])

    assert answer["approved"] is True
    assert "declineReason" not in answer
    assert answer["availableBalance"]["amount"] == 700
    assert answer["availableBalance"]["currency"]["code"] == "USD"
    assert answer["issuerTransactionToken"] != inquire(api, card["id"])["issuerTransactionToken"]
    assert traces(database_url, card) == before


def test_an_inquiry_needs_no_funds_and_counts_debts(api: Api) -> None:
    poor, debtor = api.active_card(balance=0), api.active_card(balance=1000)
    authorized = api.authorize(debtor["id"], 900)
    api.clear(debtor["id"], authorized["id"], 1050)

    without, indebted = inquire(api, poor["id"]), inquire(api, debtor["id"])

    assert (without["approved"], without["availableBalance"]["amount"]) == (True, 0)
    assert (indebted["approved"], indebted["availableBalance"]["amount"]) == (True, 0)


@pytest.mark.parametrize(
    ("suffix", "reason"),
    [
        ("002", "INSUFFICIENT_FUNDS"),
        ("003", "CARD_PAUSED"),
        ("005", None),
        ("006", None),
        ("001", None),
    ],
)
def test_the_end_of_the_merchants_name_answers_an_inquiry(
    api: Api, suffix: str, reason: str | None
) -> None:
    card = api.active_card(balance=10)

    answer = inquire(api, card["id"], f"SHOP {suffix}")

    assert (answer["approved"], answer.get("declineReason")) == (reason is None, reason)


def test_an_inquiry_follows_the_card_and_its_account(api: Api, database_url: str) -> None:
    card = api.active_card(balance=10, maxSpendPerTransaction=1)
    path = f"/cards/{card['id']}"
    account = another_account(database_url, api.tenant, card["cardholderId"])
    seen = [inquire(api, card["id"])]

    ok(api.patch(path, {"fundingSources": [account, *card["fundingSources"]]}))
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "UPDATE internal_accounts SET status = 'FROZEN' WHERE id = %s",
            [account.removeprefix("InternalAccount:")],
        )
    seen.append(inquire(api, card["id"]))
    for state in ("FROZEN", "CLOSED"):
        ok(api.patch(path, {"state": state}))
        seen.append(inquire(api, card["id"]))

    assert [answer.get("declineReason") for answer in seen] == [
        None,
        "NO_ELIGIBLE_FUNDING_SOURCE",
        "CARD_PAUSED",
        "CARD_NOT_ACTIVE",
    ]
    assert seen[-1]["availableBalance"]["amount"] == 0


def test_an_inquiry_has_a_merchant_and_no_amount(api: Api, other_platform: Api) -> None:
    card = api.active_card(balance=0)
    merchant = {"merchant": {"descriptor": "SHOP"}}

    bodies: list[dict[str, Any]] = [
        {},
        {"merchant": {}},
        {**merchant, "amount": 0},
        authorization(),
    ]
    for body in bodies:
        refused(api.simulate(card["id"], "balance_inquiry", body), 400, "INVALID_INPUT")
    for who, card_id in ((other_platform, card["id"]), (api, f"Card:{uuid4()}"), (api, "x")):
        answer = who.simulate(card_id, "balance_inquiry", merchant)
        refused(answer, 404, "REFERENCE_NOT_FOUND")


def test_a_credit_is_a_card_transaction_in_direction_credit(api: Api) -> None:
    card = api.active_card(balance=1000)

    credit = ok(api.simulate(card["id"], "financial_credit_authorization", authorization(250)))

    assert (credit["direction"], credit["status"]) == ("CREDIT", "CREDITED")
    assert credit["creditedAmount"]["amount"] == 250
    assert "refundedAmount" not in credit
    assert credit["refundSummary"] == {"count": 0, "totalAmount": 0}
    assert credit["pullSummary"]["count"] == credit["settlementSummary"]["count"] == 0
    assert credit["merchant"] == {"descriptor": "RESTAURANT 9", "mcc": "5812", "country": "US"}
    assert api.account(card["cardholderId"])["balance"]["amount"] == 1250
    assert ok(api.get(f"/transactions/{credit['id']}")) == credit


def test_the_account_of_a_credit_is_its_receiver_and_that_of_a_debit_its_sender(api: Api) -> None:
    card = api.active_card(balance=1000)
    [account_id] = card["fundingSources"]
    credit = ok(api.simulate(card["id"], "financial_credit_authorization", authorization(250)))
    debit = api.authorize(card["id"], 100)

    def listed(**filters: str) -> set[str]:
        page = ok(api.get("/transactions", type="CARD", **filters))
        assert page["totalCount"] == len(page["data"])
        return {item["id"] for item in page["data"]}

    assert listed(receiverAccountIdentifier=account_id) == {credit["id"]}
    assert listed(senderAccountIdentifier=account_id) == {debit["id"]}
    assert listed(accountIdentifier=account_id) == {credit["id"], debit["id"]}
    both = {"accountIdentifier": account_id, "receiverAccountIdentifier": account_id}
    assert listed(**both) == {credit["id"]}
    neither = {"senderAccountIdentifier": account_id, "receiverAccountIdentifier": account_id}
    assert listed(**neither) == set()


def test_a_cash_deposit_is_told_apart_from_a_refund(api: Api) -> None:
    card = api.active_card(balance=1000)
    authorized = api.authorize(card["id"], 250)
    api.clear(card["id"], authorized["id"], 250)

    body = authorization(250)
    credit = ok(api.simulate(card["id"], "financial_credit_authorization", body))
    refund = ok(
        api.simulate(card["id"], "return", {"cardTransactionId": authorized["id"], "amount": 250})
    )

    def listed(status: str) -> list[str]:
        page = ok(api.get("/transactions", cardId=card["id"], status=status))
        return [transaction["id"] for transaction in page["data"]]

    [event] = ok(api.get(f"/transactions/{credit['id']}/events"))["data"]
    assert (listed("CREDITED"), listed("REFUNDED")) == ([credit["id"]], [refund["id"]])
    assert event["type"] == "CREDITED"
    assert event["explanation"] == (
        "2.50 USD was credited to the funding account; it belongs to no purchase."
    )
    assert [(entry["debit"], entry["credit"]) for entry in event["entries"]] == [
        ("NETWORK_SETTLEMENT", "CUSTOMER")
    ]
    changes = {change["field"]: change["after"] for change in event["changes"]}
    assert changes == {"status": "CREDITED", "creditedAmount": 250}


def test_a_credit_pays_what_is_owed(api: Api) -> None:
    card = api.active_card(balance=1000)
    authorized = api.authorize(card["id"], 1000)
    owed = api.clear(card["id"], authorized["id"], 1300)

    ok(api.simulate(card["id"], "financial_credit_authorization", authorization(500)))

    assert owed["status"] == "EXCEPTION"
    assert ok(api.get(f"/transactions/{authorized['id']}"))["status"] == "SETTLED"
    assert api.account(card["cardholderId"])["balance"]["amount"] == 200


@pytest.mark.parametrize("suffix", ["002", "003"])
def test_declining_a_credit_is_not_implemented(api: Api, suffix: str) -> None:
    card = api.active_card(balance=0)
    body = authorization() | {"merchant": {"descriptor": f"CASH IN {suffix}"}}

    answer = api.simulate(card["id"], "financial_credit_authorization", body)

    refused(answer, 501, "NOT_IMPLEMENTED")
    assert answer.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("name", ["credit_authorization", "credit_authorization_advice"])
def test_an_unimplemented_kind_of_credit_is_501(api: Api, database_url: str, name: str) -> None:
    card = api.active_card(balance=0)
    before = traces(database_url, card)

    answer = api.simulate(card["id"], name, authorization())

    refused(answer, 501, "NOT_IMPLEMENTED")
    assert traces(database_url, card) == before


@pytest.mark.parametrize("name", CREDITS)
def test_a_credit_is_validated_like_an_authorization(
    api: Api, other_platform: Api, name: str
) -> None:
    card = api.active_card(balance=0)

    for amount in (0, -1, "1", 2**63):
        answer = api.simulate(card["id"], name, authorization(amount))
        refused(answer, 400, "INVALID_INPUT")
    in_euro = authorization() | {"currency": {"code": "EUR"}}
    refused(api.simulate(card["id"], name, in_euro), 400, "INVALID_CURRENCY")
    for who, card_id in ((other_platform, card["id"]), (api, f"Card:{uuid4()}")):
        answer = who.simulate(card_id, name, authorization())
        refused(answer, 404, "REFERENCE_NOT_FOUND")


# --- at once --------------------------------------------------------------------------------------


def at_once(api: Api, card_id: str, name: str, body: dict[str, Any], times: int) -> list[int]:
    with ThreadPoolExecutor(times) as pool:
        answers = pool.map(lambda _: api.simulate(card_id, name, body), range(times))
        return sorted(answer.status_code for answer in answers)


def test_what_may_happen_once_happens_once_however_many_ask_at_once(api: Api) -> None:
    card = api.active_card(balance=50_000)
    parent = api.authorize(card["id"], 4000)
    whole = {"cardTransactionId": parent["id"], "amount": 4000}

    assert at_once(api, card["id"], "authorization_reversal", whole, 6) == [200] + 5 * [400]
    parent = api.authorize(card["id"], 4000)
    whole = {"cardTransactionId": parent["id"], "amount": 4000}
    api.clear(card["id"], parent["id"], 4000)
    assert at_once(api, card["id"], "return", whole, 6) == [200] + 5 * [400]
    back = {"cardTransactionId": parent["id"]}
    assert at_once(api, card["id"], "return_reversal", back, 6) == [200] + 5 * [400]

    seen = ok(api.get(f"/transactions/{parent['id']}"))
    assert (seen["status"], seen["settlementSummary"]["totalAmount"]) == ("SETTLED", 4000)
    assert seen["refundSummary"] == {"count": 0, "totalAmount": 0}
    assert ok(api.simulate(card["id"], "return", whole))["status"] == "REFUNDED"


def test_clearings_of_one_card_transaction_at_once_are_all_posted(api: Api) -> None:
    card = api.active_card(balance=50_000)
    parent = api.authorize(card["id"], 4000)
    whole = {"cardTransactionId": parent["id"], "amount": 4000}

    assert at_once(api, card["id"], "clearing", whole, 6) == 6 * [200]

    seen = ok(api.get(f"/transactions/{parent['id']}"))
    assert seen["settlementSummary"] == {"count": 6, "totalAmount": 24_000}


def test_a_simulation_is_logged_with_its_event_and_its_card_transaction(api: Api) -> None:
    card = api.active_card()
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.BoundLogger)
    with capture_logs() as logs:
        shown = api.authorize(card["id"], 100)
    structlog.configure(**before)

    [line] = [each for each in logs if each["event"] == "request"]
    assert line["card_transaction"] == shown["id"]
    assert line["network_event"].startswith("simulator/")
