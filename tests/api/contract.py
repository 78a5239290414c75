"""Compares every response in the tests of the interface with the document that is served.

So a route whose response is not documented fails every test that calls it.
"""

import json
import re
from functools import cache
from typing import Any, Final

import httpx2
import jsonschema_rs

from cardledger.api import BASE_PATH
from cardledger.api.ingestion.bodies import JSON, NDJSON
from tests.api.documents import Json, document, resolved

_COMPONENT: Final = re.compile(r"#/components/schemas/([^\"/]+)")

METHODS = {"get", "put", "post", "patch", "delete"}


def hold(response: httpx2.Response) -> None:
    """Fail when the document does not have `response` for its request."""
    response.read()
    sent = response.request.method.lower()
    method = "get" if sent == "head" else sent  # The same response, without its body.
    path = path_of(response.request.url.path)
    if path is None:
        if response.request.url.path.startswith(BASE_PATH + "/"):
            assert response.status_code == 404, f"{method} {response.request.url.path}: {response}"
        return
    what = f"{method.upper()} {path} answered {response.status_code}"
    if method not in document()["paths"][path]:
        assert response.status_code == 405, what
        return
    responses = document()["paths"][path][method]["responses"]
    status = str(response.status_code)
    assert status in responses, f"{what}, which it does not document: {response.text}"
    declared = resolved(responses[status])
    if sent == "head":
        assert not response.content, what
    else:
        assert ("content" in declared) == bool(response.content), what
    if response.content:
        kind = response.headers["content-type"].partition(";")[0]
        assert kind in declared["content"], what
        for body in bodies_of(response, kind):
            error = next(validator(path, method, status, kind).iter_errors(body), None)
            assert error is None, f"{what} with {error.instance_path}: {error.message}"
        unknown = pages_in(bodies_of(response, kind)) - pages_in(
            [documented_example(declared, kind)]
        )
        assert not unknown, f"{what} with {unknown}, whose examples do not open a page"
    if "x-codes" in declared and response.content:
        assert response.json()["code"] in declared["x-codes"], f"{what}: {response.text}"
        assert response.json()["status"] == response.status_code, what
    for name in declared["headers"]:
        if name != "Idempotent-Replayed":
            assert name in response.headers, f"{what} without {name}"


def pages_in(value: Any) -> set[str]:  # noqa: ANN401 - JSON
    """Return the fields in `value` that open a page under `/embed/`, as `Access.secrets` has them.

    Of a list, the fields of its items.
    """
    if isinstance(value, dict):
        return {
            f"{name}.{below}".rstrip(".")
            for name, part in value.items()
            for below in pages_in(part)
        }
    if isinstance(value, list):
        return set().union(*map(pages_in, value))
    return {""} if isinstance(value, str) and "/embed/" in value else set()


def documented_example(response: Json, kind: str = JSON) -> Any:  # noqa: ANN401 - JSON
    """Return the example of the body of a documented response; None: it has none."""
    schema = resolved(response["content"][kind]["schema"])
    return next(iter(schema.get("examples", ())), None)


def bodies_of(response: httpx2.Response, kind: str) -> list[Any]:
    """Return the JSON values in the body of `response`: of NDJSON one a line."""
    if kind == NDJSON:
        return [json.loads(line) for line in response.content.splitlines()]
    return [response.json()]


@cache
def validator(path: str, method: str, status: str, kind: str = JSON) -> jsonschema_rs.Validator:
    """Return the validator of the body of a response, of NDJSON that of a line."""
    declared = resolved(document()["paths"][path][method]["responses"][status])
    return validator_of(declared["content"][kind]["schema"])


def validator_of(schema: Json) -> jsonschema_rs.Validator:
    """Return the validator of a schema that refers into the document."""
    return _validator(json.dumps(schema, sort_keys=True))


@cache
def _validator(schema: str) -> jsonschema_rs.Validator:
    # Of 1,400 responses 42 differ; with all components a validator would take 3 MB.
    whole = {"components": {"schemas": _referred(schema)}, **json.loads(schema)}
    return jsonschema_rs.Draft202012Validator(whole, validate_formats=True)


def _referred(schema: str) -> Json:
    """Return the components that `schema` refers to, directly or through others."""
    components = document()["components"]["schemas"]
    found: Json = {}
    texts = [schema]
    while texts:
        names = set(_COMPONENT.findall(texts.pop())) - found.keys()
        found |= {name: components[name] for name in names}
        texts += [json.dumps(components[name]) for name in names]
    return found


@cache
def path_of(url_path: str) -> str | None:
    """Return the documented path that matches `url_path`; literal parts win."""
    is_below = url_path.startswith(BASE_PATH + "/")
    relative = url_path.removeprefix(BASE_PATH)
    matching = [
        path
        for path, item in document()["paths"].items()
        if is_below != ("servers" in item) and _pattern(path).fullmatch(relative)
    ]
    return min(matching, key=lambda path: path.count("{"), default=None)


@cache
def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"({\w+})", path)
    return re.compile("".join("[^/]+" if p.startswith("{") else re.escape(p) for p in parts))


def takes_events(operation: Json) -> bool:
    """Return whether the body has many network events, with limits of its own."""
    return NDJSON in operation.get("requestBody", {}).get("content", {})


def operations() -> list[tuple[str, str, Any]]:
    """Return path, method and description of every operation."""
    return [
        (path, method, item[method])
        for path, item in document()["paths"].items()
        for method in sorted(METHODS & set(item))
    ]
