"""The page and the JSON Schema of network events say what the models accept."""

import json
import re
from pathlib import Path
from typing import Any, get_args

import jsonschema_rs
import pytest
from pydantic import ValidationError

from cardledger.commands import network_events_page
from cardledger.schema.wire.cards.card_transactions import DeclineReason
from cardledger.schema.wire.network_event_schema import EXAMPLES, json_schema
from cardledger.schema.wire.network_events import (
    EVENT_MEANINGS,
    NETWORK_EVENT,
    RESERVED_SOURCES,
    EventType,
    body_of,
)
from cardledger.schema.wire.outcomes import (
    DECLINE_MEANINGS,
    FLAG_MEANINGS,
    OUTCOME_MEANINGS,
    REJECTION_SPECS,
    OutcomeFlag,
    OutcomeType,
    RejectionReason,
)

PAGE = Path(__file__).parents[2] / "docs" / "network-events.md"
BLOCKS = [
    json.loads(block)
    for block in re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
]
SENT = [block for block in BLOCKS if "type" in block]
[FILE] = re.findall(r"```jsonl\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
SCHEMA = jsonschema_rs.Draft202012Validator(json_schema(), validate_formats=True)
AUTHORIZATION = EXAMPLES[EventType.AUTHORIZATION]


def is_accepted(event: object) -> bool:
    try:
        NETWORK_EVENT.validate_python(event)
    except ValidationError:
        return False
    return True


def test_the_page_is_the_one_that_the_models_make() -> None:
    assert PAGE.read_text(encoding="utf-8") == network_events_page.page(), "run: make docs"


@pytest.mark.parametrize("event", SENT, ids=lambda event: f"{event['type']} {event['reference']}")
def test_an_example_of_the_page_is_accepted_by_models_and_schema(event: dict[str, Any]) -> None:
    assert is_accepted(event)
    assert SCHEMA.is_valid(event)


def test_the_file_at_the_top_of_the_page_is_one_of_events() -> None:
    events = [json.loads(line) for line in FILE.splitlines()]

    assert [event["type"] for event in events] == ["AUTHORIZATION", "CLEARING"]
    assert all(is_accepted(event) and SCHEMA.is_valid(event) for event in events)


def test_the_page_has_a_section_and_an_example_for_each_type() -> None:
    sections = re.findall(r"^### ([A-Z_]+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    assert sections == [*EventType]
    assert [block["type"] for block in SENT] == [*EventType]


def test_the_page_shows_each_event_of_its_examples_under_a_reference_of_its_own() -> None:
    assert len({event["reference"] for event in EXAMPLES.values()}) == len(EventType)


@pytest.mark.parametrize(
    ("meanings", "names"),
    [
        (EVENT_MEANINGS, EventType),
        (OUTCOME_MEANINGS, OutcomeType),
        (REJECTION_SPECS, RejectionReason),
        (FLAG_MEANINGS, OutcomeFlag),
        (DECLINE_MEANINGS, get_args(DeclineReason)),
    ],
    ids=["events", "outcomes", "rejections", "flags", "declines"],
)
def test_every_value_has_a_meaning_on_the_page(meanings: Any, names: Any) -> None:  # noqa: ANN401
    text = PAGE.read_text(encoding="utf-8")

    assert {*meanings} == {*names}
    for name in names:
        assert f"`{name}`" in text or f"### {name}" in text


def test_every_field_of_the_schema_is_described() -> None:
    for name, definition in json_schema()["$defs"].items():
        assert definition["description"], name
        for field, schema in definition["properties"].items():
            assert schema["description"].endswith("."), f"{name}.{field}"
            assert "title" not in schema, f"{name}.{field}"


def test_the_schema_is_a_schema_of_its_dialect() -> None:
    assert jsonschema_rs.meta.is_valid(json_schema())


@pytest.mark.parametrize(
    "change",
    [
        {"type": "REFUND"},
        {"type": "authorization"},
        {"type": None},
        {"source": ""},
        {"source": "s" * 101},
        *({"source": source} for source in sorted(RESERVED_SOURCES)),
        {"reference": "r" * 256},
        {"reference": 7},
        {"cardId": "019542f5-b3e7-7d02-8000-00000000a1b4"},
        {"cardId": "Customer:019542f5-b3e7-7d02-8000-00000000a1b4"},
        {"currency": "usd"},
        {"currency": {"code": "USD"}},
        {"merchant": {}},
        {"merchant": {"descriptor": "X", "mcc": "581"}},
        {"merchant": {"descriptor": "X", "city": "Roma"}},
        {"occurredAt": "yesterday"},
        {"occurredAt": "2026-01-01T12:00:00"},
        {"decideBy": 1767225600},
        {"expectedSequence": -1},
        {"amount": 0},
        {"amount": 2**63},
        {"amount": 12.5},
        {"amount": "1250"},
        {"amount": None},
        {"colour": "blue"},
        {"final": True},
    ],
    ids=str,
)
def test_models_and_schema_reject_the_same(change: dict[str, Any]) -> None:
    event = AUTHORIZATION | change

    assert not is_accepted(event)
    assert not SCHEMA.is_valid(event)


@pytest.mark.parametrize("kind", EventType)
def test_models_and_schema_require_the_same_fields(kind: EventType) -> None:
    event = EXAMPLES[kind]
    for field in event:
        shorter = {name: value for name, value in event.items() if name != field}

        assert is_accepted(shorter) == SCHEMA.is_valid(shorter), field


@pytest.mark.parametrize("field", ["merchant", "occurredAt", "decideBy", "expectedSequence"])
def test_null_is_an_absent_field(field: str) -> None:
    event = AUTHORIZATION | {field: None}

    assert SCHEMA.is_valid(event)
    assert field not in body_of(NETWORK_EVENT.validate_python(event))
