"""Health checks, and responses while PostgreSQL or Redis is unavailable."""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from functools import wraps
from uuid import uuid4

import httpx2
import psycopg
import pytest
import structlog
from structlog.testing import capture_logs

from cardledger.api import BASE_PATH
from cardledger.api.app import ApiConfig
from cardledger.api.health import readiness
from cardledger.embedded.servers import DatabaseUrl
from storm.proxy import Trap
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
from tests.integration.workers import captured
from tests.proxy import proxy_to, through
from tests.side_by_side import Scenario, side_by_side
from tests.waiting import LIMIT_S, eventually, limit_s


def ready(root: str) -> httpx2.Response:
    """Ask for readiness, which takes two seconds at most; more on a machine that is busy."""
    return httpx2.get(f"{root}/readyz", timeout=limit_s(4))


def test_a_server_with_everything_is_ready(root: str) -> None:
    assert ok(httpx2.get(f"{root}/healthz")) == {"status": "alive"}
    ready = ok(httpx2.get(f"{root}/readyz"))
    assert (ready["status"], ready["redis"]) == ("ready", "answers")


def test_probes_that_succeed_are_logged_for_the_curious_only(api: Api) -> None:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.BoundLogger)
    paths = ("/healthz", "/readyz", "/nowhere")
    with capture_logs() as logs:
        for path in paths:
            httpx2.get(api.root + path)
        # A request is logged when its response has been sent.
        eventually(lambda: sum(one["event"] == "request" for one in logs) == len(paths))
    structlog.configure(**before)

    levels = {one["path"]: one["log_level"] for one in logs if one["event"] == "request"}
    assert levels == {"/healthz": "debug", "/readyz": "debug", "/nowhere": "info"}


def test_without_redis_a_server_is_ready_and_says_so(api_config: ApiConfig) -> None:
    away = ApiConfig(
        database_url=api_config.database_url,
        redis_url=f"redis://127.0.0.1:{closed_port()}",
        secret_key=SECRET_KEY,
    )

    with server(away) as root:
        ready = ok(httpx2.get(f"{root}/readyz"))

    assert (ready["status"], ready["redis"]) == ("ready", "does not answer")


# --- what takes seconds --------------------------------------------------------------------------


def without_redis(url: DatabaseUrl) -> None:
    """The answers are the same."""
    redis_url = f"redis://127.0.0.1:{closed_port()}"
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


def locked_queue(url: DatabaseUrl, redis_url: str) -> None:
    """It is not ready until the queue is free."""
    config = ApiConfig(database_url=url, redis_url=redis_url, secret_key=SECRET_KEY)
    with worker(url, redis_url), server(config) as root, psycopg.connect(url) as outsider:
        eventually(lambda: ready(root).is_success)
        outsider.execute("SELECT FROM inbox_shards WHERE (lane, shard) = (0, 3) FOR UPDATE")
        eventually(lambda: not ready(root).is_success, timeout_s=5)
        refusal = refused(ready(root), 503, "SERVICE_UNAVAILABLE")
        outsider.rollback()
        eventually(lambda: ready(root).is_success)

    failed = refusal["details"]["failedChecks"]["queues"]
    assert "live/3" in failed["detail"]
    assert set(failed) == {"since", "detail", "fix"}


def frozen_worker(url: DatabaseUrl, redis_url: str) -> None:
    """It makes the installation unready."""
    config = ApiConfig(database_url=url, redis_url=redis_url, secret_key=SECRET_KEY)
    with worker(url, redis_url) as pid, server(config) as root:
        eventually(lambda: ready(root).is_success)
        os.kill(pid, signal.SIGSTOP)
        try:
            eventually(lambda: not ready(root).is_success, timeout_s=5)
        finally:
            os.kill(pid, signal.SIGCONT)
        eventually(lambda: ready(root).is_success)


def silent_database(url: DatabaseUrl, redis_url: str) -> None:
    """It is reported in time, and its return too."""
    with proxy_to(url) as proxy, worker(url, redis_url):
        config = ApiConfig(
            database_url=through(url, proxy), redis_url=redis_url, secret_key=SECRET_KEY
        )
        with server(config) as root:
            eventually(lambda: ready(root).is_success)
            proxy.freeze()
            eventually(lambda: not ready(root).is_success, timeout_s=5)
            refusal = refused(ready(root), 503, "SERVICE_UNAVAILABLE")
            held = proxy.held_chunks
            proxy.thaw()
            eventually(lambda: ready(root).is_success)

    assert held > 0
    assert refusal["details"]["postgresql"] == "does not answer"
    assert set(refusal["details"]["failedChecks"]) == {"postgresql"}


_STALL = """
    CREATE TABLE stalls ();
    CREATE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
        WHILE current_setting('synchronous_commit') <> 'off' AND EXISTS (SELECT FROM stalls)
            LOOP PERFORM pg_sleep(0.005); END LOOP;
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER stall AFTER INSERT ON inbox DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION stall();
"""
"""Holds commits that accept messages and wait for the disk, as a disk that hangs does."""


def stalled_commits(url: DatabaseUrl, redis_url: str) -> None:
    """It is not ready although nothing but its own canaries is accepted."""
    with (
        proxy_to(url) as proxy,
        worker(url, redis_url),
        psycopg.connect(url, autocommit=True) as outsider,
    ):
        outsider.execute(_STALL)
        # Outside of a database transaction it changes nothing, and PostgreSQL logs a warning.
        proxy.cut_at(b"SET LOCAL", Trap.BEFORE)
        config = ApiConfig(
            database_url=through(url, proxy), redis_url=redis_url, secret_key=SECRET_KEY
        )
        with server(config) as root:
            eventually(lambda: ready(root).is_success)
            outsider.execute("INSERT INTO stalls DEFAULT VALUES")
            eventually(lambda: not ready(root).is_success, timeout_s=5)
            refusal = refused(ready(root), 503, "SERVICE_UNAVAILABLE")
            outsider.execute("DELETE FROM stalls")
            eventually(lambda: ready(root).is_success)
        trapped = proxy.trapped

    assert set(refusal["details"]["failedChecks"]) == {"postgresql"}
    assert trapped == 0


WITH_REDIS = (locked_queue, frozen_worker, silent_database, stalled_commits)
SCENARIOS = [without_redis.__name__, *(scenario.__name__ for scenario in WITH_REDIS)]


@pytest.fixture(scope="module")
def running(
    postgres_url: DatabaseUrl, template_database: DatabaseUrl, redis_url: str
) -> Iterator[dict[str, Future[None]]]:
    def scenario(work: Callable[[DatabaseUrl, str], None]) -> Scenario:
        @wraps(work)
        def run(url: DatabaseUrl) -> None:
            work(url, redis_url)

        return run

    scenarios = [without_redis, *(scenario(work) for work in WITH_REDIS)]
    with side_by_side(scenarios, postgres_url, template_database) as started:
        yield started


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_responses_during_an_outage_and_after_it(
    running: dict[str, Future[None]], scenario: str
) -> None:
    running[scenario].result(limit_s(2 * LIMIT_S))


def test_a_newer_schema_is_usable_when_it_says_so(
    postgres_url: DatabaseUrl, redis_url: str, template_database: DatabaseUrl
) -> None:
    with (
        fresh_database(postgres_url, template=template_database.database) as url,
        psycopg.connect(url, autocommit=True) as owner,
    ):
        config = ApiConfig(database_url=url, redis_url=redis_url, secret_key=SECRET_KEY)
        owner.execute("UPDATE alembic_version SET version_num = '9999'")
        with server(config) as root:
            compatible = ready(root)
            owner.execute("UPDATE schema_compatibility SET oldest_head = '9998'")
            eventually(lambda: not ready(root).is_success)
            refusal = refused(ready(root), 503, "SERVICE_UNAVAILABLE")

    assert compatible.is_success, compatible.text
    [(check, failure)] = refusal["details"]["failedChecks"].items()
    assert (check, failure["fix"]) == ("schema", "Deploy the release that belongs to it.")


def test_a_refused_statement_is_503_and_one_line_not_a_traceback_for_each_attempt(
    postgres_url: DatabaseUrl, redis_url: str, template_database: DatabaseUrl
) -> None:
    event = {
        "type": "CLEARING",
        "source": "visa",
        "reference": "R1",
        "issuerTransactionToken": "T1",
        "cardId": f"Card:{uuid4()}",
        "amount": 1,
        "currency": "USD",
    }
    with (
        fresh_database(postgres_url, template=template_database.database) as url,
        psycopg.connect(url, autocommit=True) as owner,
    ):
        config = ApiConfig(database_url=url, redis_url=redis_url, secret_key=SECRET_KEY)
        owner.execute("ALTER TABLE inbox ADD COLUMN of_a_test int NOT NULL")
        with captured() as lines, server(config) as root, Api(root, new_tenant(url)) as api:
            eventually(lambda: "refuses" in ready(root).text)
            refusal = refused(ready(root), 503, "SERVICE_UNAVAILABLE")
            for _ in range(10):
                sent = api.http.post(f"{root}/network-events", json=[event])
                refused(sent, 503, "SERVICE_UNAVAILABLE")
            eventually(lambda: _observations() >= 3)

    assert refusal["details"]["postgresql"] == "refuses a statement"
    assert "log" in refusal["details"]["failedChecks"]["postgresql"]["fix"]
    failures = [line for line in lines if "of_a_test" in str(line.get("error"))]
    assert [line["event"] for line in failures] == [
        "readiness check failed",
        "PostgreSQL refuses a statement; it is tried again",
    ]
    assert not any("exc_info" in line for line in lines)


def _observations() -> int:
    """Return how many observations of this process have failed."""
    return sum(each.count for each in readiness._FAILED._warnings.values())


def test_queues_that_wait_for_a_repair_are_not_ready(
    postgres_url: DatabaseUrl, redis_url: str, template_database: DatabaseUrl
) -> None:
    stall = """
        INSERT INTO stalled_queues VALUES (0, 3, %s, '00000000-0000-0000-0000-000000000000', NULL,
            'secret', 1, now(), now())
    """
    with (
        fresh_database(postgres_url, template=template_database.database) as url,
        psycopg.connect(url, autocommit=True) as owner,
    ):
        config = ApiConfig(database_url=url, redis_url=redis_url, secret_key=SECRET_KEY)
        owner.execute(stall, [False])
        with server(config) as root:
            alone = ok(ready(root))
            owner.execute(stall, [True])
            # Without a worker the queues are stuck as well, a little later.
            eventually(lambda: "stalls" in ready(root).text)
            refusal = refused(ready(root), 503, "SERVICE_UNAVAILABLE")

    assert (alone["stalledCardholders"], alone["forgedMessages"]) == (1, 0)
    assert alone["enqueuedEvents"] == 0
    assert "stalls" in refusal["details"]["failedChecks"]
    assert "secret" not in str(refusal)


def test_a_clock_that_is_off_is_not_ready(api_config: ApiConfig) -> None:
    with server(api_config, clock=lambda: datetime.now(UTC) + timedelta(days=8)) as root:
        refusal = refused(ready(root), 503, "SERVICE_UNAVAILABLE")

    assert "clock" in refusal["details"]["failedChecks"]


def test_without_postgresql_only_the_liveness_probe_succeeds(redis_url: str) -> None:
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


def test_without_a_worker_a_request_times_out_with_a_clear_error(
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
            waiting, reversal = [
                body for (body,) in connection.execute("SELECT body FROM inbox ORDER BY id")
            ]

    body = refused(answer, 503, "SERVICE_UNAVAILABLE")
    assert "accepted" in body["message"]
    assert answer.headers["x-should-retry"] == "false"
    assert waiting["decideBy"], "a late approval would hold money without a purchase"
    assert (reversal["type"], reversal["authorization"]) == ("TIMEOUT_REVERSAL", waiting)


def test_a_missing_table_is_500_without_details(
    postgres_url: DatabaseUrl, redis_url: str, template_database: DatabaseUrl
) -> None:
    with fresh_database(postgres_url, template=template_database.database) as url:
        tenant = new_tenant(url)
        config = ApiConfig(database_url=url, redis_url=redis_url, secret_key=SECRET_KEY)
        with server(config) as root, Api(root, tenant) as api:
            assert api.get("/config").is_success
            with psycopg.connect(url) as connection:
                connection.execute("ALTER VIEW cardledger_api.customers RENAME TO lost")
                connection.execute("ALTER TABLE customers RENAME TO lost")
            answer = api.get("/customers/Customer:019542f5-b3e7-7d02-0000-00000000a1b4")

    body = refused(answer, 500, "INTERNAL_ERROR")
    assert set(body) == {"status", "code", "message"}
    assert "customers" not in body["message"]
