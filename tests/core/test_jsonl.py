"""Lines of a submitted file: what is wrong with one is reported with its number."""

import asyncio
import json

import pytest

from cardledger.ledger.messaging.inbox import Lane
from cardledger.workers.client import Numbered, Unreadable, jsonl, parsing
from cardledger.workers.client.parsing import MalformedSubmission


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        (b'{"bad', "line 7: not JSON: Unterminated string starting at column 2"),
        (b"{", "line 7: not JSON: Expecting property name enclosed in double quotes at column 2"),
        (b"[]", "line 7: not a JSON object"),
    ],
)
def test_a_line_that_is_no_object_is_described_with_its_place(content: bytes, detail: str) -> None:
    [event] = jsonl.parse([jsonl.Line(7, content, is_cut=False)])

    assert isinstance(event, Unreadable)
    assert event.detail == detail


def test_a_long_blank_line_is_not_passed_over_with_what_follows_it() -> None:
    splitter = jsonl.Splitter()
    lines = [*splitter.feed(b" " * (jsonl.MAX_LINE + 1) + b'{"a": 1}\n{"b": 2}\n')]

    first, second = jsonl.parse(lines)

    assert isinstance(first, Unreadable)
    assert first.detail == f"line 1: longer than {jsonl.MAX_LINE} bytes"
    assert second == Numbered(2, {"b": 2})


def test_all_wrong_fields_of_a_line_are_reported_with_its_number() -> None:
    fields = {"type": "CLEARING", "source": "visa", "reference": "c-1", "amount": "1500"}
    [event] = jsonl.parse([jsonl.Line(17, json.dumps(fields).encode())])

    async def submitted() -> object:
        return parsing.parse(event, None, Lane.BULK)

    malformed = asyncio.run(submitted())

    assert isinstance(malformed, MalformedSubmission)
    assert malformed.malformed.detail == (
        "line 17: issuerTransactionToken is required; cardId is required; currency is required;"
        " amount must be a JSON integer, without quotes, decimal point or exponent"
    )
    assert (malformed.reference, json.loads(malformed.malformed.body)) == ("c-1", fields)
