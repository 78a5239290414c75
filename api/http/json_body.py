"""A strict JSON parser for request bodies.

Beyond the standard library it rejects: bytes that are not UTF-8, NaN and Infinity, duplicate keys,
overlong numbers, too many keys, too deep nesting, and strings that a `text` column cannot hold
(U+0000, lone surrogates).
"""

import json
import re
from typing import Any, Final, NoReturn

from cardledger.schema.wire.errors import dotted

MAX_KEYS: Final = 1_000
"""Keys of all objects of a body; the validator reports each key that it does not know."""

MAX_DEPTH: Final = 32
"""Arrays and objects inside each other."""

_SHORTEST_KEY: Final = len('"":0,')

_MAX_DIGITS: Final = 100
"""An amount has at most 19; the time to convert a number grows with the square of its length."""

# The last quote is optional: a string without an end is a single match, too, and the search linear.
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_OPENING: Final = frozenset(b"[{")

_Place = tuple["_Place | None", object]
"""The location of a value: the location of its parent, and its name or index there.

A list with the whole path of every value would take gigabytes for deeply nested bodies.
"""


class JsonError(ValueError):
    """The body is not valid; `field` is the location of the error, if it is known."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field: Final = field


def parse(raw: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value of `raw`.

    Raises: JsonError.
    """
    _check_structure(raw)
    try:
        value = _DECODER.decode(raw.decode())
    except UnicodeDecodeError as error:
        raise JsonError(f"must be UTF-8; byte {error.start} is not valid") from None
    except json.JSONDecodeError as error:
        raise JsonError(
            f"must be valid JSON; line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    # Only an escape can contain them: raw, they are not valid JSON or not UTF-8.
    if b"\\u" in raw:
        _check_strings(value)
    return value


def _check_structure(raw: bytes) -> None:
    """Check the number of keys and the depth of `raw`, before anything is built of it."""
    # Upper bounds, which almost every body meets.
    if len(raw) <= _SHORTEST_KEY * MAX_KEYS and raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return
    structure = _STRING.sub(b"", raw)
    keys = structure.count(b":")
    if keys > MAX_KEYS:
        raise JsonError(f"has {keys} keys; send at most {MAX_KEYS}")
    depth = 0
    for bracket in structure.translate(None, _NOT_BRACKETS):
        depth += 1 if bracket in _OPENING else -1
        if depth > MAX_DEPTH:
            raise JsonError(f"is nested too deeply; send at most {MAX_DEPTH} levels")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    parsed = dict(pairs)
    if len(parsed) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise JsonError("is a duplicate key; send it once", dotted([name]))
            seen.add(name)
    return parsed


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise JsonError(f"has a number of {len(digits)} digits; an amount has at most 19")
    return int(digits)


def _constant(name: str) -> NoReturn:
    raise JsonError(f"must be valid JSON, which has no {name}")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_constant=_constant
)


def _check_strings(value: object) -> None:
    # A stack instead of recursion: nesting may be as deep as the parser allows.
    stack: list[tuple[_Place | None, object]] = [(None, value)]
    while stack:
        place, current = stack.pop()
        match current:
            case str():
                _check_string(current, place)
            case dict():
                for name, inner in current.items():
                    _check_string(name, (place, name))
                    stack.append(((place, name), inner))
            case list():
                stack.extend(((place, index), inner) for index, inner in enumerate(current))


def _check_string(text: str, place: _Place | None) -> None:
    if "\x00" in text:
        raise JsonError("must not contain the character U+0000", dotted(_path(place)))
    try:
        text.encode()
    except UnicodeEncodeError:
        message = "must be valid Unicode: it contains a lone surrogate"
        raise JsonError(message, dotted(_path(place))) from None


def _path(place: _Place | None) -> list[object]:
    steps: list[object] = []
    while place is not None:
        place, step = place
        steps.append(step)
    return steps[::-1]
