"""What is different without the sandbox: no simulators, no suffixes, no connected systems."""

from collections.abc import Iterator
from dataclasses import replace

import httpx2
import psycopg
import pytest

from cardledger.api.app import ApiConfig
from cardledger.schema.roles import Role
from tests.api.support import Api, authorization, new_tenant, ok, refused, server
from tests.databases import as_role
from tests.waiting import limit_s


@pytest.fixture(scope="module")
def production_root(api_config: ApiConfig) -> Iterator[str]:
    # Long enough that a card with suffix 005 would not become active in time.
    with server(replace(api_config, sandbox=False, sandbox_delay_s=3600)) as root:
        yield root


@pytest.fixture(scope="module")
def production(production_root: str, api_config: ApiConfig) -> Iterator[Api]:
    with Api(production_root, new_tenant(api_config.database_url)) as client:
        yield client


def test_outside_the_sandbox_there_are_no_simulators_and_no_funding(production: Api) -> None:
    customer = production.customer()["id"]
    account = production.account(customer)["id"]
    card = "Card:019542f5-b3e7-7d02-0000-00000000a1b4"

    for path, body in (
        (f"/sandbox/internal-accounts/{account}/fund", {"amount": 1}),
        (f"/sandbox/cards/{card}/simulate/authorization", authorization()),
        (f"/sandbox/cards/{card}/simulate/clearing", {}),
    ):
        refused(production.post(path, body), 404, "REFERENCE_NOT_FOUND")
    assert production.account(customer)["balance"]["amount"] == 0


@pytest.mark.parametrize("name", ["Ada", "Ada 001", "Ada 002", "Ada 003"])
def test_without_an_identity_verifier_every_customer_is_unverified(
    production: Api, name: str
) -> None:
    assert production.customer(fullName=name)["kycStatus"] == "UNVERIFIED"


@pytest.mark.parametrize("suffix", ["", "001", "002", "005"])
def test_without_a_card_issuer_no_card_is_issued(
    production: Api, api_config: ApiConfig, suffix: str
) -> None:
    customer = production.customer()["id"]
    account = production.account(customer)["id"]
    with psycopg.connect(as_role(api_config.database_url, Role.APP)) as connection:
        connection.execute(
            "UPDATE customers SET kyc_status = 'APPROVED' WHERE id = %s",
            [customer.removeprefix("Customer:")],
        )
    application = {
        "cardholderId": customer,
        "form": "VIRTUAL",
        "fundingSources": [account],
        "platformCardId": f"{customer}-{suffix}",
    }

    body = refused(production.post("/cards", application), 501, "NOT_IMPLEMENTED")

    assert "card issuer" in body["message"]
    assert ok(production.get("/cards", cardholderId=customer))["data"] == []


def test_outside_the_sandbox_the_openapi_document_has_no_sandbox_paths(
    production_root: str,
) -> None:
    described = ok(httpx2.get(f"{production_root}/openapi.json", timeout=limit_s(10)))

    assert not [path for path in described["paths"] if "sandbox" in path]


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8000/hook",
        "HTTP://localhost/hook",
        "https://127.0.0.1:8443/hook",
        "https://[::1]/hook",
        "https://hook.localhost/",
    ],
)
def test_only_a_sandbox_accepts_loopback_and_http_webhook_endpoints(
    api: Api, production: Api, url: str
) -> None:
    request = {"webhookEndpoint": url}

    in_sandbox = api.http.patch("/config", json=request)
    in_production = production.http.patch("/config", json=request)
    with_tls = production.http.patch("/config", json={"webhookEndpoint": "https://example.invalid"})
    without = production.http.patch("/config", json={"webhookEndpoint": None})

    assert ok(in_sandbox)["webhookEndpoint"] == url
    body = refused(in_production, 400, "INVALID_INPUT")
    assert body["details"]["errors"][0]["field"] == "webhookEndpoint"
    assert with_tls.is_success
    assert without.is_success


@pytest.mark.parametrize("host", ["10.0.0.1", "169.254.169.254", "[fe80::1]", "2130706433"])
def test_a_webhook_endpoint_with_a_private_address_is_refused(
    api: Api, production: Api, host: str
) -> None:
    for platform in (api, production):
        answer = platform.http.patch("/config", json={"webhookEndpoint": f"https://{host}/hook"})

        body = refused(answer, 400, "INVALID_INPUT")
        assert body["details"]["errors"][0]["field"] == "webhookEndpoint"
