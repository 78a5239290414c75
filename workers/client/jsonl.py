"""Read JSON lines: skip blank lines, report unreadable ones, limit their length."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from cardledger.workers.client.parsing import Numbered, Unreadable

MAX_LINE: Final = 64 * 1024
"""Bytes; the longest event that makes sense has a tenth of them."""

MAX_DEPTH: Final = 32

Event = Numbered | Unreadable

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_SHOWN: Final = 2000  # Of an unreadable line, in characters: what is kept of it.


class _JsonError(ValueError):
    """What is wrong with a line, in words."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its number from 1, its bytes without the end, and whether it was cut."""

    number: int
    content: bytes
    is_cut: bool = False


class Splitter:
    """Cuts bytes into lines; holds at most one line, however long it is."""

    def __init__(self) -> None:
        self._number = 0
        self._rest = b""
        self._is_cut = False

    def feed(self, data: bytes) -> Iterator[Line]:
        """Yield the lines that end in `data`."""
        first, *others = data.split(b"\n")
        self._hold(first)
        for part in others:
            yield self._take()
            self._hold(part)

    def finish(self) -> Iterator[Line]:
        """Yield the last line when it has no end."""
        if self._rest or self._is_cut:
            yield self._take()

    def _hold(self, part: bytes) -> None:
        self._rest += part[: MAX_LINE + 1 - len(self._rest)]
        self._is_cut = self._is_cut or len(self._rest) > MAX_LINE

    def _take(self) -> Line:
        self._number += 1
        line = Line(self._number, self._rest, self._is_cut)
        self._rest, self._is_cut = b"", False
        return line


def parse(lines: Iterable[Line]) -> Iterator[Event]:
    """Yield what every line holds: an event with its number, or why there is none."""
    for line in lines:
        if content := _content(line):
            yield _parse(line, content)


def is_blank(line: Line) -> bool:
    """Return whether `parse` passes over `line`."""
    return not _content(line)


def _content(line: Line) -> bytes:
    """Return what `line` holds; nothing when it is blank."""
    content = line.content.removeprefix(_BYTE_ORDER_MARK) if line.number == 1 else line.content
    return content if line.is_cut or content.strip() else b""


def _parse(line: Line, content: bytes) -> Event:
    try:
        if line.is_cut:
            raise _JsonError(f"longer than {MAX_LINE} bytes")
        return Numbered(line.number, _object(content))
    except _JsonError as error:
        return Unreadable(_shown(content), f"line {line.number}: {error}")


def event_in(content: bytes) -> Mapping[str, Any] | Unreadable:
    """Return the event in `content`, or why there is none."""
    try:
        return _object(content)
    except _JsonError as error:
        return Unreadable(_shown(content), str(error))


def _shown(content: bytes) -> str:
    return content[: 4 * _SHOWN].decode(errors="replace")[:_SHOWN]


def _object(content: bytes) -> dict[str, Any]:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise _JsonError(f"not UTF-8 from byte {error.start + 1} on") from None
    try:
        value = json.loads(text, object_pairs_hook=_no_repeated, parse_constant=_no_constant)
    except RecursionError:
        raise _JsonError(f"nested deeper than {MAX_DEPTH} levels") from None
    except json.JSONDecodeError as error:
        problem = error.msg.removesuffix(" at")  # Some of Python's messages end in a place.
        raise _JsonError(f"not JSON: {problem} at column {error.colno}") from None
    except _JsonError:
        raise
    except ValueError:  # Python reads no number of more than 4300 digits.
        raise _JsonError("a number is too long") from None
    if not isinstance(value, dict):
        raise _JsonError("not a JSON object")
    # Where less is opened than may be, there is nothing to look for.
    if text.count("{") + text.count("[") > MAX_DEPTH and _is_deeper(value, MAX_DEPTH):
        raise _JsonError(f"nested deeper than {MAX_DEPTH} levels")
    return value


def _no_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _JsonError(f"the key {json.dumps(name)} comes twice")
            seen.add(name)
    return found


def _no_constant(name: str) -> NoReturn:
    raise _JsonError(f"{name} is not JSON")


def _is_deeper(value: object, levels: int) -> bool:
    """Return whether something in `value` is nested deeper than `levels`; in linear time."""
    found = [value]
    for _ in range(levels + 1):
        containers = [each for each in found if isinstance(each, dict | list)]
        found = [
            inner
            for each in containers
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not found:
            return False
    return True
