"""Settlement details on the wire: which events have them, what is refused, what is one event."""

from decimal import Decimal
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cardledger.ledger.engine.parsing import settlement_of
from cardledger.ledger.messaging.inbox import fingerprint
from cardledger.schema.wire.network_event_schema import EXAMPLES
from cardledger.schema.wire.network_events import (
    NETWORK_EVENT,
    SETTLED,
    EventType,
    body_of,
    explain_event,
)

SETTLEMENT: Final[dict[str, Any]] = {"network": "VISA", "settlementDate": "2026-10-14"}


def clearing(**details: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {**EXAMPLES[EventType.CLEARING], "settlement": SETTLEMENT | details}


def hash_of(event: dict[str, Any]) -> bytes:
    return fingerprint(body_of(NETWORK_EVENT.validate_python(event)))


@pytest.mark.parametrize("kind", [*EventType, "DEPOSIT", "TRANSFER"])
def test_the_engine_reads_settlement_details_of_events_that_have_them(kind: str) -> None:
    """A row of the inbox may say more than the wire allows."""
    settlement = settlement_of({"type": kind, "settlement": SETTLEMENT})

    assert (settlement is not None) == (kind in SETTLED)


@pytest.mark.parametrize("kind", EventType)
def test_events_that_move_money_have_settlement_details_and_no_others(kind: EventType) -> None:
    event = {**EXAMPLES[kind], "settlement": SETTLEMENT}

    if kind in SETTLED:
        assert body_of(NETWORK_EVENT.validate_python(event))["settlement"] == SETTLEMENT
    else:
        with pytest.raises(ValidationError) as refusal:
            NETWORK_EVENT.validate_python(event)
        text = explain_event(event, refusal.value)
        assert text == "settlement is not a known field; remove it"


@pytest.mark.parametrize(
    ("details", "problem"),
    [
        ({"acquirerReference": "1" * 22}, "acquirerReference must match ^[0-9]{23}$"),
        ({"acquirerReference": 10**22}, "acquirerReference must be a string"),
        ({"interchange": "1.2345678"}, "interchange must match"),
        ({"interchange": "1e3"}, "interchange must match"),
        ({"interchange": ".5"}, "interchange must match"),
        ({"interchange": 1.5}, "interchange must be a string"),
        ({"interchange": 2}, "interchange must be a string"),
        ({"settlementDate": "2026-02-30"}, "settlementDate must be a valid date"),
        ({"settlementDate": 1}, "settlementDate must be a date of the form YYYY-MM-DD"),
        ({"settlementDate": "2026-10-14T00:00:00Z"}, "settlementDate must be a date"),
        ({"network": "visa"}, "network must match"),
        ({"network": "BOOKS"}, "network must not be BOOKS"),
        ({"merchantAmount": {"amount": 0, "currency": "EUR"}}, "merchantAmount.amount must be"),
        ({"merchantAmount": {"amount": 5}}, "merchantAmount.currency is required"),
        ({"pan": "4111111111111111"}, "pan is not a known field; remove it"),
    ],
)
def test_what_is_wrong_with_settlement_details_is_explained(
    details: dict[str, Any], problem: str
) -> None:
    event = clearing(**details)

    with pytest.raises(ValidationError) as refusal:
        NETWORK_EVENT.validate_python(event)

    assert explain_event(event, refusal.value).startswith(f"settlement.{problem}")


def test_settlement_details_are_part_of_the_event() -> None:
    without = {name: value for name, value in clearing().items() if name != "settlement"}

    assert len({hash_of(without), hash_of(clearing()), hash_of(clearing(cycle="2"))}) == 3


@pytest.mark.parametrize("again", ["1.5", "+1.5", "01.50", "1.500000"])
def test_the_same_interchange_is_the_same_event_however_it_is_written(again: str) -> None:
    assert hash_of(clearing(interchange="1.5")) == hash_of(clearing(interchange=again))


@given(st.decimals(min_value=-(10**11), max_value=10**11, places=6))
def test_an_interchange_keeps_its_value_and_one_form(amount: Decimal) -> None:
    kept = body_of(NETWORK_EVENT.validate_python(clearing(interchange=f"{amount:f}")))

    text = kept["settlement"]["interchange"]
    assert Decimal(text) == amount
    assert text != "-0"
    assert body_of(NETWORK_EVENT.validate_python(clearing(interchange=text))) == kept
