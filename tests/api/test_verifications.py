"""Verifications: how customers and the owners of businesses come to be decided."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx2
import psycopg
import pytest

from cardledger.api.app import ApiConfig
from cardledger.ledger.storage.ids import new_id
from tests.api.support import Api, made, new_tenant, ok, refused, server, webhooks
from tests.api.test_beneficial_owners import PERSON, add, business
from tests.files import form

ADDRESS = {"line1": "1 Main Street", "postalCode": "10001", "country": "US"}
COMPLETE = {
    "birthDate": "1978-06-15",
    "nationality": "US",
    "idType": "SSN",
    "identifier": "123-45-6789",
    "address": ADDRESS,
}


@pytest.fixture
def own(root: str, api_config: ApiConfig) -> Iterator[Api]:
    """The interface as seen by a platform of this test alone."""
    with Api(root, new_tenant(api_config.database_url)) as client:
        yield client


@pytest.fixture(scope="module")
def production(api_config: ApiConfig) -> Iterator[Api]:
    """The interface of an installation that is no sandbox."""
    config = replace(api_config, sandbox=False)
    with server(config) as url, Api(url, new_tenant(config.database_url)) as client:
        yield client


def submit(api: Api, customer: dict[str, Any]) -> httpx2.Response:
    return api.post("/verifications", {"customerId": customer["id"]})


def customer_of(api: Api, customer: dict[str, Any]) -> dict[str, Any]:
    return ok(api.get(f"/customers/{customer['id']}"))


def kinds(verification: dict[str, Any]) -> list[tuple[str, str | None]]:
    return [(error["type"], error.get("field")) for error in verification["errors"]]


# --- webhooks at creation ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Ada", "CUSTOMER.KYC_APPROVED"),
        ("Ada 001", "CUSTOMER.KYC_PENDING"),
        ("Ada 002", "CUSTOMER.KYC_REJECTED"),
    ],
)
def test_the_first_kyc_status_of_an_individual_has_a_webhook(
    api: Api, database_url: str, name: str, kind: str
) -> None:
    customer = api.customer(fullName=name)

    assert webhooks(database_url, customer["id"], 1) == [(kind, customer)]


def test_an_unverified_customer_has_no_webhook(api: Api, database_url: str) -> None:
    silent = [api.customer(fullName="Ada 003"), business(api)]

    with psycopg.connect(database_url) as connection:
        for customer in silent:
            key = customer["id"].partition(":")[2]
            for table in ("outbox", "webhook_deliveries"):
                query = f"SELECT type FROM {table} WHERE subject_id = %s"
                assert connection.execute(query.encode(), [key]).fetchall() == []


# --- businesses --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "status"), [("42", "APPROVED"), ("42-002", "REJECTED"), (None, "APPROVED")]
)
def test_the_end_of_the_registration_number_decides_a_business(
    api: Api, database_url: str, number: str | None, status: str
) -> None:
    customer = business(api, registrationNumber=number)

    verification = ok(submit(api, customer))

    assert verification["id"].startswith("Verification:")
    assert verification == {
        "id": verification["id"],
        "customerId": customer["id"],
        "verificationStatus": status,
        "errors": [],
        "createdAt": verification["createdAt"],
        "updatedAt": verification["createdAt"],
    }
    decided = customer_of(api, customer)
    assert decided == customer | {"kybStatus": status, "updatedAt": decided["updatedAt"]}
    sent = webhooks(database_url, verification["id"], 1)
    assert sent == [(f"VERIFICATION.{status}", verification)]
    assert webhooks(database_url, customer["id"], 1) == [(f"CUSTOMER.KYB_{status}", decided)]


def test_the_owners_of_a_business_are_decided_with_it(api: Api) -> None:
    customer = business(api)
    names = {"Lovelace": "APPROVED", "Lovelace 001": "PENDING", "Lovelace 002": "REJECTED"}
    for name in names:
        made(add(api, customer, personalInfo=PERSON | {"lastName": name}))

    ok(submit(api, customer))

    owners = ok(api.get("/beneficial-owners", customerId=customer["id"]))["data"]
    assert {owner["personalInfo"]["lastName"]: owner["kycStatus"] for owner in owners} == names
    shown = customer_of(api, customer)["beneficialOwners"]
    assert [item["kycStatus"] for item in shown] == list(names.values())


@pytest.mark.parametrize("suffix", ["001", "003"])
def test_a_business_without_a_deciding_suffix_must_be_complete(
    api: Api, database_url: str, suffix: str
) -> None:
    customer = business(api, registrationNumber=f"42-{suffix}")

    first = ok(submit(api, customer))
    info = {"countriesOfOperation": ["US"]}
    request = {"customerType": "BUSINESS", "businessInfo": info, "address": ADDRESS}
    ok(api.patch(f"/customers/{customer['id']}", request))
    for kind in ("STATE_COMPANY_REGISTRY", "UTILITY_BILL"):
        made(api.http.post("/documents", **form(customer["id"], documentType=kind)))
    made(add(api, customer))
    second = ok(submit(api, customer))
    owner = made(add(api, customer, roles=["CONTROL_PERSON"]))
    made(api.http.post("/documents", **form(owner["id"])))
    third = ok(submit(api, customer))
    again = ok(submit(api, customer))

    assert first["verificationStatus"] == second["verificationStatus"] == "RESOLVE_ERRORS"
    assert kinds(first) == [
        ("MISSING_FIELD", "businessInfo.countriesOfOperation"),
        ("MISSING_FIELD", "address"),
        ("MISSING_BENEFICIAL_OWNER", None),
        ("MISSING_CONTROL_PERSON", None),
        ("MISSING_LEGAL_PRESENCE_DOCUMENT", None),
        ("MISSING_OWNERSHIP_STRUCTURE_DOCUMENT", None),
        ("MISSING_CONTROL_STRUCTURE_DOCUMENT", None),
        ("MISSING_PROOF_OF_ADDRESS_DOCUMENT", None),
    ]
    assert {error["resourceId"] for error in first["errors"]} == {customer["id"]}
    assert all(error["reason"] for error in first["errors"])
    assert kinds(second) == [("MISSING_CONTROL_PERSON", None)]
    assert (third["verificationStatus"], third["errors"]) == ("PENDING_MANUAL_REVIEW", [])
    assert first["id"] == second["id"] == third["id"]
    assert again == third
    assert customer_of(api, customer)["kybStatus"] == "PENDING"
    assert ok(api.get(f"/beneficial-owners/{owner['id']}"))["kycStatus"] == "PENDING"
    sent = webhooks(database_url, first["id"], 3)
    assert [data for _, data in sent] == [first, second, third]
    assert [kind for kind, _ in webhooks(database_url, customer["id"], 1)] == [
        "CUSTOMER.KYB_PENDING"
    ]


# --- people ------------------------------------------------------------------------------------


def test_an_individual_in_manual_review_is_approved_under_another_name(
    api: Api, database_url: str
) -> None:
    customer = api.customer(fullName="Ada 001", **COMPLETE)
    made(api.http.post("/documents", **form(customer["id"])))

    waiting = ok(submit(api, customer))
    still = customer_of(api, customer)
    ok(api.patch(f"/customers/{customer['id']}", {"customerType": "INDIVIDUAL", "fullName": "Ada"}))
    decided = ok(submit(api, customer))

    assert (waiting["verificationStatus"], waiting["errors"]) == ("PENDING_MANUAL_REVIEW", [])
    assert still == customer
    assert (decided["id"], decided["verificationStatus"]) == (waiting["id"], "APPROVED")
    after = customer_of(api, customer)
    assert after["kycStatus"] == "APPROVED"
    sent = webhooks(database_url, customer["id"], 2)
    assert sent == [("CUSTOMER.KYC_PENDING", customer), ("CUSTOMER.KYC_APPROVED", after)]
    account = api.account(customer["id"])
    assert api.card(customer["id"], [account["id"]])["state"] == "PROCESSING"


def test_an_individual_with_a_poor_document_stays_unverified(api: Api) -> None:
    customer = api.customer(fullName="Ada 003", **COMPLETE)
    made(api.http.post("/documents", **form(customer["id"])))

    verification = ok(submit(api, customer))

    assert verification["verificationStatus"] == "RESOLVE_ERRORS"
    [error] = verification["errors"]
    assert error == {
        "resourceId": customer["id"],
        "type": "POOR_QUALITY_DOCUMENT",
        "acceptedDocumentTypes": ["PASSPORT", "DRIVERS_LICENSE", "NATIONAL_ID"],
        "reason": error["reason"],
    }
    assert customer_of(api, customer) == customer


def test_missing_data_of_an_individual_is_reported(api: Api) -> None:
    customer = made(api.post("/customers", {"customerType": "INDIVIDUAL", "fullName": "A 003"}))

    verification = ok(submit(api, customer))

    missing = ["birthDate", "nationality", "idType", "identifier", "address"]
    fields = [("MISSING_FIELD", name) for name in missing]
    assert kinds(verification) == [*fields, ("MISSING_IDENTITY_DOCUMENT", None)]


def test_a_decided_customer_is_not_verified_again(api: Api) -> None:
    acme = business(api)
    ok(submit(api, acme))

    for customer in (api.customer(), api.customer(fullName="Ada 002"), acme):
        body = refused(submit(api, customer), 400, "INVALID_INPUT")
        assert body["details"]["reason"] == "ALREADY_DECIDED"


def test_of_concurrent_submissions_of_a_business_one_is_decided(api: Api) -> None:
    customer = business(api)

    with ThreadPoolExecutor(4) as pool:
        statuses = [
            answer.status_code for answer in pool.map(lambda _: submit(api, customer), range(4))
        ]

    assert sorted(statuses) == [200, 400, 400, 400]
    listed = ok(api.get("/verifications", customerId=customer["id"]))
    assert listed["totalCount"] == 1


def test_without_an_identity_verifier_verification_is_501(production: Api) -> None:
    acme = business(production, registrationNumber="42-002")
    ada = production.customer(fullName="Ada 002", **COMPLETE)

    for customer in (acme, ada):
        body = refused(submit(production, customer), 501, "NOT_IMPLEMENTED")
        assert "identity verifier" in body["message"]

    assert customer_of(production, ada)["kycStatus"] == "UNVERIFIED"
    assert customer_of(production, acme)["kybStatus"] == "UNVERIFIED"
    assert ok(production.get("/verifications"))["data"] == []


# --- reading -----------------------------------------------------------------------------------


def test_verifications_are_listed_newest_first_by_customer_and_status(own: Api) -> None:
    approved = ok(submit(own, business(own)))
    rejected = ok(submit(own, business(own, registrationNumber="002")))
    unclear = ok(submit(own, business(own, registrationNumber="001")))

    def listed(**query: str) -> list[dict[str, Any]]:
        data = ok(own.get("/verifications", **query))["data"]
        assert isinstance(data, list)
        return data

    assert listed() == [unclear, rejected, approved]
    assert listed(customerId=rejected["customerId"]) == [rejected]
    assert listed(verificationStatus="APPROVED") == [approved]
    assert listed(verificationStatus="APPROVED", customerId=rejected["customerId"]) == []
    page = ok(own.get("/verifications", limit=2))
    assert (page["hasMore"], page["totalCount"]) == (True, 3)
    assert listed(cursor=page["nextCursor"]) == [approved]
    assert ok(own.get(f"/verifications/{approved['id']}")) == approved


def test_an_invalid_verification_request_is_refused(api: Api) -> None:
    unknown = {"id": f"Customer:{new_id()}"}
    gone = business(api)
    ok(api.delete(f"/customers/{gone['id']}"))

    refused(submit(api, unknown), 404, "USER_NOT_FOUND")
    refused(submit(api, gone), 404, "USER_NOT_FOUND")
    refused(submit(api, {"id": "acme"}), 400, "INVALID_INPUT")
    refused(api.post("/verifications", {}), 400, "INVALID_INPUT")
    refused(api.get("/verifications", verificationStatus="DONE"), 400, "INVALID_INPUT")
    refused(api.get(f"/verifications/Verification:{new_id()}"), 404, "REFERENCE_NOT_FOUND")


def test_another_platform_neither_verifies_nor_reads(api: Api, other_platform: Api) -> None:
    customer = business(api)
    refused(submit(other_platform, customer), 404, "USER_NOT_FOUND")

    verification = ok(submit(api, customer))

    refused(other_platform.get(f"/verifications/{verification['id']}"), 404, "REFERENCE_NOT_FOUND")
    assert ok(other_platform.get("/verifications", customerId=customer["id"]))["data"] == []
