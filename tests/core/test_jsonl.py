"""What a line of a submitted file is that is no event."""

import pytest

from cardledger.workers.client import Unreadable, jsonl


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
