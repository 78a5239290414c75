"""Errors in the document: one schema, and every set of codes once, with an example of each."""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from cardledger.api.http.errors import MAX_ERRORS, TOO_LARGE, TOO_SLOW
from cardledger.api.http.routing import MAX_BODY
from cardledger.api.openapi.signatures import SCHEMAS
from cardledger.schema.wire.error_specs import ERROR_SPECS
from cardledger.schema.wire.errors import Code

Json = dict[str, Any]

_RESPONSES: Final = "#/components/responses/"

HEADERS: Final[Mapping[str, tuple[str, Json]]] = {
    "X-Request-Id": (
        "Id of the request: the one that was sent in this header, or a new one.",
        {"type": "string"},
    ),
    "Idempotent-Replayed": (
        "Present when an earlier response to the same `Idempotency-Key` is repeated.",
        {"type": "string", "const": "true"},
    ),
    "WWW-Authenticate": ("Authentication scheme of the path.", {"type": "string"}),
    "Allow": ("Methods of the path.", {"type": "string"}),
    "x-should-retry": (
        "`false`: the same request would get the same response.",
        {"type": "string", "enum": ["true", "false"]},
    ),
    "Retry-After": ("Seconds to wait.", {"type": "string", "pattern": "^[0-9]+$"}),
    "retry-after-ms": ("Milliseconds to wait.", {"type": "string", "pattern": "^[0-9]+$"}),
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
    TOO_SLOW: "The request body timed out.",
    TOO_LARGE: f"The request body is larger than {MAX_BODY:,} bytes, or than its form may be.",
}


class Responses:
    """The error responses that operations share, each once: by status and codes."""

    def __init__(self) -> None:
        self._by_name: Final[dict[str, Json]] = {}

    def ref(self, status: int, codes: Sequence[Code]) -> Json:
        """Return a reference to the response with `status` that has one of `codes`."""
        name = f"{status}_" + "_or_".join(codes)
        self._by_name.setdefault(name, _response(status, codes))
        return {"$ref": _RESPONSES + name}

    def components(self) -> Json:
        """Return every response that was referred to."""
        return dict(sorted(self._by_name.items()))


def _response(status: int, codes: Sequence[Code]) -> Json:
    lines = [f"`{code}`: {_meaning(status, code)}" for code in codes]
    return {
        "description": "\n\n".join(lines),
        "headers": header_refs(["X-Request-Id", *_HEADERS_OF.get(status, ())]),
        "x-codes": [str(code) for code in codes],
        "content": {
            "application/json": {
                "schema": {"$ref": f"{SCHEMAS}Error"},
                "examples": {str(code): {"value": _example(status, code)} for code in codes},
            }
        },
    }


def _meaning(status: int, code: Code) -> str:
    return _OF_BODIES.get(status, ERROR_SPECS[code].meaning)


def _example(status: int, code: Code) -> Json:
    return {"status": status, "code": str(code), "message": _meaning(status, code)}


_ERROR_SCHEMAS: Final[Mapping[str, Json]] = {
    "Error": {
        "title": "Error",
        "description": "The body of every error; each response lists its codes in `x-codes`.",
        "type": "object",
        "required": ["status", "code", "message"],
        "additionalProperties": False,
        "properties": {
            "status": {"type": "integer", "format": "int32", "minimum": 400, "maximum": 599},
            "code": {"$ref": f"{SCHEMAS}ErrorCode"},
            "message": {"type": "string"},
            "details": {"$ref": f"{SCHEMAS}ErrorDetails"},
        },
        "examples": [
            {
                "status": 400,
                "code": "INVALID_INPUT",
                "message": "merchant.mcc must match ^[0-9]{4}$",
                "details": {
                    "errors": [
                        {
                            "field": "merchant.mcc",
                            "message": "must match ^[0-9]{4}$",
                            "constraint": {"pattern": "^[0-9]{4}$"},
                        }
                    ]
                },
            }
        ],
    },
    "ErrorCode": {
        "title": "ErrorCode",
        "description": "Every code of the interface; docs/errors.md has the meaning of each.",
        "type": "string",
        "enum": [str(code) for code in Code],
        "examples": ["INVALID_INPUT"],
    },
    "ErrorDetails": {
        "title": "ErrorDetails",
        "description": "Details of an error; `errors` is present for invalid fields.",
        "type": "object",
        "properties": {
            "errors": {
                "type": "array",
                "items": {"$ref": f"{SCHEMAS}FieldError"},
                "maxItems": MAX_ERRORS,
            },
            "moreErrors": {
                "description": "How many more fields are invalid than `errors` lists, if any.",
                "type": "integer",
                "format": "int32",
                "minimum": 1,
            },
        },
        "examples": [{"errors": [{"field": "merchant.mcc", "message": "must match ^[0-9]{4}$"}]}],
    },
    "FieldError": {
        "title": "FieldError",
        "description": "One field to change.",
        "type": "object",
        "required": ["field", "message"],
        "properties": {
            "field": {"type": "string"},
            "message": {"type": "string"},
            "constraint": {"type": "object"},
        },
        "examples": [{"field": "merchant.mcc", "message": "must match ^[0-9]{4}$"}],
    },
}


def error_schemas() -> dict[str, Json]:
    """Return the schema of every error and those of its parts."""
    return deepcopy(dict(_ERROR_SCHEMAS))


def header_refs(names: Iterable[str]) -> Json:
    """Return references to headers by name."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
