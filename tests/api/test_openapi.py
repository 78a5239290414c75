"""The document of the interface: valid OpenAPI, complete, accurate and checked in."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import httpx2
import jsonschema_rs
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31
from starlette.routing import Route

from cardledger.api.app import ApiConfig, create_app
from cardledger.api.console.mode import ConsoleConfig, ConsoleMode
from cardledger.api.openapi.docs_page import DOCUMENT
from cardledger.api.openapi.tags import TAGS
from cardledger.commands import generate_docs
from cardledger.schema.wire.error_specs import STATUS
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.webhooks.envelope import WebhookType
from cardledger.schema.wire.webhooks.payloads import IN_ORDER, PAYLOADS
from cardledger.webhooks.receiver import Arrival, Reply
from tests.api import contract
from tests.api.contract import operations, validator_of
from tests.api.documents import Json, document, resolved, text
from tests.api.support import SECRET_KEY, TIMEOUT_S, Api, made, ok
from tests.api.test_challenges import unproven
from tests.api.test_transfers import scene_of
from tests.receiver import Receiver

DOCS = Path(__file__).parents[2] / "docs"
SUCCESSES = {"200", "201", "202", "204"}
HEADERS = {
    "401": "WWW-Authenticate",
    "405": "Allow",
    "409": "x-should-retry",
    "429": "Retry-After",
    "501": "x-should-retry",
    "503": "Retry-After",
}

each_operation = pytest.mark.parametrize(
    ("path", "method", "operation"),
    [
        pytest.param(*operation, id=f"{operation[1].upper()} {operation[0]}")
        for operation in operations()
    ],
)


def is_keyed(method: str, operation: Json) -> bool:
    """Return whether the operation must take an Idempotency-Key; network events are keyed."""
    return method == "post" and is_guarded(operation) and not contract.takes_events(operation)


def is_guarded(operation: Json) -> bool:
    return bool(operation["security"])


def is_built(operation: Json) -> bool:
    return "x-unimplemented" not in operation


def parts(value: Any) -> list[Json]:  # noqa: ANN401 - JSON
    """Return every object in `value`, itself included."""
    match value:
        case dict():
            return [value, *(part for item in value.values() for part in parts(item))]
        case list():
            return [part for item in value for part in parts(item)]
        case _:
            return []


def test_the_served_document_is_the_one_that_is_tested(root: str) -> None:
    answer = httpx2.get(root + DOCUMENT, timeout=TIMEOUT_S)

    assert answer.headers["content-type"] == "application/json"
    assert answer.text == text()


@pytest.mark.parametrize("name", generate_docs.PAGES)
def test_a_checked_in_page_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == generate_docs.PAGES[name](), (
        "run: make docs"
    )


def test_the_document_is_valid_openapi_3_1() -> None:
    errors = jsonschema_rs.validator_for(OPENAPI_31).iter_errors(document())

    assert document()["openapi"].startswith("3.1.")
    assert [error.message for error in errors] == []


def test_every_reference_resolves_and_every_component_is_used() -> None:
    referred = Counter(part["$ref"] for part in parts(document()) if "$ref" in part)

    for reference in referred:
        assert resolved({"$ref": reference})
    for kind in ("schemas", "responses", "parameters", "headers"):
        for name in document()["components"][kind]:
            assert referred[f"#/components/{kind}/{name}"], name


def test_every_schema_has_a_description_and_valid_examples() -> None:
    for name, schema in document()["components"]["schemas"].items():
        assert schema.get("description"), name
        assert schema["examples"], name
        check = validator_of({"$ref": f"#/components/schemas/{name}"})
        for example in schema["examples"]:
            assert [error.message for error in check.iter_errors(example)] == [], name


def test_every_example_of_an_error_response_is_valid() -> None:
    for name, response in document()["components"]["responses"].items():
        content = response["content"]["application/json"]
        check = validator_of(content["schema"])
        assert content["examples"], name
        assert set(content["examples"]) == set(response["x-codes"])
        for code, example in content["examples"].items():
            assert [error.message for error in check.iter_errors(example["value"])] == [], name
            assert example["value"]["code"] == code


def test_one_error_schema_has_every_code_of_the_interface() -> None:
    schemas = document()["components"]["schemas"]

    assert schemas["ErrorCode"]["enum"] == [code.value for code in Code]
    assert [name for name in schemas if re.fullmatch(r"Error\d+", name)] == []


def test_a_code_is_documented_with_its_own_status() -> None:
    for name, response in document()["components"]["responses"].items():
        status = int(name.partition("_")[0])
        for code in response["x-codes"]:
            is_of_body = status in {408, 413} and code == Code.INVALID_INPUT
            assert is_of_body or STATUS[Code(code)] == status, name


def test_tags_are_the_areas_of_the_interface_with_the_implemented_ones_first() -> None:
    used = {tag for _, _, operation in operations() for tag in operation["tags"]}
    used |= {tag for item in document()["webhooks"].values() for tag in item["post"]["tags"]}

    tags = document()["tags"]
    missing = ["x-unimplemented" in tag for tag in tags]
    assert used == {tag["name"] for tag in tags} == set(TAGS)
    assert missing == sorted(missing)
    for tag in tags:
        of_tag = [operation for _, _, operation in operations() if tag["name"] in operation["tags"]]
        assert any(map(is_built, of_tag)) == ("x-unimplemented" not in tag), tag["name"]


def test_operations_that_are_not_implemented_come_last() -> None:
    missing = [
        not any(is_built(operation) for _, _, operation in of_path)
        for _, of_path in groupby(operations(), key=itemgetter(0))
    ]

    assert missing == sorted(missing)


def test_no_router_is_included_because_its_models_would_be_derived_again() -> None:
    config = ApiConfig(
        database_url="postgresql://127.0.0.1:1/none",
        redis_url="redis://127.0.0.1:1",
        secret_key=SECRET_KEY,
        console=ConsoleConfig(mode=ConsoleMode.ACT),
    )

    routes = create_app(config).router.routes

    assert [route for route in routes if not isinstance(route, Route)] == []


def test_every_operation_has_a_name_of_its_own() -> None:
    names = Counter(operation["operationId"] for _, _, operation in operations())

    assert all(count == 1 for count in names.values()), names.most_common(3)
    assert all(re.fullmatch(r"[a-z][A-Za-z0-9]+", name) for name in names)
    assert {"createCard", "simulateAuthorization", "listTransactions", "isReady"} <= set(names)


@each_operation
def test_an_operation_documents_all_of_its_responses(
    path: str, method: str, operation: Json
) -> None:
    responses = {status: resolved(response) for status, response in operation["responses"].items()}
    parameters = [resolved(parameter) for parameter in operation.get("parameters", [])]

    assert operation["summary"]
    assert operation["description"]
    assert "422" not in responses
    wanted = {"405", "500", "503"}
    if is_guarded(operation):
        wanted |= {"401", "429"}
    if is_guarded(operation) and is_built(operation):
        wanted |= {"400", "403"} | ({"409"} if is_keyed(method, operation) else set())
        wanted |= {"404"} if "{" in path else set()
        wanted |= {"408", "413"} if "requestBody" in operation else set()
    assert wanted <= set(responses)
    assert bool(SUCCESSES & set(responses)) == is_built(operation)
    assert ("501" in responses) or is_built(operation)
    for status, response in responses.items():
        assert response["description"]
        assert "X-Request-Id" in response["headers"]
        assert status not in HEADERS or HEADERS[status] in response["headers"]
        assert ("content" in response) == (status != "204")
    placed = {parameter["name"] for parameter in parameters if parameter["in"] == "path"}
    assert placed == set(re.findall(r"{(\w+)}", path))
    has_key = "Idempotency-Key" in {parameter["name"] for parameter in parameters}
    assert has_key or not is_keyed(method, operation)
    assert not (has_key and contract.takes_events(operation))


@each_operation
def test_an_operation_without_credentials_is_401_with_its_scheme(
    root: str, path: str, method: str, operation: Json
) -> None:
    if "servers" in document()["paths"][path]:
        return  # At the server's root, for operators.
    where = root + document()["servers"][0]["url"] + re.sub(r"{\w+}", "x", path)

    answer = httpx2.request(method.upper(), where, timeout=TIMEOUT_S)

    contract.hold(answer)
    assert (answer.status_code == 401) == is_guarded(operation), answer.text
    if is_guarded(operation):
        [[scheme]] = operation["security"]
        wanted = document()["components"]["securitySchemes"][scheme]["scheme"]
        assert answer.headers["www-authenticate"].lower().startswith(wanted)


def test_no_two_paths_differ_in_the_names_of_their_parameters_only() -> None:
    shapes = Counter(re.sub(r"{\w+}", "{}", path) for path in document()["paths"])

    assert [shape for shape, count in shapes.items() if count > 1] == []


def test_every_type_of_webhook_is_documented_with_its_data() -> None:
    assert set(document()["webhooks"]) == {kind.value for kind in WebhookType}
    assert set(PAYLOADS) == {kind.partition(".")[0] for kind in WebhookType}
    assert set(PAYLOADS) > IN_ORDER


def test_sent_webhooks_match_the_document(api: Api) -> None:
    with Receiver() as receiver, Receiver() as gone:
        receiver.reply_always(Reply())
        gone.reply_always(Reply(status=410))
        everything = {"url": receiver.url, "mode": "PARALLEL"}
        made(api.post("/webhooks/endpoints", everything))
        made(api.post("/webhooks/endpoints", everything | {"url": gone.url}))

        something_of_each(api)
        arrivals = receiver.wait_for(lambda all_: kinds_of(all_) == set(PAYLOADS))

    for arrival in arrivals:
        assert_webhook(arrival.content)


def kinds_of(arrivals: Sequence[Arrival]) -> set[str]:
    return {str(arrival.type).partition(".")[0] for arrival in arrivals}


def something_of_each(api: Api) -> None:
    """Cause a webhook of every kind."""
    card = api.active_card()
    spent = api.authorize(card["id"], 1250)
    api.clear(card["id"], spent["id"], 1500)
    ok(api.patch(f"/cards/{card['id']}", {"state": "FROZEN"}))
    files = {"file": ("customers.csv", b"nothing")}
    ok(api.http.post("/customers/bulk/csv", files=files), 202)
    account = made(api.post("/platform/external-accounts", unproven()))
    path = f"/platform/external-accounts/{account['id']}"
    made(api.post(f"{path}/challenge", None))
    inviter, invitee = api.customer()["umaAddress"], api.customer()["umaAddress"]
    code = made(api.post("/invitations", {"inviterUma": inviter}))["code"]
    ok(api.post(f"/invitations/{code}/claim", {"inviteeUma": invitee}))
    ok(api.post(f"{path}/verify", {"amounts": [12, 34]}))
    waits = api.customer(fullName="Ada 001")
    ok(api.post("/verifications", {"customerId": waits["id"]}))
    scene = scene_of(api, defaultExecutionMode="APPROVAL_REQUIRED")
    with scene.agent:
        scene.asks()


def assert_webhook(body: Json) -> None:
    content = document()["webhooks"][body["type"]]["post"]["requestBody"]["content"]
    check = validator_of(content["application/json"]["schema"])
    assert [error.message for error in check.iter_errors(body)] == [], body["type"]


def test_the_examples_of_requests_are_accepted(api: Api) -> None:
    # They are not only valid, they succeed.
    schemas = document()["components"]["schemas"]
    customer = ok(api.post("/customers", schemas["IndividualCreate"]["examples"][0]), 201)
    business = ok(api.post("/customers", schemas["BusinessCreate"]["examples"][0]), 201)
    account = api.account(customer["id"])
    mine = {"cardholderId": customer["id"], "fundingSources": [account["id"]]}
    ok(api.post("/cards", schemas["CardCreate"]["examples"][0] | mine), 201)
    for path, name in (
        (f"/sandbox/internal-accounts/{account['id']}/fund", "FundRequest"),
        ("/tokens", "TokenCreate"),
        ("/customers/external-accounts", "ExternalAccountCreate"),
        ("/platform/external-accounts", "PlatformExternalAccountCreate"),
        ("/customers/internal-accounts", "InternalAccountCreate"),
        ("/agents", "AgentCreate"),
        ("/webhooks/replay", "WebhookReplay"),
        ("/webhooks/signing-keys/rotate", "SigningKeyRotate"),
    ):
        body = schemas[name]["examples"][0]
        body = {**body, "customerId": customer["id"]} if "customerId" in body else body
        assert api.post(path, body).is_success, name
    for path, name in (
        ("/beneficial-owners", "BeneficialOwnerCreate"),
        ("/verifications", "VerificationCreate"),
    ):
        body = schemas[name]["examples"][0] | {"customerId": business["id"]}
        assert api.post(path, body).is_success, name


def test_a_response_that_is_not_documented_fails_every_test_that_receives_it(api: Api) -> None:
    request = httpx2.Request("GET", f"{api.root}/2025-10-13/config")
    wrong = {"id": "PlatformConfig:1"}

    for answer in (
        httpx2.Response(418, request=request, json={}),
        httpx2.Response(200, request=request, json=wrong, headers={"X-Request-Id": "1"}),
        httpx2.Response(401, request=request, json={"status": 401}),
        httpx2.Response(
            401,
            request=request,
            json={"status": 401, "code": "FORBIDDEN", "message": "Not a code of 401."},
            headers={"X-Request-Id": "1", "WWW-Authenticate": "Basic"},
        ),
    ):
        with pytest.raises(AssertionError):
            contract.hold(answer)


def test_the_text_of_the_document_is_deterministic() -> None:
    assert json.dumps(json.loads(text()), indent=2, ensure_ascii=False) + "\n" == text()
    assert generate_docs.openapi_page() == text()
