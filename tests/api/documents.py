"""The document of the interface, as tests look at it."""

import json
from functools import cache
from typing import Any

from cardledger.commands import generate_docs

Json = dict[str, Any]


@cache
def text() -> str:
    """Return the document of a sandbox, as it is served."""
    return generate_docs.openapi_page()


@cache
def document() -> Json:
    """Return the document of a sandbox."""
    found: Json = json.loads(text())
    return found


def resolved(part: Json) -> Json:
    """Return `part`, or what it refers to."""
    while "$ref" in part:
        found: Any = document()
        for step in part["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        part = found
    return part
