"""Simulators that ask without taking, and those that give."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import structlog
from structlog.testing import capture_logs

from cardledger.api.routes import simulators
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

    assert (credit["direction"], credit["status"]) == ("CREDIT", "SETTLED")
    assert credit["authorizedAmount"]["amount"] == credit["settledAmount"]["amount"] == 250
    assert "refundedAmount" not in credit
    assert credit["refundSummary"] == {"count": 0, "totalAmount": 0}
    assert credit["settlementSummary"] == {"count": 1, "totalAmount": 250}
    assert credit["pullSummary"]["count"] == 0
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
    assert (listed("SETTLED"), listed("REFUNDED")) == ([credit["id"]], [refund["id"]])
    assert event["type"] == "CREDITED"
    assert event["explanation"] == (
        "2.50 USD was credited to the funding account; it belongs to no purchase."
    )
    assert [(entry["debit"], entry["credit"]) for entry in event["entries"]] == [
        ("NETWORK_SETTLEMENT", "CUSTOMER")
    ]
    changes = {change["field"]: change["after"] for change in event["changes"]}
    assert changes == {"status": "SETTLED", "authorizedAmount": 250, "settledAmount": 250}


def test_a_credit_pays_what_is_owed(api: Api) -> None:
    card = api.active_card(balance=1000)
    authorized = api.authorize(card["id"], 1000)
    owed = api.clear(card["id"], authorized["id"], 1300)

    ok(api.simulate(card["id"], "financial_credit_authorization", authorization(500)))

    assert owed["status"] == "EXCEPTION"
    assert ok(api.get(f"/transactions/{authorized['id']}"))["status"] == "SETTLED"
    assert api.account(card["cardholderId"])["balance"]["amount"] == 200


@pytest.mark.parametrize("name", CREDITS)
@pytest.mark.parametrize(
    ("suffix", "reason"), [("002", "INSUFFICIENT_FUNDS"), ("003", "CARD_PAUSED")]
)
def test_the_suffix_of_a_merchant_declines_a_credit(
    api: Api, name: str, suffix: str, reason: str
) -> None:
    card = api.active_card(balance=0)
    body = authorization(250) | {"merchant": {"descriptor": f"CASH IN {suffix}"}}

    credit = ok(api.simulate(card["id"], name, body))

    assert (credit["direction"], credit["status"]) == ("CREDIT", "DECLINED")
    assert (credit["declineReason"], credit["authorizedAmount"]["amount"]) == (reason, 250)
    assert api.account(card["cardholderId"])["balance"]["amount"] == 0


@pytest.mark.parametrize("name", ["credit_authorization", "credit_authorization_advice"])
def test_an_authorized_credit_moves_nothing_until_it_clears(api: Api, name: str) -> None:
    card = api.active_card(balance=100)

    credit = ok(api.simulate(card["id"], name, authorization(250)))
    balance_before = api.account(card["cardholderId"])["balance"]["amount"]
    partly = api.clear(card["id"], credit["id"], 100)
    settled = api.clear(card["id"], credit["id"], 150)

    assert (credit["direction"], credit["status"]) == ("CREDIT", "AUTHORIZED")
    assert credit["authorizedAmount"]["amount"] == 250
    assert "settledAmount" not in credit
    assert credit["expiresAt"] > credit["createdAt"]
    assert balance_before == 100
    assert (partly["status"], partly["settledAmount"]["amount"]) == ("PARTIALLY_SETTLED", 100)
    assert (settled["status"], settled["settledAmount"]["amount"]) == ("SETTLED", 250)
    assert settled["settlementSummary"] == {"count": 2, "totalAmount": 250}
    assert settled["refundSummary"] == {"count": 0, "totalAmount": 0}
    assert settled["direction"] == "CREDIT"
    assert "expiresAt" not in settled
    assert api.account(card["cardholderId"])["balance"]["amount"] == 350


def test_an_authorized_credit_is_advised_reversed_and_expires_like_a_debit(api: Api) -> None:
    card = api.active_card(balance=0)

    def announced() -> str:
        credit = ok(api.simulate(card["id"], "credit_authorization", authorization(250)))
        return str(credit["id"])

    def simulate(name: str, key: str, **fields: int) -> dict[str, Any]:
        return ok(api.simulate(card["id"], name, {"cardTransactionId": key, **fields}))

    advised = simulate("authorization_advice", announced(), amount=300)
    reversed_in_part = simulate("authorization_reversal", announced(), amount=50)
    reversed_ = simulate("authorization_reversal", announced())
    expired = simulate("authorization_expiry", announced())
    ended = simulate("clearing", announced(), amount=0)

    assert (advised["status"], advised["authorizedAmount"]["amount"]) == ("AUTHORIZED", 300)
    assert reversed_in_part["authorizedAmount"]["amount"] == 200
    assert (reversed_["status"], reversed_["statusReason"]) == ("VOIDED", "REVERSED")
    assert (expired["status"], expired["statusReason"]) == ("VOIDED", "EXPIRED")
    assert (ended["status"], ended["direction"]) == ("VOIDED", "CREDIT")


def test_a_credit_cannot_be_refunded_and_is_taken_back_by_a_return_reversal(api: Api) -> None:
    card = api.active_card(balance=0)
    credit = ok(api.simulate(card["id"], "credit_authorization", authorization(250)))
    api.clear(card["id"], credit["id"], 250)
    parent = {"cardTransactionId": credit["id"]}

    refund = api.simulate(card["id"], "return", parent | {"amount": 1})
    taken = ok(api.simulate(card["id"], "return_reversal", parent))

    assert refused(refund, 400, "INVALID_INPUT")["details"] == {"reason": "OVER_REFUND", "limit": 0}
    assert (taken["status"], taken["settledAmount"]["amount"]) == ("VOIDED", 0)
    assert api.account(card["cardholderId"])["balance"]["amount"] == 0


@pytest.mark.parametrize(
    ("name", "amount", "reason", "limit"),
    [
        ("return", 2_000, "OVER_REFUND", "15.00 USD"),
        ("authorization_advice", 1_000, "BELOW_SETTLED", "15.00 USD"),
        ("authorization_reversal", 3_000, "OVER_REVERSAL", "20.00 USD"),
    ],
)
def test_a_limit_is_named_with_its_currency(
    api: Api, name: str, amount: int, reason: str, limit: str
) -> None:
    card = api.active_card()["id"]
    purchase = api.authorize(card, 2_000)["id"]
    if reason != "OVER_REVERSAL":
        api.clear(card, purchase, 1_500)

    answer = api.simulate(card, name, {"cardTransactionId": purchase, "amount": amount})

    error = refused(answer, 400, "INVALID_INPUT")
    assert error["message"].endswith(f", {limit}")
    minor_units = int(limit.split(".", maxsplit=1)[0]) * 100
    assert error["details"] == {"reason": reason, "limit": minor_units}


def test_a_frozen_card_declines_a_credit_and_takes_one_that_the_network_approved(api: Api) -> None:
    card = api.active_card(balance=0)
    ok(api.patch(f"/cards/{card['id']}", {"state": "FROZEN"}))

    declined = ok(api.simulate(card["id"], "credit_authorization", authorization(250)))
    advised = ok(api.simulate(card["id"], "credit_authorization_advice", authorization(250)))

    assert (declined["status"], declined["declineReason"]) == ("DECLINED", "CARD_PAUSED")
    assert advised["status"] == "AUTHORIZED"


@pytest.mark.parametrize("name", CREDITS)
def test_a_credit_is_validated_like_an_authorization(
    api: Api, other_platform: Api, name: str
) -> None:
    card = api.active_card(balance=0)

    for amount in (0, -1, "1", 2**63):
        answer = api.simulate(card["id"], name, authorization(amount))
        refused(answer, 400, "INVALID_INPUT")
    unknown = authorization() | {"currency": {"code": "ZZZ"}}
    refused(api.simulate(card["id"], name, unknown), 400, "INVALID_CURRENCY")
    for who, card_id in ((other_platform, card["id"]), (api, f"Card:{uuid4()}")):
        answer = who.simulate(card_id, name, authorization())
        refused(answer, 404, "REFERENCE_NOT_FOUND")


# --- at once --------------------------------------------------------------------------------------


def at_once(api: Api, card_id: str, name: str, body: dict[str, Any], times: int) -> list[int]:
    with ThreadPoolExecutor(times) as pool:
        answers = pool.map(lambda _: api.simulate(card_id, name, body), range(times))
        return sorted(answer.status_code for answer in answers)


def of_network(owner_url: str, card: dict[str, Any]) -> tuple[int, int]:
    """Return what is due to the network for `card`, and the number of its items of suspense."""
    with psycopg.connect(owner_url) as connection:
        [(due, items)] = connection.execute(
            "SELECT coalesce(sum(CASE s.id WHEN e.credit_account_id THEN e.amount"
            " ELSE -e.amount END), 0),"
            " (SELECT count(*) FROM suspense_items WHERE customer_id = %(cardholder)s)"
            " FROM entries e JOIN system_accounts s ON s.kind = 'NETWORK_SETTLEMENT'"
            " AND s.id IN (e.debit_account_id, e.credit_account_id)"
            " WHERE e.customer_id = %(cardholder)s",
            {"cardholder": card["cardholderId"].removeprefix("Customer:")},
        ).fetchall()
    return due, items


def test_what_may_happen_once_happens_once_however_many_ask_at_once(
    api: Api, database_url: str
) -> None:
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
    assert of_network(database_url, card) == (4000, 0)
    assert ok(api.simulate(card["id"], "return", whole))["status"] == "REFUNDED"


def test_clearings_of_one_card_transaction_at_once_are_all_posted(
    api: Api, database_url: str
) -> None:
    card = api.active_card(balance=50_000)
    parent = api.authorize(card["id"], 4000)
    whole = {"cardTransactionId": parent["id"], "amount": 4000}

    assert at_once(api, card["id"], "clearing", whole, 6) == 6 * [200]

    seen = ok(api.get(f"/transactions/{parent['id']}"))
    assert seen["settlementSummary"] == {"count": 6, "totalAmount": 24_000}
    assert of_network(database_url, card) == (24_000, 0)


def test_a_simulation_that_loses_has_moved_nothing(
    api: Api, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = api.active_card(balance=50_000)
    parent = api.authorize(card["id"], 4000)
    api.clear(card["id"], parent["id"], 4000)
    whole = {"cardTransactionId": parent["id"], "amount": 4000}
    read = simulators._parent
    others: list[int] = []

    async def overtaken(*arguments: Any) -> Any:  # noqa: ANN401 - those of `_parent`
        found = await read(*arguments)
        if not others:
            others.append(0)  # The one that wins comes here as well.
            other = await asyncio.to_thread(api.simulate, card["id"], "return", whole)
            others[0] = other.status_code
        return found

    monkeypatch.setattr(simulators, "_parent", overtaken)

    refused(api.simulate(card["id"], "return", whole), 400, "INVALID_INPUT")

    assert others == [200]
    assert of_network(database_url, card) == (0, 0)


@pytest.mark.parametrize("name", ["clearing", "financial_credit_authorization"])
def test_a_simulation_beyond_the_range_of_a_total_has_moved_nothing(
    api: Api, database_url: str, name: str
) -> None:
    card = api.active_card(balance=50_000)
    parent = api.authorize(card["id"], 4000)
    api.clear(card["id"], parent["id"], 4000)
    bodies = {
        "clearing": {"cardTransactionId": parent["id"], "amount": 2**63 - 1},
        "financial_credit_authorization": authorization(2**63 - 1),
    }

    refused(api.simulate(card["id"], name, bodies[name]), 400, "AMOUNT_OUT_OF_RANGE")

    assert of_network(database_url, card) == (4000, 0)


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


# --- purchases in another currency ---------------------------------------------------------------


def in_euro(amount: int, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {**authorization(amount), "currency": {"code": "EUR"}, **fields}


def converted(card_transaction: dict[str, Any]) -> tuple[int, str, int, str]:
    found = card_transaction["conversion"]
    return (
        found["merchantAmount"]["amount"],
        found["merchantAmount"]["currency"]["code"],
        found["billingAmount"]["amount"],
        found["rate"],
    )


def test_a_purchase_in_another_currency_is_billed_and_cleared_at_another_rate(api: Api) -> None:
    card = api.active_card(balance=50_000)

    asked = ok(api.simulate(card["id"], "authorization", in_euro(10_000, billingAmount=10_873)))
    body = {"cardTransactionId": asked["id"], "amount": 10_910, "merchantAmount": 10_000}
    cleared = ok(api.simulate(card["id"], "clearing", body))
    body = {"cardTransactionId": asked["id"], "amount": 1_100, "merchantAmount": 1_000}
    refunded = ok(api.simulate(card["id"], "return", body))
    listed = ok(api.get(f"/transactions/{asked['id']}/events"))["data"]

    assert asked["authorizedAmount"]["amount"] == 10_873
    assert asked["authorizedAmount"]["currency"]["code"] == "USD"
    assert converted(asked) == (10_000, "EUR", 10_873, "1.0873")
    assert (cleared["status"], cleared["settledAmount"]["amount"]) == ("SETTLED", 10_910)
    assert converted(cleared) == (10_000, "EUR", 10_910, "1.091")
    assert converted(refunded) == (1_000, "EUR", 1_100, "1.1")
    rates = {
        event["type"]: event["conversion"]["rate"] for event in listed if "conversion" in event
    }
    assert rates == {"AUTHORIZED": "1.0873", "PULLED": "1.091", "REFUNDED": "1.1"}
    assert listed[0]["explanation"] == (
        "108.73 USD was authorized. The merchant's amount was 100.00 EUR, at a rate of 1.0873."
    )
    assert api.account(card["cardholderId"])["balance"]["amount"] == 50_000 - 10_910 + 1_100


def test_without_a_billing_amount_the_rate_of_the_platform_decides(api: Api) -> None:
    card = api.active_card(balance=50_000)
    price = {"sourceCurrency": "USD", "destinationCurrency": "EUR", "exchangeRate": 1.25}
    ok(api.post("/sandbox/exchange-rates", price))

    asked = ok(api.simulate(card["id"], "authorization", in_euro(1_001)))

    merchant_amount, currency, billed, rate = converted(asked)
    assert (merchant_amount, currency) == (1_001, "EUR")
    assert (billed, rate) == (1_251, "1.25")


@pytest.mark.parametrize(
    "name", ["financial_authorization", "credit_authorization", "financial_credit_authorization"]
)
def test_every_first_message_may_be_in_another_currency(api: Api, name: str) -> None:
    card = api.active_card(balance=50_000)

    made = ok(api.simulate(card["id"], name, in_euro(10_000, billingAmount=10_873)))

    assert converted(made) == (10_000, "EUR", 10_873, "1.0873")
    assert made["authorizedAmount"]["amount"] == 10_873


def test_a_conversion_that_makes_no_sense_is_refused_and_names_the_field(api: Api) -> None:
    card = api.active_card(balance=50_000)
    plain = api.authorize(card["id"], 100)

    def refusal(name: str, body: object, code: str = "INVALID_INPUT") -> str:
        error = refused(api.simulate(card["id"], name, body), 400, code)
        return str(error["details"]["errors"][0]["field"])

    twice = authorization(100) | {"billingAmount": 100}
    assert refusal("authorization", twice) == "billingAmount"
    for amount in (0, -1, 2**63, "1", 1.5):
        assert refusal("authorization", in_euro(100, billingAmount=amount)) == "billingAmount"
    absurd = in_euro(1, billingAmount=2**63 - 1)
    assert refusal("authorization", absurd, "AMOUNT_OUT_OF_RANGE") == "amount"
    tiny = {**authorization(2**63 - 1), "currency": {"code": "BTC"}, "billingAmount": 1}
    assert refusal("authorization", tiny, "AMOUNT_OUT_OF_RANGE") == "amount"
    unknown = {**authorization(100), "currency": {"code": "ZZZ"}}
    assert refusal("authorization", unknown, "INVALID_CURRENCY") == "currency.code"
    later = {"cardTransactionId": plain["id"], "amount": 100, "merchantAmount": 90}
    assert refusal("clearing", later) == "merchantAmount"
