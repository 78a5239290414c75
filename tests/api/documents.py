"""The document of the interface, for tests."""

import json
from functools import cache
from threading import Lock
from typing import Any

from cardledger.commands import generate_docs

Json = dict[str, Any]


_generating = Lock()  # By many threads at once, it would take seconds, and warnings of Pydantic.


def text() -> str:
    """Return the document of a sandbox, as it is served."""
    with _generating:
        return _text()


@cache
def _text() -> str:
    return generate_docs.openapi_page()


@cache
def document() -> Json:
    """Return the document of a sandbox."""
    value: Json = json.loads(text())
    return value


def resolved(part: Json) -> Json:
    """Return `part`, or the component that it refers to."""
    while "$ref" in part:
        value: Any = document()
        for step in part["$ref"].removeprefix("#/").split("/"):
            value = value[step]
        part = value
    return part
