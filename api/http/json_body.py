"""JSON as we take it: strict where the standard library is kind.

Refused: what is not UTF-8, NaN and Infinity, a key that comes twice, numbers of absurd length,
nesting without end, and strings that no `text` column can keep (U+0000, lone surrogates).
"""

import json
from typing import Any, Final, NoReturn

from cardledger.schema.wire.errors import dotted

_MAX_DIGITS: Final = 100
"""No amount has more than 19; converting a long number takes time that grows with its square."""


_Place = tuple["_Place | None", object]
"""Where a value is: the place it is in, and its name or number there.

A whole path for every value would take gigabytes when many are nested deeply.
"""


class JsonError(ValueError):
    """The body cannot be read; `field` says where, when it is known."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field: Final = field


def parse(raw: bytes) -> Any:  # noqa: ANN401 - whatever was sent
    """Return the value of `raw`.

    Raises: JsonError.
    """
    try:
        value = _DECODER.decode(raw.decode())
    except UnicodeDecodeError as error:
        raise JsonError(f"must be UTF-8; byte {error.start} is not") from None
    except json.JSONDecodeError as error:
        raise JsonError(
            f"must be JSON; line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except RecursionError:
        raise JsonError("is nested too deeply") from None
    # Only an escape can smuggle them in; a raw one is no JSON, or no UTF-8.
    if b"\\u" in raw:
        _check_strings(value)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise JsonError("comes twice; send it once", dotted([name]))
            seen.add(name)
    return found


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise JsonError(f"has a number of {len(digits)} digits; no amount has more than 19")
    return int(digits)


def _constant(name: str) -> NoReturn:
    raise JsonError(f"must be JSON, which has no {name}")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_constant=_constant
)


def _check_strings(value: object) -> None:
    # A list of what is left to look at, because nesting may be as deep as the parser allows.
    left: list[tuple[_Place | None, object]] = [(None, value)]
    while left:
        place, one = left.pop()
        match one:
            case str():
                _check_string(one, place)
            case dict():
                for name, inner in one.items():
                    _check_string(name, (place, name))
                    left.append(((place, name), inner))
            case list():
                left.extend(((place, number), inner) for number, inner in enumerate(one))


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
