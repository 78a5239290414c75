"""What is wrong with an event is said at once, in the words of the wire."""

from typing import Any

import pytest
from pydantic import ValidationError

from cardledger.schema.wire.network_events import NETWORK_EVENT, explain_event

AUTHORIZATION: dict[str, Any] = {
    "type": "AUTHORIZATION",
    "source": "visa",
    "reference": "a-1",
    "issuerTransactionToken": "t-1",
    "cardId": "Card:019542f5-b3e7-7d02-8000-00000000a1b4",
    "amount": 1250,
    "currency": "USD",
}
CLEARING = AUTHORIZATION | {"type": "CLEARING"}


def explained(event: object) -> str:
    with pytest.raises(ValidationError) as refusal:
        NETWORK_EVENT.validate_python(event)
    return explain_event(event, refusal.value)


def test_every_wrong_field_is_named() -> None:
    wrong = {"type": "CLEARING", "source": "", "amount": "12", "final": 1, "colour": "blue"}

    assert explained(wrong) == (
        "source must have at least 1 character(s); reference is required;"
        " issuerTransactionToken is required; cardId is required; currency is required;"
        " amount must be a JSON integer, without quotes, decimal point or exponent;"
        " final must be true or false; colour is not a known field; remove it"
    )


def test_an_unknown_type_hides_no_other_wrong_field() -> None:
    wrong = AUTHORIZATION | {"type": "DANCE", "cardId": 5, "currency": "usd"}

    text = explained(wrong)

    assert text.startswith("type must be one of AUTHORIZATION, ")
    assert text.endswith(
        "; cardId must be a string of the form Card:<uuid>; currency must match ^[A-Z]{3,8}$"
    )


def test_what_is_not_an_object_is_explained_once() -> None:
    assert explained([]) == "body must be an object"


def test_twenty_wrong_fields_are_named_and_the_rest_counted() -> None:
    text = explained(CLEARING | {f"f{number}": 0 for number in range(500)})

    assert text.count("is not a known field; remove it") == 20
    assert text.endswith("; and 480 more")


@pytest.mark.parametrize("type_", ["CLEARING", "DANCE"])
def test_thousands_of_wrong_fields_are_not_named(type_: str) -> None:
    """Pydantic takes longer to describe them than an event may take the event loop."""
    too_many = "more than 1,000 fields are not valid; send only fields of the event's type"
    text = explained(CLEARING | {f"f{number}": 0 for number in range(5000)} | {"type": type_})

    assert text.endswith(too_many)
    assert text.startswith("more than 1,000 " if type_ == "CLEARING" else "type must be one of ")
    assert len(text) < 400
