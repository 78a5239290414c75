"""Refusals in the document: each answer once, with its codes, headers and an example of each."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from cardledger.api.http.errors import TOO_LARGE, TOO_SLOW
from cardledger.schema.wire.errors import ERROR_SPECS, STATUS, Code

Json = dict[str, Any]

_SCHEMAS: Final = "#/components/schemas/"
_RESPONSES: Final = "#/components/responses/"

HEADERS: Final[Mapping[str, tuple[str, Json]]] = {
    "X-Request-Id": (
        "The request's id: the one that was sent in this header, or a new one.",
        {"type": "string"},
    ),
    "Idempotent-Replayed": (
        "There when the answer is that of an earlier request with the same `Idempotency-Key`.",
        {"type": "string", "const": "true"},
    ),
    "WWW-Authenticate": ("The scheme to use.", {"type": "string"}),
    "Allow": ("The methods that the path has.", {"type": "string"}),
    "x-should-retry": (
        "`false`: the same request would be answered the same way.",
        {"type": "string", "enum": ["true", "false"]},
    ),
    "Retry-After": ("Seconds to wait.", {"type": "string", "pattern": "^[0-9]+$"}),
    "retry-after-ms": (
        "The same in milliseconds, which is more exact.",
        {"type": "string", "pattern": "^[0-9]+$"},
    ),
}
_HEADERS_OF: Final[Mapping[int, Sequence[str]]] = {
    401: ("WWW-Authenticate",),
    405: ("Allow",),
    409: ("x-should-retry",),
    429: ("Retry-After", "retry-after-ms"),
    501: ("x-should-retry",),
    503: ("Retry-After",),
}


# Statuses for which the interface has no code of its own.
_OF_BODIES: Final[Mapping[int, str]] = {
    TOO_SLOW: "the body did not come to its end in time",
    TOO_LARGE: "the body is too large",
}


class Responses:
    """The refusals that operations share, each once: by status and codes."""

    def __init__(self) -> None:
        self._made: Final[dict[str, Json]] = {}

    def ref(self, status: int, codes: Sequence[Code]) -> Json:
        """Return a reference to the answer with `status` that has one of `codes`."""
        name = f"{status}_" + "_or_".join(codes)
        self._made.setdefault(name, _refusal(status, codes))
        return {"$ref": _RESPONSES + name}

    def components(self) -> Json:
        """Return every answer that was referred to."""
        return dict(sorted(self._made.items()))


def _refusal(status: int, codes: Sequence[Code]) -> Json:
    enum = [str(code) for code in codes]
    schema: Json = {"$ref": f"{_SCHEMAS}Error{status}"}
    if set(codes) != set(_codes_of(status)):
        schema = {"allOf": [schema, {"properties": {"code": {"enum": enum}}}]}
    return {
        "description": "; or ".join(_when(status, code) for code in codes),
        "headers": header_refs(["X-Request-Id", *_HEADERS_OF.get(status, ())]),
        "content": {
            "application/json": {
                "schema": schema,
                "examples": {
                    str(code): {
                        "summary": _when(status, code),
                        "value": {"status": status, "code": code, "message": _when(status, code)},
                    }
                    for code in codes
                },
            }
        },
    }


def _when(status: int, code: Code) -> str:
    return _OF_BODIES.get(status, ERROR_SPECS[code].when)


def _codes_of(status: int) -> list[Code]:
    if status in _OF_BODIES:
        return [Code.INVALID_INPUT]
    return sorted(code for code, its in STATUS.items() if its == status)


def error_schemas() -> dict[str, Json]:
    """Return the envelope of every status, with all of its codes."""
    return {f"Error{status}": _error_schema(status) for status in {*STATUS.values(), *_OF_BODIES}}


def _error_schema(status: int) -> Json:
    codes = _codes_of(status)
    details: Json = {"type": "object", "description": "More about it, where there is more."}
    if status == STATUS[Code.INVALID_INPUT]:
        details["properties"] = {
            "errors": {
                "type": "array",
                "description": "Every field that has to change.",
                "items": {"$ref": f"{_SCHEMAS}FieldError"},
            }
        }
    return {
        "title": f"Error{status}",
        "description": f"The body of every answer with status {status}.",
        "type": "object",
        "required": ["status", "code", "message"],
        "additionalProperties": False,
        "properties": {
            "status": {"type": "integer", "const": status, "description": "The HTTP status."},
            "code": {
                "type": "string",
                "enum": [str(code) for code in codes],
                "description": "What went wrong, for programs.",
            },
            "message": {"type": "string", "description": "What to change, for people."},
            "details": details,
        },
        "examples": [{"status": status, "code": str(codes[0]), "message": _when(status, codes[0])}],
    }


FIELD_ERROR: Final[Json] = {
    "title": "FieldError",
    "description": "One field that has to change: where it is and what it has to meet.",
    "type": "object",
    "required": ["field", "message"],
    "properties": {
        "field": {"type": "string", "description": "Its path, such as `merchant.mcc`."},
        "message": {"type": "string", "description": "What has to change."},
        "constraint": {"type": "object", "description": "What would pass, for programs."},
    },
    "examples": [{"field": "merchant.mcc", "message": "must match ^[0-9]{4}$"}],
}


def header_refs(names: Iterable[str]) -> Json:
    """Return references to headers by name."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
