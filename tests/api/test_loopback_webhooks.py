"""Webhooks to this machine are for `up` and `demo`: other processes neither take nor send them."""

from dataclasses import replace

import psycopg
import pytest

from cardledger.api.app import ApiConfig
from cardledger.schema.roles import Role
from cardledger.workers.process.config import WorkerConfig
from cardledger.workers.signals.roles import WorkerRole
from tests.api.support import SECRET_KEY, Api, new_tenant, ok, refused, server
from tests.databases import as_role
from tests.receiver import Receiver
from tests.waiting import eventually
from tests.worker_process import worker_process


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "https://localhost:1/", "https://[::1]/"])
def test_an_api_process_of_its_own_takes_no_loopback_url(api_config: ApiConfig, url: str) -> None:
    config = replace(api_config, loopback_webhooks=False)
    with server(config) as root, Api(root, new_tenant(config.database_url)) as api:
        of_platform = refused(api.patch("/config", {"webhookEndpoint": url}), 400, "INVALID_INPUT")
        of_endpoint = refused(api.post("/webhooks/endpoints", {"url": url}), 400, "INVALID_INPUT")

    for body in (of_platform, of_endpoint):
        assert "`cardledger up`" in body["details"]["errors"][0]["message"]


def test_a_worker_of_its_own_sends_nothing_to_loopback(
    api_config: ApiConfig, database_url: str
) -> None:
    sender = WorkerConfig(
        database_url=as_role(api_config.database_url, Role.WEBHOOKS),
        redis_url=api_config.redis_url,
        secret_key=SECRET_KEY,
        role=WorkerRole.WEBHOOKS,
        loopback_webhooks=False,
    )
    with (
        Receiver() as receiver,
        server(api_config) as root,
        Api(root, new_tenant(api_config.database_url)) as api,
        worker_process(sender),
    ):
        ok(api.patch("/config", {"webhookEndpoint": receiver.url}))  # It gets a test webhook.

        errors = eventually(lambda: _errors(database_url, api.tenant.platform_id))

        assert set(errors) == {"forbidden: webhook URLs must use https://"}
        assert not receiver.received


def _errors(database_url: str, platform_id: object) -> list[str]:
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "SELECT a.error FROM webhook_attempts a JOIN webhook_deliveries w"
            " ON w.id = a.delivery_id WHERE w.platform_id = %s",
            [platform_id],
        ).fetchall()
    return [error for (error,) in rows]
