"""What becomes of a validator's complaints, and what errors and logs quote of a request; pure."""

import json
import re
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from pydantic_core._pydantic_core import list_all_errors

from cardledger.api.http.errors import (
    MAX_ERROR_BODY,
    MAX_ERRORS,
    ApiError,
    error_response,
    invalid,
    invalid_field,
)
from cardledger.api.http.middleware import shown
from cardledger.schema.wire.cards.cards import CardCreate
from cardledger.schema.wire.common import Time
from cardledger.schema.wire.config import ConfigUpdate
from cardledger.schema.wire.customers.customers import CustomerCreate
from cardledger.schema.wire.error_specs import STATUS
from cardledger.schema.wire.errors import Code, FieldError, explain, field_errors
from cardledger.schema.wire.network_events import NetworkEvent
from cardledger.schema.wire.sandbox import SimulateAuthorization
from tests.api.support import authorization


def test_every_code_has_a_status() -> None:
    assert set(STATUS) == set(Code)
    assert all(400 <= status < 600 for status in STATUS.values())


def complaints(model: Any, value: object) -> dict[str, FieldError]:  # noqa: ANN401 - a union, too
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(model).validate_python(value)
    return {error.field: error for error in field_errors(refused.value.errors())}


@pytest.mark.parametrize(
    "amount", [0, -1, 1.0, 1e3, 1.5, "1250", True, None, 2**63, 10**40, [], {}, float("inf")]
)
def test_an_amount_is_a_positive_integer_of_63_bits(amount: object) -> None:
    [(field, error)] = complaints(SimulateAuthorization, authorization(amount)).items()

    assert field == "amount"
    assert error.message.startswith("must be")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"merchant": None}, "merchant"),
        ({"merchant": "SHOP"}, "merchant"),
        ({"merchant": {}}, "merchant.descriptor"),
        ({"merchant": {"descriptor": ""}}, "merchant.descriptor"),
        ({"merchant": {"descriptor": "x" * 256}}, "merchant.descriptor"),
        ({"merchant": {"descriptor": "x", "mcc": "12"}}, "merchant.mcc"),
        ({"merchant": {"descriptor": "x", "mcc": 5812}}, "merchant.mcc"),
        ({"merchant": {"descriptor": "x", "country": "usa"}}, "merchant.country"),
        ({"merchant": {"descriptor": "x", "Country": "US"}}, "merchant.Country"),
        ({"currency": "USD"}, "currency"),
        ({"currency": {}}, "currency.code"),
        ({"currency": {"code": "usd"}}, "currency.code"),
        ({"surprise": 1}, "surprise"),
        ({"SURPRISE": 1}, "SURPRISE"),
    ],
)
def test_the_field_at_fault_is_named(change: dict[str, object], field: str) -> None:
    [(named, error)] = complaints(SimulateAuthorization, authorization() | change).items()

    assert named == field
    assert error.message


def test_every_bad_field_is_named_at_once() -> None:
    found = complaints(SimulateAuthorization, {"amount": "1", "surprise": 1})

    assert set(found) == {"amount", "currency", "merchant", "surprise"}
    assert found["merchant"].message == "is required"


def test_the_name_of_a_union_member_is_not_part_of_a_field_path() -> None:
    customer = complaints(CustomerCreate, {"customerType": "INDIVIDUAL", "email": "x"})
    event = complaints(NetworkEvent, {"type": "CLEARING", "amount": 0})

    assert set(customer) == {"email"}
    assert {"amount", "cardId", "source"} < set(event)


def test_a_constraint_says_what_would_pass() -> None:
    found = complaints(CardCreate, {"cardholderId": "Card:1", "form": "PAPER"})

    assert found["form"].constraint == {"enum": ["VIRTUAL"]}
    assert found["form"].message == "must be one of VIRTUAL"
    assert found["cardholderId"].message == "must be of the form Customer:<uuid>"
    amount = complaints(SimulateAuthorization, authorization(0))["amount"]
    assert amount.constraint == {"exclusiveMinimum": 0}


def test_an_error_is_explained_in_one_line() -> None:
    with pytest.raises(ValidationError) as refused:
        SimulateAuthorization.model_validate({"amount": -5, "currency": {"code": "USD"}})

    assert explain(refused.value) == "amount must be greater than 0; merchant is required"


def test_an_error_of_very_many_fields_lists_the_first_and_counts_the_rest() -> None:
    names = {f"f{number}": 0 for number in range(900)}
    with pytest.raises(ValidationError) as refused:
        SimulateAuthorization.model_validate(authorization() | names)

    found = field_errors(refused.value.errors())
    error = invalid(found)
    first = invalid(found[:MAX_ERRORS], count=900)

    assert error.details is not None
    assert [part["field"] for part in error.details["errors"]] == [*names][:MAX_ERRORS]
    assert error.details["moreErrors"] == 900 - MAX_ERRORS
    assert error.message.endswith("; and 897 more")
    assert explain(refused.value) == error.message == first.message
    assert error.details == first.details


def test_an_error_of_few_fields_lists_them_all() -> None:
    error = invalid([FieldError(field="a", message="is required")] * MAX_ERRORS)

    assert error.details is not None
    assert len(error.details["errors"]) == MAX_ERRORS
    assert "moreErrors" not in error.details


@pytest.mark.parametrize("quoted", ["x", "\u20ac", "\U0001f600", "\ud800", '"', "\x00"])
def test_an_error_is_small_whatever_it_quotes(quoted: str) -> None:
    long = quoted * 60_000
    many = [FieldError(field=f"f{n}", message=quoted * 300) for n in range(MAX_ERRORS)]
    errors = [
        ApiError(Code.CONFLICT, long, details={"reason": long}),
        invalid_field("name", long),
        invalid(many),
    ]

    bodies = [bytes(error_response(error).body) for error in errors]

    for error, body in zip(errors, bodies, strict=True):
        assert len(body) <= MAX_ERROR_BODY
        assert json.loads(body)["message"] == error.message
    details = json.loads(bodies[-1])["details"]
    assert len(details["errors"]) + details.get("moreErrors", 0) == MAX_ERRORS


def test_a_complaint_quotes_little_of_what_was_sent() -> None:
    url = "https://[" + "x" * 2_000 + "]"

    [error] = complaints(ConfigUpdate, {"webhookEndpoint": url}).values()

    assert len(error.message) == 300
    assert error.message.endswith("x…")
    assert len(shown("/customers/" + "x" * 10_000)) == 200


@pytest.mark.parametrize(
    ("model", "body", "sent_body"),
    [
        (
            CustomerCreate,
            {"customerType": "INDIVIDUAL", "birthDate": "2026-02-30"},
            "birthDate must be a valid date of the form YYYY-MM-DD",
        ),
        (
            CustomerCreate,
            {"customerType": "INDIVIDUAL", "birthDate": "0000-01-01"},
            "birthDate must be a valid date of the form YYYY-MM-DD",
        ),
        (
            TypeAdapter(Time),
            "2026-13-01T00:00:00Z",
            "body must be a time with its zone, such as 2026-01-31T12:00:00Z",
        ),
        (NetworkEvent, 5, "body must be an object"),
    ],
)
def test_no_explanation_is_in_the_validators_words(
    model: Any,  # noqa: ANN401 - any type
    body: object,
    sent_body: str,
) -> None:
    adapter = model if isinstance(model, TypeAdapter) else TypeAdapter(model)

    with pytest.raises(ValidationError) as refused:
        adapter.validate_python(body)

    assert explain(refused.value) == sent_body


@pytest.mark.parametrize("error", list_all_errors(), ids=lambda error: str(error["type"]))
def test_every_validation_error_of_pydantic_has_a_message_of_the_api(error: dict[str, Any]) -> None:
    complaint = {
        "type": error["type"],
        "loc": ("field",),
        "msg": error["example_message_python"],
        "ctx": error.get("example_context") or {},
    }
    if error["type"] in {"value_error", "assertion_error"}:
        complaint["msg"] = "Value error, must be even"

    [sent] = field_errors([complaint])

    assert sent.message.startswith(("must ", "is ", "has a value that"))
    assert not re.search(r"input|pydantic|should", sent.message, re.IGNORECASE)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "https://example.com:8443/hooks?x=1",
        "https://xn--bcher-kva.example/",
        "http://localhost:8000/hook",
        "http://127.0.0.1/",
        "http://127.9.9.9:1/",
        "http://[::1]:8080/hook",
    ],
)
def test_a_valid_webhook_endpoint_is_accepted(url: str) -> None:
    assert ConfigUpdate.model_validate({"webhookEndpoint": url}).webhook_endpoint == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "//example.com",
        "/hook",
        "ftp://example.com",
        "file:///etc/passwd",
        "http://example.com",
        "http://10.0.0.1/",
        "http://localhost.example.com/",
        "http://127.0.0.1.example.com/",
        "https://",
        "https:///path",
        "https://user:secret@example.com",
        "https://@example.com",
        "https://example.com/#fragment",
        "https://example.com/a b",
        "https://example.com/\nHost: x",
        "https://example.com\\@evil.example",
        "https://example.com:0",
        "https://example.com:99999",
        "https://example.com:port",
        "https://[::1",
        "https://example.com/" + "x" * 2048,
        5,
        ["https://example.com"],
    ],
)
def test_an_invalid_webhook_endpoint_is_refused(url: object) -> None:
    assert set(complaints(ConfigUpdate, {"webhookEndpoint": url})) == {"webhookEndpoint"}
