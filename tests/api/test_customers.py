"""Customers after they were created: listed, changed, deleted; and businesses."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import httpx2
import psycopg
import pytest

from cardledger.api.app import ApiConfig
from cardledger.ledger.storage.ids import new_id
from tests.api.support import Api, made, new_tenant, ok, refused

INFO = {"legalName": "Acme Inc.", "taxId": "12-3456789", "incorporatedOn": "2001-02-03"}


@pytest.fixture
def own(root: str, api_config: ApiConfig) -> Iterator[Api]:
    """The interface as seen by a platform of this test alone."""
    with Api(root, new_tenant(api_config.database_url)) as client:
        yield client


def business(api: Api, **fields: object) -> dict[str, Any]:
    request = {"customerType": "BUSINESS", "businessInfo": INFO} | fields
    return made(api.post("/customers", request))


def change(api: Api, customer: dict[str, Any], **fields: object) -> httpx2.Response:
    request = {"customerType": customer["customerType"]} | fields
    return api.patch(f"/customers/{customer['id']}", request)


def delete(api: Api, customer: dict[str, Any]) -> httpx2.Response:
    return api.delete(f"/customers/{customer['id']}")


def ids(answer: httpx2.Response) -> list[str]:
    return [item["id"] for item in ok(answer)["data"]]


# --- the list ----------------------------------------------------------------------------------


def test_customers_are_listed_in_pages_newest_first(own: Api, other_platform: Api) -> None:
    created = [own.customer() for _ in range(5)]
    other_platform.customer()

    first = ok(own.get("/customers", limit=3))
    second = ok(own.get("/customers", limit=3, cursor=first["nextCursor"]))

    assert first["data"] + second["data"] == created[::-1]
    assert (first["hasMore"], first["totalCount"]) == (True, 5)
    assert (second["hasMore"], second["totalCount"]) == (False, 5)
    assert "nextCursor" not in second
    refused(own.get("/customers", cursor=first["nextCursor"], region="US"), 400, "INVALID_INPUT")


def test_customers_are_filtered_by_their_fields(own: Api) -> None:
    ada = own.customer(platformCustomerId="a", region="GB", currencies=["EUR"])
    bob = own.customer(platformCustomerId="b", region="US", currencies=["USD", "EUR"])
    acme = business(own, platformCustomerId="c", currencies=["USD"])
    every_id = {ada["id"], bob["id"], acme["id"]}

    def listed(**query: str) -> set[str]:
        return set(ids(own.get("/customers", **query)))

    assert listed() == every_id
    assert listed(platformCustomerId="a") == {ada["id"]}
    assert listed(customerType="BUSINESS") == {acme["id"]}
    assert listed(customerType="INDIVIDUAL") == {ada["id"], bob["id"]}
    assert listed(region="US") == {bob["id"]}
    assert listed(currency="EUR") == {ada["id"], bob["id"]}
    assert listed(currency="USDC") == set()
    assert listed(umaAddress=bob["umaAddress"]) == {bob["id"]}
    assert listed(region="US", currency="EUR", customerType="INDIVIDUAL") == {bob["id"]}
    assert listed(region="US", customerType="BUSINESS") == set()


def test_customers_are_filtered_by_inclusive_times(own: Api) -> None:
    old, middle, new = own.customer(), own.customer(), own.customer()
    changed = ok(change(own, old, fullName="Ada King"))

    def listed(**query: str) -> set[str]:
        return set(ids(own.get("/customers", **query)))

    assert listed(createdAfter=middle["createdAt"]) == {middle["id"], new["id"]}
    assert listed(createdBefore=middle["createdAt"]) == {old["id"], middle["id"]}
    at = middle["createdAt"]
    assert listed(createdAfter=at, createdBefore=at) == {middle["id"]}
    assert listed(updatedAfter=changed["updatedAt"]) == {old["id"]}
    assert listed(updatedBefore=new["updatedAt"]) == {middle["id"], new["id"]}


def test_deleted_customers_are_listed_on_request(own: Api) -> None:
    gone, there = own.customer(), own.customer()
    ok(delete(own, gone))

    assert ids(own.get("/customers")) == [there["id"]]
    assert ids(own.get("/customers", isIncludingDeleted="false")) == [there["id"]]
    assert ids(own.get("/customers", isIncludingDeleted="true")) == [there["id"], gone["id"]]


@pytest.mark.parametrize(
    "query",
    [
        {"customerType": "ROBOT"},
        {"region": "usa"},
        {"currency": "usd"},
        {"createdAfter": "yesterday"},
        {"createdAfter": "2026-01-01"},
        {"updatedBefore": "2026-01-01T00:00:00"},
        {"isIncludingDeleted": "maybe"},
        {"umaAddress": ""},
        {"limit": "0"},
        {"cursor": "x"},
        {"surprise": "1"},
    ],
)
def test_an_invalid_filter_is_refused(api: Api, query: dict[str, str]) -> None:
    refused(api.get("/customers", **query), 400, "INVALID_INPUT")


# --- changes -----------------------------------------------------------------------------------


def test_a_change_keeps_fields_that_it_does_not_name(api: Api) -> None:
    before = api.customer(email="ada@example.com", region="GB", birthDate="1815-12-10")
    wish = {
        "email": "king@example.com",
        "fullName": "Ada King 002",
        "nationality": "GB",
        "umaAddress": f"$ada.{uuid4().hex[:8]}@{api.uma_domain()}",
        "address": {"line1": "12 St James's Square", "postalCode": "SW1Y 4JH", "country": "GB"},
    }

    after = ok(change(api, before, **wish, kycStatus="REJECTED"))

    assert after == before | wish | {"updatedAt": after["updatedAt"]}
    assert after["updatedAt"] > before["updatedAt"]
    assert ok(api.get(f"/customers/{before['id']}")) == after


def test_null_removes_a_field(api: Api) -> None:
    before = api.customer(
        email="ada@example.com", address={"line1": "1", "postalCode": "1", "country": "GB"}
    )

    after = ok(change(api, before, email=None, address=None, fullName=None))

    assert {"email", "address", "fullName"}.isdisjoint(after)


def test_a_new_currency_gets_an_account_and_a_removed_currency_keeps_its_account(api: Api) -> None:
    customer = api.customer(currencies=["USD"])
    dollars = api.account(customer["id"], "USD")

    changed = ok(change(api, customer, currencies=["EUR", "USDC"]))
    ok(change(api, customer, currencies=["USD", "EUR"]))

    assert changed["currencies"] == ["EUR", "USDC"]
    accounts = ok(api.get("/customers/internal-accounts", customerId=customer["id"]))["data"]
    codes = [account["balance"]["currency"]["code"] for account in accounts]
    assert codes == ["USD", "EUR", "USDC"]
    assert accounts[0]["id"] == dollars["id"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, "INVALID_INPUT"),
        ({"kycStatus": "APPROVED"}, "INVALID_INPUT"),
        ({"customerType": "BUSINESS", "email": "a@example.com"}, "INVALID_INPUT"),
        ({"customerType": "ROBOT", "email": "a@example.com"}, "INVALID_INPUT"),
        ({"platformCustomerId": "other"}, "INVALID_INPUT"),
        ({"region": "US"}, "INVALID_INPUT"),
        ({"isDeleted": True}, "INVALID_INPUT"),
        ({"fullName": "Bob", "email": "ada"}, "INVALID_INPUT"),
        ({"email": "a@example.com", "phoneNumber": "+14155550123"}, "INVALID_INPUT"),
        ({"currencies": []}, "INVALID_INPUT"),
        ({"currencies": None}, "INVALID_INPUT"),
        ({"currencies": ["USD", "USD"]}, "INVALID_INPUT"),
        ({"fullName": "Bob", "currencies": ["EUR", "JPY"]}, "INVALID_CURRENCY"),
        ({"umaAddress": None}, "INVALID_INPUT"),
        ({"umaAddress": "ada"}, "INVALID_UMA_ADDRESS"),
        ({"businessInfo": INFO}, "INVALID_INPUT"),
    ],
)
def test_an_invalid_change_is_refused_as_a_whole(
    api: Api, fields: dict[str, Any], code: str
) -> None:
    before = api.customer()

    refused(change(api, before, **fields), 400, code)

    assert ok(api.get(f"/customers/{before['id']}")) == before


def test_the_uma_address_of_another_customer_is_refused(api: Api) -> None:
    api.uma_domain()
    theirs, mine = api.customer(), api.customer()

    refused(change(api, mine, umaAddress=theirs["umaAddress"]), 409, "UMA_ADDRESS_EXISTS")


def test_another_platform_neither_changes_nor_deletes(api: Api, other_platform: Api) -> None:
    customer = api.customer()

    refused(change(other_platform, customer, fullName="Bob"), 404, "USER_NOT_FOUND")
    refused(delete(other_platform, customer), 404, "USER_NOT_FOUND")
    refused(other_platform.delete(f"/customers/Customer:{new_id()}"), 404, "USER_NOT_FOUND")

    assert ok(api.get(f"/customers/{customer['id']}")) == customer


# --- the end -----------------------------------------------------------------------------------


def test_a_customer_is_deleted_once(api: Api) -> None:
    customer = api.customer(platformCustomerId=f"no. {uuid4()}")

    deleted = ok(delete(api, customer))

    assert deleted == customer | {"isDeleted": True, "updatedAt": deleted["updatedAt"]}
    assert ok(api.get(f"/customers/{customer['id']}")) == deleted
    accounts = ok(api.get("/customers/internal-accounts", customerId=customer["id"]))["data"]
    assert {account["status"] for account in accounts} == {"CLOSED"}
    refused(delete(api, customer), 410, "CUSTOMER_DELETED")
    refused(change(api, customer, fullName="Bob"), 404, "USER_NOT_FOUND")
    application = {
        "cardholderId": customer["id"],
        "form": "VIRTUAL",
        "fundingSources": [accounts[0]["id"]],
    }
    refused(api.post("/cards", application), 400, "INVALID_INPUT")
    fund = f"/sandbox/internal-accounts/{accounts[0]['id']}/fund"
    refused(api.post(fund, {"amount": 5}), 400, "INVALID_INPUT")


def test_the_identifiers_of_a_deleted_customer_can_be_used_again(api: Api) -> None:
    address = f"${uuid4().hex}@{api.uma_domain()}"
    name = {"platformCustomerId": str(uuid4()), "umaAddress": address}
    first = api.customer(**name)
    ok(delete(api, first))

    assert api.customer(**name)["id"] != first["id"]


def test_a_customer_with_an_open_card_or_a_balance_cannot_be_deleted(api: Api) -> None:
    card = api.active_card(balance=100)
    customer = ok(api.get(f"/customers/{card['cardholderId']}"))

    with_card = refused(delete(api, customer), 409, "CONFLICT")
    bought = api.authorize(card["id"], 100)
    api.clear(card["id"], bought["id"], 150)
    ok(api.patch(f"/cards/{card['id']}", {"state": "CLOSED"}))
    in_debt = refused(delete(api, customer), 409, "CONFLICT")
    api.fund(card["fundingSources"][0], 51)
    with_money = refused(delete(api, customer), 409, "CONFLICT")

    assert with_card["details"] == {"reason": "OPEN_CARDS"}
    assert in_debt["details"] == with_money["details"] == {"reason": "OPEN_BALANCE"}
    assert ok(api.get(f"/customers/{customer['id']}")) == customer


def test_a_customer_whose_balance_is_spent_can_be_deleted(api: Api) -> None:
    card = api.active_card(balance=100)
    bought = api.authorize(card["id"], 100)
    api.clear(card["id"], bought["id"], 100)
    ok(api.patch(f"/cards/{card['id']}", {"state": "CLOSED"}))

    assert ok(api.delete(f"/customers/{card['cardholderId']}"))["isDeleted"] is True

    assert ok(api.get(f"/transactions/{bought['id']}"))["status"] == "SETTLED"


def test_a_refund_after_the_deletion_pays_its_reversal(api: Api) -> None:
    card = api.active_card(balance=5_000)
    bought = api.authorize(card["id"], 5_000)
    api.clear(card["id"], bought["id"], 5_000)
    ok(api.patch(f"/cards/{card['id']}", {"state": "CLOSED"}))
    ok(api.delete(f"/customers/{card['cardholderId']}"))
    parent = {"cardTransactionId": bought["id"]}

    refunded = ok(api.simulate(card["id"], "return", parent | {"amount": 5_000}))
    reversed_ = ok(api.simulate(card["id"], "return_reversal", parent))

    account = ok(api.get(f"/internal-accounts/{card['fundingSources'][0]}"))
    assert (refunded["status"], reversed_["status"]) == ("REFUNDED", "SETTLED")
    assert account["status"] == "CLOSED"
    assert [account[name]["amount"] for name in ("balance", "heldAmount", "owedAmount")] == [0] * 3


def test_no_balance_remains_with_a_customer_that_is_deleted_concurrently(api: Api) -> None:
    for _ in range(10):
        customer = api.customer()
        account = api.account(customer["id"])
        fund = f"/sandbox/internal-accounts/{account['id']}/fund"
        with ThreadPoolExecutor(2) as pool:
            funded = pool.submit(api.post, fund, {"amount": 5})
            deleted = pool.submit(api.delete, f"/customers/{customer['id']}")

        outcomes = funded.result().status_code, deleted.result().status_code
        assert outcomes in {(200, 409), (400, 200)}
        balance = ok(api.get(f"/internal-accounts/{account['id']}"))["balance"]["amount"]
        assert balance == (5 if outcomes == (200, 409) else 0)


def test_a_deposit_keeps_when_it_arrived_and_its_reference_outside(
    api: Api, database_url: str
) -> None:
    account = api.account(api.customer()["id"])["id"]
    fund = f"/sandbox/internal-accounts/{account}/fund"
    deposit = {
        "amount": 5,
        "occurredAt": "2019-06-07T10:00:00+02:00",
        "externalReference": "MT103 4711",
    }

    ok(api.post(fund, deposit))
    refusal = api.post(fund, deposit | {"occurredAt": "yesterday"})

    refused(refusal, 400, "INVALID_INPUT")
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "SELECT d.external_reference, d.occurred_at = '2019-06-07T08:00:00Z',"
            " e.occurred_at = d.occurred_at, e.posted_on = b.first_open_day"
            " FROM books b, deposits d JOIN entries e ON e.subject_id = d.id"
            " WHERE d.account_id = %s",
            [account.removeprefix("InternalAccount:")],
        ).fetchall()
    assert rows == [("MT103 4711", True, True, True)]


def test_no_card_is_issued_to_a_customer_that_is_deleted_concurrently(
    api: Api, database_url: str
) -> None:
    for _ in range(10):
        customer = api.customer()
        account = api.account(customer["id"])
        application = {
            "cardholderId": customer["id"],
            "form": "VIRTUAL",
            "fundingSources": [account["id"]],
        }
        with ThreadPoolExecutor(2) as pool:
            issued = pool.submit(api.post, "/cards", application)
            deleted = pool.submit(delete, api, customer)

        statuses = (issued.result().status_code, deleted.result().status_code)
        assert statuses in {(201, 409), (400, 200)}
    with psycopg.connect(database_url) as connection:
        [row] = connection.execute(
            "SELECT count(*) FROM cards JOIN customers c ON c.id = customer_id"
            " WHERE c.is_deleted AND state <> 'CLOSED'"
        ).fetchall()
    assert row[0] == 0


# --- businesses --------------------------------------------------------------------------------


def test_a_business_is_returned_as_it_was_sent(api: Api) -> None:
    request = {
        "customerType": "BUSINESS",
        "platformCustomerId": str(uuid4()),
        "region": "US",
        "currencies": ["USD"],
        "address": {"line1": "1 Main Street", "postalCode": "10001", "country": "US"},
        "businessInfo": INFO
        | {
            "country": "US",
            "doingBusinessAs": "Acme",
            "registrationNumber": "42",
            "entityType": "LLC",
            "countriesOfOperation": ["US", "MX"],
            "businessType": "INFORMATION",
            "purposeOfAccount": "CONTRACTOR_PAYOUTS",
            "sourceOfFundsCategories": ["OPERATING_REVENUE"],
            "expectedMonthlyTransactionCount": "COUNT_UNDER_10",
            "expectedMonthlyTransactionVolume": "VOLUME_UNDER_10K",
            "naicsCode": "511210",
            "primaryContactFirstName": "Wile",
        },
    }

    customer = made(api.post("/customers", request))

    assert {name: customer[name] for name in request} == request
    assert (customer["kybStatus"], customer["beneficialOwners"]) == ("UNVERIFIED", [])
    assert "kycStatus" not in customer
    assert ok(api.get(f"/customers/{customer['id']}")) == customer
    assert api.account(customer["id"])["status"] == "ACTIVE"
    assert "kybStatus" not in api.customer()


@pytest.mark.parametrize("field", list(INFO))
def test_a_business_requires_its_identifying_fields(api: Api, field: str) -> None:
    info = {name: value for name, value in INFO.items() if name != field}

    answer = api.post("/customers", {"customerType": "BUSINESS", "businessInfo": info})

    [error] = refused(answer, 400, "INVALID_INPUT")["details"]["errors"]
    assert (error["field"], error["message"]) == (f"businessInfo.{field}", "is required")


@pytest.mark.parametrize(
    "change",
    [
        {"businessInfo": None},
        {"kycStatus": "APPROVED"},
        {"fullName": "Ada"},
        {"businessInfo": INFO | {"naicsCode": "1"}},
        {"businessInfo": INFO | {"entityType": "CLUB"}},
        {"businessInfo": INFO | {"incorporatedOn": "long ago"}},
        {"businessInfo": INFO | {"countriesOfOperation": ["usa"]}},
        {"businessInfo": INFO | {"surprise": 1}},
    ],
)
def test_an_invalid_business_is_refused(api: Api, change: dict[str, Any]) -> None:
    request = {"customerType": "BUSINESS", "businessInfo": INFO} | change

    refused(api.post("/customers", request), 400, "INVALID_INPUT")


def test_business_info_changes_field_by_field(api: Api) -> None:
    before = business(api, businessInfo=INFO | {"entityType": "LLC", "naicsCode": "51"})

    after = ok(change(api, before, businessInfo={"legalName": "Acme Corp.", "entityType": None}))

    assert after["businessInfo"] == INFO | {"legalName": "Acme Corp.", "naicsCode": "51"}
    for wish in ({"legalName": None}, {"taxId": None}, {"incorporatedOn": None}):
        refused(change(api, before, businessInfo=wish), 400, "INVALID_INPUT")
    refused(change(api, before, businessInfo=None), 400, "INVALID_INPUT")
    assert ok(api.get(f"/customers/{before['id']}")) == after


def test_a_business_cannot_hold_a_card(api: Api) -> None:
    acme = business(api)
    application = {
        "cardholderId": acme["id"],
        "form": "VIRTUAL",
        "fundingSources": [api.account(acme["id"])["id"]],
    }

    refused(api.post("/cards", application), 400, "CARDHOLDER_KYC_NOT_APPROVED")


# --- the platform's own accounts ---------------------------------------------------------------


@pytest.mark.parametrize("query", [{"type": "GOLD"}, {"currency": "usd"}, {"limit": "5"}])
def test_an_invalid_filter_of_platform_accounts_is_refused(api: Api, query: dict[str, str]) -> None:
    refused(api.get("/platform/internal-accounts", **query), 400, "INVALID_INPUT")


@pytest.mark.parametrize(
    "info",
    [
        {"purposeOfAccount": "OTHER"},
        {"sourceOfFundsCategories": ["LOANS", "OTHER"]},
        {"purposeOfAccountOtherDescription": "a museum"},
        {"purposeOfAccount": "AP_AUTOMATION", "purposeOfAccountOtherDescription": "a museum"},
        {"sourceOfFundsCategories": [], "sourceOfFundsOtherDescription": "tickets"},
    ],
)
def test_a_business_describes_the_choice_other_and_no_other_choice(
    api: Api, info: dict[str, Any]
) -> None:
    request = {"customerType": "BUSINESS", "businessInfo": INFO | info}

    [error] = refused(api.post("/customers", request), 400, "INVALID_INPUT")["details"]["errors"]

    assert error["field"].startswith("businessInfo.")
    assert error["field"].endswith("OtherDescription")


# --- tax numbers and due diligence -------------------------------------------------------------

DILIGENCE = {
    "sourceOfFundsCategories": ["SALARY", "OTHER"],
    "sourceOfFundsOtherDescription": "royalties",
    "sourceOfWealthCategories": ["INHERITANCE", "OTHER"],
    "sourceOfWealthOtherDescription": "a treasure",
    "purposeOfAccount": "OTHER",
    "purposeOfAccountOtherDescription": "computing",
    "expectedMonthlyTransactionCount": "COUNT_UNDER_10",
    "expectedMonthlyTransactionVolume": "VOLUME_10K_TO_100K",
    "annualIncomeRange": "RANGE_100K_250K",
    "netWorthRange": "OVER_25M",
    "pepStatus": "FAMILY_OR_ASSOCIATE",
}
CONSENT = {
    "acceptedAt": "2026-01-31T12:00:00.000000Z",
    "ipAddress": "2001:db8::1",
    "termsVersion": "7",
    "acceptanceMethod": "CHECKBOX",
}


def test_due_diligence_data_is_returned_as_it_was_sent(api: Api) -> None:
    request = DILIGENCE | {"endUserTermsConsent": CONSENT}

    customer = api.customer(**request)

    assert {name: customer[name] for name in request} == request
    assert ok(api.get(f"/customers/{customer['id']}")) == customer
    assert "dueDiligence" not in customer


def test_due_diligence_data_changes_field_by_field(api: Api) -> None:
    before = api.customer(**DILIGENCE)

    after = ok(
        change(api, before, purposeOfAccount="P2P_TRANSFERS", pepStatus=None, netWorthRange=None)
    )

    gone = {"purposeOfAccountOtherDescription", "pepStatus", "netWorthRange"}
    kept = {name: value for name, value in before.items() if name not in gone}
    assert after == kept | {"purposeOfAccount": "P2P_TRANSFERS", "updatedAt": after["updatedAt"]}
    ok(change(api, before, email="ada@example.com"))
    refused(change(api, before, purposeOfAccount="OTHER"), 400, "INVALID_INPUT")
    refused(change(api, before, sourceOfFundsOtherDescription=None), 400, "INVALID_INPUT")


@pytest.mark.parametrize("field", sorted(DILIGENCE))
def test_an_unknown_choice_in_due_diligence_data_is_refused(api: Api, field: str) -> None:
    wrong = {"customerType": "INDIVIDUAL"} | DILIGENCE | {field: "SOMETHING" * 100}

    body = refused(api.post("/customers", wrong), 400, "INVALID_INPUT")

    assert body["details"]["errors"][0]["field"].startswith(field)


@pytest.mark.parametrize(
    "choice", ["sourceOfFundsCategories", "sourceOfWealthCategories", "purposeOfAccount"]
)
def test_an_individual_describes_the_choice_other_and_no_other_choice(
    api: Api, choice: str
) -> None:
    description = {
        "sourceOfFundsCategories": "sourceOfFundsOtherDescription",
        "sourceOfWealthCategories": "sourceOfWealthOtherDescription",
        "purposeOfAccount": "purposeOfAccountOtherDescription",
    }[choice]
    for wrong in (
        {name: value for name, value in DILIGENCE.items() if name != description},
        {name: value for name, value in DILIGENCE.items() if name != choice},
    ):
        answer = api.post("/customers", {"customerType": "INDIVIDUAL"} | wrong)

        [error] = refused(answer, 400, "INVALID_INPUT")["details"]["errors"]
        assert error["field"] == description


@pytest.mark.parametrize(("kind", "number"), [("SSN", "123-45-6789"), ("ITIN", "912-34-5678")])
def test_the_identifier_of_an_individual_is_never_returned(
    api: Api, database_url: str, kind: str, number: str
) -> None:
    customer = api.customer(idType=kind, identifier=number)

    shown = ok(api.get(f"/customers/{customer['id']}"))

    assert shown == customer
    assert (shown["idType"], shown["countryOfIssuance"]) == (kind, "US")
    assert number not in str(shown)
    assert "identifier" not in shown
    with psycopg.connect(database_url) as connection:
        for table in ("customers", "outbox", "webhook_deliveries"):
            rows = connection.execute(f"SELECT t::text FROM {table} t".encode()).fetchall()
            assert rows or table != "customers"
            assert not [row for row in rows if number in row[0] or number.encode().hex() in row[0]]


@pytest.mark.parametrize(
    "fields",
    [
        {"idType": "SSN", "identifier": "123456789"},
        {"idType": "ITIN", "identifier": "123-45-6789"},
        {"idType": "EIN", "identifier": "12-3456789"},
        {"idType": "NON_US_TAX_ID", "identifier": "1"},
        {"idType": "SSN", "identifier": "123-45-6789", "countryOfIssuance": "GB"},
        {"identifier": "123-45-6789"},
        {"countryOfIssuance": "US"},
    ],
)
def test_an_invalid_identifier_of_an_individual_is_refused(
    api: Api, fields: dict[str, Any]
) -> None:
    body = refused(
        api.post("/customers", {"customerType": "INDIVIDUAL"} | fields), 400, "INVALID_INPUT"
    )

    assert "6789" not in str(body)


def test_an_identifier_changes_together_with_its_type(api: Api) -> None:
    before = api.customer(idType="SSN", identifier="123-45-6789")

    refused(change(api, before, idType="ITIN"), 400, "INVALID_INPUT")
    refused(change(api, before, identifier="12-3456789"), 400, "INVALID_INPUT")
    refused(change(api, before, countryOfIssuance="GB"), 400, "INVALID_INPUT")
    refused(change(api, before, idType=None), 400, "INVALID_INPUT")
    ok(change(api, before, identifier="987-65-4321"))
    changed = ok(change(api, before, idType="ITIN", identifier="912-34-5678"))
    cleared = ok(change(api, before, idType=None, identifier=None))

    assert changed["idType"] == "ITIN"
    assert {"idType", "countryOfIssuance"}.isdisjoint(cleared)


@pytest.mark.parametrize(
    "consent",
    [{}, {"ipAddress": "1" * 46}, {"acceptanceMethod": "SIGH"}, {"acceptedAt": "yesterday"}],
)
def test_an_incomplete_consent_is_refused(api: Api, consent: dict[str, str]) -> None:
    request = {"customerType": "INDIVIDUAL", "endUserTermsConsent": consent and CONSENT | consent}

    refused(api.post("/customers", request), 400, "INVALID_INPUT")


# --- what a region asks for --------------------------------------------------------------------

CONTACTS = {"email": "ada@example.com", "phoneNumber": "+33155550123"}


@pytest.mark.parametrize("kind", ["INDIVIDUAL", "BUSINESS"])
def test_the_economic_area_requires_email_and_phone_number(api: Api, kind: str) -> None:
    request: dict[str, Any] = {"customerType": kind, "region": "FR"}
    request |= {"businessInfo": INFO} if kind == "BUSINESS" else {}

    missing = refused(api.post("/customers", request), 400, "MISSING_MANDATORY_USER_INFO")
    for field in CONTACTS:
        half = {name: value for name, value in CONTACTS.items() if name != field}
        body = refused(api.post("/customers", request | half), 400, "MISSING_MANDATORY_USER_INFO")
        assert [error["field"] for error in body["details"]["errors"]] == [field]
    customer = made(api.post("/customers", request | CONTACTS))

    assert [error["field"] for error in missing["details"]["errors"]] == list(CONTACTS)
    for field in CONTACTS:
        refused(change(api, customer, **{field: None}), 400, "MISSING_MANDATORY_USER_INFO")
    ok(change(api, customer, email="king@example.com"))


@pytest.mark.parametrize("region", ["GB", "US", "CH", None])
def test_other_regions_require_no_contact_data(api: Api, region: str | None) -> None:
    made(api.post("/customers", {"customerType": "INDIVIDUAL", "region": region}))


# --- who else is there -------------------------------------------------------------------------


def test_of_concurrent_customers_with_one_platform_customer_id_one_is_created(
    api: Api, other_platform: Api
) -> None:
    name = str(uuid4())
    api.customer(platformCustomerId=name)

    again = {"customerType": "BUSINESS", "businessInfo": INFO, "platformCustomerId": name}

    refused(api.post("/customers", again), 409, "CONFLICT")
    made(other_platform.post("/customers", again))


def test_an_account_is_read_by_its_id(api: Api, other_platform: Api) -> None:
    account = api.account(api.customer()["id"])
    path = f"/internal-accounts/{account['id']}"

    assert ok(api.get(path)) == account
    assert ok(api.get(path.replace(":", "%3A"))) == account

    refused(other_platform.get(path), 404, "REFERENCE_NOT_FOUND")
    refused(api.get(f"/internal-accounts/InternalAccount:{new_id()}"), 404, "REFERENCE_NOT_FOUND")
    refused(api.get("/internal-accounts/1"), 404, "REFERENCE_NOT_FOUND")


def test_accounts_are_filtered_by_every_parameter(own: Api) -> None:
    ada, bob = own.customer(), own.customer(currencies=["USD"])

    def listed(**query: str) -> list[tuple[str, str]]:
        data = ok(own.get("/customers/internal-accounts", **query))["data"]
        return [(item["customerId"], item["balance"]["currency"]["code"]) for item in data]

    adas = [(ada["id"], "USD"), (ada["id"], "EUR"), (ada["id"], "USDC")]
    assert listed() == [*adas, (bob["id"], "USD")]
    assert listed(currency="USD") == [adas[0], (bob["id"], "USD")]
    assert listed(customerId=ada["id"]) == adas
    assert listed(type="INTERNAL_CRYPTO") == [adas[2]]
    assert listed(type="INTERNAL_FIAT", customerId=ada["id"], currency="EUR") == [adas[1]]
    assert listed(type="EMBEDDED_WALLET") == []
    refused(own.get("/customers/internal-accounts", type="SAVINGS"), 400, "INVALID_INPUT")
    refused(own.get("/customers/internal-accounts", customerId="ada"), 400, "INVALID_INPUT")
