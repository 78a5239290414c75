"""Endpoints are called at once with valid arguments: those that FastAPI finds."""

import asyncio
import inspect
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, get_type_hints

import pytest
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError

from cardledger.api import app
from cardledger.api.http import routing
from cardledger.api.http.arguments import Arguments
from cardledger.api.http.operations import Guarded
from cardledger.api.routes.sandbox import router as sandbox_router
from cardledger.api.routes.simulators import router as simulators_router
from cardledger.schema.ids import Id

CARD = "Card:01900000-0000-7000-8000-000000000001"

AUTHORIZATION = {
    "amount": 1_250,
    "currency": {"code": "USD"},
    "merchant": {"descriptor": "BISTRO", "mcc": "5812", "country": "US"},
}


def guarded() -> list[Guarded]:
    return [route for route in app._routes(is_sandbox=True) if isinstance(route, Guarded)]


def simulators() -> Iterator[Guarded]:
    for route in (*simulators_router.routes, *sandbox_router.routes):
        assert isinstance(route, Guarded)
        yield route


def test_every_simulator_is_called_at_once() -> None:
    general = {
        route.name for route in simulators() if Arguments.of(route.endpoint, route.path) is None
    }

    assert not general
    assert sum(Arguments.of(route.endpoint, route.path) is not None for route in guarded()) > 90


def test_no_route_has_what_calling_its_endpoint_at_once_would_leave_out() -> None:
    for route in guarded():
        assert not route.dependencies, route.name
        assert issubclass(get_type_hints(route.endpoint)["return"], Response), route.name
        assert inspect.iscoroutinefunction(route.endpoint), route.name


def request(body: object, **path: str) -> Request:
    raw = json.dumps(body).encode()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": raw, "more_body": False}

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        "path_params": path,
        "state": {"call": SimpleNamespace()},
    }
    return Request(scope, receive)


@pytest.mark.parametrize(
    ("card", "body"),
    [
        (CARD, AUTHORIZATION),
        (CARD, AUTHORIZATION | {"amount": "1250"}),
        (CARD, AUTHORIZATION | {"amount": -1}),
        (CARD, AUTHORIZATION | {"unknown": 1}),
        (CARD, None),
        (CARD, []),
        ("Card:1", AUTHORIZATION),
        ("", AUTHORIZATION),
    ],
)
def test_what_is_valid_for_one_way_is_for_the_other(card: str, body: object) -> None:
    [route] = [route for route in guarded() if route.name == "simulate_authorization"]
    found = Arguments.of(route.endpoint, route.path)
    assert found is not None

    at_once = found.validated(request(body, card_id=card), body)
    errors = [
        error
        for field, value in (
            (route.dependant.path_params[0], card),
            (route.dependant.body_params[0], body),
        )
        for error in field.validate(value, {}, loc=())[1] or ()
    ]

    assert (at_once is None) == bool(errors)
    if at_once is not None:
        assert at_once["card_id"] == Id.parse(CARD.partition(":")[2])
        assert at_once["body"].amount == AUTHORIZATION["amount"]
        assert at_once.keys() == {"card_id", "body", "call"}


def test_what_is_not_valid_goes_to_fastapi() -> None:
    [route] = [route for route in guarded() if route.name == "simulate_authorization"]
    found = Arguments.of(route.endpoint, route.path)
    assert found is not None
    seen: list[Request] = []

    async def general(sent: Request) -> Response:
        seen.append(sent)
        raise RequestValidationError([])

    handle = routing._at_once(found, route.endpoint, general)
    sent = request({"amount": "much"}, card_id=CARD)

    with pytest.raises(RequestValidationError):
        asyncio.run(handle(sent))
    assert seen == [sent]
