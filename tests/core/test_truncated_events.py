"""What a rejection keeps of a malformed event: a large one in part, and its money in any case."""

import json
from hashlib import sha256
from typing import Any
from uuid import uuid4

import pytest

from cardledger.ledger.books.suspense import money_in_text, money_of_rejected
from cardledger.ledger.messaging.truncated_events import TRUNCATED, WHOLE_LIMIT
from cardledger.workers.client import parsing
from cardledger.workers.client.parsing import Malformed

CLEARING = {
    "type": "CLEARING",
    "source": "visa",
    "reference": "c-1",
    "issuerTransactionToken": "T1",
    "cardId": f"Card:{uuid4()}",
    "amount": 1500,
    "currency": "USD",
    "occurredAt": "2026-06-01T12:00:00Z",
    "settlement": {"network": "visa", "settlementDate": "2026-06-02", "more": "x" * 100},
}


def kept(event: dict[str, Any]) -> Malformed:
    malformed = parsing.read(event)
    assert isinstance(malformed, Malformed)
    return malformed


def test_an_event_of_usual_size_is_kept_as_it_was_sent() -> None:
    event = CLEARING | {"unknown": "é" * 100}

    assert json.loads(kept(event).body) == event


def test_of_a_large_event_the_fields_the_size_the_hash_and_the_beginning_are_kept() -> None:
    event = {"unknown": "x" * 60_000} | CLEARING
    whole = json.dumps(event)

    body = json.loads(kept(event).body)

    truncated = body.pop(TRUNCATED)
    settlement = {"network": "visa", "settlementDate": "2026-06-02"}
    assert body == CLEARING | {"settlement": settlement}
    assert truncated["bytes"] == len(whole)
    assert len(kept(event).body) < WHOLE_LIMIT / 2
    assert truncated["sha256"] == sha256(whole.encode()).hexdigest()
    assert whole.startswith(truncated["beginning"])


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"amount": 10**100},
        {"amount": "1500"},
        {"amount": True},
        {"type": "AUTHORIZATION"},
        {"type": "CLEARING" * 100},
        {"cardId": f"Card:{uuid4()}" * 100},
        {"cardId": "Card:\ud800"},
        {"settlement": [1]},
        {"expectedSequence": 0},
        {"expectedSequence": None},
    ],
)
def test_of_a_large_event_the_same_money_is_read_as_of_the_whole(fields: dict[str, Any]) -> None:
    event = CLEARING | fields | {"unknown": "x" * 60_000}

    moved = money_of_rejected(event, "MALFORMED")
    assert money_in_text(kept(event).body, "MALFORMED") == moved


def test_a_reference_that_is_too_long_is_not_taken_for_a_shorter_one() -> None:
    event = CLEARING | {"reference": "r" * 60_000}

    malformed = kept(event)

    assert malformed.reference == "r" * 255
    assert json.loads(malformed.body)["reference"] != malformed.reference


@pytest.mark.parametrize("character", ["\x01", '"', "é", "\U0001f4b3", "\x00", "\ud800"])
def test_whatever_an_event_has_in_it_little_is_kept_and_can_be_stored(character: str) -> None:
    event: dict[str, Any] = dict.fromkeys(CLEARING, character * 6_000)
    event |= {"settlement": dict.fromkeys(("network", "settlementDate"), character * 6_000)}

    body = kept(event).body

    assert len(body.encode()) < 3 * WHOLE_LIMIT
    assert "\x00" not in body
    assert json.loads(body)[TRUNCATED]["bytes"] > 36_000
