"""The document of the interface: valid, whole, true, and the one that is checked in."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
import jsonschema_rs
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31

from cardledger.api.openapi.docs_page import DOCUMENT
from cardledger.api.openapi.tags import AREAS
from cardledger.commands import generate_docs
from cardledger.schema.wire.errors import STATUS, Code
from cardledger.schema.wire.webhooks.envelope import WebhookType
from cardledger.schema.wire.webhooks.payloads import IN_ORDER, PAYLOADS
from cardledger.webhooks.receiver import Arrival, Reply
from tests.api import contract
from tests.api.contract import operations, validator_of
from tests.api.documents import Json, document, resolved, text
from tests.api.support import TIMEOUT_S, Api, made, ok
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
    [pytest.param(*one, id=f"{one[1].upper()} {one[0]}") for one in operations()],
)


def is_guarded(operation: Json) -> bool:
    return bool(operation["security"])


def is_built(operation: Json) -> bool:
    return "x-not-built" not in operation


def parts(value: Any) -> list[Json]:  # noqa: ANN401 - JSON
    """Return every object in `value`, itself included."""
    match value:
        case dict():
            return [value, *(part for one in value.values() for part in parts(one))]
        case list():
            return [part for one in value for part in parts(one)]
        case _:
            return []


def test_the_served_document_is_the_one_that_is_tested(root: str) -> None:
    answer = httpx2.get(root + DOCUMENT, timeout=TIMEOUT_S)

    assert answer.headers["content-type"] == "application/json"
    assert answer.text == text()


@pytest.mark.parametrize("name", generate_docs.pages())
def test_a_checked_in_page_is_what_the_code_says(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == generate_docs.pages()[name], (
        "run: make docs"
    )


def test_it_is_openapi_3_1() -> None:
    errors = jsonschema_rs.validator_for(OPENAPI_31).iter_errors(document())

    assert document()["openapi"].startswith("3.1.")
    assert [error.message for error in errors] == []


def test_every_reference_leads_somewhere_and_nothing_is_left_over() -> None:
    referred = Counter(part["$ref"] for part in parts(document()) if "$ref" in part)

    for reference in referred:
        assert resolved({"$ref": reference})
    for kind in ("schemas", "responses", "parameters", "headers"):
        for name in document()["components"][kind]:
            is_status = re.fullmatch(r"Error\d+", name)  # Every status has its envelope.
            assert is_status or referred[f"#/components/{kind}/{name}"], name


def test_every_schema_has_a_description_and_examples_that_it_lets_pass() -> None:
    for name, schema in document()["components"]["schemas"].items():
        assert schema.get("description"), name
        assert schema["examples"], name
        check = validator_of({"$ref": f"#/components/schemas/{name}"})
        for example in schema["examples"]:
            assert [error.message for error in check.iter_errors(example)] == [], name


def test_every_example_of_a_refusal_is_one() -> None:
    for name, response in document()["components"]["responses"].items():
        content = response["content"]["application/json"]
        check = validator_of(content["schema"])
        assert content["examples"], name
        for code, example in content["examples"].items():
            assert [error.message for error in check.iter_errors(example["value"])] == [], name
            assert example["value"]["code"] == code


def test_an_envelope_has_exactly_the_codes_of_its_status() -> None:
    schemas = document()["components"]["schemas"]

    for status in set(STATUS.values()):
        codes = {code for code in Code if STATUS[code] == status}
        assert set(schemas[f"Error{status}"]["properties"]["code"]["enum"]) == codes


def test_areas_are_those_of_the_interface_and_each_has_operations() -> None:
    used = {tag for _, _, operation in operations() for tag in operation["tags"]}
    used |= {tag for item in document()["webhooks"].values() for tag in item["post"]["tags"]}

    assert [tag["name"] for tag in document()["tags"]] == list(AREAS)
    assert used == set(AREAS)


def test_every_operation_has_a_name_of_its_own() -> None:
    names = Counter(operation["operationId"] for _, _, operation in operations())

    assert all(count == 1 for count in names.values()), names.most_common(3)
    assert all(re.fullmatch(r"[a-z][A-Za-z0-9]+", name) for name in names)
    assert {"createCard", "simulateAuthorization", "listTransactions", "isReady"} <= set(names)


@each_operation
def test_an_operation_says_everything_about_its_answers(
    path: str, method: str, operation: Json
) -> None:
    responses = {status: resolved(one) for status, one in operation["responses"].items()}
    parameters = [resolved(one) for one in operation.get("parameters", [])]

    assert operation["summary"]
    assert operation["description"]
    assert "422" not in responses
    wanted = {"405", "500", "503"}
    if is_guarded(operation):
        wanted |= {"401", "429"}
    if is_guarded(operation) and is_built(operation):
        wanted |= {"400", "403"} | ({"409"} if method == "post" else set())
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
    placed = {one["name"] for one in parameters if one["in"] == "path"}
    assert placed == set(re.findall(r"{(\w+)}", path))
    if method == "post" and is_guarded(operation):
        assert "Idempotency-Key" in {one["name"] for one in parameters}


@each_operation
def test_an_operation_without_credentials_is_401_with_its_scheme(
    root: str, path: str, method: str, operation: Json
) -> None:
    if "servers" in document()["paths"][path]:
        return  # At the server's root, for whoever runs it.
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


def test_every_type_of_webhook_is_there_and_has_data_of_its_kind() -> None:
    assert set(document()["webhooks"]) == {kind.value for kind in WebhookType}
    assert set(PAYLOADS) == {kind.partition(".")[0] for kind in WebhookType}
    assert set(PAYLOADS) > IN_ORDER


def test_webhooks_are_what_the_document_says(api: Api) -> None:
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
    return {str(one.type).partition(".")[0] for one in arrivals}


def something_of_each(api: Api) -> None:
    """Do what every kind of webhook tells of."""
    card = api.active_card()
    spent = api.authorize(card["id"], 1250)
    api.clear(card["id"], spent["id"], 1500)
    ok(api.patch(f"/cards/{card['id']}", {"state": "FROZEN"}))
    waits = api.customer(fullName="Ada 001")
    ok(api.post("/verifications", {"customerId": waits["id"]}))
    scene = scene_of(api, defaultExecutionMode="APPROVAL_REQUIRED")
    with scene.agent:
        scene.asks()


def assert_webhook(body: Json) -> None:
    content = document()["webhooks"][body["type"]]["post"]["requestBody"]["content"]
    check = validator_of(content["application/json"]["schema"])
    assert [error.message for error in check.iter_errors(body)] == [], body["type"]


def test_a_request_that_the_document_lets_pass_is_read(api: Api) -> None:
    # The examples of what is sent are not only valid, they work.
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


def test_an_answer_that_is_not_documented_fails_wherever_it_is_tested(api: Api) -> None:
    request = httpx2.Request("GET", f"{api.root}/2025-10-13/config")
    wrong = {"id": "PlatformConfig:1"}

    for answer in (
        httpx2.Response(418, request=request, json={}),
        httpx2.Response(200, request=request, json=wrong, headers={"X-Request-Id": "1"}),
        httpx2.Response(401, request=request, json={"status": 401}),
    ):
        with pytest.raises(AssertionError):
            contract.hold(answer)


def test_the_text_is_the_same_every_time() -> None:
    assert json.dumps(json.loads(text()), indent=2, ensure_ascii=False) + "\n" == text()
    assert generate_docs.pages()["openapi.json"] == text()
