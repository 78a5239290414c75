"""A delivery with any number of attempts: what it shows is bounded, and so are its retries."""

import gc
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from cardledger.api.app import ApiConfig
from cardledger.config import gc_tuning
from cardledger.webhooks.receiver import Reply
from tests.api.support import Api, LoopWatch, made, new_tenant, ok, refused, server
from tests.receiver import Receiver
from tests.waiting import eventually


@pytest.fixture(scope="module")
def watch() -> Iterator[LoopWatch]:
    gc_tuning.freeze(for_latency=True)
    yield LoopWatch()
    gc.unfreeze()
    gc_tuning.relax()


@pytest.fixture
def own(root: str, api_config: ApiConfig, watch: LoopWatch) -> Iterator[Api]:
    """The interface as seen by a platform of this test alone; `root` has the workers."""
    assert root
    with (
        server(api_config, watch=watch) as watched,
        Api(watched, new_tenant(api_config.database_url)) as client,
    ):
        yield client


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        receiver.reply_always(Reply())
        yield receiver


@pytest.fixture
def path(own: Api, receiver: Receiver) -> str:
    """The path of a delivery that has arrived."""
    key = made(own.post("/webhooks/endpoints", {"url": receiver.url}))["id"]
    ok(own.post("/webhooks/test", {"endpointId": key}))

    def delivered() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = ok(own.get("/webhooks/deliveries", state="DELIVERED"))["data"]
        return found

    return f"/webhooks/deliveries/{eventually(delivered)[0]['id']}"


def attempt(database_url: str, path: str, count: int) -> None:
    """Write attempts of a delivery until it has `count` of them."""
    key = path.rpartition(":")[2]
    with psycopg.connect(database_url) as owner:
        owner.execute(
            "INSERT INTO webhook_attempts"
            " SELECT id, number, customer_id, now(), 1, 500, NULL, repeat(chr(1), 4096)"
            " FROM webhook_deliveries, generate_series(attempts + 1, %s) AS number WHERE id = %s",
            [count, key],
        )
        owner.execute("UPDATE webhook_deliveries SET attempts = %s WHERE id = %s", [count, key])


def test_a_delivery_shows_its_last_attempts(own: Api, path: str, database_url: str) -> None:
    attempt(database_url, path, 60)

    shown = ok(own.get(path))

    assert shown["attempts"] == 60
    assert [one["number"] for one in shown["attemptList"]] == [*range(41, 61)]


def test_a_delivery_with_many_attempts_is_not_retried_on_request(
    own: Api, path: str, database_url: str
) -> None:
    attempt(database_url, path, 99)
    ok(own.post(f"{path}/retry", {}))
    eventually(lambda: ok(own.get(path))["attempts"] == 100)

    answer = refused(own.post(f"{path}/retry", {}), 409, "CONFLICT")

    assert answer["details"] == {"limit": 100}
    assert ok(own.get(path))["attempts"] == 100


def test_the_attempts_of_a_delivery_do_not_block_the_event_loop(
    own: Api, watch: LoopWatch, path: str, database_url: str
) -> None:
    attempt(database_url, path, 500)

    def request() -> None:
        answer = own.get(path)
        assert ok(answer)["attempts"] == 500
        assert len(answer.content) <= 512 * 1024

    request()
    watch.assert_not_blocked_by(request)
