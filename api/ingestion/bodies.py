"""A body with many events: a JSON array, or one JSON object a line (NDJSON).

The body is read whole before the first event is accepted: clients send all of a request before they
read the response. It is parsed in parts, so that no part blocks the event loop for long.
"""

import json
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from email.message import Message
from typing import Final

from fastapi import Request

from cardledger.api.http.errors import ApiError, invalid_field
from cardledger.schema.wire.errors import Code
from cardledger.workers.client import jsonl
from cardledger.workers.client.jsonl import Event, Line

PATH: Final = "/network-events"
"""The path of the requests, outside of the dated base path."""

MAX_BODY: Final = 8 * 1024 * 1024
"""Bytes of a body with events."""

MAX_EVENTS: Final = 10_000
"""Events of a body."""

MAX_LINES: Final = 2 * MAX_EVENTS
"""Lines of NDJSON, with blank ones, which are passed over."""

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
_LINES: Final = frozenset(
    {NDJSON, "application/ndjson", "application/jsonl", "application/x-jsonlines"}
)

_MAX_CONTENT_TYPE: Final = 255  # The time to parse it grows with the square of its length.
_WINDOW: Final = 4 * 1024  # Characters in which most elements of an array end.
_PIECE: Final = 16 * 1024  # Bytes that are cut into lines at once, or blanks that are passed over.
_SPACE: Final = re.compile(rf"[ \t\n\r]{{0,{_PIECE}}}")


@dataclass(frozen=True, slots=True)
class Body:
    """The events of a request, as the bytes of each; `count` of them."""

    media_type: str  # Of the response too.
    lines: tuple[Line, ...]
    size: int  # Bytes, with what is between the events.

    @property
    def count(self) -> int:
        """The number of events."""
        return len(self.lines)

    def chunks(self, size: int) -> Iterator[list[Event]]:
        """Yield the events, parsed: at most `size` at a time, and so much as a line may have."""
        part: list[Line] = []
        length = 0
        for line in self.lines:
            if part and (len(part) == size or length + len(line.content) > jsonl.MAX_LINE):
                yield list(jsonl.parse(part))
                part, length = [], 0
            part.append(line)
            length += len(line.content)
        if part:
            yield list(jsonl.parse(part))


def media_type_of(request: Request) -> str:
    """Return the media type of the body of `request`: `JSON` or `NDJSON`.

    Raises: ApiError INVALID_INPUT for another one, another charset or a compressed body.
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        message = "Unsupported Content-Encoding; send the body uncompressed."
        raise ApiError(Code.INVALID_INPUT, message, details={"header": "Content-Encoding"})
    values = request.headers.getlist("content-type")
    if len(values) == 1 and len(values[0]) <= _MAX_CONTENT_TYPE:
        parsed = Message()
        parsed["content-type"] = values[0]
        media_type = parsed.get_content_type()
        charset = str(parsed.get_param("charset", "utf-8")).lower()
        if charset == "utf-8" and media_type == JSON:
            return JSON
        if charset == "utf-8" and media_type in _LINES:
            return NDJSON
    message = (
        f"Unsupported content type; send the header Content-Type once: {NDJSON} for one event a"
        f" line, or {JSON} for an array."
    )
    raise ApiError(Code.INVALID_INPUT, message, details={"header": "Content-Type"})


def split(raw: bytes, media_type: str) -> Generator[None, None, Body]:
    """Return the events of `raw`, those of NDJSON without parsing them.

    A step passes over an event, a blank line or a piece of blanks.
    Raises: ApiError INVALID_INPUT when there are none or too many, or when an array is not valid
    JSON.
    """
    lines: list[Line] = []
    for line in _array(raw) if media_type == JSON else _lines(raw):
        if line is not None:
            lines.append(line)
        if len(lines) > MAX_EVENTS:
            raise invalid_field("", f"has more than {MAX_EVENTS} events; send the rest separately")
        yield
    if not lines:
        raise invalid_field("", "has no event; send at least one")
    return Body(media_type, tuple(lines), len(raw))


def _lines(raw: bytes) -> Iterator[Line | None]:
    """Yield the lines of `raw`, None for a blank one and after each piece."""
    splitter = jsonl.Splitter()
    for start in range(0, len(raw), _PIECE):
        for line in splitter.feed(raw[start : start + _PIECE]):
            if not jsonl.is_blank(line):
                yield line
                continue
            if line.number > MAX_LINES:
                raise invalid_field("", f"has more than {MAX_LINES} lines; leave out blank ones")
            yield None
        yield None
    yield from (line for line in splitter.finish() if not jsonl.is_blank(line))


def _array(raw: bytes) -> Generator[Line | None, None, None]:
    """Yield the elements of a JSON array, and None after each piece of blanks.

    The array is valid as a whole if this ends.
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise invalid_field("", f"must be UTF-8; byte {error.start} is not valid") from None
    place = yield from _after_space(text, 0)
    if text[place : place + 1] != "[":
        raise invalid_field("", f"must be an array of events; for one event a line send {NDJSON}")
    place = yield from _after_space(text, place + 1)
    number = 0
    if text[place : place + 1] == "]":
        yield from _require_end(text, place + 1)
        return
    while True:
        number += 1
        end = _end_of_element(text, place, number)
        yield Line(number, text[place:end].encode())
        place = yield from _after_space(text, end)
        following = text[place : place + 1]
        if following == "]":
            yield from _require_end(text, place + 1)
            return
        if following != ",":
            raise _not_json(f"expected a comma or ] after event {number}")
        place = yield from _after_space(text, place + 1)


def _end_of_element(text: str, start: int, number: int) -> int:
    """Return where the element that begins at `start` ends."""
    for window in (_WINDOW, jsonl.MAX_LINE):
        part = text[start : start + window]
        try:
            _, length = _SCANNER.raw_decode(part)
        except (ValueError, RecursionError):  # ValueError: not JSON, or a number is too long.
            continue
        if length < len(part):  # A number at the end of a window may go on.
            return start + length
    raise _not_json(
        f"event {number} is not a complete JSON value of at most {jsonl.MAX_LINE} characters"
    )


def _after_space(text: str, place: int) -> Generator[None, None, int]:
    """Return where the blanks that begin at `place` end; yields after each full piece of them."""
    while True:
        space = _SPACE.match(text, place)
        assert space is not None, "no space is a match, too"
        if space.end() - place < _PIECE:
            return space.end()
        place = space.end()
        yield


def _require_end(text: str, place: int) -> Generator[None, None, None]:
    end = yield from _after_space(text, place)
    if end < len(text):
        raise _not_json("there is more after the array")


def _not_json(what: str) -> ApiError:
    return invalid_field("", f"must be valid JSON: {what}")


_SCANNER: Final = json.JSONDecoder()
