"""The document is fit for people and for generated clients: bars that it must not fall below."""

import cProfile
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from re import _parser  # For the width of a pattern.
from typing import Any

import pytest

from cardledger.api.app import ApiConfig, create_app
from cardledger.api.http.json_body import MAX_DEPTH, MAX_KEYS
from cardledger.api.http.middleware import MAX_PARAMETERS
from cardledger.api.http.routing import MAX_BODY
from cardledger.api.openapi.docs_page import rendered
from cardledger.api.openapi.glossary import DESCRIPTIONS
from cardledger.ledger.core import entries, events
from cardledger.ledger.core.payments import transfer
from cardledger.ledger.core.status import Closure, Status
from cardledger.ledger.projections.event_rows import KINDS
from tests.api.contract import operations, takes_events
from tests.api.documents import Json, document, resolved

MAX_NAME_LENGTH = 40
MIN_DESCRIBED = 0.75
MAX_CALLS = 5_000_000

SCHEMAS: Json = document()["components"]["schemas"]
PROPERTIES = [
    (model, name, schema)
    for model, whole in SCHEMAS.items()
    for name, schema in whole.get("properties", {}).items()
]


def objects(value: Any) -> Iterator[Json]:  # noqa: ANN401 - JSON
    """Yield every object in `value`, itself included."""
    if isinstance(value, dict):
        yield value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        yield from objects(part)


def texts(value: Any, name: str = "") -> Iterator[tuple[str, str]]:  # noqa: ANN401 - JSON
    """Yield every text in an example, with the name of its field."""
    match value:
        case dict():
            for key, part in value.items():
                yield from texts(part, key)
        case list():
            for part in value:
                yield from texts(part, name)
        case str():
            yield name, value


def parameters() -> Iterator[Json]:
    for _, _, operation in operations():
        yield from map(resolved, operation.get("parameters", []))


def enum_of(model: str, field: str) -> set[str]:
    return set(resolved(SCHEMAS[model]["properties"][field])["enum"])


# --- people ------------------------------------------------------------------------------------


def test_three_quarters_of_all_properties_have_a_description() -> None:
    described = [name for _, name, schema in PROPERTIES if schema.get("description")]

    assert len(described) >= MIN_DESCRIBED * len(PROPERTIES)


def test_every_parameter_has_a_description() -> None:
    assert [
        parameter["name"] for parameter in parameters() if not parameter.get("description")
    ] == []


def test_every_webhook_has_a_description() -> None:
    for kind, item in document()["webhooks"].items():
        assert len(item["post"]["description"].split()) > 3, kind


def test_every_description_of_the_glossary_is_used() -> None:
    names = {name for _, name, _ in PROPERTIES} | {parameter["name"] for parameter in parameters()}

    assert {key for key in DESCRIPTIONS if key.rpartition(".")[2] not in names} == set()


def test_no_example_is_the_name_of_its_field() -> None:
    for model, schema in SCHEMAS.items():
        for example in schema["examples"]:
            for name, text in texts(example):
                words = re.sub(r"[^a-z]", "", text.lower())
                assert words != re.sub(r"[^a-z]", "", name.lower()), f"{model}: {name}: {text}"


def test_a_success_is_described_by_what_is_returned() -> None:
    card = document()["paths"]["/cards/{cardId}"]["get"]["responses"]["200"]
    page = document()["paths"]["/transactions"]["get"]["responses"]["200"]

    assert card["description"] == "The card."
    assert page["description"] == "A page of transactions."
    for path, method, operation in operations():
        for status, response in operation["responses"].items():
            assert resolved(response)["description"] != "Done.", f"{method} {path} {status}"


def test_the_idempotency_key_has_no_example_to_prefill() -> None:
    [key] = document()["components"]["parameters"].values()

    assert key["name"] == "Idempotency-Key"
    assert {"example", "examples", "default"} & {*key, *key["schema"]} == set()


# --- programs ----------------------------------------------------------------------------------


def test_every_integer_has_a_format_and_every_amount_is_int64() -> None:
    integers = [part for part in objects(document()) if part.get("type") == "integer"]

    assert {part.get("format") for part in integers} == {"int32", "int64"}
    for model, name, schema in PROPERTIES:
        if re.search(r"(?i)amount$|count$|limit$|spend$|sequence$", name):
            for part in objects(schema):
                if part.get("type") == "integer" and part.get("maximum", 2**63) > 2**31:
                    assert part["format"] == "int64", f"{model}.{name}"


def test_no_name_of_a_schema_is_too_long() -> None:
    assert [name for name in SCHEMAS if len(name) > MAX_NAME_LENGTH] == []


@pytest.mark.parametrize("name", ["Customer", "Beneficiary", "Transaction", "AccountInfo"])
def test_a_union_has_a_name_and_a_discriminator(name: str) -> None:
    union = SCHEMAS[name]

    assert len(union["oneOf"]) == len({part["$ref"] for part in union["oneOf"]}) > 1
    assert union["discriminator"]["propertyName"]


def test_a_customer_is_an_individual_or_a_business() -> None:
    mapping = SCHEMAS["Customer"]["discriminator"]["mapping"]

    assert set(mapping) == {"INDIVIDUAL", "BUSINESS"}
    assert "kycStatus" not in SCHEMAS["BusinessCustomer"]["properties"]
    assert "kybStatus" not in SCHEMAS["IndividualCustomer"]["properties"]


def test_fields_of_responses_have_the_enums_of_the_ledger() -> None:
    accounts = {account.value for account in entries.ChartAccount}
    closures = {closure.value for closure in Closure}

    assert enum_of("CardTransaction", "status") == {s.value for s in Status}
    assert enum_of("CardTransaction", "statusReason") <= closures
    assert enum_of("CardTransaction", "declineReason") == {r.value for r in events.DeclineReason}
    assert enum_of("OutgoingTransaction", "failureReason") == {
        reason.value for reason in transfer.FailureReason
    }
    assert enum_of("CardTransactionEvent", "type") == set(KINDS.values())
    assert enum_of("Entry", "debit") == enum_of("Entry", "credit") == accounts


def test_a_field_has_the_same_enum_in_requests_and_responses() -> None:
    for request, response in (
        ("IndividualCreate", "IndividualCustomer"),
        ("SupportedCurrencyUpdate", "SupportedCurrency"),
        ("CopIndividualBeneficiary", "IndividualBeneficiary"),
        ("AgentTransferCreate", "OutgoingTransaction"),
    ):
        shown: Json = SCHEMAS.get(f"{response}Resource") or SCHEMAS[response]
        theirs = shown["properties"]
        for name, schema in SCHEMAS[request]["properties"].items():
            if name in theirs:
                assert values(schema) <= values(theirs[name]), f"{response}.{name}"


def values(schema: Json) -> set[str]:
    """Return the values of every enum in `schema`, references included."""
    found: set[str] = set()
    for part in objects(schema):
        enum = resolved(part).get("enum", [])
        found |= {value for value in enum if isinstance(value, str)}
    return found


@dataclass(frozen=True)
class Size:
    """Bytes, keys and levels of the largest JSON that is valid."""

    bytes: int
    keys: int = 0
    depth: int = 0


def largest(schema: Json) -> Size:
    """Return the size of the largest value of `schema`.

    A character of a string has three bytes of UTF-8, as all of the Basic Multilingual Plane.
    """
    schema = resolved(schema)
    options = schema.get("oneOf") or schema.get("anyOf")
    if options:
        parts = [largest(option) for option in options]
        return Size(*(max(getattr(part, name) for part in parts) for name in SIZES))
    if "enum" in schema or "const" in schema:
        return Size(
            max(len(json.dumps(value)) for value in schema.get("enum", [schema.get("const")]))
        )
    match schema["type"]:
        case "object":
            fields = {name: largest(part) for name, part in schema.get("properties", {}).items()}
            return Size(
                2 + sum(len(f'"{name}":,') + part.bytes for name, part in fields.items()),
                sum(1 + part.keys for part in fields.values()),
                1 + max((part.depth for part in fields.values()), default=0),
            )
        case "array":
            item, count = largest(schema["items"]), schema["maxItems"]
            if "x-maxEntries" in schema:
                return largest_with_few_entries(schema)
            return Size(2 + count * (item.bytes + 1), count * item.keys, 1 + item.depth)
        case "string":
            return Size(2 + largest_string(schema))
        case _:
            return Size(25)


def largest_with_few_entries(schema: Json) -> Size:
    """Return the size of an array of objects, the lists in which have a number of entries in all.

    Lists without references are few and short; they count with all of their entries.
    """
    fields = resolved(schema["items"])["properties"]
    lists = {
        name: listed
        for name, field in fields.items()
        for listed in [field, *field.get("anyOf", [])]
        if listed.get("type") == "array" and listed["maxItems"] > 2
    }
    without = largest({"type": "object", "properties": {
        name: {"type": "array", "maxItems": 0, "items": {"const": None}} if name in lists else field
        for name, field in fields.items()
    }})  # fmt: skip
    entries = [largest(listed["items"]) for listed in lists.values()]
    count, entry_count = schema["maxItems"], schema["x-maxEntries"]
    return Size(
        2 + count * (without.bytes + 1) + entry_count * max(entry.bytes + 1 for entry in entries),
        count * without.keys + entry_count * max(entry.keys for entry in entries),
        1 + max(1 + max(entry.depth for entry in entries), without.depth),
    )


SIZES = ("bytes", "keys", "depth")
FORMATS = {"date": 10, "date-time": 40}


def largest_string(schema: Json) -> int:
    if "pattern" in schema:
        _, widest = _parser.parse(schema["pattern"]).getwidth()
        return min(int(widest), int(schema.get("maxLength", 2**20)))
    return FORMATS[schema["format"]] if "format" in schema else 3 * int(schema["maxLength"])


def test_the_largest_valid_body_of_every_operation_is_within_the_limits_of_all() -> None:
    bodies = {
        f"{method} {path}": largest(
            operation["requestBody"]["content"]["application/json"]["schema"]
        )
        for path, method, operation in operations()
        if "application/json" in operation.get("requestBody", {}).get("content", {})
        and not takes_events(operation)
    }

    assert {name: size for name, size in bodies.items() if size.bytes > MAX_BODY} == {}
    assert {name: size for name, size in bodies.items() if size.keys > MAX_KEYS} == {}
    assert {name: size for name, size in bodies.items() if size.depth > MAX_DEPTH} == {}
    for path, _, operation in operations():
        assert len(operation.get("parameters", [])) <= MAX_PARAMETERS, path


def test_the_document_is_generated_with_few_calls() -> None:
    """Counted, because seconds are those of the machine; a slow one took more than the limit."""
    app = create_app(ApiConfig(database_url="", redis_url="", secret_key=""))
    rendered(app)  # What is computed once for the process.
    profile = cProfile.Profile()

    profile.runcall(rendered, app)

    assert sum(entry.callcount for entry in profile.getstats()) < MAX_CALLS
