"""Bodies with many events: cut into events without parsing all of them at once."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardledger.api.http.errors import ApiError
from cardledger.api.ingestion import bodies
from cardledger.api.ingestion.bodies import JSON, MAX_EVENTS, NDJSON, Body
from cardledger.workers.client import Numbered
from tests.steps import result_of

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
events = st.lists(st.dictionaries(st.text(), json_values, max_size=4), min_size=1, max_size=20)
spaces = st.text(alphabet=" \t\n\r", max_size=3)


def body_of(raw: bytes, media_type: str) -> Body:
    return result_of(bodies.split(raw, media_type))


def split(raw: bytes, media_type: str) -> list[object]:
    body = body_of(raw, media_type)
    found = [event for chunk in body.chunks(7) for event in chunk]
    return [event.event if isinstance(event, Numbered) else event for event in found]


@given(sent=events, ascii_only=st.booleans())
def test_lines_are_the_events(sent: list[dict[str, object]], *, ascii_only: bool) -> None:
    lines = [json.dumps(each, ensure_ascii=ascii_only) for each in sent]
    raw = "\n\n".join(lines).encode(errors="surrogatepass")

    assert split(raw, NDJSON) == sent


@given(sent=events, space=spaces, ascii_only=st.booleans())
def test_elements_of_an_array_are_the_events(
    sent: list[dict[str, object]], space: str, *, ascii_only: bool
) -> None:
    elements = [json.dumps(each, ensure_ascii=ascii_only) for each in sent]
    text = f"{space}[{space}" + f"{space},{space}".join(elements) + f"{space}]{space}"

    assert split(text.encode(), JSON) == sent


@given(st.binary(max_size=50) | json_values.map(lambda value: json.dumps(value).encode()))
def test_anything_else_is_refused_as_json_is(raw: bytes) -> None:
    try:
        expected = json.loads(raw.decode())
    except ValueError:
        expected = None

    if isinstance(expected, list) and expected:
        assert len(split(raw, JSON)) == len(expected)
    else:
        with pytest.raises(ApiError):
            split(raw, JSON)


def test_an_event_may_be_as_long_as_a_line() -> None:
    long = {"reference": "x" * 60_000}

    assert split(json.dumps([long, long]).encode(), JSON) == [long, long]
    with pytest.raises(ApiError, match="event 2 is not a complete JSON value"):
        split(json.dumps([long, {"reference": "x" * 70_000}]).encode(), JSON)


@pytest.mark.parametrize("media_type", [JSON, NDJSON])
def test_each_event_is_a_step_of_its_own(media_type: str) -> None:
    event = json.dumps({"reference": "x" * 700})
    raw = (
        f"[{','.join([event] * MAX_EVENTS)}]"
        if media_type == JSON
        else "\n".join([event] * MAX_EVENTS)
    )

    assert sum(1 for _ in bodies.split(raw.encode(), media_type)) >= MAX_EVENTS


@pytest.mark.parametrize(
    ("raw", "media_type"),
    [
        (b"\n" * MAX_EVENTS + b"{}", NDJSON),
        (b" " * 1_000_000 + b"[{}]", JSON),
        (b"[" + b" " * 1_000_000 + b"{}]", JSON),
        (b"[{}" + b" " * 1_000_000 + b"]", JSON),
        (b"[{}]" + b" " * 1_000_000, JSON),
    ],
    ids=[
        "lines",
        "before an array",
        "before an event",
        "after an event",
        "at the end",
    ],
)
def test_blanks_are_passed_over_in_many_steps(raw: bytes, media_type: str) -> None:
    steps = bodies.split(raw, media_type)

    assert sum(1 for _ in steps) > 50


def test_a_chunk_is_bounded_by_events_and_by_bytes() -> None:
    wide = json.dumps({"x": "y" * 30_000})
    body = body_of("\n".join([wide] * 5 + ["{}"] * 20).encode(), NDJSON)

    chunks = [len(chunk) for chunk in body.chunks(10)]

    assert chunks == [2, 2, 10, 10, 1]
