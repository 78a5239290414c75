"""A repetition that another process applies while this one looks at what is to be changed."""

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from uuid import uuid4

import httpx2
import psycopg
from fastapi import FastAPI, Response

from cardledger.api import BASE_PATH
from cardledger.api.app import ApiConfig, create_app
from cardledger.api.http.request_context import PlatformCall
from cardledger.api.http.routing import SANDBOX, guarded_router, requires
from cardledger.api.routes import simulators
from cardledger.ledger.platforms.scopes import Permission
from cardledger.schema.wire.common import CardId
from cardledger.schema.wire.sandbox import SimulateReversal
from tests.api.support import TIMEOUT_S, Api, ok, serving, url_of


async def _nothing() -> None:
    """Take no time."""


def application(config: ApiConfig, meanwhile: Callable[[], Awaitable[None]]) -> FastAPI:
    """Return the application with a reversal whose route waits for `meanwhile` before it looks."""
    router = guarded_router(SANDBOX)

    @router.post("/reversals/{card_id}")
    @requires(Permission.TRANSACT, send=simulators._send)
    async def reverse(card_id: CardId, body: SimulateReversal, call: PlatformCall) -> Response:
        await meanwhile()
        return await simulators.simulate_authorization_reversal(card_id, body, call)

    app = create_app(config)
    app.router.routes.extend(router.routes)
    return app


def duplicates(database_url: str) -> int:
    with psycopg.connect(database_url) as connection:
        [[count]] = connection.execute("SELECT count(*) FROM duplicates")
    return int(count)


def test_a_request_that_another_process_has_applied_is_not_refused_for_its_own_effect(
    api: Api, api_config: ApiConfig, database_url: str
) -> None:
    card = api.active_card()
    body = {"cardTransactionId": api.authorize(card["id"], 100)["id"]}
    sender = api.tenant.client_id, api.tenant.client_secret
    key = {"Idempotency-Key": str(uuid4())}
    path = f"{BASE_PATH}/reversals/{card['id']}"
    answers: list[httpx2.Response] = []

    async def other_applies() -> None:
        if not answers:
            async with httpx2.AsyncClient(auth=sender, timeout=TIMEOUT_S) as client:
                answers.append(await client.post(other + path, json=body, headers=key))

    with ExitStack() as stack:
        other = url_of(stack.enter_context(serving(application(api_config, _nothing))))
        ours = url_of(stack.enter_context(serving(application(api_config, other_applies))))
        before = duplicates(database_url)
        late = httpx2.post(ours + path, json=body, headers=key, auth=sender, timeout=TIMEOUT_S)

    [first] = answers
    assert ok(first)["status"] == "VOIDED"
    assert "idempotent-replayed" not in first.headers
    assert ok(late) == ok(first)
    assert late.headers["idempotent-replayed"] == "true"
    assert duplicates(database_url) == before, "what has a response is not sent again"
