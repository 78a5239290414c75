"""The JSON that a page shows, in steps: what a platform or a receiver sent may be long."""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import to_json

from cardledger.api.console.html import formats
from cardledger.schema.wire.common import Response

_CHARACTERS: Final = 200_000
_AT_ONCE: Final = 2_048  # Characters that are escaped in one step, a millisecond at most.
_INDENT: Final = "  "
_DEPTH: Final = 2  # Of a document: its values, and what those have in them.


@dataclass(frozen=True, slots=True)
class ShownJson:
    """JSON of a page; `is_cut`: only its first characters, which are no JSON of their own."""

    text: str
    is_cut: bool


def shown(document: Any) -> Generator[None, None, ShownJson]:  # noqa: ANN401 - JSON
    """Return `document` as people read JSON, with every character visible, in steps.

    A value of it may be a resource, or a list or an iterator of resources: each is rendered as the
    API sends it, in a step of its own, and only as far as the page shows the document.
    """
    parts = list[str]()
    count = 0
    for piece in _pieces(document, "\n", _DEPTH):
        for part in _visible(piece):
            parts.append(part)
            count += len(part)
            yield
            if count > _CHARACTERS:
                return ShownJson("".join(parts)[:_CHARACTERS], is_cut=True)
    return ShownJson("".join(parts), is_cut=False)


def visible(text: str) -> Generator[None, None, str]:
    """Return what `formats.visible_json` does, in steps."""
    parts = list[str]()
    for part in _visible(text):
        parts.append(part)
        yield
    return "".join(parts)


def _visible(text: str) -> Iterator[str]:
    for at in range(0, len(text), _AT_ONCE):
        yield formats.visible_json(text[at : at + _AT_ONCE])


def _pieces(value: Any, end: str, depth: int) -> Iterator[str]:  # noqa: ANN401 - JSON
    """Yield the pieces of `value`, which together are as `to_json` writes it with an indent.

    What is `depth` below it is a piece as a whole: each one costs time. `end` is that of a line,
    with the indent of the next one; no string has one in JSON.
    """
    if depth and isinstance(value, Mapping):
        brackets = "{}"
        items = ((f"{_plain(name)}: ", each) for name, each in value.items())
    elif depth and isinstance(value, Iterator | list | tuple):
        brackets = "[]"
        items = (("", each) for each in value)
    else:
        yield _plain(value).replace("\n", end)
        return
    within, before = end + _INDENT, brackets[0]
    for name, each in items:
        yield f"{before}{within}{name}"
        yield from _pieces(each, within, depth - 1)
        before = ","
    yield brackets if before == brackets[0] else f"{end}{brackets[1]}"


def _plain(value: Any) -> str:  # noqa: ANN401 - JSON
    json = value.wire() if isinstance(value, Response) else value
    return to_json(json, indent=len(_INDENT)).decode()
