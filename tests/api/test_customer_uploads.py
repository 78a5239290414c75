"""Many customers from a file: the job, its rows, its errors, its end."""

import csv
import io
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from cardledger.api.app import ApiConfig
from cardledger.ledger.customers.uploads import registry
from cardledger.ledger.storage.ids import new_id
from tests.api.support import Api, new_tenant, ok, refused, webhooks
from tests.api.test_row_quotas import limit
from tests.waiting import eventually

HEADER = ["platformCustomerId", "umaAddress", "customerType", "fullName"]


@pytest.fixture
def own(root: str, api_config: ApiConfig) -> Iterator[Api]:
    """The interface as seen by a platform of this test alone."""
    with Api(root, new_tenant(api_config.database_url)) as client:
        yield client


def text_of(*rows: list[str], header: list[str] = HEADER) -> bytes:
    written = io.StringIO(newline="")
    csv.writer(written).writerows([header, *rows])
    return written.getvalue().encode()


def person(name: str, **more: str) -> list[str]:
    return [name, more.get("uma", ""), "INDIVIDUAL", more.get("full_name", f"Ada {name}.")]


def people(count: int) -> bytes:
    return text_of(*(person(f"p{number}") for number in range(count)))


def post(api: Api, content: bytes, **headers: str) -> httpx2.Response:
    files = {"file": ("customers.csv", content, "text/csv")}
    return api.http.post("/customers/bulk/csv", files=files, headers=headers)


def accepted(api: Api, content: bytes) -> str:
    body = ok(post(api, content), 202)
    assert body == {"jobId": body["jobId"], "status": "PENDING"}
    return str(body["jobId"])


def job_of(api: Api, key: str) -> dict[str, Any]:
    return ok(api.get(f"/customers/bulk/jobs/{key}"))


def finished(api: Api, key: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        job = job_of(api, key)
        return job if "completedAt" in job else None

    return eventually(look)


def progress(total: int, failed: int = 0) -> dict[str, int]:
    return {"total": total, "processed": total, "successful": total - failed, "failed": failed}


def named(api: Api, name: str) -> list[dict[str, Any]]:
    data = ok(api.get("/customers", platformCustomerId=name))["data"]
    assert isinstance(data, list)
    return data


# --- what a file becomes -----------------------------------------------------------------------


def test_each_row_of_a_file_becomes_a_customer(own: Api, database_url: str) -> None:
    columns = [
        *HEADER,
        *("birthDate", "addressLine1", "city", "state", "postalCode", "country", "email"),
        *("businessLegalName", "businessTaxId", "businessRegistrationNumber", "description"),
    ]
    address = ["1 Main Street", "New York", "NY", "10001", "US"]
    uma = f"$ada@{own.uma_domain()}"
    ada = ["ada", uma, "INDIVIDUAL", "Ada", "1990-12-10", *address, "ada@example.com", *[""] * 4]
    acme = ["acme", "", "BUSINESS", "", "", *address, "", "Acme", "12-3", "42", "a note"]

    key = accepted(own, text_of(ada, acme, header=columns))
    job = finished(own, key)

    assert job == {
        "id": key,
        "status": "COMPLETED",
        "progress": progress(2),
        "errors": [],
        "completedAt": job["completedAt"],
    }
    assert webhooks(database_url, key, 1) == [("BULK_UPLOAD.COMPLETED", job)]
    [found] = named(own, "ada")
    stated = {"line1": "1 Main Street", "city": "New York", "state": "NY", "country": "US"}
    assert found["umaAddress"] == uma
    assert (found["fullName"], found["birthDate"]) == ("Ada", "1990-12-10")
    assert (found["email"], found["kycStatus"]) == ("ada@example.com", "APPROVED")
    assert found["address"] == stated | {"postalCode": "10001"}
    assert own.account(found["id"])["status"] == "ACTIVE"
    assert [kind for kind, _ in webhooks(database_url, found["id"], 1)] == ["CUSTOMER.KYC_APPROVED"]
    [business] = named(own, "acme")
    assert business["businessInfo"] == {
        "legalName": "Acme",
        "registrationNumber": "42",
        "taxId": "12-3",
    }
    assert business["kybStatus"] == "UNVERIFIED"


def test_a_row_that_is_refused_has_an_error_and_stops_no_other(own: Api) -> None:
    taken = own.customer(platformCustomerId="taken")
    job = finished(
        own,
        accepted(
            own,
            text_of(
                person("first"),
                person("taken"),
                person("first"),
                ["", "", "ROBOT", "R2"],
                person("uma", uma="ada"),
                ["short"],
                person("nul", full_name="A\x00"),
                person("formula", full_name="=1+1"),
                person("last"),
            ),
        ),
    )

    assert job["status"] == "COMPLETED"
    assert job["progress"] == progress(9, failed=6)
    errors = [
        (each["correlationId"], each["code"], each["details"]["line"]) for each in job["errors"]
    ]
    assert errors == [
        ("taken", "CONFLICT", 3),
        ("first", "CONFLICT", 4),
        ("line 5", "INVALID_INPUT", 5),
        ("uma", "INVALID_UMA_ADDRESS", 6),
        ("short", "INVALID_INPUT", 7),
        ("nul", "INVALID_INPUT", 8),
    ]
    assert all(each["message"] for each in job["errors"])
    assert named(own, "taken") == [taken]
    assert [each["fullName"] for each in named(own, "formula")] == ["=1+1"]
    assert len(named(own, "first")) == len(named(own, "last")) == 1


def test_an_error_names_the_column_to_change(own: Api) -> None:
    columns = [*HEADER, "birthDate", "addressLine1"]
    rows = [[*person("a"), "yesterday", ""], [*person("b"), "", "1 Main Street"]]

    job = finished(own, accepted(own, text_of(*rows, header=columns)))

    fields = [[each["field"] for each in one["details"]["errors"]] for one in job["errors"]]
    assert fields == [["birthDate"], ["postalCode", "country"]]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (text_of(person("a"), header=["a", "b", "c", "d"]), "unknown columns"),
        (text_of(person("a", full_name="Zoë")).decode().encode("latin-1"), "not UTF-8"),
        (text_of(), "no rows"),
        (b"\x89PNG\r\n\x1a\n", "not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_fails_with_what_to_change(
    own: Api, database_url: str, content: bytes, words: str
) -> None:
    key = accepted(own, content)

    job = finished(own, key)

    assert (job["status"], job["progress"]) == ("FAILED", progress(0))
    [error] = job["errors"]
    assert (error["correlationId"], error["code"]) == ("file", "INVALID_INPUT")
    assert words in error["message"]
    assert webhooks(database_url, key, 1) == [("BULK_UPLOAD.FAILED", job)]
    assert ok(own.get("/customers"))["totalCount"] == 0


def test_a_job_keeps_its_first_100_errors_and_counts_all(own: Api) -> None:
    job = finished(own, accepted(own, text_of(*(["x", "", "ROBOT", ""] for _ in range(130)))))

    assert job["progress"] == progress(130, failed=130)
    assert len(job["errors"]) == 100


def test_a_quota_that_is_reached_is_an_error_of_the_rows_above_it(
    own: Api, database_url: str
) -> None:
    limit(database_url, own.tenant.platform_id, "customers", 3)

    job = finished(own, accepted(own, people(5)))

    assert job["progress"] == progress(5, failed=2)
    assert {each["code"] for each in job["errors"]} == {"CONFLICT"}
    assert ok(own.get("/customers"))["totalCount"] == 3


# --- requests ----------------------------------------------------------------------------------


def test_a_form_without_a_file_is_refused(api: Api) -> None:
    for arguments in ({"data": {"file": "text"}}, {"files": {"other": ("a.csv", b"a")}}):
        answer = api.http.post("/customers/bulk/csv", **arguments)
        refused(answer, 400, "INVALID_INPUT")
    refused(api.post("/customers/bulk/csv", {}), 400, "INVALID_INPUT")


def test_a_repeated_upload_with_its_key_makes_one_job(own: Api) -> None:
    key = {"Idempotency-Key": "once"}

    first, again = post(own, people(3), **key), post(own, people(3), **key)

    assert ok(first, 202) == ok(again, 202)
    finished(own, first.json()["jobId"])
    assert ok(own.get("/customers"))["totalCount"] == 3


def test_an_unknown_job_is_not_found(api: Api, other_platform: Api) -> None:
    key = accepted(api, people(1))

    refused(api.get(f"/customers/bulk/jobs/Job:{new_id()}"), 404, "BULK_UPLOAD_JOB_NOT_FOUND")
    refused(other_platform.get(f"/customers/bulk/jobs/{key}"), 404, "BULK_UPLOAD_JOB_NOT_FOUND")
    finished(api, key)


def test_a_file_is_not_read_when_the_platform_may_have_no_more_jobs(
    own: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    malformed = {"content-type": "multipart/form-data; boundary=b"}
    key = {"Idempotency-Key": str(uuid4())}
    first = ok(post(own, people(1), **key), 202)
    monkeypatch.setattr(registry, "UNFINISHED_LIMIT", 0)

    answer = own.http.post("/customers/bulk/csv", content=b"nonsense", headers=malformed)
    repeated = post(own, people(1), **key)

    assert refused(answer, 409, "CONFLICT")["details"] == {"limit": 0}
    assert ok(repeated, 202) == first
