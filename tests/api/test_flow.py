"""The restaurant tip over HTTP, and what belongs to it: real server, worker, databases."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from tests.api.support import Api, made, ok, refused
from tests.waiting import eventually


def test_a_tip_above_the_authorization_is_pulled_after_the_fact(api: Api) -> None:
    card = api.active_card(balance=50_000)
    [account_id] = card["fundingSources"]

    authorized = api.authorize(card["id"], 1250)
    held = api.account(card["cardholderId"])
    cleared = api.clear(card["id"], authorized["id"], 1500)

    assert authorized["status"] == "AUTHORIZED"
    assert authorized["pullSummary"] == {"count": 1, "totalAmount": 1250, "pendingCount": 0}
    assert authorized["settlementSummary"] == {"count": 0, "totalAmount": 0}
    assert authorized["refundSummary"] == {"count": 0, "totalAmount": 0}
    assert authorized["authorizedAmount"] == {
        "amount": 1250,
        "currency": {
            "code": "USD",
            "name": "United States Dollar",
            "symbol": "$",
            "decimals": 2,
        },
    }
    assert "settledAmount" not in authorized
    assert "lastEventAt" not in authorized
    assert (held["balance"]["amount"], held["heldAmount"]["amount"]) == (48_750, 1250)
    assert cleared["id"] == authorized["id"]
    assert cleared["issuerTransactionToken"] == authorized["issuerTransactionToken"]
    assert cleared["status"] == "SETTLED"
    assert cleared["pullSummary"] == {"count": 2, "totalAmount": 1500, "pendingCount": 0}
    assert cleared["settlementSummary"] == {"count": 1, "totalAmount": 1500}
    assert cleared["settledAmount"]["amount"] == 1500
    assert cleared["accountId"] == account_id
    after = api.account(card["cardholderId"])
    assert (after["balance"]["amount"], after["heldAmount"]["amount"]) == (48_500, 0)
    assert ok(api.get(f"/transactions/{authorized['id']}")) == cleared


def test_what_is_returned_has_ids_and_times_of_the_right_shape(api: Api) -> None:
    card = api.active_card()

    transaction = api.authorize(card["id"], 100)

    for kind, public in (
        ("Customer", card["cardholderId"]),
        ("InternalAccount", card["fundingSources"][0]),
        ("Card", card["id"]),
        ("CardTransaction", transaction["id"]),
    ):
        name, _, key = public.partition(":")
        assert (name, UUID(key).version) == (kind, 7)
    assert transaction["createdAt"].endswith("Z")
    assert transaction["merchant"] == {"descriptor": "RESTAURANT 9"}
    assert transaction["customerId"] == card["cardholderId"]


def test_a_card_is_processing_first_and_active_soon(api: Api) -> None:
    customer = api.customer()
    account = api.account(customer["id"])

    asked = api.card(customer["id"], [account["id"]], maxSpendPerTransaction=5000)
    active = api.wait_for_state(asked["id"], "ACTIVE")

    assert asked["state"] == "PROCESSING"
    assert asked["stateReason"] is None
    assert asked["currency"] == "USD"
    assert not {"brand", "last4", "expMonth", "expYear"} & set(asked)
    assert active["brand"] == "VISA"
    assert len(active["last4"]) == 4
    assert 1 <= active["expMonth"] <= 12
    assert active["maxSpendPerTransaction"] == 5000
    assert active["processorRef"]
    assert active["issuerRef"]


@pytest.mark.parametrize(
    ("suffix", "state", "reason"),
    [("002", "CLOSED", "ISSUER_REJECTED"), ("005", "ACTIVE", None)],
)
def test_the_end_of_the_platforms_card_id_says_what_the_issuer_does(
    api: Api, suffix: str, state: str, reason: str | None
) -> None:
    customer = api.customer()
    account = api.account(customer["id"])

    card = api.card(customer["id"], [account["id"]], platformCardId=f"mine-{suffix}")

    assert api.wait_for_state(card["id"], state)["stateReason"] == reason


def test_a_card_that_is_never_issued_declines(api: Api) -> None:
    customer = api.customer()
    account = api.account(customer["id"])
    card = api.card(customer["id"], [account["id"]], platformCardId="mine-001")

    declined = api.authorize(card["id"], 100)

    assert (declined["status"], declined["declineReason"]) == ("DECLINED", "CARD_NOT_ACTIVE")


def test_a_refused_authorization_is_an_answer_not_an_error(api: Api) -> None:
    card = api.active_card(balance=1000)

    equal = api.authorize(card["id"], 1000)
    over = api.authorize(card["id"], 1)
    by_name = api.authorize(card["id"], 1, descriptor="SHOP 003")

    assert equal["status"] == "AUTHORIZED"
    assert (over["status"], over["declineReason"]) == ("DECLINED", "INSUFFICIENT_FUNDS")
    assert over["authorizedAmount"]["amount"] == 1
    assert over["pullSummary"] == {"count": 0, "totalAmount": 0, "pendingCount": 0}
    assert (by_name["status"], by_name["declineReason"]) == ("DECLINED", "CARD_PAUSED")


def test_a_clearing_waits_for_another_one_while_less_has_settled(api: Api) -> None:
    card = api.active_card()
    authorized = api.authorize(card["id"], 1000)

    first = api.clear(card["id"], authorized["id"], 400)
    second = api.clear(card["id"], authorized["id"], 600)

    assert (first["status"], second["status"]) == ("PARTIALLY_SETTLED", "SETTLED")
    assert second["settlementSummary"] == {"count": 2, "totalAmount": 1000}


def test_a_late_clearing_of_a_closed_card_transaction_is_force_posted(api: Api) -> None:
    card = api.active_card()
    authorized = api.authorize(card["id"], 1000)
    api.clear(card["id"], authorized["id"], 1000)

    late = api.clear(card["id"], authorized["id"], 300)

    assert late["status"] == "SETTLED"
    assert late["settlementSummary"] == {"count": 2, "totalAmount": 1300}
    assert late["pullSummary"]["totalAmount"] == 1300


def test_a_clearing_of_a_declined_authorization_is_force_posted(api: Api) -> None:
    card = api.active_card(balance=1000, maxSpendPerTransaction=300)
    declined = api.authorize(card["id"], 400)

    posted = api.clear(card["id"], declined["id"], 400)

    assert declined["status"] == "DECLINED"
    assert posted["status"] == "SETTLED"
    assert posted["settlementSummary"] == {"count": 1, "totalAmount": 400}


def test_a_closed_card_transaction_cannot_be_reversed_expired_or_advised(api: Api) -> None:
    card = api.active_card()
    authorized = api.authorize(card["id"], 1000)
    api.clear(card["id"], authorized["id"], 1000)
    parent = {"cardTransactionId": authorized["id"]}

    for name, body in (
        ("clearing", parent | {"amount": 0}),
        ("authorization_reversal", parent),
        ("authorization_expiry", parent),
        ("authorization_advice", parent | {"amount": 2000}),
    ):
        answer = api.simulate(card["id"], name, body)
        details = refused(answer, 400, "INVALID_INPUT")["details"]
        assert details == {"reason": "CARD_TRANSACTION_NOT_OPEN", "status": "SETTLED"}


@pytest.mark.parametrize(
    ("name", "change", "status"),
    [
        ("clearing", {"amount": 1000}, "EXCEPTION"),
        ("authorization_advice", {"amount": 1200}, "EXCEPTION"),
        ("authorization_reversal", {}, "VOIDED"),
        ("authorization_expiry", {}, "VOIDED"),
        ("clearing", {"amount": 0}, "VOIDED"),
    ],
)
def test_an_open_card_transaction_in_exception_can_still_change(
    api: Api, name: str, change: dict[str, Any], status: str
) -> None:
    card = api.active_card(balance=1000)
    authorized = api.authorize(card["id"], 600)
    body = {"cardTransactionId": authorized["id"], "amount": 1300}
    advised = ok(api.simulate(card["id"], "authorization_advice", body))

    changed = ok(api.simulate(card["id"], name, {"cardTransactionId": authorized["id"], **change}))

    assert advised["status"] == "EXCEPTION"
    assert changed["status"] == status


def test_many_authorizations_at_once_never_overdraw(api: Api) -> None:
    card = api.active_card(balance=1000)

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: api.authorize(card["id"], 100), range(20)))

    statuses = [answer["status"] for answer in answers]
    assert (statuses.count("AUTHORIZED"), statuses.count("DECLINED")) == (10, 10)
    account = api.account(card["cardholderId"])
    assert (account["balance"]["amount"], account["heldAmount"]["amount"]) == (0, 1000)


def test_ids_may_be_percent_encoded(api: Api) -> None:
    card = api.active_card()
    encoded = card["id"].replace(":", "%3A")

    transaction = api.authorize(encoded, 100)

    assert ok(api.get(f"/cards/{encoded}"))["id"] == card["id"]
    assert ok(api.get(f"/transactions/{transaction['id'].replace(':', '%3a')}"))


def test_a_new_customer_has_one_active_account_per_currency(api: Api) -> None:
    every = api.customer()
    some = api.customer(currencies=["EUR"])

    accounts = ok(api.get("/customers/internal-accounts", customerId=every["id"]))["data"]

    assert [
        (account["balance"]["currency"]["code"], account["type"], account["status"])
        for account in accounts
    ] == [
        ("USD", "INTERNAL_FIAT", "ACTIVE"),
        ("EUR", "INTERNAL_FIAT", "ACTIVE"),
        ("USDC", "INTERNAL_CRYPTO", "ACTIVE"),
    ]
    assert every["currencies"] == ["USD", "EUR", "USDC"]
    assert ok(api.get("/customers/internal-accounts", customerId=some["id"]))["totalCount"] == 1
    fiat = api.get("/customers/internal-accounts", customerId=every["id"], type="INTERNAL_FIAT")
    assert ok(fiat)["totalCount"] == 2


def test_an_account_has_the_sequence_of_its_latest_webhook(
    api: Api, database_url: DatabaseUrl
) -> None:
    card = api.active_card(balance=50_000)
    opened = api.account(card["cardholderId"])
    authorized = api.authorize(card["id"], 1250)
    api.clear(card["id"], authorized["id"], 1500)

    account = api.account(card["cardholderId"])

    *_, latest = account_webhooks(database_url, account["id"], account["sequence"])
    assert (opened["sequence"], account["sequence"]) == (1, 3), "a deposit, then two pulls"
    assert latest["sequence"] == latest["data"]["sequence"] == account["sequence"]
    assert latest["data"] == account
    [listed] = ok(
        api.get("/customers/internal-accounts", customerId=card["cardholderId"], currency="USD")
    )["data"]
    assert listed["sequence"] == account["sequence"]


def account_webhooks(url: DatabaseUrl, account_id: str, sequence: int) -> list[dict[str, Any]]:
    """Return the webhooks of an account in their order, once `sequence` is among them."""

    def look() -> list[dict[str, Any]] | None:
        with psycopg.connect(url) as connection:
            rows = connection.execute(
                "SELECT body::json FROM webhook_deliveries WHERE subject_id = %s ORDER BY sequence",
                [account_id.partition(":")[2]],
            ).fetchall()
        bodies = [body for (body,) in rows]
        return bodies if any(body["sequence"] == sequence for body in bodies) else None

    return eventually(look)


def test_a_customer_is_returned_as_it_was_sent(api: Api) -> None:
    sent = {
        "customerType": "INDIVIDUAL",
        "platformCustomerId": "no. 42",
        "region": "US",
        "currencies": ["USD"],
        "email": "ada@example.com",
        "phoneNumber": "+14155550123",
        "umaAddress": f"$ada@{api.uma_domain()}",
        "fullName": "Ada Lovelace",
        "birthDate": "1815-12-10",
        "nationality": "GB",
        "address": {"line1": "12 St James's Square", "postalCode": "SW1Y 4JH", "country": "GB"},
    }

    customer = made(api.post("/customers", sent))

    assert {name: customer[name] for name in sent} == sent
    assert customer["kycStatus"] == "APPROVED"
    assert customer["isDeleted"] is False
    assert ok(api.get(f"/customers/{customer['id']}")) == customer


@pytest.mark.parametrize(
    ("name", "status"),
    [("Ada 001", "PENDING"), ("Ada 002", "REJECTED"), ("Ada 003", "UNVERIFIED"), ("A", "APPROVED")],
)
def test_the_end_of_the_name_decides_on_kyc(api: Api, name: str, status: str) -> None:
    assert api.customer(fullName=name)["kycStatus"] == status


def test_a_platform_customer_id_and_a_uma_address_are_unique(api: Api, other_platform: Api) -> None:
    api.uma_domain()
    customer = api.customer(platformCustomerId="twice")

    same_id = api.post("/customers", {"customerType": "INDIVIDUAL", "platformCustomerId": "twice"})
    same_address = api.post(
        "/customers", {"customerType": "INDIVIDUAL", "umaAddress": customer["umaAddress"]}
    )

    refused(same_id, 409, "CONFLICT")
    refused(same_address, 409, "UMA_ADDRESS_EXISTS")
    assert other_platform.customer(platformCustomerId="twice")


def test_pages_hold_every_card_transaction_once(api: Api) -> None:
    card = api.active_card()
    made_in_order = [api.authorize(card["id"], 10 + n)["id"] for n in range(5)]

    for order, expected in (("asc", made_in_order), ("desc", made_in_order[::-1])):
        seen: list[str] = []
        query = {"cardId": card["id"], "limit": 2, "sortOrder": order}
        page = ok(api.get("/transactions", **query))
        pages = 1
        while True:
            seen += [transaction["id"] for transaction in page["data"]]
            assert page["totalCount"] == 5
            assert page["hasMore"] == ("nextCursor" in page)
            if not page["hasMore"]:
                break
            page = ok(api.get("/transactions", **query, cursor=page["nextCursor"]))
            pages += 1

        assert (seen, pages) == (expected, 3)


def test_card_transactions_are_filtered(api: Api) -> None:
    card, other = api.active_card(balance=100), api.active_card()
    api.authorize(card["id"], 100)
    api.authorize(card["id"], 100)
    api.authorize(other["id"], 100)

    def count(**query: str) -> int:
        total = ok(api.get("/transactions", **query))["totalCount"]
        assert isinstance(total, int)
        return total

    assert count(cardId=card["id"]) == 2
    assert count(customerId=card["cardholderId"], status="AUTHORIZED") == 1
    assert count(customerId=card["cardholderId"], status="DECLINED", type="CARD") == 1
    assert count(cardId=card["id"], customerId=other["cardholderId"]) == 0
    assert count(type="OUTGOING") == 0


def test_a_cursor_belongs_to_its_list(api: Api) -> None:
    card = api.active_card()
    for amount in (1, 2):
        api.authorize(card["id"], amount)
    query = {"cardId": card["id"], "limit": 1}
    cursor = ok(api.get("/transactions", **query))["nextCursor"]

    for changed in (
        {**query, "cursor": cursor[:-2] + "AA"},
        {**query, "cursor": "x"},
        {**query, "cursor": "é"},
        {**query, "cursor": cursor, "sortOrder": "asc"},
        {"limit": 1, "cursor": cursor},
    ):
        refused(api.get("/transactions", **changed), 400, "INVALID_INPUT")
    refused(api.get("/customers/internal-accounts", cursor=cursor), 400, "INVALID_INPUT")


def test_settings_keep_a_webhook_endpoint_until_null(api: Api) -> None:
    before = ok(api.get("/config"))

    changed = ok(
        api.http.patch("/config", json={"webhookEndpoint": "https://127.0.0.1:1/hook?a=1"})
    )
    cleared = ok(api.http.patch("/config", json={"webhookEndpoint": None}))

    assert before["id"] == f"PlatformConfig:{api.tenant.platform_id}"
    assert "webhookEndpoint" not in before
    assert before["webhookPublicKey"].startswith("-----BEGIN PUBLIC KEY-----")
    assert [one["currencyCode"] for one in before["supportedCurrencies"]] == ["USD", "EUR", "USDC"]
    assert changed["webhookEndpoint"] == "https://127.0.0.1:1/hook?a=1"
    assert changed["updatedAt"] > before["updatedAt"]
    assert "webhookEndpoint" not in cleared
