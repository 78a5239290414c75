"""The document of the interface: OpenAPI 3.1, made from the routes and from what all of them share.

FastAPI knows paths, parameters and models. Added here: every refusal with its codes, headers,
schemes, examples, webhooks, and what is not built. Taken away: what FastAPI believes and we do not
do, above all 422.
"""

import re
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, RouteContext, iter_route_contexts
from pydantic.alias_generators import to_camel

from cardledger.api import BASE_PATH
from cardledger.api.http.errors import NOT_FOUND, TOO_LARGE, TOO_SLOW
from cardledger.api.http.operations import AGENT, BASIC, Guarded, codes_in, ever_succeeds
from cardledger.api.http.routing import SANDBOX
from cardledger.api.openapi import not_implemented
from cardledger.api.openapi.errors import (
    FIELD_ERROR,
    HEADERS,
    Responses,
    error_schemas,
    header_refs,
)
from cardledger.api.openapi.schemas import (
    give_examples,
    mended,
    one_line_each,
    public_names,
    renamed,
)
from cardledger.api.openapi.tags import AREAS
from cardledger.schema.wire.errors import STATUS, Code
from cardledger.schema.wire.webhooks.envelope import WebhookType
from cardledger.schema.wire.webhooks.payloads import IN_ORDER, PAYLOADS

Json = dict[str, Any]

_SCHEMAS: Final = "#/components/schemas/"
_JSON: Final = "application/json"
_KEY: Final = {"$ref": "#/components/parameters/IdempotencyKey"}

_ABOUT: Final = """\
Customers, accounts and cards of a platform, and a sandbox that plays the card network.

Amounts are integers in the smallest unit of their currency. Times are RFC 3339 in UTC. Ids are
`<Type>:<uuid>`. Unknown fields are refused. Every `POST` takes an `Idempotency-Key`. Every error
has the same body; its codes are listed with each operation.
"""

_EVERYWHERE: Final = (Code.METHOD_NOT_ALLOWED, Code.INTERNAL_ERROR, Code.SERVICE_UNAVAILABLE)
# INVALID_INPUT also where nothing is taken: a parameter that comes twice is refused.
_GUARDED: Final = (Code.INVALID_INPUT, Code.RATE_LIMITED)
_IDENTIFIED: Final = (Code.UNAUTHORIZED, Code.FORBIDDEN)
_NOT_BUILT: Final = (Code.UNAUTHORIZED, Code.RATE_LIMITED, Code.NOT_IMPLEMENTED)


def document(app: FastAPI, *, sandbox: bool) -> Json:
    """Return the document of `app`."""
    made = get_openapi(title="cardledger", version=version("cardledger"), routes=app.routes)
    schemas = {
        name: mended(schema)
        for name, schema in made["components"]["schemas"].items()
        if name not in {"HTTPValidationError", "ValidationError"}
    }
    operations = list(_operations(app))
    responses = Responses()
    paths: dict[str, Json] = {}
    for route in operations:
        method, path = _method(route), str(route.path_format)
        item = paths.setdefault(_shown(path), {})
        if not path.startswith(BASE_PATH):
            item["servers"] = [{"url": "/"}]
        item[method.lower()] = _dressed(made["paths"][path][method.lower()], route, responses)
    _add_not_built(paths, responses, sandbox=sandbox)
    schemas |= {name: mended(schema) for name, schema in _told_only(schemas)}
    schemas |= {**error_schemas(), "FieldError": FIELD_ERROR}
    give_examples(schemas)
    whole: Json = {
        "openapi": "3.1.0",
        "info": _info(),
        "servers": [{"url": BASE_PATH, "description": "This installation."}],
        "tags": [{"name": name, "description": about} for name, about in _areas(paths)],
        "paths": dict(sorted(paths.items())),
        "webhooks": _webhooks(),
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "responses": responses.components(),
            "parameters": {"IdempotencyKey": _KEY_PARAMETER},
            "headers": {
                name: {"description": about, "schema": schema}
                for name, (about, schema) in HEADERS.items()
            },
            "securitySchemes": _SCHEMES,
        },
    }
    named: Json = renamed(whole, public_names(schemas))
    return named


# --- operations --------------------------------------------------------------------------------


def _operations(app: FastAPI) -> Iterator[RouteContext]:
    for route in iter_route_contexts(app.routes):
        if isinstance(route.original_route, APIRoute) and route.include_in_schema:
            yield route


def _method(route: RouteContext) -> str:
    [method] = route.methods or set()
    return method


def _shown(path: str) -> str:
    path = path.removeprefix(BASE_PATH)
    return re.sub(r"{(\w+)}", lambda found: f"{{{to_camel(found[1])}}}", path)


def _dressed(operation: Json, route: RouteContext, responses: Responses) -> Json:
    """Return `operation` with everything that its answers can be."""
    guard = route.original_route if isinstance(route.original_route, Guarded) else None
    is_post = _method(route) == "POST"
    parameters = [_parameter(one) for one in operation.pop("parameters", [])]
    said = operation.pop("responses")
    made: Json = {
        "tags": operation["tags"],
        "summary": operation["summary"],
        "description": one_line_each(operation.get("description", "")),
        "operationId": operation["operationId"],
    }
    made["security"] = [{guard.scheme: list(guard.needs)}] if guard and guard.scheme else []
    if guard is not None and is_post:
        parameters.append(_KEY)
    if parameters:
        made["parameters"] = parameters
    if "requestBody" in operation:
        made["requestBody"] = mended(operation["requestBody"])
    made["responses"] = _successes(said, route, replayed=is_post and guard is not None)
    reads_body = is_post or "requestBody" in operation
    for status, codes in _refusals(route, guard, has_body=reads_body).items():
        made["responses"][str(status)] = responses.ref(status, codes)
    if not ever_succeeds(route.responses):
        made["x-not-built"] = True
    return made


def _successes(said: Json, route: RouteContext, *, replayed: bool) -> Json:
    if not ever_succeeds(route.responses):
        return {}
    headers = ["X-Request-Id"] + (["Idempotent-Replayed"] if replayed else [])
    found = {}
    for status, response in said.items():
        if status[0] != "2":
            continue
        answer: Json = {"description": _SAID[status], "headers": header_refs(headers)}
        if "content" in response:
            answer["content"] = mended(response["content"])
        found[status] = answer
    return found


_SAID: Final = {"200": "Done.", "201": "Created.", "202": "Accepted.", "204": "Done; no body."}


def _refusals(
    route: RouteContext, guard: Guarded | None, *, has_body: bool
) -> dict[int, list[Code]]:
    """Return the codes of a route by status: those of all, of its kind, and its own."""
    codes = [*_EVERYWHERE, *(_GUARDED if guard else ())]
    if guard and guard.scheme:
        codes += _IDENTIFIED
    if guard and _method(route) == "POST":
        codes.append(Code.CONFLICT)  # The key of another request.
    names = re.findall(r"{(\w+)}", str(route.path_format))
    codes += [NOT_FOUND.get(name, Code.REFERENCE_NOT_FOUND) for name in names]
    found: dict[int, list[Code]] = {}
    for code in codes:
        found.setdefault(STATUS[code], []).append(code)
    for status, own in codes_in(route.responses).items():
        found.setdefault(status, []).extend(own)
    if has_body and guard:
        found |= {status: [Code.INVALID_INPUT] for status in (TOO_SLOW, TOO_LARGE)}
    return {status: sorted(set(codes)) for status, codes in sorted(found.items())}


def _parameter(said: Json) -> Json:
    made = {"name": said["name"], "in": said["in"], "required": said.get("required", False)}
    if said["in"] == "path":
        made["name"] = to_camel(said["name"])
    if "description" in said:
        made["description"] = said["description"]
    schema = mended(said["schema"])
    # Nothing in a path or a query is null: it is there or not.
    options = [one for one in schema.get("anyOf", []) if one != {"type": "null"}]
    if len(options) == 1:
        schema = {**options[0], **{name: v for name, v in schema.items() if name != "anyOf"}}
    made["schema"] = schema
    return made


def _add_not_built(paths: dict[str, Json], responses: Responses, *, sandbox: bool) -> None:
    for area in not_implemented.TABLE:
        if area.tag == SANDBOX and not sandbox:
            continue
        for method, path in area:
            item = paths.setdefault(path, {})
            item[method.lower()] = _not_built(area, method, path, responses)


def _not_built(area: not_implemented.Area, method: str, path: str, responses: Responses) -> Json:
    name, summary = _name(method, path)
    parameters: list[Json] = [
        {"name": part, "in": "path", "required": True, "schema": {"type": "string"}}
        for part in re.findall(r"{(\w+)}", path)
    ]
    parameters += [_KEY] if method == "POST" else []
    return {
        "tags": [area.tag],
        "summary": f"{summary} (not built)",
        "description": area.state,
        "operationId": name,
        "x-not-built": True,
        "security": [{not_implemented.scheme_of(path): []}],
        **({"parameters": parameters} if parameters else {}),
        "responses": {
            str(STATUS[code]): responses.ref(STATUS[code], [code])
            for code in sorted((*_NOT_BUILT, *_EVERYWHERE), key=STATUS.__getitem__)
        },
    }


_VERBS: Final = {
    "GET": "get",
    "POST": "post",
    "PUT": "replace",
    "PATCH": "update",
    "DELETE": "delete",
}


def _name(method: str, path: str) -> tuple[str, str]:
    """Return operation id and summary of what has no function to be named after."""
    words = [re.sub(r"[{}]", "", part) for part in path.split("/") if part]
    words = [f"by-{word}" if f"{{{word}}}" in path else word for word in words]
    parts = [_VERBS[method], *re.split(r"[-_]", "-".join(words))]
    summary = " ".join(re.sub(r"([A-Z])", r" \1", part).lower() for part in parts)
    camel = parts[0] + "".join(part[:1].upper() + part[1:] for part in parts[1:])
    return camel, summary.capitalize()


# --- what the whole has ------------------------------------------------------------------------


def _info() -> Json:
    return {
        "title": "cardledger",
        "version": version("cardledger"),
        "summary": "An event-driven card-transaction ledger.",
        "description": _ABOUT,
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    }


def _areas(paths: dict[str, Json]) -> Iterator[tuple[str, str]]:
    """Yield every area with what it is for, and whether there is anything of it yet."""
    operations = [one for item in paths.values() for one in item.values() if "tags" in one]
    built = {tag for one in operations if "x-not-built" not in one for tag in one["tags"]}
    missing = {tag for one in operations for tag in one["tags"]} - built
    for name, about in AREAS.items():
        yield name, f"{about} Not built: every path is 501." if name in missing else about


_SCHEMES: Final[Json] = {
    BASIC: {
        "type": "http",
        "scheme": "basic",
        "description": "The API token's client id as user name, its client secret as password.",
    },
    AGENT: {
        "type": "http",
        "scheme": "bearer",
        "description": "The access token that an agent got for its device code.",
    },
}

_KEY_PARAMETER: Final[Json] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": (
        "Any text of your own. The same request with the same key is done once and answered again;"
        " another request with the same key is a conflict."
    ),
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
    "example": "order-4711",
}


def _webhooks() -> Json:
    return {kind.value: {"post": _webhook(kind)} for kind in sorted(WebhookType)}


def _told_only(schemas: Mapping[str, Json]) -> Iterator[tuple[str, Json]]:
    """Yield the models of webhooks that no operation answers with."""
    for model in PAYLOADS.values():
        if model is not None and model.__name__ not in schemas:
            ours = _SCHEMAS + "{model}"
            schema = model.model_json_schema(mode="serialization", ref_template=ours)
            yield model.__name__, schema


def _webhook(kind: WebhookType) -> Json:
    subject = kind.partition(".")[0]
    payload = PAYLOADS[subject]
    sequence: Json = {"sequence": _SEQUENCE} if subject in IN_ORDER else {}
    data: Json = {"type": "object"} if payload is None else {"$ref": _SCHEMAS + payload.__name__}
    words = re.split(r"[._]", kind.value.lower())
    return {
        "tags": ["Webhooks"],
        "summary": kind.value,
        "operationId": "on" + "".join(word.capitalize() for word in words),
        "security": [],
        "parameters": [
            {
                "name": name,
                "in": "header",
                "required": True,
                "description": about,
                "schema": {"type": "string"},
            }
            for name, about in _SIGNATURES.items()
        ],
        "requestBody": {
            "required": True,
            "content": {
                _JSON: {
                    "schema": {
                        "type": "object",
                        "required": ["id", "type", "timestamp", *sequence, "data"],
                        "additionalProperties": False,
                        "properties": {
                            "id": {
                                "type": "string",
                                "description": "The same in every attempt to deliver the event.",
                            },
                            "type": {"const": kind.value},
                            "timestamp": {"type": "string", "format": "date-time"},
                            **sequence,
                            "data": data,
                        },
                    }
                }
            },
        },
        "responses": {
            "2XX": {"description": "It has arrived and is not sent again."},
            "409": {"description": "It had arrived before; it is not sent again."},
            "410": {"description": "Nothing more is wanted: the endpoint is disabled."},
            "429": {"description": "It is sent again, not before `Retry-After`."},
            "503": {"description": "It is sent again, not before `Retry-After`."},
        },
    }


_SEQUENCE: Final[Json] = {
    "type": "integer",
    "minimum": 0,
    "description": "Rises with every change of the resource: a lower one is an older picture.",
}


_SIGNATURES: Final = {
    "X-Grid-Signature": 'ECDSA P-256 over the body: `{"v":"1","s":"<base64>"}`.',
    "webhook-id": "Standard Webhooks: the event's id.",
    "webhook-timestamp": "Standard Webhooks: seconds since 1970, when it was sent.",
    "webhook-signature": "Standard Webhooks: HMAC-SHA-256 of id, timestamp and body.",
}
