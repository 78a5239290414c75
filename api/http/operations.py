"""What an operation says of itself, so that the document can be made of it.

A route names what only it refuses: `responses=answers(Code.CONFLICT)`. What all routes share is
added by `cardledger.api.openapi.document`, which reads the rest from the route itself.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from fastapi.routing import APIRoute

from cardledger.schema.wire.error_specs import STATUS
from cardledger.schema.wire.errors import Code

CODES: Final = "x-codes"
NEVER: Final = "x-never"

BASIC: Final = "BasicAuth"
AGENT: Final = "AgentAuth"

Answers = dict[int | str, dict[str, Any]]


class Guarded(APIRoute):
    """A route that asks who calls: by which scheme, if by any, and with which permission."""

    scheme: ClassVar[str | None] = None
    needs: ClassVar[Sequence[str]] = ()


def answers(*codes: Code, succeeds: bool = True) -> Answers:
    """Return, for `responses` of a route, what only this route refuses.

    Not `succeeds`: the route is there to say that it is not built.
    """
    found: Answers = {}
    for code in codes:
        said = found.setdefault(STATUS[code], {"description": "", CODES: [], NEVER: not succeeds})
        said[CODES].append(code)
    return found


def codes_in(responses: Mapping[int | str, Mapping[str, Any]]) -> dict[int, list[Code]]:
    """Return what `answers` was told, by status."""
    return {int(status): list(said[CODES]) for status, said in responses.items() if CODES in said}


def ever_succeeds(responses: Mapping[int | str, Mapping[str, Any]]) -> bool:
    """Return whether a route with these `responses` does what its name says."""
    return not any(said.get(NEVER) for said in responses.values())
