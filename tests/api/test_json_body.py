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

from cardledger.api.http.json_body import MAX_DEPTH, MAX_KEYS, JsonError, parse
from tests.waiting import processor_s

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("ab\u20ac"), inner),
)


@given(values, st.booleans())
def test_any_json_value_is_parsed(value: object, ensure_ascii: bool) -> None:  # noqa: FBT001 - Hypothesis passes it
    assert parse(json.dumps(value, ensure_ascii=ensure_ascii).encode()) == value


@given(st.binary())
def test_bytes_that_are_not_json_are_refused_with_a_readable_error(raw: bytes) -> None:
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
        (b"", "", "must be valid JSON"),
        (b"{", "", "must be valid JSON; line 1, column 2"),
        (b"{'amount': 1}", "", "must be valid JSON"),
        (b'{"amount": 01}', "", "must be valid JSON"),
        (b'{"amount": NaN}', "", "no NaN"),
        (b'{"amount": -Infinity}', "", "no -Infinity"),
        (b'{"amount": 1, "amount": 2}', "amount", "is a duplicate key"),
        (b'{"a": {"b": 1, "c": 2, "b": 1}}', "b", "is a duplicate key"),
        (b'\xef\xbb\xbf{"amount": 1}', "", "must be valid JSON"),
        (b'{"name": "\xff"}', "", "must be UTF-8"),
        ('{"amount": 1}'.encode("utf-16"), "", "must be UTF-8"),
        (b'{"merchant": {"descriptor": "a\\u0000"}}', "merchant.descriptor", "U+0000"),
        (b'{"list": ["ok", "\\ud800"]}', "list.1", "lone surrogate"),
        (b'{"\\udfff": 1}', "\\udfff", "lone surrogate"),
        (b'{"name": "\x00"}', "", "must be valid JSON"),
        (b"[" * 500_000, "", "nested too deeply"),
        (b'{"a":' * 500, "", "nested too deeply"),
    ],
)
def test_a_refusal_says_where_and_what(raw: bytes, field: str, words: str) -> None:
    with pytest.raises(JsonError) as refusal:
        parse(raw)

    assert refusal.value.field == field
    assert words in str(refusal.value)


@pytest.mark.parametrize("text", ["", "'", "{[:,", r"\"", r"\\", r"\\\":{[", "\u20ac"])
def test_keys_and_levels_are_limited_and_characters_of_strings_do_not_count(text: str) -> None:
    keys = ", ".join(f'"{number}": "{text * 9}"' for number in range(MAX_KEYS))
    levels = "[" * (MAX_DEPTH - 1)
    within = f"{levels}{{{keys}}}{levels.replace('[', ']')}".encode()
    too_many = b'{"": ' + within[MAX_DEPTH - 1 : 1 - MAX_DEPTH] + b"}"
    too_deep = b"[" + within + b"]"

    parse(within)

    with pytest.raises(JsonError, match="has 1001 keys; send at most 1000"):
        parse(too_many)
    with pytest.raises(JsonError, match="is nested too deeply; send at most 32 levels"):
        parse(too_deep)


@given(values)
def test_keys_are_counted_as_the_parser_finds_them(value: object) -> None:
    raw = json.dumps([value, dict.fromkeys(map(str, range(MAX_KEYS + 1)))]).encode()

    with pytest.raises(JsonError, match=f"has {keys_in(value) + MAX_KEYS + 1} keys"):
        parse(raw)


def keys_in(value: object) -> int:
    match value:
        case dict():
            return len(value) + sum(map(keys_in, value.values()))
        case list():
            return sum(map(keys_in, value))
        case _:
            return 0


@pytest.mark.parametrize(
    "raw",
    [
        json.dumps(dict.fromkeys(map(str, range(90_000)), 0)).encode(),
        b'{"a": 0, ' * 90_000,
        b"[" * 900_000,
        b"[]," * 300_000,
        b'"' + b'\\"' * 400_000,  # A string without an end.
        b'"' * 900_001,
    ],
    ids=["keys", "objects", "brackets", "arrays", "escapes", "quotes"],
)
def test_what_is_refused_for_its_structure_costs_little_time(raw: bytes) -> None:
    with pytest.raises(JsonError):
        parse(raw)

    usual = json.dumps(list(range(len(raw) // 8))).encode()
    assert processor_s(partial(_refuse, raw)) < 20 * processor_s(partial(json.loads, usual))


def test_very_many_strings_in_a_deep_place_cost_no_memory() -> None:
    raw = b"[" * 30 + b'"\\u0041",' * 100_000 + b'"\\u0000"' + b"]" * 30
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
