"""The arguments of most endpoints, validated without the general way of FastAPI.

An endpoint that takes ids from its path, a model as its body and the context of the call is called
at once when they are valid; FastAPI finds the same in a general way that takes several times as
long. What is not valid goes to FastAPI, whose errors callers get
(docs/decisions/0096-arguments-at-once.md).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, Final, Self, get_type_hints

from fastapi import Request
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.routing import compile_path

from cardledger.api.http.request_context import AgentCall, PlatformCall

_CALLS: Final = (PlatformCall, AgentCall)

_Validate = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """How the arguments of one endpoint are made."""

    path: Mapping[str, _Validate]
    body: Mapping[str, _Validate]  # One at most.
    call: str | None

    @classmethod
    def of(cls, endpoint: Callable[..., Any], path: str) -> Self | None:
        """Return those of an endpoint at `path`; None when it takes anything else as well."""
        _, _, convertors = compile_path(path)
        hints = get_type_hints(endpoint, include_extras=True)
        ids: dict[str, _Validate] = {}
        bodies: dict[str, _Validate] = {}
        calls: list[str] = []
        for name, parameter in signature(endpoint).parameters.items():
            hint = hints[name]
            if parameter.default is not Parameter.empty:
                return None
            if hint in _CALLS:
                calls.append(name)
            elif name in convertors:
                ids[name] = TypeAdapter(hint).validate_python
            elif isinstance(hint, type) and issubclass(hint, BaseModel):
                bodies[name] = TypeAdapter(hint).validate_python
            else:
                return None
        if len(bodies) > 1 or len(calls) > 1 or convertors.keys() != ids.keys():
            return None
        return cls(path=ids, body=bodies, call=calls[0] if calls else None)

    def validated(self, request: Request, body: object) -> dict[str, Any] | None:
        """Return the arguments for `request`, whose body is `body`; None: some are not valid."""
        sent = request.path_params
        try:
            values = {name: validate(sent[name]) for name, validate in self.path.items()}
            for name, validate in self.body.items():
                values[name] = validate(body)
        except ValidationError:
            return None
        if self.call is not None:
            values[self.call] = request.state.call
        return values
