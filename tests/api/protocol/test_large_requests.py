"""Large requests of one platform are processed one at a time, with a pause after each."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from cardledger.api.http import routing
from cardledger.api.http.json_body import MAX_KEYS
from tests.api.support import Api

PAUSE_S = 0.5
COUNT = 4


def large_body() -> bytes:
    return json.dumps({f"{number:03}{'k' * 40}": 0 for number in range(MAX_KEYS)}).encode()


def post(api: Api, content: bytes) -> httpx2.Response:
    return api.http.post("/tokens", content=content, headers={"content-type": "application/json"})


KINDS: dict[str, Callable[[Api], httpx2.Response]] = {
    "a body": lambda api: post(api, large_body()),
    "a body above the limit": lambda api: post(api, b" " * (routing.MAX_BODY + 1)),
    "a query": lambda api: api.get("/customers", cursor="a" * (routing.LARGE_QUERY + 1)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_large_requests_take_turns_and_delay_neither_others_nor_small_ones(
    api: Api, other_platform: Api, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(routing, "LARGE_PAUSE_S", PAUSE_S)
    send = KINDS[kind]

    with ThreadPoolExecutor(COUNT) as pool:
        began = time.monotonic()
        sent = [pool.submit(send, api) for _ in range(COUNT)]
        beside = [send(other_platform).status_code, post(api, b"{}").status_code]
        unfinished = [one for one in sent if not one.done()]
        statuses = {one.result().status_code for one in sent}
        took_s = time.monotonic() - began

    assert statuses <= {400, 413}
    assert set(beside) <= {400, 413}
    assert took_s >= COUNT * PAUSE_S
    assert unfinished, "the others have waited for none of them"
