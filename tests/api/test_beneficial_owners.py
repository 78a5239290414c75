"""Beneficial owners: who owns or controls a business, and by how much."""

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import httpx2
import psycopg
import pytest

from cardledger.ledger.customers import beneficial_owners
from cardledger.ledger.storage.ids import new_id
from tests.api.support import Api, at_once, check_cap, made, ok, refused

INFO = {"legalName": "Acme Inc.", "taxId": "12-3456789", "incorporatedOn": "2001-02-03"}
PERSON = {
    "firstName": "Ada",
    "middleName": "King",
    "lastName": "Lovelace",
    "birthDate": "1978-06-15",
    "nationality": "US",
    "address": {
        "line1": "123 Pine Street",
        "line2": "Unit 501",
        "city": "Seattle",
        "state": "WA",
        "postalCode": "98101",
        "country": "US",
    },
    "idType": "SSN",
    "identifier": "123-45-6789",
    "email": "ada@example.com",
    "phoneNumber": "+14155550192",
    "countryOfIssuance": "US",
}


def business(api: Api, **info: object) -> dict[str, Any]:
    request = {"customerType": "BUSINESS", "businessInfo": INFO | info}
    return made(api.post("/customers", request))


def add(
    api: Api, customer: dict[str, Any], share: object = 10, **fields: object
) -> httpx2.Response:
    request = {
        "customerId": customer["id"],
        "roles": ["UBO"],
        "ownershipPercentage": share,
        "personalInfo": PERSON,
    }
    return api.post("/beneficial-owners", request | fields)


def change(api: Api, owner: dict[str, Any], **fields: object) -> httpx2.Response:
    return api.patch(f"/beneficial-owners/{owner['id']}", fields)


def without(fields: dict[str, Any], field: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != field}


def test_a_business_has_exactly_as_many_owners_as_it_may_have(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beneficial_owners, "OWNER_LIMIT", 3)
    customer = business(api)

    answers = at_once(8, lambda: add(api, customer, 1))

    check_cap(answers, made=3, limit=3)
    made(add(api, business(api), 1))


def test_an_owner_is_returned_as_it_was_sent(api: Api) -> None:
    customer = business(api)

    owner = made(add(api, customer, 51, roles=["UBO", "DIRECTOR"]))

    assert owner["id"].startswith("BeneficialOwner:")
    assert owner == {
        "id": owner["id"],
        "customerId": customer["id"],
        "roles": ["UBO", "DIRECTOR"],
        "ownershipPercentage": 51,
        "personalInfo": PERSON,
        "kycStatus": "PENDING",
        "createdAt": owner["createdAt"],
        "updatedAt": owner["createdAt"],
    }
    assert ok(api.get(f"/beneficial-owners/{owner['id']}")) == owner
    listed = ok(api.get("/beneficial-owners", customerId=customer["id"]))
    assert listed == {"data": [owner], "hasMore": False, "totalCount": 1}


@pytest.mark.parametrize("share", ["0", "33.33", "0.0001", "99.9999", "100", "100.0", "12.5"])
def test_a_share_is_stored_exactly(api: Api, database_url: str, share: str) -> None:
    customer = business(api)
    body = (
        f'{{"customerId": "{customer["id"]}", "roles": ["UBO"], "ownershipPercentage": {share},'
        ' "personalInfo": {"firstName": "A", "lastName": "B", "birthDate": "1978-06-15",'
        ' "nationality": "US", "address": {"line1": "1", "postalCode": "1", "country": "US"},'
        ' "idType": "EIN", "identifier": "12-3456789"}}'
    )

    owner = made(api.raw("POST", "/beneficial-owners", body))

    assert str(owner["ownershipPercentage"]) == share.removesuffix(".0")
    with psycopg.connect(database_url) as connection:
        [row] = connection.execute(
            "SELECT ownership_percentage FROM beneficial_owners WHERE id = %s",
            [owner["id"].partition(":")[2]],
        ).fetchall()
    assert row[0] == Decimal(share)


@pytest.mark.parametrize("share", [-1, 100.0001, 33.33333, 1e300, "50", None, True, [50]])
def test_an_invalid_share_is_refused(api: Api, share: object) -> None:
    answer = add(api, business(api), share)

    [error] = refused(answer, 400, "INVALID_INPUT")["details"]["errors"]
    assert error["field"] == "ownershipPercentage"


def test_ubos_own_at_most_100_percent_together(api: Api) -> None:
    customer = business(api)
    first = made(add(api, customer, 66.67))
    director = made(add(api, customer, 90, roles=["DIRECTOR"]))

    [error] = refused(add(api, customer, 33.34), 400, "INVALID_INPUT")["details"]["errors"]
    second = made(add(api, customer, 33.33))

    assert error["message"] == "must be at most 33.33; other UBOs hold the rest"
    refused(change(api, second, ownershipPercentage=33.34), 400, "INVALID_INPUT")
    refused(change(api, director, roles=["UBO"]), 400, "INVALID_INPUT")
    ok(change(api, first, roles=["TRUSTEE"]))
    ok(change(api, second, ownershipPercentage=100))


def test_concurrently_added_ubos_own_at_most_100_percent_together(api: Api) -> None:
    customer = business(api)

    with ThreadPoolExecutor(4) as pool:
        statuses = [
            answer.status_code for answer in pool.map(lambda _: add(api, customer, 40), range(4))
        ]

    assert sorted(statuses) == [201, 201, 400, 400]


@pytest.mark.parametrize("field", ["customerId", "roles", "ownershipPercentage", "personalInfo"])
def test_the_error_names_a_missing_field_of_an_owner(api: Api, field: str) -> None:
    request = {
        "customerId": business(api)["id"],
        "roles": ["UBO"],
        "ownershipPercentage": 1,
        "personalInfo": PERSON,
    }

    answer = api.post("/beneficial-owners", without(request, field))

    [error] = refused(answer, 400, "INVALID_INPUT")["details"]["errors"]
    assert (error["field"], error["message"]) == (field, "is required")


@pytest.mark.parametrize(
    "field",
    ["firstName", "lastName", "birthDate", "nationality", "address", "idType", "identifier"],
)
def test_the_error_names_missing_personal_info(api: Api, field: str) -> None:
    answer = add(api, business(api), personalInfo=without(PERSON, field))

    [error] = refused(answer, 400, "INVALID_INPUT")["details"]["errors"]
    assert (error["field"], error["message"]) == (f"personalInfo.{field}", "is required")


@pytest.mark.parametrize(
    "info",
    [
        {"identifier": "123456789"},
        {"idType": "ITIN"},
        {"idType": "EIN"},
        {"idType": "NON_US_TAX_ID"},
        {"idType": "PASSPORT"},
        {"countryOfIssuance": "GB"},
        {"birthDate": 1},
        {"nationality": "usa"},
        {"email": "ada"},
        {"phoneNumber": "0123"},
        {"address": {"line1": "1"}},
        {"surprise": 1},
    ],
)
def test_an_invalid_owner_is_refused(api: Api, info: dict[str, object]) -> None:
    customer = business(api)

    refused(add(api, customer, personalInfo=PERSON | info), 400, "INVALID_INPUT")

    assert ok(api.get("/beneficial-owners", customerId=customer["id"]))["totalCount"] == 0


@pytest.mark.parametrize("roles", [[], ["OWNER"], ["UBO", "UBO"], "UBO", None])
def test_missing_unknown_or_repeated_roles_are_refused(api: Api, roles: object) -> None:
    refused(add(api, business(api), roles=roles), 400, "INVALID_INPUT")


@pytest.mark.parametrize(
    ("kind", "number", "country", "shown"),
    [
        ("SSN", "123-45-6789", None, "US"),
        ("ITIN", "912-34-5678", None, "US"),
        ("EIN", "12-3456789", "US", "US"),
        ("NON_US_TAX_ID", "QQ 12 34 56 C", "GB", "GB"),
        ("NON_US_TAX_ID", "QQ 12 34 56 C", None, None),
    ],
)
def test_every_type_of_identifier_is_accepted(
    api: Api, kind: str, number: str, country: str | None, shown: str | None
) -> None:
    info = PERSON | {"idType": kind, "identifier": number, "countryOfIssuance": country}

    returned = made(add(api, business(api), personalInfo=info))["personalInfo"]

    assert (returned["idType"], returned["identifier"]) == (kind, number)
    assert returned.get("countryOfIssuance") == shown


def test_an_identifier_is_stored_encrypted_and_not_part_of_the_customer(
    api: Api, database_url: str
) -> None:
    customer = business(api)
    number = "987-65-4320"
    owner = made(add(api, customer, personalInfo=PERSON | {"identifier": number}))

    shown = ok(api.get(f"/customers/{customer['id']}"))
    ok(api.post("/verifications", {"customerId": customer["id"]}))

    [inside] = shown["beneficialOwners"]
    assert inside == owner | {"personalInfo": without(owner["personalInfo"], "identifier")}
    with psycopg.connect(database_url) as connection:
        for table in ("beneficial_owners", "customers", "outbox", "webhook_deliveries"):
            rows = connection.execute(f"SELECT t::text FROM {table} t").fetchall()
            assert not [row for row in rows if number in row[0] or number.encode().hex() in row[0]]


def test_owners_are_listed_in_pages_oldest_first(api: Api) -> None:
    customer, other = business(api), business(api)
    owners = [made(add(api, customer)) for _ in range(5)]
    made(add(api, other))

    first = ok(api.get("/beneficial-owners", customerId=customer["id"], limit=3))
    cursor = first["nextCursor"]
    second = ok(api.get("/beneficial-owners", customerId=customer["id"], limit=3, cursor=cursor))

    assert first["data"] + second["data"] == owners
    assert (first["hasMore"], first["totalCount"]) == (True, 5)
    assert (second["hasMore"], second["totalCount"], "nextCursor" in second) == (False, 5, False)
    elsewhere = api.get("/beneficial-owners", customerId=other["id"], cursor=cursor)
    refused(elsewhere, 400, "INVALID_INPUT")


def test_a_page_has_twenty_owners_by_default(api: Api) -> None:
    customer = business(api)
    for _ in range(21):
        made(add(api, customer, 1))

    page = ok(api.get("/beneficial-owners", customerId=customer["id"]))
    whole = ok(api.get("/beneficial-owners", customerId=customer["id"], limit=100))

    assert (len(page["data"]), page["hasMore"], page["totalCount"]) == (20, True, 21)
    assert (len(whole["data"]), whole["hasMore"]) == (21, False)
    assert [
        item["id"] for item in ok(api.get(f"/customers/{customer['id']}"))["beneficialOwners"]
    ] == [item["id"] for item in whole["data"]]


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"customerId": "Customer:1"},
        {"customerId": "acme"},
        {"limit": "0"},
        {"limit": "101"},
        {"limit": "x"},
        {"cursor": "x"},
        {"surprise": "1"},
    ],
)
def test_an_invalid_list_query_is_refused(api: Api, query: dict[str, str]) -> None:
    whose = {"customerId": f"Customer:{new_id()}"} if query and "customerId" not in query else {}

    refused(api.get("/beneficial-owners", **whose, **query), 400, "INVALID_INPUT")


def test_individuals_and_unknown_customers_have_no_owners(api: Api) -> None:
    person, unknown = api.customer(), {"id": f"Customer:{new_id()}"}
    empty = {"data": [], "hasMore": False, "totalCount": 0}

    assert ok(api.get("/beneficial-owners", customerId=person["id"])) == empty
    assert ok(api.get("/beneficial-owners", customerId=unknown["id"])) == empty
    refused(add(api, person), 400, "INVALID_INPUT")
    refused(add(api, unknown), 404, "USER_NOT_FOUND")


def test_an_owner_is_changed_field_by_field(api: Api) -> None:
    before = made(add(api, business(api), 10.5))
    moved = {"line1": "1 Main Street", "postalCode": "10001", "country": "US"}

    after = ok(
        change(
            api,
            before,
            roles=["CONTROL_PERSON"],
            personalInfo={"lastName": "Byron", "middleName": None, "address": moved},
        )
    )

    info = without(PERSON, "middleName") | {"lastName": "Byron", "address": moved}
    assert after == before | {
        "roles": ["CONTROL_PERSON"],
        "personalInfo": info,
        "updatedAt": after["updatedAt"],
    }
    assert after["updatedAt"] > before["updatedAt"]
    assert ok(api.get(f"/beneficial-owners/{before['id']}")) == after


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"roles": None},
        {"roles": []},
        {"ownershipPercentage": None},
        {"ownershipPercentage": 101},
        {"personalInfo": None},
        {"personalInfo": {"lastName": None}},
        {"personalInfo": {"identifier": None}},
        {"personalInfo": {"identifier": "12-3456789"}},
        {"personalInfo": {"idType": "EIN"}},
        {"personalInfo": {"countryOfIssuance": "MX"}},
        {"kycStatus": "APPROVED"},
        {"customerId": f"Customer:{new_id()}"},
    ],
)
def test_an_invalid_change_is_refused_as_a_whole(api: Api, fields: dict[str, object]) -> None:
    before = made(add(api, business(api)))

    refused(change(api, before, **fields), 400, "INVALID_INPUT")

    assert ok(api.get(f"/beneficial-owners/{before['id']}")) == before


def test_the_type_of_identifier_changes_with_the_identifier(api: Api) -> None:
    owner = made(add(api, business(api)))

    changed = ok(change(api, owner, personalInfo={"idType": "EIN", "identifier": "12-3456789"}))

    assert changed["personalInfo"]["identifier"] == "12-3456789"


def test_another_platform_sees_no_owner(api: Api, other_platform: Api) -> None:
    customer = business(api)
    owner = made(add(api, customer))
    path = f"/beneficial-owners/{owner['id']}"

    refused(other_platform.get(path), 404, "REFERENCE_NOT_FOUND")
    refused(change(other_platform, owner, roles=["DIRECTOR"]), 404, "REFERENCE_NOT_FOUND")
    refused(add(other_platform, customer), 404, "USER_NOT_FOUND")
    assert ok(other_platform.get("/beneficial-owners", customerId=customer["id"]))["data"] == []

    assert ok(api.get(path)) == owner
    refused(api.get(f"/beneficial-owners/BeneficialOwner:{new_id()}"), 404, "REFERENCE_NOT_FOUND")
    refused(api.get("/beneficial-owners/x"), 404, "REFERENCE_NOT_FOUND")


def test_a_deleted_business_gets_no_owners(api: Api) -> None:
    customer = business(api)
    owner = made(add(api, customer))
    ok(api.delete(f"/customers/{customer['id']}"))

    refused(add(api, customer), 404, "USER_NOT_FOUND")
    refused(change(api, owner, roles=["DIRECTOR"]), 404, "USER_NOT_FOUND")

    assert ok(api.get(f"/beneficial-owners/{owner['id']}")) == owner
