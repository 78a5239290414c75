"""Replays over HTTP around the moment at which an endpoint is enabled again."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import httpx2
import psycopg
import pytest

from cardledger.api.app import ApiConfig
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.webhooks.dispatch_lock import DISPATCH_LOCK
from cardledger.webhooks.receiver import Reply
from tests.api.support import Api, made, new_tenant, ok, refused, server
from tests.receiver import Receiver
from tests.waiting import eventually, limit_s

PATH = "/webhooks/endpoints"
SINCE = "2020-01-01T00:00:00Z"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        receiver.reply_always(Reply())
        yield receiver


_ADD_MISSED = """
    INSERT INTO webhook_deliveries (id, customer_id, platform_id, type, subject_id, body, state,
        created_at, webhook_id)
    VALUES (%s, %s, %s, 'CARD.STATE_CHANGE', %s, '{}', 'NO_ENDPOINT', now(), %s)
"""


def test_a_replay_waits_for_the_dispatch_that_has_read_its_endpoint_as_disabled(
    root: str, api_config: ApiConfig, database_url: str
) -> None:
    config = replace(api_config, reply_timeout_s=limit_s(0.5))
    with (
        server(config) as impatient,
        Api(root, new_tenant(config.database_url)) as own,
        Api(impatient, own.tenant) as caller,
        psycopg.connect(database_url) as dispatching,
    ):
        url = "http://127.0.0.1:9/"
        key = made(own.post(PATH, {"url": url, "state": "DISABLED"}))["id"]
        dispatching.execute("SELECT pg_advisory_xact_lock(%s)", [DISPATCH_LOCK])
        ids = [new_id() for _ in range(4)]
        dispatching.execute(_ADD_MISSED, [ids[0], ids[1], own.tenant.platform_id, *ids[2:]])
        ok(own.patch(f"{PATH}/{key}", {"state": "ENABLED"}))
        headers = {"Idempotency-Key": str(uuid4())}

        def replay() -> httpx2.Response:
            return caller.http.post("/webhooks/replay", json={"since": SINCE}, headers=headers)

        early = replay()
        dispatching.commit()

        refused(early, 503, "SERVICE_UNAVAILABLE")
        assert ok(replay())["count"] == 1


def test_a_replay_is_refused_while_as_many_deliveries_wait_as_may(
    root: str, api_config: ApiConfig, database_url: str
) -> None:
    waiting = """
        INSERT INTO webhook_deliveries (id, customer_id, platform_id, type, subject_id, body, state,
            next_attempt_at, created_at, webhook_id, endpoint_id)
        SELECT gen_random_uuid(), gen_random_uuid(), %s, 'CARD.STATE_CHANGE', gen_random_uuid(),
            '{}', 'PENDING', now() + interval '1 day', now(), gen_random_uuid(), gen_random_uuid()
        FROM generate_series(1, %s)
    """
    with (
        server(replace(api_config, webhook_waiting_limit=5)) as limited,
        Api(limited, new_tenant(database_url)) as own,
        Api(root, own.tenant) as unlimited,
        psycopg.connect(database_url, autocommit=True) as connection,
    ):
        connection.execute(waiting, [own.tenant.platform_id, 4])
        ok(own.post("/webhooks/replay", {"since": SINCE}))
        connection.execute(waiting, [own.tenant.platform_id, 1])

        refusal = own.post("/webhooks/replay", {"since": SINCE})

        assert refused(refusal, 409, "CONFLICT")["details"] == {"limit": 5}
        ok(unlimited.post("/webhooks/replay", {"since": SINCE}))


@pytest.mark.usefixtures("root")  # Its worker sends.
def test_an_endpoint_comes_back_in_order(
    root: str, api_config: ApiConfig, receiver: Receiver
) -> None:
    with Api(root, new_tenant(api_config.database_url)) as own:
        key = made(own.post(PATH, {"url": receiver.url, "mode": "FIFO"}))["id"]
        receiver.wait_for(lambda arrivals: len(arrivals) >= 1)
        ok(own.patch(f"{PATH}/{key}", {"state": "DISABLED"}))
        card = own.active_card()
        purchase = own.authorize(card["id"], 1250)
        missed = eventually(
            lambda: ok(own.get("/webhooks/deliveries", cardTransactionId=purchase["id"]))["data"]
        )

        ok(own.post("/webhooks/replay", {"since": SINCE, "endpointId": key}))
        own.clear(card["id"], purchase["id"], 1500)
        waiting = eventually(
            lambda: (
                found
                if len(found := ok(own.get("/webhooks/deliveries", endpointId=key))["data"])
                > len(missed)
                and any(one["type"] == "CARD_TRANSACTION.SETTLED" for one in found)
                else None
            )
        )
        before = len(receiver.received)
        ok(own.patch(f"{PATH}/{key}", {"state": "ENABLED"}))

        assert before == 1, "the test of its creation"
        receiver.wait_for(lambda arrivals: len(arrivals) >= len(waiting))
        order: dict[str, list[int]] = defaultdict(list)
        for arrival in receiver.received[1:]:
            if "sequence" in arrival.content:
                order[arrival.content["data"]["id"]].append(arrival.content["sequence"])
        assert len(order[purchase["id"]]) >= 2
        assert all(numbers == sorted(numbers) for numbers in order.values())
