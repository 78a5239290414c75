"""Guarded routes are handled without FastAPI's layers: callers get what they got with them."""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI, Request, Response

from cardledger.api import BASE_PATH
from cardledger.api.app import ApiConfig, create_app
from cardledger.api.http import dispatch, errors
from cardledger.api.http.operations import Guarded
from tests.api.support import TIMEOUT_S, Api, new_tenant, server

CARD = "Card:01900000-0000-7000-8000-000000000001"
AUTHORIZATION = {
    "amount": 1,
    "currency": {"code": "USD"},
    "merchant": {"descriptor": "BISTRO", "mcc": "5812", "country": "US"},
}
SIMULATE = f"/sandbox/cards/{CARD}/simulate/authorization"
HEADERS = ("allow", "content-type", "www-authenticate", "x-should-retry", "connection")


@pytest.fixture(scope="module")
def client(api_config: ApiConfig) -> Iterator[Api]:
    with server(api_config) as url, Api(url, new_tenant(api_config.database_url)) as api:
        yield api


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"/cards/{CARD}", None),
        ("HEAD", f"/cards/{CARD}", None),
        ("GET", "/cards/Card:1", None),
        ("GET", "/cards", None),
        ("GET", "/cards?limit=x", None),
        ("DELETE", f"/cards/{CARD}", None),
        ("POST", SIMULATE, AUTHORIZATION),
        ("POST", SIMULATE, AUTHORIZATION | {"amount": "1"}),
        ("POST", SIMULATE, {}),
        ("POST", SIMULATE, []),
        ("GET", SIMULATE, None),
        ("POST", "/sandbox/cards/x/simulate/authorization", AUTHORIZATION),
        ("GET", "/nothing", None),
        ("POST", "/customers", {"customerType": "INDIVIDUAL", "fullName": ""}),
        ("OPTIONS", "/cards", None),
    ],
)
def test_a_response_is_that_of_fastapi(
    client: Api, monkeypatch: pytest.MonkeyPatch, method: str, path: str, body: object
) -> None:
    def answered() -> tuple[int, dict[str, str | None], str]:
        answer = client.http.request(method, path, json=body)
        kept = {name: answer.headers.get(name) for name in HEADERS}
        return answer.status_code, kept, answer.text

    direct = answered()
    monkeypatch.setattr(dispatch.Dispatch, "_matched", lambda *_: None)

    assert answered() == direct


def test_without_credentials_nothing_is_told(client: Api) -> None:
    url = f"{client.root}{BASE_PATH}{SIMULATE}"

    answer = httpx2.post(url, json=AUTHORIZATION, timeout=TIMEOUT_S)

    assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHORIZED")


def test_what_no_handler_knows_is_raised_again() -> None:
    app = FastAPI()
    errors.install(app)
    request = Request({"type": "http", "app": app, "method": "GET", "path": "/", "headers": []})

    with pytest.raises(ZeroDivisionError):
        asyncio.run(errors.answer(request, ZeroDivisionError()))


def test_the_router_gets_what_is_no_guarded_route(api_config: ApiConfig) -> None:
    app = create_app(api_config)
    seen: list[str] = []

    async def router(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401, ARG001 - ASGI
        seen.append(scope["path"])

    async def handled(_: Request) -> Response:
        seen.append("direct")
        return Response()

    async def send(_: object) -> None: ...

    routes = [route for route in app.router.routes if isinstance(route, Guarded)]
    [route] = [route for route in routes if route.name == "simulate_authorization"]
    route.direct, kept = handled, route.direct
    try:
        both_ways = dispatch.Dispatch(router, routes=app.router.routes)
        for method, path in (
            ("POST", f"{BASE_PATH}{SIMULATE}"),
            ("GET", f"{BASE_PATH}{SIMULATE}"),
            ("GET", "/healthz"),
            ("GET", "/nothing"),
        ):
            scope = {"type": "http", "method": method, "path": path, "headers": []}
            asyncio.run(both_ways(scope, None, send))  # type: ignore[arg-type]
    finally:
        route.direct = kept

    assert seen == ["direct", f"{BASE_PATH}{SIMULATE}", "/healthz", "/nothing"]
