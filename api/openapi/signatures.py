"""The types of every route, read from the signature of its function, and their JSON Schemas.

FastAPI would do the same in twice the time: it makes a validator for every field of every model.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

from fastapi.params import Query
from fastapi.routing import RouteContext
from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import CoreModeRef, DefsRef, GenerateJsonSchema
from typing_extensions import override

Json = dict[str, Any]
Mode = Literal["validation", "serialization"]
Key = tuple[int, Mode]

SCHEMAS: Final = "#/components/schemas/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The types of a route: path parameters, the model of the query, body and result."""

    path: Mapping[str, Any]
    query: type[BaseModel] | None
    body: Any | None
    is_body_required: bool
    result: Any | None


def signature(route: RouteContext) -> Signature:
    """Return the types of `route`: its body is called `body`, its query is marked `Query()`."""
    original: Any = route.original_route
    hints = get_type_hints(original.endpoint, include_extras=True)
    names = re.findall(r"{(\w+)}", str(route.path_format))
    queries = [get_args(hint)[0] for hint in hints.values() if _is_query(hint)]
    body = hints.get("body")
    return Signature(
        path={name: hints[name] for name in names},
        query=queries[0] if queries else None,
        body=_without_none(body),
        is_body_required=NoneType not in get_args(body),
        result=original.response_model,
    )


def _is_query(hint: Any) -> bool:  # noqa: ANN401 - a type
    return get_origin(hint) is Annotated and any(isinstance(m, Query) for m in get_args(hint))


def _without_none(hint: Any) -> Any:  # noqa: ANN401 - types
    options = get_args(hint)
    return (
        next(option for option in options if option is not NoneType)
        if NoneType in options
        else hint
    )


class _Generator(GenerateJsonSchema):
    """Pydantic's generator with two candidates for the name of a model, not seven.

    Comparing all models under every candidate is most of the generator's work.
    """

    @override
    def get_defs_ref(self, core_mode_ref: CoreModeRef) -> DefsRef:
        unique = super().get_defs_ref(core_mode_ref)
        short, *_ = self._prioritized_defsref_choices[unique]
        self._prioritized_defsref_choices[unique] = [short, unique]
        return unique


@dataclass(frozen=True, slots=True)
class SchemaRequests:
    """Types whose schemas are wanted; all are made at once, so that names are unique."""

    _inputs: list[tuple[int, Mode, Any]] = field(default_factory=list)

    def add(self, wanted: Any, mode: Mode) -> Key:  # noqa: ANN401 - a type
        """Return the key under which `schemas` has the schema of `wanted`."""
        key = len(self._inputs)
        self._inputs.append((key, mode, TypeAdapter(wanted).core_schema))
        return key, mode

    def schemas(self) -> tuple[Mapping[Key, Json], dict[str, Json]]:
        """Return the schema of every key, and the definitions that they refer to, by name."""
        generator = _Generator(ref_template=SCHEMAS + "{model}")
        schemas, definitions = generator.generate_definitions(self._inputs)
        return schemas, {str(name): schema for name, schema in definitions.items()}
