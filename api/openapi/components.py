"""Schemas of the document: cleaned, shared by name, described and with examples."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel

from cardledger.api.openapi.examples import EXAMPLES, example_of
from cardledger.api.openapi.glossary import description_of
from cardledger.api.openapi.signatures import SCHEMAS
from cardledger.schema.wire.common import MAX_AMOUNT, Page

Json = dict[str, Any]

_MAX_INT32: Final = 2**31 - 1
_BOUNDS: Final = {"maximum", "minimum", "exclusiveMinimum", "exclusiveMaximum"}
_REMARKS: Final = {"title", "description", "default", "examples"}
"""What may stand beside a reference, and does not make two schemas different."""

_PUBLIC_NAMES: Final[Mapping[str, str]] = {
    "EventResource": "CardTransactionEvent",
    "Change": "CardTransactionChange",
    "Summary": "MovementSummary",
    "SandboxWebhookTestResource": "SandboxWebhookTestResult",
    "WebhookTestResource": "WebhookTestResult",
}


# --- one schema --------------------------------------------------------------------------------


def cleaned(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """Return `schema` with exact bounds and the format of integers, without generated titles."""
    match schema:
        case dict():
            parts = {
                name: _cleaned_part(name, part)
                for name, part in schema.items()
                if name != "title" or "properties" in schema
            }
            if parts.get("type") == "integer":
                fits = parts.get("maximum", MAX_AMOUNT) <= _MAX_INT32
                parts["format"] = "int32" if fits else "int64"
            return parts
        case list():
            return [cleaned(item) for item in schema]
        case _:
            return schema


def _cleaned_part(name: str, part: Any) -> Any:  # noqa: ANN401 - JSON
    match name:
        case "properties":  # Their names are not keywords.
            return {key: cleaned(schema) for key, schema in part.items()}
        case "examples" | "default":
            return part
        case "description":
            return paragraphs(part)
        case _ if name in _BOUNDS:
            return _bound(part)
        case _:
            return cleaned(part)


def _bound(value: float) -> float:
    # A bound may be a float, and 2**63 - 1 is not one.
    if value >= MAX_AMOUNT:
        return MAX_AMOUNT
    return int(value) if value == int(value) else value


def paragraphs(text: str) -> str:
    """Return `text` without the line breaks of the source, paragraph by paragraph."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n")).strip()


def words_of(name: str) -> str:
    """Return a camelCase name as words: `Card transaction` of `CardTransaction`."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r" \1", name).capitalize()


# --- all of them -------------------------------------------------------------------------------


class Components:
    """The named schemas of the document.

    A schema that is equal to a named one becomes a reference to it: so unions and enums, which
    have no names in Python, have names in the document.
    """

    def __init__(self, definitions: Mapping[str, Json], shared: Mapping[str, Json]) -> None:
        models = {name: cleaned(schema) for name, schema in definitions.items()}
        unnamed = {name: cleaned(schema) for name, schema in shared.items()}
        self._names: Final = _names_by_identity({**models, **unnamed})
        self._schemas: Final[dict[str, Json]] = {
            name: {key: self._shared_part(key, part) for key, part in schema.items()}
            for name, schema in {**models, **unnamed}.items()
            if "$ref" not in schema
        }
        self._public: Final = dict(self._public_names())
        assert len(set(self._public.values())) == len(self._public), "a name has two schemas"

    def part(self, schema: Json) -> Json:
        """Return a schema of an operation, cleaned, with references to the named schemas."""
        public: Json = self._renamed(self._shared(cleaned(schema)))
        return public

    def fields_of(self, model: type[BaseModel]) -> Iterator[tuple[str, Json, bool]]:
        """Yield name and schema of every field of `model`, and whether it is required."""
        schema = self._schemas[model.__name__]
        for name, field in schema["properties"].items():
            yield name, self._renamed(field), name in schema.get("required", [])

    def reachable(self, roots: Iterable[Json]) -> dict[str, Json]:
        """Return the schemas that `roots` refer to, by public name."""
        by_name = {
            public: self._renamed(self._schemas[name]) for name, public in self._public.items()
        }
        wanted: set[str] = set()
        waiting = [name for root in roots for name in references(root)]
        while waiting:
            name = waiting.pop()
            if name not in wanted and name in by_name:
                wanted.add(name)
                waiting += references(by_name[name])
        return {name: by_name[name] for name in sorted(wanted)}

    def _shared(self, schema: Any) -> Any:  # noqa: ANN401 - JSON
        match schema:
            case dict():
                name = self._names.get(_identity(schema)) if _may_be_shared(schema) else None
                if name is None:
                    return {key: self._shared_part(key, part) for key, part in schema.items()}
                beside = {key: part for key, part in schema.items() if key in _REMARKS - {"title"}}
                if "properties" in schema or "enum" in schema:
                    beside.pop("description", None)  # Of the named schema, not of this place.
                return {"$ref": SCHEMAS + name, **beside}
            case list():
                return [self._shared(item) for item in schema]
            case _:
                return schema

    def _shared_part(self, key: str, part: Any) -> Any:  # noqa: ANN401 - JSON
        if key == "properties":
            return {name: self._shared(schema) for name, schema in part.items()}
        return part if key in _REMARKS else self._shared(part)

    def _public_names(self) -> Iterator[tuple[str, str]]:
        for name, schema in self._schemas.items():
            items = schema.get("properties", {}).get("data", {}).get("items", {})
            if name.startswith("Page_") and "$ref" in items:
                schema["title"] = f"{self._public_name(items['$ref'].removeprefix(SCHEMAS))}Page"
                schema["description"] = paragraphs(Page.__doc__ or "")  # Not inherited.
                yield name, schema["title"]
            else:
                public = self._public_name(name)
                if "title" in schema:
                    schema["title"] = public
                yield name, public

    def _public_name(self, name: str) -> str:
        short = name.removesuffix("Resource")
        return _PUBLIC_NAMES.get(name, name if short in self._schemas else short)

    def _renamed(self, value: Any) -> Any:  # noqa: ANN401 - JSON
        match value:
            case dict():
                return {key: self._renamed(part) for key, part in value.items()}
            case list():
                return [self._renamed(item) for item in value]
            case str() if value.startswith(SCHEMAS):
                name = value.removeprefix(SCHEMAS)
                return SCHEMAS + self._public.get(name, name)
            case _:
                return value


def _names_by_identity(schemas: Mapping[str, Json]) -> dict[str, str]:
    """Return the name of every schema whose content only it has."""
    names: dict[str, list[str]] = {}
    for name, schema in schemas.items():
        names.setdefault(_identity(schema), []).append(name)
    return {identity: same[0] for identity, same in names.items() if len(same) == 1}


def _may_be_shared(schema: Json) -> bool:
    return bool({"enum", "oneOf", "anyOf", "properties"} & schema.keys())


def _identity(schema: Json) -> str:
    whole = {key: part for key, part in schema.items() if key not in _REMARKS}
    return json.dumps(whole, sort_keys=True)


def references(value: Any) -> list[str]:  # noqa: ANN401 - JSON
    """Return the names of the schemas that `value` refers to, directly."""
    return re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(value))


# --- descriptions and examples -----------------------------------------------------------------


def describe(name: str, schema: Json) -> None:
    """Add the meaning of every property of `schema`, which is called `name`."""
    if "description" not in schema:
        schema["description"] = f"{words_of(name)}."
    for field, part in schema.get("properties", {}).items():
        resource = re.sub("(Create|Update)$", "", name)
        kinds = [name, resource, *(kind for pattern, kind in _KINDS if re.search(pattern, name))]
        text = part.get("description") or description_of(field, *kinds)
        if text:
            part["description"] = text


_KINDS: Final = (
    ("(Wallet|Lightning)(Create)?$", "Wallet"),
    ("^CardTokenization2fa", "TokenizationConfig"),
)
"""Groups of models in which a name has a meaning of its own."""


def give_examples(schemas: Mapping[str, Json]) -> None:
    """Put an example into every schema that has none."""
    for name, schema in schemas.items():
        if name in EXAMPLES:
            schema["examples"] = [EXAMPLES[name]]
        elif "examples" not in schema:
            schema["examples"] = [example_of(schema, schemas)]
