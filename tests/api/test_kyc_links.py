"""Links to a hosted verification: for one customer, for a day, once."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import psycopg
import pytest

from cardledger.api.app import ApiConfig
from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.customers import kyc_links
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets.key_ring import KeyRing, Purpose
from tests.api.support import SECRET_KEY, TIMEOUT_S, Api, made, new_tenant, ok, refused, server
from tests.api.test_beneficial_owners import business


def link(api: Api, customer: dict[str, Any], body: object = None) -> httpx2.Response:
    return api.post(f"/customers/{customer['id']}/kyc-link", body)


def url_of(api: Api, customer: dict[str, Any], body: object = None) -> str:
    return str(made(link(api, customer, body))["kycUrl"])


def see(url: str, method: str = "GET", **headers: str) -> httpx2.Response:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.request(method, url, headers=sent, timeout=TIMEOUT_S)


def unverified(api: Api, name: str = "Ada 003", **fields: object) -> dict[str, Any]:
    return api.customer(fullName=name, **fields)


def status_of(api: Api, customer: dict[str, Any]) -> str:
    return str(ok(api.get(f"/customers/{customer['id']}"))["kycStatus"])


def rename(api: Api, customer: dict[str, Any], name: str) -> None:
    ok(api.patch(f"/customers/{customer['id']}", {"customerType": "INDIVIDUAL", "fullName": name}))


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("Ada", "APPROVED", "is verified"),
        ("Ada 001", "PENDING", "A person looks at it"),
        ("Ada 002", "REJECTED", "could not be verified"),
        ("Ada 003", "UNVERIFIED", "Something is missing"),
    ],
)
def test_the_page_decides_as_the_suffix_says_without_asking_for_data(
    api: Api, name: str, status: str, words: str
) -> None:
    customer = unverified(api)
    rename(api, customer, name)
    created = made(link(api, customer))

    shown = see(created["kycUrl"])
    before = status_of(api, customer)
    submitted = see(created["kycUrl"], "POST")

    assert created == {
        "kycUrl": created["kycUrl"],
        "expiresAt": created["expiresAt"],
        "provider": "SUMSUB",
    }
    assert created["kycUrl"].startswith(api.root + "/embed/kyc/")
    assert "<button>" in shown.text
    assert before == "UNVERIFIED"
    assert submitted.status_code == 200
    assert words in submitted.text
    assert status_of(api, customer) == status


def test_a_business_is_decided_by_its_registration_number(api: Api) -> None:
    acme = business(api, registrationNumber="42-002")

    assert see(url_of(api, acme), "POST").status_code == 200

    assert ok(api.get(f"/customers/{acme['id']}"))["kybStatus"] == "REJECTED"


def test_previews_use_nothing_up_and_a_submission_does(api: Api) -> None:
    customer = unverified(api, "Ada 001")
    url = url_of(api, customer)

    looks = [see(url, method) for method in ("GET", "HEAD", "GET")]
    first, second = see(url, "POST"), see(url, "POST")

    assert [look.status_code for look in looks] == [200] * 3
    assert (first.status_code, second.status_code, see(url).status_code) == (200, 404, 404)
    assert "Ask for another one" in second.text


def test_of_submissions_at_one_instant_one_counts(api: Api) -> None:
    url = url_of(api, unverified(api, "Ada 001"))

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: see(url, "POST"), range(8)))

    assert sorted(answer.status_code for answer in answers) == [200] + [404] * 7


def test_the_page_loads_and_runs_nothing_and_is_not_stored(api: Api) -> None:
    url = url_of(api, unverified(api))

    for page in (see(url), see(url + "x")):
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "form-action 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["referrer-policy"] == "no-referrer"
        assert page.headers["x-content-type-options"] == "nosniff"
        assert "<script" not in page.text
        assert "Ada" not in page.text


def test_a_form_of_another_site_is_refused(api: Api) -> None:
    url = url_of(api, unverified(api, "Ada 001"))

    assert see(url, "POST", sec_fetch_site="cross-site").status_code == 403
    assert see(url, "POST", sec_fetch_site="same-origin").status_code == 200


def test_the_page_leads_where_the_platform_says(api: Api) -> None:
    customer = unverified(api, "Ada 001")
    back = "https://example.com/done?a=1&b=%22%3E"

    with_it = see(url_of(api, customer, {"redirectUri": back}), "POST")
    without = see(url_of(api, customer), "POST")

    assert 'href="https://example.com/done?a=1&amp;b=%22%3E"' in with_it.text
    assert "href" not in without.text


@pytest.mark.parametrize(
    "uri",
    [
        "javascript:alert(1)",
        "http://example.com/",
        "https://user:secret@example.com/",
        "https://example.com/ space",
        "//example.com",
        "",
        "https://" + "a" * 3_000,
        7,
    ],
)
def test_another_address_is_refused(api: Api, uri: object) -> None:
    refused(link(api, unverified(api), {"redirectUri": uri}), 400, "INVALID_INPUT")


def test_a_link_ends_after_a_day_and_earlier_ones_stay_valid(api_config: ApiConfig) -> None:
    later = timedelta()
    with (
        server(api_config, clock=lambda: datetime.now(UTC) + later) as root,
        Api(root, new_tenant(api_config.database_url)) as api,
    ):
        customer = unverified(api)
        first = url_of(api, customer)
        later = timedelta(hours=23)
        second = url_of(api, customer)
        both = [see(url).status_code for url in (first, second)]
        later = timedelta(hours=25)

        assert both == [200, 200]
        assert [see(url).status_code for url in (first, second)] == [404, 200]
        assert see(first, "POST").status_code == 404


def test_a_decided_or_unknown_customer_gets_no_link(api: Api, other_platform: Api) -> None:
    approved, gone = api.customer(), api.customer()
    ok(api.delete(f"/customers/{gone['id']}"))

    body = refused(link(api, approved), 400, "INVALID_INPUT")

    assert body["details"]["reason"] == "ALREADY_DECIDED"
    for unknown in (gone, {"id": f"Customer:{new_id()}"}, unverified(other_platform)):
        refused(link(api, unknown), 404, "USER_NOT_FOUND")


def test_a_link_of_a_customer_that_was_decided_or_deleted_meanwhile_does_nothing(api: Api) -> None:
    decided, gone = business(api), unverified(api)
    urls = [url_of(api, decided), url_of(api, gone)]
    ok(api.post("/verifications", {"customerId": decided["id"]}))
    ok(api.delete(f"/customers/{gone['id']}"))

    assert [see(url, "POST").status_code for url in urls] == [404, 404]


def test_contacts_of_the_european_economic_area_are_verified_first(api: Api) -> None:
    person = {"region": "DE", "email": "ada@example.com", "phoneNumber": "+4930123456"}
    customer = unverified(api, **person)

    error = refused(link(api, customer), 409, "CONFLICT")
    for channel in ("email", "phone"):
        path = f"/customers/{customer['id']}/verify-{channel}"
        assert api.post(path, None).status_code == 204
        ok(api.post(f"{path}/confirm", {"code": "123456"}))

    assert error["details"]["reason"] == "CONTACTS_NOT_VERIFIED"
    assert see(url_of(api, customer)).status_code == 200


def test_a_customer_has_a_limited_number_of_links(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kyc_links, "LINK_LIMIT", 2)
    customer = unverified(api)
    url_of(api, customer)
    url_of(api, customer)

    error = refused(link(api, customer), 409, "CONFLICT")

    assert error["details"] == {"limit": 2}


def test_the_record_has_a_hash_of_the_token_only(api: Api, database_url: str) -> None:
    token = url_of(api, unverified(api)).rpartition("/")[2]

    with psycopg.connect(database_url) as connection:
        rows = connection.execute("SELECT kyc_links::text FROM kyc_links").fetchall()

    assert rows
    assert not any(token in row for (row,) in rows)
    assert not any(token.encode().hex() in row for (row,) in rows)


def test_the_hash_of_a_link_opens_the_page_of_its_own_customer_only(
    api: Api, other_platform: Api, database_url: DatabaseUrl
) -> None:
    mine = url_of(api, unverified(api))
    token = mine.rpartition("/")[2]
    digest = KeyRing(SECRET_KEY).hash_secret(token, Purpose.KYC_PAGE)
    for them in (api, other_platform):
        other = unverified(them)
        key = other["id"].removeprefix("Customer:")
        with psycopg.connect(database_url) as connection:
            connection.execute(
                "UPDATE kyc_links SET (customer_id, platform_id) ="
                " (SELECT id, platform_id FROM customers WHERE id = %s) WHERE token_hash = %s",
                [key, digest],
            )

        pages = [see(mine, method) for method in ("GET", "POST")]

        assert [page.status_code for page in pages] == [404, 404]
        assert status_of(them, other) == "UNVERIFIED"


def test_a_link_of_an_earlier_release_works_until_its_end(
    api: Api, database_url: DatabaseUrl
) -> None:
    url = url_of(api, unverified(api))
    keys, token = KeyRing(SECRET_KEY), url.rpartition("/")[2]
    earlier = token.partition("_")[2]  # It names no customer.
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "UPDATE kyc_links SET token_hash = %s WHERE token_hash = %s",
            [keys.hash_secret(value, Purpose.KYC_PAGE) for value in (earlier, token)],
        )

    assert see(url.replace(token, earlier), "POST").status_code == 200
    assert see(url, "POST").status_code == 404


@pytest.fixture
def production(api_config: ApiConfig) -> Iterator[Api]:
    config = replace(api_config, sandbox=False)
    with server(config) as url, Api(url, new_tenant(config.database_url)) as client:
        yield client


def test_without_an_identity_verifier_there_is_no_link(production: Api, api: Api) -> None:
    refused(link(production, unverified(production, "Ada")), 501, "NOT_IMPLEMENTED")
    token = url_of(api, unverified(api)).rpartition("/")[2]

    assert see(f"{production.root}/embed/kyc/{token}").status_code == 404
    assert see(f"{production.root}/embed/kyc/{token}", "POST").status_code == 404
