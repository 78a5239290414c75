"""JSON as we take it; pure."""

import json
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardledger.api.http.json_body import JsonError, parse
from tests.waiting import processor_s

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("ab\u20ac"), inner),
)


@given(values, st.booleans())
def test_what_is_json_is_understood(value: object, ensure_ascii: bool) -> None:  # noqa: FBT001 - Hypothesis passes it
    assert parse(json.dumps(value, ensure_ascii=ensure_ascii).encode()) == value


@given(st.binary())
def test_anything_else_is_refused_in_words(raw: bytes) -> None:
    try:
        parse(raw)
    except JsonError as error:
        words = str(error)
    else:
        words = "must not be refused, this once"

    assert words.startswith(("must", "comes", "is", "has"))


@pytest.mark.parametrize(
    ("raw", "field", "words"),
    [
        (b"", "", "must be JSON"),
        (b"{", "", "must be JSON; line 1, column 2"),
        (b"{'amount': 1}", "", "must be JSON"),
        (b'{"amount": 01}', "", "must be JSON"),
        (b'{"amount": NaN}', "", "no NaN"),
        (b'{"amount": -Infinity}', "", "no -Infinity"),
        (b'{"amount": 1, "amount": 2}', "amount", "comes twice"),
        (b'{"a": {"b": 1, "c": 2, "b": 1}}', "b", "comes twice"),
        (b'\xef\xbb\xbf{"amount": 1}', "", "must be JSON"),
        (b'{"name": "\xff"}', "", "must be UTF-8"),
        ('{"amount": 1}'.encode("utf-16"), "", "must be UTF-8"),
        (b'{"merchant": {"descriptor": "a\\u0000"}}', "merchant.descriptor", "U+0000"),
        (b'{"list": ["ok", "\\ud800"]}', "list.1", "lone surrogate"),
        (b'{"\\udfff": 1}', "\\udfff", "lone surrogate"),
        (b'{"name": "\x00"}', "", "must be JSON"),
        (b"[" * 500_000, "", "nested too deeply"),
        (b'{"a":' * 200_000, "", "nested too deeply"),
    ],
)
def test_a_refusal_says_where_and_what(raw: bytes, field: str, words: str) -> None:
    with pytest.raises(JsonError) as refusal:
        parse(raw)

    assert refusal.value.field == field
    assert words in str(refusal.value)


def test_a_key_that_comes_twice_among_very_many_costs_no_time() -> None:
    names = [f"k{number}" for number in range(90_000)]
    raw = json.dumps(dict.fromkeys(names, 0)).replace("}", ', "k89999": 0}').encode()

    with pytest.raises(JsonError, match="comes twice") as refusal:
        parse(raw)

    assert refusal.value.field == "k89999"
    # Comparing each key with each other would take minutes.
    assert processor_s(partial(_refuse, raw)) < 50 * processor_s(partial(json.loads, raw))


def test_very_many_strings_in_a_deep_place_cost_no_memory() -> None:
    raw = b"[" * 400 + b'"\\u0041",' * 100_000 + b'"\\u0000"' + b"]" * 400
    tracemalloc.start()

    with pytest.raises(JsonError, match=r"U\+0000") as refusal:
        parse(raw)

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refusal.value.field.startswith("0.0.0.")
    assert peak < 100 * len(raw)


@pytest.mark.parametrize("raw", [b"9" * 100_000, b'{"amount": -' + b"1" * 100_000 + b"}"])
def test_a_number_without_end_costs_no_time(raw: bytes) -> None:
    digits = raw.strip(b'{"amount: -}').decode()

    with pytest.raises(JsonError, match="digits"):
        parse(raw)

    with unlimited_digits():
        reading_s = processor_s(partial(int, digits))
    assert processor_s(partial(_refuse, raw)) < reading_s


@contextmanager
def unlimited_digits() -> Iterator[None]:
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(limit)


def _refuse(raw: bytes) -> None:
    with suppress(JsonError):
        parse(raw)
