"""Health checks, and responses while PostgreSQL or Redis is unavailable."""

import httpx2
import psycopg
import structlog
from structlog.testing import capture_logs

from cardledger.api import BASE_PATH
from cardledger.api.app import ApiConfig
from cardledger.embedded.servers import DatabaseUrl
from tests.api.support import (
    SECRET_KEY,
    Api,
    authorization,
    closed_port,
    new_tenant,
    ok,
    refused,
    server,
    worker,
)
from tests.databases import fresh_database


def test_a_server_with_everything_is_ready(root: str) -> None:
    assert ok(httpx2.get(f"{root}/healthz")) == {"status": "alive"}
    ready = ok(httpx2.get(f"{root}/readyz"))
    assert (ready["status"], ready["redis"]) == ("ready", "answers")


def test_probes_that_succeed_are_logged_for_the_curious_only(api: Api) -> None:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.BoundLogger)
    with capture_logs() as logs:
        for path in ("/healthz", "/readyz", "/nowhere"):
            httpx2.get(api.root + path)
    structlog.configure(**before)

    webhooks = {one["path"]: one["log_level"] for one in logs if one["event"] == "request"}
    assert webhooks == {"/healthz": "debug", "/readyz": "debug", "/nowhere": "info"}


def test_without_redis_a_server_is_ready_and_says_so(api_config: ApiConfig) -> None:
    away = ApiConfig(
        database_url=api_config.database_url,
        redis_url=f"redis://127.0.0.1:{closed_port()}",
        secret_key=SECRET_KEY,
    )

    with server(away) as root:
        ready = ok(httpx2.get(f"{root}/readyz"))

    assert (ready["status"], ready["redis"]) == ("ready", "does not answer")


def test_without_redis_the_answers_are_the_same(
    postgres_url: DatabaseUrl, template_database: DatabaseUrl
) -> None:
    redis_url = f"redis://127.0.0.1:{closed_port()}"
    with fresh_database(postgres_url, template=template_database.database) as url:
        config = ApiConfig(database_url=url, redis_url=redis_url, secret_key=SECRET_KEY)
        with (
            worker(url, redis_url),
            server(config) as root,
            Api(root, new_tenant(url)) as api,
        ):
            card = api.active_card(balance=50_000)
            authorized = api.authorize(card["id"], 1250)
            cleared = api.clear(card["id"], authorized["id"], 1500)
            account = api.account(card["cardholderId"])

    assert (authorized["status"], cleared["status"]) == ("AUTHORIZED", "SETTLED")
    assert account["balance"]["amount"] == 48_500


def test_without_postgresql_nothing_is_answered_but_that(redis_url: str) -> None:
    away = ApiConfig(
        database_url=f"postgresql://ada@127.0.0.1:{closed_port()}/nothing",
        redis_url=redis_url,
        secret_key=SECRET_KEY,
    )

    with server(away) as root:
        alive = httpx2.get(f"{root}/healthz")
        ready = httpx2.get(f"{root}/readyz")
        answer = httpx2.get(root + BASE_PATH + "/config", auth=("id", "secret"))

    assert alive.is_success
    for refusal in (ready, answer):
        refused(refusal, 503, "SERVICE_UNAVAILABLE")
        assert int(refusal.headers["retry-after"]) > 0


def test_a_database_without_our_schema_is_not_ready(
    postgres_url: DatabaseUrl, redis_url: str
) -> None:
    with fresh_database(postgres_url) as empty:
        config = ApiConfig(database_url=empty, redis_url=redis_url, secret_key=SECRET_KEY)
        with server(config) as root:
            ready = httpx2.get(f"{root}/readyz")

    body = refused(ready, 503, "SERVICE_UNAVAILABLE")
    assert "migrate" in body["message"]
    assert body["details"]["schema"] == "none"


def test_without_a_worker_the_caller_is_told_in_time(
    postgres_url: DatabaseUrl, redis_url: str, template_database: DatabaseUrl
) -> None:
    with fresh_database(postgres_url, template=template_database.database) as url:
        config = ApiConfig(
            database_url=url, redis_url=redis_url, secret_key=SECRET_KEY, reply_timeout_s=0.3
        )
        with server(config) as root, Api(root, new_tenant(url)) as api:
            customer = api.customer()
            account = api.account(customer["id"])
            card = api.card(customer["id"], [account["id"]])
            answer = api.post(
                f"/sandbox/cards/{card['id']}/simulate/authorization", authorization()
            )
        with psycopg.connect(url) as connection:
            [(waiting,)] = connection.execute("SELECT body FROM inbox").fetchall()

    body = refused(answer, 503, "SERVICE_UNAVAILABLE")
    assert "accepted" in body["message"]
    assert answer.headers["x-should-retry"] == "false"
    assert waiting["decideBy"], "a late approval would hold money without a purchase"


def test_a_lost_table_is_our_fault_and_says_nothing_of_it(
    postgres_url: DatabaseUrl, redis_url: str, template_database: DatabaseUrl
) -> None:
    with fresh_database(postgres_url, template=template_database.database) as url:
        tenant = new_tenant(url)
        config = ApiConfig(database_url=url, redis_url=redis_url, secret_key=SECRET_KEY)
        with server(config) as root, Api(root, tenant) as api:
            assert api.get("/config").is_success
            with psycopg.connect(url) as connection:
                connection.execute("ALTER TABLE customers RENAME TO lost")
            answer = api.get("/customers/Customer:019542f5-b3e7-7d02-0000-00000000a1b4")

    body = refused(answer, 500, "INTERNAL_ERROR")
    assert set(body) == {"status", "code", "message"}
    assert "customers" not in body["message"]
