"""Schemas in the document: what FastAPI makes of our models, mended, named and with examples."""

import re
from collections.abc import Mapping
from typing import Any, Final

from cardledger.api.openapi.examples import EXAMPLES, example_of
from cardledger.schema.wire.common import MAX_AMOUNT, Page

Json = dict[str, Any]

_SCHEMAS: Final = "#/components/schemas/"


def give_examples(schemas: dict[str, Json]) -> None:
    """Put an example into every schema that has none."""
    for name, schema in schemas.items():
        if name.startswith("Page_"):  # A docstring is not inherited by what a type is put into.
            schema["description"] = one_line_each(Page.__doc__ or "")
        if name in EXAMPLES:
            schema["examples"] = [EXAMPLES[name]]
        elif "examples" not in schema and schema.get("type") == "object":
            schema["examples"] = [example_of(schema, schemas)]


_BOUNDS: Final = {"maximum", "minimum", "exclusiveMinimum", "exclusiveMaximum"}


def mended(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """Return `schema` without titles made of names, and with its bounds as they are."""
    match schema:
        case dict():
            return {
                name: _mended_part(name, part)
                for name, part in schema.items()
                if name != "title" or "properties" in schema
            }
        case list():
            return [mended(one) for one in schema]
        case _:
            return schema


def _mended_part(name: str, part: Any) -> Any:  # noqa: ANN401 - JSON
    if name == "properties":  # Their names are no keywords.
        return {key: mended(one) for key, one in part.items()}
    if name in _BOUNDS:
        return _bound(part)
    return one_line_each(part) if name == "description" else mended(part)


def _bound(value: float) -> float:
    # FastAPI writes bounds as floats, among which 2**63 - 1 is not.
    if value >= MAX_AMOUNT:
        return MAX_AMOUNT
    return int(value) if value == int(value) else value


def one_line_each(text: str) -> str:
    """Return paragraphs without the line breaks of the source."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n")).strip()


def public_names(schemas: Mapping[str, Json]) -> dict[str, str]:
    """Return what our models are called outside: a `CardResource` is a `Card` there."""
    names = {}
    for name in schemas:
        page = re.fullmatch(r"Page_(\w+?)(?:Resource)?_", name)
        public = f"{page[1]}Page" if page else name.removesuffix("Resource")
        if public != name and public not in schemas:
            names[name] = public
    return names


def renamed(value: Any, names: Mapping[str, str]) -> Any:  # noqa: ANN401 - JSON
    """Return `value` with the public name of every model wherever it is named."""
    match value:
        case dict():
            return {
                names.get(name, name): renamed(one, names)
                if name != "title"
                else names.get(one, one)
                for name, one in value.items()
            }
        case list():
            return [renamed(one, names) for one in value]
        case str() if value.startswith(_SCHEMAS):
            name = value.removeprefix(_SCHEMAS)
            return _SCHEMAS + names.get(name, name)
        case _:
            return value
