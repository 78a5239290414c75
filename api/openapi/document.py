"""The document of the interface: OpenAPI 3.1, made from the routes.

Routes have their types, permissions and error codes; added here are the headers, the schemes, the
webhooks, the operations that are not implemented, descriptions and examples.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

from fastapi import FastAPI
from fastapi.routing import APIRoute, RouteContext, iter_route_contexts
from pydantic.alias_generators import to_camel

from cardledger.api import BASE_PATH
from cardledger.api.connections.request_head import MAX_HEAD
from cardledger.api.http.errors import (
    MAX_ERROR_BODY,
    MAX_ERRORS,
    NOT_FOUND,
    TOO_LARGE,
    TOO_SLOW,
)
from cardledger.api.http.json_body import MAX_DEPTH, MAX_KEYS
from cardledger.api.http.middleware import MAX_HEADERS, MAX_PARAMETERS
from cardledger.api.http.operations import (
    AGENT,
    BASIC,
    EventStream,
    Form,
    Guarded,
    also_in,
    codes_in,
    ever_succeeds,
)
from cardledger.api.http.routing import MAX_BODY, SANDBOX
from cardledger.api.ingestion.bodies import JSON, MAX_EVENTS, NDJSON
from cardledger.api.openapi import not_implemented, webhooks
from cardledger.api.openapi.components import (
    Components,
    describe,
    give_examples,
    paragraphs,
    words_of,
)
from cardledger.api.openapi.errors import HEADERS, Responses, error_schemas, header_refs
from cardledger.api.openapi.glossary import description_of
from cardledger.api.openapi.shared_types import ENUMS, UNIONS
from cardledger.api.openapi.signatures import Key, SchemaRequests, Signature, signature
from cardledger.api.openapi.tags import TAGS
from cardledger.api.uploads.multipart import FORM
from cardledger.schema.wire.error_specs import STATUS
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.webhooks.payloads import PAYLOADS

Json = dict[str, Any]

UNIMPLEMENTED: Final = "x-unimplemented"
"""Marks operations and tags that respond 501."""

_KEY: Final = {"$ref": "#/components/parameters/IdempotencyKey"}

_ABOUT: Final = f"""\
Customers, accounts and cards of a platform, and a sandbox that simulates the card network.

Amounts are integers in minor units of their currency. Times are RFC 3339 in UTC. Ids are
`<Type>:<uuid>`. Unknown fields are rejected. Every `POST` but `/network-events` accepts an
`Idempotency-Key`. Every error has the same body; its codes are listed with each operation.

A body of JSON has at most {MAX_BODY:,} bytes, {MAX_KEYS:,} keys and {MAX_DEPTH} levels, a query
at most {MAX_PARAMETERS} parameters, a request at most {MAX_HEADERS} headers and, with its request
line, {MAX_HEAD:,} bytes of them. An error has at most {MAX_ERROR_BODY:,} bytes, and lists at most
{MAX_ERRORS} invalid fields.
"""

_EVERYWHERE: Final = (
    Code.INVALID_INPUT,  # Also without a body: query parameters are limited.
    Code.METHOD_NOT_ALLOWED,
    Code.INTERNAL_ERROR,
    Code.SERVICE_UNAVAILABLE,
)
_CHANGING: Final = (Code.FORBIDDEN,)  # For a browser whose page is of another site.
_GUARDED: Final = (Code.RATE_LIMITED,)
_IDENTIFIED: Final = (Code.UNAUTHORIZED, Code.FORBIDDEN)
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_UNIMPLEMENTED_CODES: Final = (Code.UNAUTHORIZED, Code.RATE_LIMITED, Code.NOT_IMPLEMENTED)


def document(app: FastAPI, *, sandbox: bool) -> Json:
    """Return the document of `app`."""
    requests = SchemaRequests()
    operations = [_Operation.of(route, requests) for route in _routes(app)]
    shared = {name: requests.add(*union) for name, union in UNIONS.items()}
    shared |= {name: requests.add(enum, "validation") for name, enum in ENUMS.items()}
    payloads = {
        subject: requests.add(payload, "serialization")
        for subject, payload in PAYLOADS.items()
        if payload is not None
    }
    schemas, definitions = requests.schemas()
    components = Components(definitions, {name: schemas[key] for name, key in shared.items()})
    responses = Responses()
    paths: dict[str, Json] = {}
    for operation in operations:
        item = paths.setdefault(operation.shown_path, {})
        if not operation.path.startswith(BASE_PATH):
            item["servers"] = [{"url": "/"}]
        item[operation.method.lower()] = operation.render(schemas, components, responses)
    _add_unimplemented(paths, responses, sandbox=sandbox)
    of_webhooks = webhooks.schemas(
        {subject: components.part(schemas[key]) for subject, key in payloads.items()}
    )
    named = components.reachable([paths, of_webhooks]) | of_webhooks | error_schemas()
    for name, schema in named.items():
        describe(name, schema)
    give_examples(named)
    return {
        "openapi": "3.1.0",
        "info": _info(),
        "servers": [{"url": BASE_PATH, "description": "This installation."}],
        "tags": list(_tags(paths)),
        "paths": dict(sorted(paths.items(), key=_built_first)),
        "webhooks": webhooks.webhooks(),
        "components": {
            "schemas": dict(sorted(named.items())),
            "responses": responses.components(),
            "parameters": {"IdempotencyKey": _KEY_PARAMETER},
            "headers": {
                name: {"description": about, "schema": schema}
                for name, (about, schema) in HEADERS.items()
            },
            "securitySchemes": _SCHEMES,
        },
    }


# --- operations --------------------------------------------------------------------------------


def _routes(app: FastAPI) -> Iterator[RouteContext]:
    for route in iter_route_contexts(app.routes):
        if isinstance(route.original_route, APIRoute) and route.include_in_schema:
            yield route


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operation:
    """A route, its types, and the keys of their schemas."""

    route: RouteContext
    method: str
    path: str
    types: Signature
    keys: Mapping[str, Key]

    @classmethod
    def of(cls, route: RouteContext, requests: SchemaRequests) -> "_Operation":
        [method] = route.methods or set()
        types = signature(route)
        wanted = {"query": types.query, "body": types.body, **types.path}
        keys = {
            name: requests.add(type_, "validation")
            for name, type_ in wanted.items()
            if type_ is not None
        }
        if types.result is not None:
            keys["result"] = requests.add(types.result, "serialization")
        if (stream := _stream_of(route)) is not None:
            keys["item"] = requests.add(stream.item, "validation")
            keys["accepted"] = requests.add(stream.accepted, "serialization")
        path = str(route.path_format)
        return cls(route=route, method=method, path=path, types=types, keys=keys)

    @property
    def shown_path(self) -> str:
        path = self.path.removeprefix(BASE_PATH)
        return re.sub(r"{(\w+)(:path)?}", lambda name: f"{{{to_camel(name[1])}}}", path)

    @property
    def guard(self) -> Guarded | None:
        original = self.route.original_route
        return original if isinstance(original, Guarded) else None

    @property
    def is_keyed(self) -> bool:
        """Whether the operation accepts an idempotency key."""
        return self.method == "POST" and self.guard is not None and self.stream is None

    @property
    def stream(self) -> EventStream | None:
        """The body with many events, if the operation takes one."""
        return _stream_of(self.route)

    @property
    def form(self) -> Form | None:
        """The form with a file that the operation takes instead of JSON, if it does."""
        return None if self.guard is None else self.guard.access.form

    def render(
        self, schemas: Mapping[Key, Json], components: Components, responses: Responses
    ) -> Json:
        parts = {name: components.part(schemas[key]) for name, key in self.keys.items()}
        guard = self.guard
        has_scheme = guard is not None and guard.scheme is not None
        parameters = [*self._path_parameters(parts), *self._query_parameters(components)]
        parameters += [_KEY] if self.is_keyed else []
        rendered: Json = {
            "tags": list(self.route.tags),
            "summary": words_of(str(self.route.unique_id)),
            "description": paragraphs(self.route.description or ""),
            "operationId": self.route.unique_id,
            "security": [{guard.scheme: list(guard.needs)}] if guard and has_scheme else [],
        }
        if parameters:
            rendered["parameters"] = parameters
        if "body" in parts:
            rendered["requestBody"] = {
                "required": self.types.is_body_required,
                "content": {FORM if self.form else JSON: {"schema": parts["body"]}},
            }
        if "item" in parts:
            rendered["requestBody"] = {"required": True, "content": _each(parts["item"])}
        rendered["responses"] = self._successes(parts)
        for status, codes in self._refusals(
            has_body="body" in parts or self.method == "POST"
        ).items():
            rendered["responses"][str(status)] = responses.ref(status, codes)
        if not ever_succeeds(self.route.responses):
            rendered[UNIMPLEMENTED] = True
        return rendered

    def _path_parameters(self, parts: Mapping[str, Json]) -> Iterator[Json]:
        for name in self.types.path:
            yield _parameter(to_camel(name), "path", parts[name], required=True)

    def _query_parameters(self, components: Components) -> Iterator[Json]:
        if self.types.query is not None:
            for name, schema, required in components.fields_of(self.types.query):
                yield _parameter(name, "query", _without_null(schema), required=required)

    def _successes(self, parts: Mapping[str, Json]) -> Json:
        if not ever_succeeds(self.route.responses):
            return {}
        result = parts.get("result", {})
        status = self.route.status_code or 200
        headers = ["X-Request-Id"] + (["Idempotent-Replayed"] if self.is_keyed else [])
        answer: Json = {
            "description": _success(status, result),
            "headers": header_refs(headers),
        }
        if "accepted" in parts:
            answer = {**answer, "description": "The outcomes, in the order of the events."}
            accepted = {
                "description": _success(_ACCEPTED, parts["accepted"]),
                "headers": answer["headers"],
                "content": {"application/json": {"schema": parts["accepted"]}},
            }
            return {
                str(status): {**answer, "content": _each(result)},
                str(_ACCEPTED): accepted,
            }
        if status != _NO_CONTENT:
            answer["content"] = {"application/json": {"schema": result}}
        others = also_in(self.route.responses)
        return {str(each): answer for each in (status, *others)}

    def _refusals(self, *, has_body: bool) -> dict[int, list[Code]]:
        """Return the codes by status: those of all operations, of this kind, and its own."""
        codes = [*_EVERYWHERE, *(_GUARDED if self.guard else ())]
        if self.method not in _SAFE:
            codes += _CHANGING
        if self.guard and self.guard.scheme:
            codes += _IDENTIFIED
        if self.is_keyed:
            codes.append(Code.CONFLICT)  # The key of a different request.
        codes += [NOT_FOUND.get(name, Code.REFERENCE_NOT_FOUND) for name in self.types.path]
        by_status: dict[int, list[Code]] = {}
        for code in codes:
            by_status.setdefault(STATUS[code], []).append(code)
        for status, own in codes_in(self.route.responses).items():
            by_status.setdefault(status, []).extend(own)
        if has_body and self.guard:
            by_status |= {status: [Code.INVALID_INPUT] for status in (TOO_SLOW, TOO_LARGE)}
        return {status: sorted(set(codes)) for status, codes in sorted(by_status.items())}


def _stream_of(route: RouteContext) -> EventStream | None:
    original = route.original_route
    return original.access.stream if isinstance(original, Guarded) else None


def _each(item: Json) -> Json:
    """Return the content of a body with many items: an array of them, or one a line."""
    return {
        JSON: {"schema": {"type": "array", "minItems": 1, "maxItems": MAX_EVENTS, "items": item}},
        NDJSON: {"schema": item},
    }


_ACCEPTED: Final = 202
_NO_CONTENT: Final = 204
_CREATED: Final = 201


_SUCCESSES: Final[Mapping[str, str]] = {
    "AcceptedEvents": "The number of accepted events; with `wait=false`.",
    "AgentConnection": "The agent and its access token.",
    "AgentCreated": "The new agent and its device code.",
    "CustomerUploadAccepted": "The job that creates the customers.",
    "DeviceCodeStatus": "The status of the device code.",
    "KycLink": "The link to the hosted page.",
    "Inquiry": "The result of the balance inquiry.",
    "PlatformAccounts": "The platform's internal accounts.",
    "PlatformConfig": "The platform's settings.",
    "Reveal": "The page that shows the card number.",
    "SandboxWebhookTestResult": "The response to the test webhook.",
    "SigningKeys": "The current signing keys.",
    "WebhookReplayed": "The number of replayed deliveries.",
    "WebhookTestResult": "The result of the test.",
}
"""Descriptions of successes that the name of the model does not make."""


def _success(status: int, result: Json) -> str:
    """Return what a success is: `The card.`, `A page of cards.`."""
    if status == _NO_CONTENT:
        return "Done; the response has no body."
    if "$ref" not in result:
        return "The result."
    model = result["$ref"].rpartition("/")[2]
    if model in _SUCCESSES:
        return _SUCCESSES[model]
    words = words_of(model).lower()
    if words.endswith(" page"):
        noun = words.removesuffix(" page")
        return f"A page of {noun.removesuffix('y') + 'ies' if noun.endswith('y') else noun + 's'}."
    return f"The {'new ' if status == _CREATED and ' ' not in words else ''}{words}."


def _parameter(name: str, place: str, schema: Json, *, required: bool) -> Json:
    description = schema.pop("description", None) or description_of(name, "Parameter")
    about = {"description": description} if description else {}
    return {"name": name, "in": place, "required": required, **about, "schema": schema}


def _without_null(schema: Json) -> Json:
    """Return the schema of a query parameter, which is present or absent, never null."""
    options = [option for option in schema.get("anyOf", []) if option != {"type": "null"}]
    rest = {name: part for name, part in schema.items() if name != "anyOf"}
    present = {**options[0], **rest} if len(options) == 1 else dict(schema)
    if present.get("default", 0) is None:
        del present["default"]
    return present


# --- operations that are not implemented -------------------------------------------------------


def _add_unimplemented(paths: dict[str, Json], responses: Responses, *, sandbox: bool) -> None:
    for area in not_implemented.TABLE:
        if area.tag == SANDBOX and not sandbox:
            continue
        for name, method, path in area.named():
            item = paths.setdefault(path, {})
            item[method.lower()] = _unimplemented(area, name, method, path, responses)


def _unimplemented(
    area: not_implemented.Area, name: str, method: str, path: str, responses: Responses
) -> Json:
    parameters: list[Json] = [
        _parameter(part, "path", {"type": "string"}, required=True)
        for part in re.findall(r"{(\w+)}", path)
    ]
    parameters += [_KEY] if method == "POST" else []
    codes = (*_UNIMPLEMENTED_CODES, *_EVERYWHERE, *(() if method in _SAFE else _CHANGING))
    return {
        "tags": [area.tag],
        "summary": f"{words_of(name)} (not implemented)",
        "description": f"Not implemented: 501. {area.reason}",
        "operationId": name,
        UNIMPLEMENTED: True,
        "security": [{not_implemented.scheme_of(path): []}],
        **({"parameters": parameters} if parameters else {}),
        "responses": {
            str(STATUS[code]): responses.ref(STATUS[code], [code])
            for code in sorted(codes, key=STATUS.__getitem__)
        },
    }


# --- the document as a whole -------------------------------------------------------------------


def _info() -> Json:
    return {
        "title": "cardledger",
        "version": version("cardledger"),
        "summary": "An event-driven card-transaction ledger.",
        "description": _ABOUT,
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        "x-generated": "Generated from the routes; `make docs` writes docs/openapi.json.",
    }


def _operations_of(item: Json) -> Iterable[Json]:
    return (operation for name, operation in item.items() if name != "servers")


def _built_first(entry: tuple[str, Json]) -> tuple[bool, str]:
    path, item = entry
    return all(UNIMPLEMENTED in operation for operation in _operations_of(item)), path


def _tags(paths: Mapping[str, Json]) -> Iterator[Json]:
    """Yield every tag: first those with an operation that is implemented."""
    operations = [operation for item in paths.values() for operation in _operations_of(item)]
    built = {
        tag
        for operation in operations
        if UNIMPLEMENTED not in operation
        for tag in operation["tags"]
    }
    for name in sorted(TAGS, key=lambda name: name not in built):
        if name in built:
            yield {"name": name, "description": TAGS[name]}
        else:
            about = f"{TAGS[name]} Not implemented: every operation responds 501."
            yield {"name": name, "description": about, UNIMPLEMENTED: True}


_SCHEMES: Final[Json] = {
    BASIC: {
        "type": "http",
        "scheme": "basic",
        "description": "The API token: its client id as user name, its client secret as password.",
    },
    AGENT: {
        "type": "http",
        "scheme": "bearer",
        "description": "The access token that an agent received for its device code.",
    },
}

# Without an example: a page that fills it in would make the second request a conflict.
_KEY_PARAMETER: Final[Json] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": (
        "A key of your choice, unique per request, such as a UUID. The same request with the same"
        " key is executed once and gets the same response; a different request is a conflict. A"
        " repetition gets no secrets, and of more than 32 KiB not the largest fields: read them"
        " with GET."
    ),
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}
