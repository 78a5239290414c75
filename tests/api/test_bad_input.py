"""Whatever is sent, the answer is an envelope that says what to change; nothing is half-done."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import httpx2
import psycopg
import pytest

from cardledger.api import BASE_PATH
from cardledger.api.app import ApiConfig
from cardledger.api.http.routing import MAX_BODY
from tests.api import contract, documents
from tests.api.support import WRONG_TOKENS, Api, authorization, made, new_tenant, ok, refused
from tests.waiting import eventually, limit_s


@pytest.fixture(scope="module")
def card(api: Api) -> dict[str, Any]:
    return api.active_card()


@pytest.fixture(autouse=True)
def nothing_happened(request: pytest.FixtureRequest, app_database_url: str) -> Iterator[None]:
    """A refusal leaves no row behind: every test here is held to it unless marked."""
    before = _counted(app_database_url) if "card" in request.fixturenames else None
    yield
    if before is not None:
        assert _counted(app_database_url) == before


def _counted(url: str) -> dict[str, int]:
    tables = (
        # Without the canaries of a readiness probe, which leave no row once they are decided.
        "inbox WHERE source <> 'canary'",
        "outcomes",
        "rejections",
        "card_transaction_events",
        "entries",
        "cards",
    )
    with psycopg.connect(url) as connection:
        return {
            table: connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]
            for table in tables
        }


def simulate(api: Api, card_id: str, body: object, name: str = "authorization") -> httpx2.Response:
    return api.post(f"/sandbox/cards/{card_id}/simulate/{name}", body)


@pytest.mark.parametrize(
    "amount", ["0", "-1", "1.0", "1e3", "1.5", '"1250"', "true", "null", str(2**63), "9" * 50]
)
def test_an_invalid_amount_is_refused(api: Api, card: dict[str, Any], amount: str) -> None:
    body = (
        f'{{"amount": {amount}, "currency": {{"code": "USD"}},'
        ' "merchant": {"descriptor": "RESTAURANT 9"}}'
    )

    answer = api.raw("POST", f"/sandbox/cards/{card['id']}/simulate/authorization", body)

    details = refused(answer, 400, "INVALID_INPUT")["details"]
    assert [error["field"] for error in details["errors"]] == ["amount"]


def test_the_largest_amount_is_understood_and_declined(api: Api) -> None:
    card = api.active_card()

    answer = simulate(api, card["id"], authorization(2**63 - 1))

    assert ok(answer)["declineReason"] == "INSUFFICIENT_FUNDS"


@pytest.mark.parametrize(
    "change",
    [{"merchant": None}, {"merchant": {}}, {"surprise": 1}, {"currency": "USD"}],
)
def test_a_body_of_another_shape_is_refused(
    api: Api, card: dict[str, Any], change: dict[str, Any]
) -> None:
    answer = simulate(api, card["id"], authorization() | change)

    assert refused(answer, 400, "INVALID_INPUT")["details"]["errors"]


def test_a_missing_merchant_is_named(api: Api, card: dict[str, Any]) -> None:
    body = authorization()
    del body["merchant"]

    details = refused(simulate(api, card["id"], body), 400, "INVALID_INPUT")["details"]

    assert details["errors"] == [{"field": "merchant", "message": "is required"}]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"   ",
        b"null",
        b"[]",
        b"[1]",
        b"1",
        b'"text"',
        b"{",
        b"not json",
        b'{"amount": NaN}',
        b'{"amount": Infinity}',
        b'{"amount": 1, "amount": 1}',
        b'{"merchant": {"descriptor": "\\u0000"}}',
        b'{"merchant": {"descriptor": "\\ud800"}}',
        b'{"\\ud800": 1}',
        b"\xff\xfe",
        b'{"amount": ' + b"1" * 60_000 + b"}",
        b"[" * 60_000,
    ],
)
def test_a_body_that_is_not_an_object_is_refused(
    api: Api, card: dict[str, Any], raw: bytes
) -> None:
    answer = api.raw("POST", f"/sandbox/cards/{card['id']}/simulate/authorization", raw)

    refused(answer, 400, "INVALID_INPUT")
    assert answer.elapsed.total_seconds() < limit_s(1)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("content-type", "text/plain")],
        [("content-type", "application/x-www-form-urlencoded")],
        [("content-type", "application/json; charset=utf-16")],
        [("content-type", "application/json"), ("content-type", "application/json")],
        [("content-type", "application/json"), ("content-type", "text/plain")],
        [("content-type", "application/json, text/plain")],
        [("content-type", "")],
    ],
)
def test_a_body_needs_the_content_type_of_json(
    api: Api, card: dict[str, Any], headers: list[tuple[str, str]]
) -> None:
    answer = api.http.post(
        f"/sandbox/cards/{card['id']}/simulate/authorization",
        content=b'{"amount": 1}',
        headers=headers,
    )

    assert "application/json" in refused(answer, 400, "INVALID_INPUT")["message"]


def test_json_may_name_its_charset(api: Api) -> None:
    answer = api.raw(
        "POST",
        "/customers",
        '{"customerType": "INDIVIDUAL", "fullName": "Zoë"}'.encode(),
        content_type="Application/JSON; Charset=UTF-8",
    )

    assert made(answer)["fullName"] == "Zoë"


def test_a_body_above_the_size_limit_is_refused(api: Api, card: dict[str, Any]) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(20):
            yield b" " * 100_000

    path = f"/sandbox/cards/{card['id']}/simulate/authorization"
    at_once = api.raw("POST", path, b" " * (MAX_BODY + 1))
    in_pieces = api.http.post(path, content=pieces(), headers={"content-type": "application/json"})

    refused(at_once, 413, "INVALID_INPUT")
    refused(in_pieces, 413, "INVALID_INPUT")


def test_a_body_has_64_kib_at_most(api: Api, card: dict[str, Any]) -> None:
    path = f"/sandbox/cards/{card['id']}/simulate/authorization"

    largest = api.raw("POST", path, b" " * 65_536)
    larger = api.raw("POST", path, b" " * 65_537)

    refused(largest, 400, "INVALID_INPUT")  # It was read, and has no fields.
    refused(larger, 413, "INVALID_INPUT")


@pytest.mark.parametrize("name", ["authorization", "clearing"])
def test_an_unknown_card_is_not_found(
    api: Api, other_platform: Api, card: dict[str, Any], name: str
) -> None:
    body = (
        authorization()
        if name == "authorization"
        else {"cardTransactionId": f"CardTransaction:{uuid4()}", "amount": 1}
    )

    for card_id in (f"Card:{uuid4()}", "Card:x", "x", "Customer:" + card["id"][5:], "%00"):
        refused(simulate(api, card_id, body, name), 404, "REFERENCE_NOT_FOUND")
    refused(simulate(other_platform, card["id"], body, name), 404, "REFERENCE_NOT_FOUND")


def test_a_currency_without_a_rate_to_the_cards_is_refused(api: Api, card: dict[str, Any]) -> None:
    answer = simulate(api, card["id"], authorization() | {"currency": {"code": "ZZZ"}})

    assert "USD" in refused(answer, 400, "INVALID_CURRENCY")["message"]


def test_a_clearing_needs_a_card_transaction_of_the_card(api: Api, other_platform: Api) -> None:
    card, other, foreign = api.active_card(), api.active_card(), other_platform.active_card()
    of_other = api.authorize(other["id"], 100)["id"]
    of_stranger = other_platform.authorize(foreign["id"], 100)["id"]

    for key in (of_other, of_stranger, f"CardTransaction:{uuid4()}"):
        answer = simulate(api, card["id"], {"cardTransactionId": key, "amount": 1}, "clearing")
        refused(answer, 404, "TRANSACTION_NOT_FOUND")
    for bad in ("x", 5, None, card["id"]):
        answer = simulate(api, card["id"], {"cardTransactionId": bad, "amount": 1}, "clearing")
        refused(answer, 400, "INVALID_INPUT")


def test_resources_of_another_platform_are_not_found(
    other_platform: Api, card: dict[str, Any]
) -> None:
    [account_id] = card["fundingSources"]
    customer_id = card["cardholderId"]

    refused(other_platform.get(f"/customers/{customer_id}"), 404, "USER_NOT_FOUND")
    refused(other_platform.get(f"/cards/{card['id']}"), 404, "REFERENCE_NOT_FOUND")
    fund = other_platform.post(f"/sandbox/internal-accounts/{account_id}/fund", {"amount": 1})
    refused(fund, 404, "REFERENCE_NOT_FOUND")
    ask = {"cardholderId": customer_id, "form": "VIRTUAL", "fundingSources": [account_id]}
    refused(other_platform.post("/cards", ask), 400, "INVALID_INPUT")
    listed = other_platform.get("/customers/internal-accounts", customerId=customer_id)
    assert ok(listed) == {"data": [], "hasMore": False, "totalCount": 0}
    transactions = other_platform.get("/transactions", cardId=card["id"])
    assert ok(transactions) == {"data": [], "hasMore": False, "totalCount": 0}


def test_a_card_transaction_of_another_platform_is_not_found(api: Api, other_platform: Api) -> None:
    transaction = api.authorize(api.active_card()["id"], 100)

    refused(other_platform.get(f"/transactions/{transaction['id']}"), 404, "TRANSACTION_NOT_FOUND")


@pytest.mark.parametrize("amount", [0, -1, 1.0, "1", True, None, 2**63, 100_000_000_001])
def test_a_deposit_of_an_invalid_amount_is_refused(
    api: Api, card: dict[str, Any], amount: object
) -> None:
    [account_id] = card["fundingSources"]

    answer = api.post(f"/sandbox/internal-accounts/{account_id}/fund", {"amount": amount})

    refused(answer, 400, "INVALID_INPUT")


@pytest.mark.parametrize(
    ("change", "status", "code", "field"),
    [
        ({"cardholderId": f"Customer:{uuid4()}"}, 400, "INVALID_INPUT", "cardholderId"),
        ({"cardholderId": "me"}, 400, "INVALID_INPUT", "cardholderId"),
        ({"form": "PHYSICAL"}, 400, "INVALID_INPUT", "form"),
        ({"form": None}, 400, "INVALID_INPUT", "form"),
        ({"fundingSources": []}, 400, "INVALID_INPUT", "fundingSources"),
        ({"fundingSources": "one"}, 400, "INVALID_INPUT", "fundingSources"),
        ({"fundingSources": ["x"]}, 400, "INVALID_INPUT", "fundingSources.0"),
        (
            {"fundingSources": [f"InternalAccount:{uuid4()}"]},
            400,
            "FUNDING_SOURCE_INELIGIBLE",
            "fundingSources.0",
        ),
        ({"maxSpendPerTransaction": 0}, 400, "INVALID_INPUT", "maxSpendPerTransaction"),
        ({"maxSpendPerTransaction": 2**63}, 400, "INVALID_INPUT", "maxSpendPerTransaction"),
        ({"platformCardId": ""}, 400, "INVALID_INPUT", "platformCardId"),
        ({"platformCardId": 5}, 400, "INVALID_INPUT", "platformCardId"),
        ({"state": "ACTIVE"}, 400, "INVALID_INPUT", "state"),
    ],
)
def test_an_invalid_card_is_refused(  # noqa: PLR0913, PLR0917 - a table
    api: Api, card: dict[str, Any], change: dict[str, Any], status: int, code: str, field: str
) -> None:
    asked = {
        "cardholderId": card["cardholderId"],
        "form": "VIRTUAL",
        "fundingSources": card["fundingSources"],
    }

    details = refused(api.post("/cards", asked | change), status, code)["details"]

    assert [error["field"] for error in details["errors"]] == [field]


def test_who_may_hold_a_card_and_what_may_fund_it(api: Api) -> None:
    pending = api.customer(fullName="Ada 001")
    customer, other = api.customer(), api.customer()
    own = {code: api.account(customer["id"], code)["id"] for code in ("USD", "EUR", "USDC")}

    def ask(cardholder: dict[str, Any], *accounts: str) -> httpx2.Response:
        return api.post(
            "/cards",
            {"cardholderId": cardholder["id"], "form": "VIRTUAL", "fundingSources": list(accounts)},
        )

    refused(ask(pending, api.account(pending["id"])["id"]), 400, "CARDHOLDER_KYC_NOT_APPROVED")
    for sources in (
        [api.account(other["id"])["id"]],
        [own["USDC"]],
        [own["USD"], own["EUR"]],
    ):
        refused(ask(customer, *sources), 400, "FUNDING_SOURCE_INELIGIBLE")
    refused(ask(customer, own["USD"], own["USD"]), 400, "INVALID_INPUT")
    assert made(ask(customer, own["EUR"]))["currency"] == "EUR"


def test_a_platforms_card_id_is_there_once(api: Api, other_platform: Api) -> None:
    card = api.active_card(balance=0, platformCardId="only one")

    again = api.post(
        "/cards",
        {
            "cardholderId": card["cardholderId"],
            "form": "VIRTUAL",
            "fundingSources": card["fundingSources"],
            "platformCardId": "only one",
        },
    )

    refused(again, 409, "CONFLICT")
    assert other_platform.active_card(balance=0, platformCardId="only one")


@pytest.mark.parametrize(
    ("body", "code", "status"),
    [
        ({}, "INVALID_INPUT", 400),
        ({"customerType": "ROBOT"}, "INVALID_INPUT", 400),
        ({"customerType": ["INDIVIDUAL"]}, "INVALID_INPUT", 400),
        ({"customerType": "BUSINESS", "businessInfo": {}}, "INVALID_INPUT", 400),
        ({"customerType": "INDIVIDUAL", "surprise": 1}, "INVALID_INPUT", 400),
        ({"customerType": "INDIVIDUAL", "fullName": ""}, "INVALID_INPUT", 400),
        ({"customerType": "INDIVIDUAL", "email": "ada"}, "INVALID_INPUT", 400),
        ({"customerType": "INDIVIDUAL", "phoneNumber": "0123"}, "INVALID_INPUT", 400),
        ({"customerType": "INDIVIDUAL", "birthDate": 0}, "INVALID_INPUT", 400),
        ({"customerType": "INDIVIDUAL", "birthDate": "2001-02-29"}, "INVALID_INPUT", 400),
        ({"customerType": "INDIVIDUAL", "birthDate": "2001-02-01T00:00"}, "INVALID_INPUT", 400),
        ({"customerType": "INDIVIDUAL", "region": "usa"}, "INVALID_INPUT", 400),
        ({"customerType": "INDIVIDUAL", "address": {"line1": "x"}}, "INVALID_INPUT", 400),
        ({"customerType": "INDIVIDUAL", "currencies": []}, "INVALID_INPUT", 400),
        ({"customerType": "INDIVIDUAL", "currencies": ["USD", "USD"]}, "INVALID_INPUT", 400),
        ({"customerType": "INDIVIDUAL", "currencies": ["JPY"]}, "INVALID_CURRENCY", 400),
        ({"customerType": "INDIVIDUAL", "umaAddress": "ada"}, "INVALID_UMA_ADDRESS", 400),
    ],
)
def test_an_invalid_customer_is_refused(
    api: Api, body: dict[str, Any], code: str, status: int
) -> None:
    refused(api.post("/customers", body), status, code)


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "0"},
        {"limit": "101"},
        {"limit": "-1"},
        {"limit": "1.0"},
        {"limit": "+1"},
        {"limit": "1_0"},
        {"limit": "٣"},
        {"limit": ""},
        {"limit": "9" * 10_000},
        {"cursor": ""},
        {"cursor": "\x00"},
        {"sortOrder": "up"},
        {"status": "GONE"},
        {"type": "GIFT"},
        {"customerId": "me"},
        {"cardId": "Customer:1"},
        {"surprise": "1"},
        {"Limit": "1"},
    ],
)
def test_a_query_that_is_not_understood_is_refused(api: Api, query: dict[str, str]) -> None:
    refused(api.get("/transactions", **query), 400, "INVALID_INPUT")


def parameters_filled(sent: str) -> Iterator[tuple[str, str]]:
    """Yield method and URL of operations: `sent` in its path, then in each parameter of the query.

    Those that are not built are left out.
    """
    for path, method, operation in contract.operations():
        if "x-unimplemented" in operation:
            continue
        at_root = "servers" in documents.document()["paths"][path]
        url = ("" if at_root else BASE_PATH) + path
        parameters = [documents.resolved(part) for part in operation.get("parameters", [])]
        if "{" in url:
            yield method, re.sub("{[^}]+}", sent, url)
        for name in [part["name"] for part in parameters if part["in"] == "query"]:
            yield method, re.sub("{[^}]+}", "x", url) + f"?{name}={sent}"


@pytest.mark.parametrize("sent", ["%00", "%ff", "%ED%A0%80", "x%00"])
def test_no_parameter_reaches_the_database_with_what_it_cannot_store(api: Api, sent: str) -> None:
    root = httpx2.URL(api.root)
    answers = {
        (method, url): api.http.request(method, root.join(url)).status_code
        for method, url in parameters_filled(sent)
    }

    assert len(answers) > 100
    assert {status for status in answers.values() if status >= 500} <= {501}, answers


@pytest.mark.parametrize("page", ["cards", "kyc", "invitations"])
@pytest.mark.parametrize("token", WRONG_TOKENS)
def test_a_page_without_a_valid_token_is_404(root: str, page: str, token: str) -> None:
    assert httpx2.get(f"{root}/embed/{page}/{token}").status_code == 404


def test_a_parameter_that_comes_twice_is_refused(api: Api) -> None:
    refused(api.http.get("/transactions?limit=1&limit=2"), 400, "INVALID_INPUT")


def test_an_unknown_resource_or_path_is_404(api: Api) -> None:
    for path, code in (
        ("/nothing", "REFERENCE_NOT_FOUND"),
        ("/cards/", "REFERENCE_NOT_FOUND"),
        (f"/cards/Card:{uuid4()}", "REFERENCE_NOT_FOUND"),
        (f"/customers/Customer:{uuid4()}", "USER_NOT_FOUND"),
        ("/customers/me", "USER_NOT_FOUND"),
        (f"/transactions/CardTransaction:{uuid4()}", "TRANSACTION_NOT_FOUND"),
        (f"/transactions/Transaction:{uuid4()}", "TRANSACTION_NOT_FOUND"),
        ("/transactions/%ff", "TRANSACTION_NOT_FOUND"),
    ):
        refused(api.get(path), 404, code)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/config", "GET, HEAD, PATCH"),
        ("POST", "/config", "GET, HEAD, PATCH"),
        ("PUT", "/customers", "GET, HEAD, POST"),
        ("OPTIONS", "/transactions", "GET, HEAD"),
        ("PUT", "/verifications", "GET, HEAD, POST"),
        ("GET", "/webhooks/test", "POST"),
    ],
)
def test_an_unknown_method_is_405_with_the_allowed_methods(
    api: Api, method: str, path: str, allowed: str
) -> None:
    answer = api.http.request(method, path)

    body = refused(answer, 405, "METHOD_NOT_ALLOWED")
    assert answer.headers["allow"] == allowed
    assert body["message"] == f"Method {method} not allowed; allowed: {allowed}."


@pytest.mark.parametrize("path", ["/config", "/customers", "/cards/{card}", "/stablecoins"])
def test_head_returns_the_headers_of_get_and_no_body(
    api: Api, card: dict[str, Any], path: str
) -> None:
    url, who = f"{api.root}{BASE_PATH}{path.format(card=card['id'])}", api.http.auth
    ignored = {"date", "x-request-id"}

    with httpx2.Client(auth=who, timeout=limit_s()) as client:
        got, head = client.get(url), client.head(url)

    assert (head.status_code, head.content) == (got.status_code, b"")
    assert {name: value for name, value in head.headers.items() if name not in ignored} == {
        name: value for name, value in got.headers.items() if name not in ignored
    }


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/openapi.json", "/docs"])
def test_head_works_at_the_root_of_the_server(root: str, path: str) -> None:
    with httpx2.Client(base_url=root, timeout=limit_s()) as client:
        got, head = client.get(path), client.head(path)

    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == got.headers["content-length"]


def test_head_of_what_is_only_posted_is_refused(api: Api) -> None:
    head = httpx2.head(f"{api.root}{BASE_PATH}/webhooks/test", auth=api.http.auth)

    assert (head.status_code, head.headers["allow"], head.content) == (405, "POST", b"")


@pytest.mark.parametrize(
    ("body", "field"), [('{"amount": 1}', "amount"), ("[]", ""), ("1", ""), ('{"a.b": {}}', "a.b")]
)
def test_an_operation_without_a_body_refuses_fields(
    api: Api, card: dict[str, Any], body: str, field: str
) -> None:
    for path in (f"/cards/{card['id']}/reveal", "/webhooks/endpoints/x/rotate-secret"):
        answer = api.raw("POST", path, body)
        details = refused(answer, 400, "INVALID_INPUT")["details"]
        assert [error["field"] for error in details["errors"]] == [field]


@pytest.mark.parametrize("body", ["", "{}", "null", " "])
def test_an_operation_without_a_body_accepts_an_empty_one(
    api: Api, card: dict[str, Any], body: str
) -> None:
    assert api.raw("POST", f"/cards/{card['id']}/reveal", body).status_code == 200


def test_nothing_to_change_is_refused(api: Api) -> None:
    refused(api.http.patch("/config", json={}), 400, "INVALID_INPUT")
    refused(api.http.patch("/config", json={"name": "x"}), 400, "INVALID_INPUT")
    refused(api.http.patch("/config", json={"webhookEndpoint": "x"}), 400, "INVALID_INPUT")


@pytest.mark.parametrize(
    "authorization_header",
    [
        None,
        "",
        "Basic",
        "Basic !!!",
        "Basic dXNlcg==",  # No colon.
        "Basic Og==",  # Nothing but a colon.
        "Basic /zov",  # No UTF-8.
        "Basic AGE6YQ==",  # U+0000.
        "Basic dXNlcjpwYXNz",
        "Bearer dXNlcjpwYXNz",
        "Basic " + "QQ" * 5000,
    ],
)
def test_invalid_credentials_get_401_whatever_the_operation(
    root: str, card: dict[str, Any], authorization_header: str | None
) -> None:
    headers = {} if authorization_header is None else {"authorization": authorization_header}
    for method, path in (("GET", f"/cards/{card['id']}"), ("POST", "/cards"), ("PATCH", "/config")):
        answer = httpx2.request(method, root + "/2025-10-13" + path, headers=headers)

        refused(answer, 401, "UNAUTHORIZED")
        assert answer.headers["www-authenticate"].startswith("Basic ")


def test_a_wrong_secret_is_refused_even_after_the_right_one(api: Api, root: str) -> None:
    tenant = api.tenant
    assert api.get("/config").is_success

    for wrong in ("", "x", tenant.client_secret[:-1], tenant.client_secret + "x"):
        with Api(root, replace(tenant, client_secret=wrong)) as other:
            refused(other.get("/config"), 401, "UNAUTHORIZED")


@pytest.mark.parametrize(
    ("permissions", "may_read", "may_transact", "may_manage"),
    [
        (("VIEW",), True, False, False),
        (("TRANSACT",), False, True, False),
        (("MANAGE",), False, False, True),
        (("TOKENS", "AGENTS"), False, False, False),
    ],
)
def test_a_token_may_do_what_it_says(  # noqa: PLR0913, PLR0917 - a table
    api: Api,
    root: str,
    api_config: ApiConfig,
    permissions: tuple[str, ...],
    may_read: bool,  # noqa: FBT001 - a column
    may_transact: bool,  # noqa: FBT001
    may_manage: bool,  # noqa: FBT001
) -> None:
    tenant = new_tenant(api_config.database_url, permissions=permissions, of=api.tenant)
    card = api.active_card()

    with Api(root, tenant) as limited:
        answers = {
            limited.get(f"/cards/{card['id']}"): may_read,
            simulate(limited, card["id"], authorization()): may_transact,
            limited.post(
                f"/sandbox/internal-accounts/{card['fundingSources'][0]}/fund", {"amount": 1}
            ): may_transact,
            limited.post("/customers", {"customerType": "INDIVIDUAL"}): may_manage,
            limited.http.patch("/config", json={"webhookEndpoint": None}): may_manage,
        }

    for answer, allowed in answers.items():
        if allowed:
            assert answer.is_success, answer.text
        else:
            refused(answer, 403, "FORBIDDEN")


def test_a_token_deleted_in_the_database_is_refused_soon(
    api: Api, root: str, database_url: str
) -> None:
    with Api(root, new_tenant(database_url, of=api.tenant)) as other:
        assert other.get("/config").is_success
        with psycopg.connect(database_url) as connection:
            connection.execute(
                "DELETE FROM api_tokens WHERE client_id = %s", [other.tenant.client_id]
            )

        eventually(lambda: other.get("/config").status_code == 401)


def test_every_answer_carries_a_request_id(api: Api) -> None:
    given = api.http.get("/config", headers={"x-request-id": "mine-1"})
    silly = api.http.get("/config", headers={"x-request-id": "a b\tc"})
    missing = api.get("/nothing")

    assert given.headers["x-request-id"] == "mine-1"
    assert silly.headers["x-request-id"] not in {"", "a b\tc"}
    assert missing.headers["x-request-id"]


def test_the_path_of_a_list_is_not_read_as_an_id(api: Api) -> None:
    for path in ("/customers/external-accounts", "/customers/internal-accounts"):
        answer = api.delete(path)

        refused(answer, 405, "METHOD_NOT_ALLOWED")
        assert "DELETE" not in answer.headers["allow"]
        assert "GET" in answer.headers["allow"]
        assert api.http.request("OPTIONS", path).headers["allow"] == answer.headers["allow"]


@pytest.mark.parametrize(
    "time", ["0.5", "1767225600", "2026-01-01", "2026-01-01T00:00:00", "2026-01-01T00:00Z", "now"]
)
def test_a_time_is_written_out_with_its_zone(api: Api, time: str) -> None:
    body = refused(api.get("/customers", createdAfter=time), 400, "INVALID_INPUT")

    assert body["details"]["errors"][0]["field"] == "createdAfter"
    assert "2026-01-31T12:00:00Z" in body["message"]
