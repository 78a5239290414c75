"""The server key is rotated while API processes of both keys, and the senders, run."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import httpx2
import psycopg
import pytest

from cardledger.api.app import ApiConfig
from cardledger.install import key_rotation
from cardledger.ledger.storage.secrets.key_ring import KeyRing, ServerKey
from cardledger.schema.roles import Role
from cardledger.webhooks.receiver import Reply
from cardledger.workers.process.config import WorkerConfig
from tests.api.support import SECRET_KEY, AgentApi, Api, made, new_tenant, ok, server
from tests.api.test_kyc_links import see, unverified, url_of
from tests.api.test_reveal import digits, framed, reveal
from tests.databases import as_role
from tests.receiver import Receiver
from tests.waiting import eventually
from tests.worker_process import worker_process

NEW_KEY: Final = "the next secret key, which only tests use, long enough"
BEFORE: Final = ServerKey(SECRET_KEY, next=NEW_KEY)
AUTHORIZED: Final = "CARD_TRANSACTION.AUTHORIZED"
PERSON: Final = {"customerType": "INDIVIDUAL", "fullName": "Grace"}
AFTER: Final = ServerKey(NEW_KEY, former=(SECRET_KEY,))


@pytest.fixture(scope="module")
def former(api_config: ApiConfig) -> Iterator[str]:
    """The root URL of an API server that has not taken the new key yet, with a worker."""
    config = WorkerConfig(
        database_url=as_role(api_config.database_url, Role.APP),  # It does the work of both roles.
        redis_url=api_config.redis_url,
        secret_key=BEFORE,
        threads=4,
        webhook_retry_scale=0.001,
        sandbox_delay_s=0.5,
    )
    with worker_process(config), server(replace(api_config, secret_key=BEFORE)) as url:
        yield url


@pytest.fixture(scope="module")
def current(api_config: ApiConfig) -> Iterator[str]:
    """The root URL of an API server that has."""
    with server(replace(api_config, secret_key=AFTER)) as url:
        yield url


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        receiver.reply_always(Reply())
        yield receiver


def hashes_of(url: str, client_id: str, agent_id: str) -> list[bytes]:
    with psycopg.connect(url) as connection:
        return [
            value
            for (value,) in connection.execute(
                "SELECT secret_hash FROM api_tokens WHERE client_id = %s"
                " UNION ALL SELECT access_token_hash FROM agents WHERE id = %s",
                [client_id, agent_id.removeprefix("Agent:")],
            )
        ]


def test_processes_of_both_keys_serve_the_same_clients_while_secrets_are_sealed_again(
    former: str, current: str, api_config: ApiConfig, receiver: Receiver
) -> None:
    tenant = new_tenant(api_config.database_url)
    with Api(former, tenant) as here, Api(current, tenant) as there:
        ok(here.patch("/config", {"webhookEndpoint": receiver.url}))
        card = here.active_card()
        number = digits(framed(reveal(here, card)))
        agent_token = here.agent_token(card["cardholderId"])

        # What one writes, the other reads: pages, answers, replies, cursors, secrets.
        assert digits(framed(reveal(there, card).replace(current, former))) == number
        assert digits(framed(reveal(here, card).replace(former, current))) == number
        assert [see(url_of(here, unverified(here)).replace(former, current)).status_code] == [200]
        assert [see(url_of(there, unverified(there)).replace(current, former)).status_code] == [200]
        assert there.authorize(card["id"], 100)["status"] == "AUTHORIZED"
        once = {"Idempotency-Key": "once"}
        customers = [
            made(each.http.post("/customers", json=PERSON, headers=once)) for each in (there, here)
        ]
        assert customers[0] == customers[1]
        first = ok(there.get("/customers", limit=1))
        assert ok(here.get("/customers", limit=1, cursor=first["nextCursor"]))["data"]

        with psycopg.connect(
            as_role(api_config.database_url, Role.APP), autocommit=True
        ) as connection:
            done = key_rotation.rotate(connection, AFTER)
        assert done.is_sealed
        ok(here.get("/config"))
        assert there.authorize(card["id"], 100)["status"] == "AUTHORIZED"
        receiver.wait_for(lambda all_: sum(one.type == AUTHORIZED for one in all_) == 2)
        assert digits(framed(reveal(there, card))) == number

        # Secrets that are used where the new key is known are hashed with it.
        with AgentApi(there.root, agent_token) as agent:
            agent_id = ok(agent.get("/agents/me"))["id"]

        def is_replaced() -> bool:
            ok(there.get("/config"))
            header = KeyRing(NEW_KEY).header
            stored = hashes_of(api_config.database_url, tenant.client_id, agent_id)
            return all(value.startswith(header) for value in stored)

        eventually(is_replaced)
        ok(here.get("/config"))
        with AgentApi(here.root, agent_token) as agent:
            ok(agent.get("/agents/me"))


@pytest.mark.usefixtures("former")  # Its worker activates the card.
def test_the_new_key_alone_serves_those_whose_secrets_were_used(
    current: str, api_config: ApiConfig
) -> None:
    tenant = new_tenant(api_config.database_url)
    with Api(current, tenant) as api:
        card = api.active_card(balance=0)
        number = digits(framed(reveal(api, card)))

        def is_replaced() -> bool:
            ok(api.get("/config"))
            [stored] = hashes_of(api_config.database_url, tenant.client_id, "0" * 32)
            return stored.startswith(KeyRing(NEW_KEY).header)

        eventually(is_replaced)
        with psycopg.connect(
            as_role(api_config.database_url, Role.APP), autocommit=True
        ) as connection:
            assert key_rotation.rotate(connection, AFTER).is_sealed

    with server(replace(api_config, secret_key=NEW_KEY)) as url, Api(url, tenant) as api:
        ok(api.get("/config"))
        page: httpx2.Response = framed(reveal(api, card))
        assert digits(page) == number
