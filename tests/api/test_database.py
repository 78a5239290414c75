"""How the facade reaches PostgreSQL: restarts, plans, and how failures are reported."""

import asyncio
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, TypeVar

import psycopg
import pytest
import structlog
from sqlalchemy import event, select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from cardledger.api.app import ApiConfig
from cardledger.api.time_limit import GRACE_S
from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.agents import action_queries, usage
from cardledger.ledger.queries import card_transactions, transactions
from cardledger.ledger.storage import paging
from cardledger.ledger.storage.engines import async_engine, driver, sync_engine
from cardledger.ledger.storage.platform_connections import PlatformConnections
from cardledger.ledger.webhooks import deliveries
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.workers.signals.outage_log import DATABASE
from tests.api.support import SECRET_KEY, Api, new_tenant, ok, refused, server
from tests.connection_guard import GuardedApp, violations
from tests.databases import fresh_database
from tests.proxy import proxy_to, through
from tests.waiting import eventually, limit_s

Read = TypeVar("Read")

CUSTOMER = {"customerType": "INDIVIDUAL", "fullName": "Ada Lovelace"}

_END_ALL = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
    " WHERE datname = %s AND pid <> pg_backend_pid()"
)


@pytest.fixture
def own_url(postgres_url: DatabaseUrl, template_database: DatabaseUrl) -> Iterator[DatabaseUrl]:
    with fresh_database(postgres_url, template=template_database.database) as url:
        yield url


def end_all(postgres_url: DatabaseUrl, database: str) -> None:
    """End every connection to `database`, as a restart of the server does."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(_END_ALL, [database])
        left = "SELECT 1 FROM pg_stat_activity WHERE datname = %s"
        eventually(lambda: connection.execute(left, [database]).fetchone() is None)


def test_the_first_requests_after_a_restart_of_postgresql_are_answered(
    own_url: DatabaseUrl, postgres_url: DatabaseUrl, redis_url: str
) -> None:
    config = ApiConfig(database_url=own_url, redis_url=redis_url, secret_key=SECRET_KEY)
    with server(config) as root, Api(root, new_tenant(own_url)) as api:
        customer = api.customer()["id"]

        for _ in range(3):
            end_all(postgres_url, own_url.database)

            assert api.get(f"/customers/{customer}").status_code == 200
            assert api.customer()["kycStatus"] == "APPROVED"


def test_a_read_that_the_database_ends_is_told_apart_from_an_outage(
    own_url: DatabaseUrl, redis_url: str
) -> None:
    config = ApiConfig(
        database_url=own_url,
        redis_url=redis_url,
        secret_key=SECRET_KEY,
        reply_timeout_s=limit_s(10),
    )
    cancel = (
        "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with (
        server(config) as root,
        Api(root, new_tenant(own_url)) as api,
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(own_url) as owner,
        psycopg.connect(own_url, autocommit=True) as observer,
    ):
        owner.execute("LOCK TABLE verifications IN ACCESS EXCLUSIVE MODE")
        answer = pool.submit(api.get, "/verifications")

        # As the time limit of the statement does.
        eventually(lambda: observer.execute(cancel).fetchone() == (1,) or answer.done())

        refusal = refused(answer.result(), 503, "SERVICE_UNAVAILABLE")
    assert "took too long" in refusal["message"]


def test_a_statement_of_a_request_has_four_seconds_and_one_processor(
    own_url: DatabaseUrl,
) -> None:
    async def limits() -> list[tuple[str, ...]]:
        connections, own = PlatformConnections(own_url), Id(bytes(16))
        query = text(
            "SELECT current_setting('statement_timeout'),"
            " current_setting('max_parallel_workers_per_gather')"
        )
        try:
            async with connections.reading(own) as read, connections.writing(own) as written:
                return [tuple((await one.execute(query)).one()) for one in (read, written)]
        finally:
            await connections.dispose()

    assert asyncio.run(limits()) == [("4s", "0"), ("4s", "0")]


def test_a_thread_never_gets_a_connection_that_has_ended(
    own_url: DatabaseUrl, postgres_url: DatabaseUrl
) -> None:
    engine = sync_engine(own_url, pool_size=5)
    connections = [engine.connect() for _ in range(5)]
    for connection in connections:
        connection.execute(text("SELECT 1"))
        connection.close()

    end_all(postgres_url, own_url.database)

    for _ in range(5):
        with engine.begin() as connection:
            assert connection.scalar(text("SELECT 1")) == 1
    engine.dispose()


def test_a_connection_of_which_nothing_was_heard_costs_no_round_trip(
    own_url: DatabaseUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = sync_engine(own_url)
    with engine.connect() as connection:
        connection.execute(text("SELECT 1"))
    asked: list[object] = []
    monkeypatch.setattr(engine.dialect, "do_ping", asked.append)

    with engine.connect() as connection:
        connection.execute(text("SELECT 1"))

    engine.dispose()
    assert not asked


def test_a_failure_says_nothing_of_what_was_sent(own_url: DatabaseUrl) -> None:
    engine = sync_engine(own_url)
    with engine.connect() as connection:
        connection.execute(text("SET statement_timeout = 1"))
        with pytest.raises(OperationalError) as failure:
            connection.execute(text("SELECT pg_sleep(9), :name"), {"name": "Ada Lovelace"})

    engine.dispose()
    assert "Ada" not in str(failure.value)


def test_logs_of_database_errors_contain_no_personal_data(
    own_url: DatabaseUrl, redis_url: str
) -> None:
    with psycopg.connect(own_url, autocommit=True) as owner:
        config = ApiConfig(database_url=own_url, redis_url=redis_url, secret_key=SECRET_KEY)
        with server(config) as root, Api(root, new_tenant(own_url)) as api:
            assert api.get("/config").is_success
            owner.execute("BEGIN")
            owner.execute("LOCK TABLE customers IN ACCESS EXCLUSIVE MODE")
            DATABASE.succeeded()  # An outage is logged once.
            before = structlog.get_config()
            structlog.configure(wrapper_class=structlog.BoundLogger)
            with capture_logs() as logs:
                answer = api.post(
                    "/customers", {"customerType": "INDIVIDUAL", "fullName": "Ada Lovelace"}
                )
            structlog.configure(**before)
            owner.execute("ROLLBACK")

    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert "Ada" not in json.dumps(logs)
    [sent] = [one for one in logs if one["event"].startswith("database unavailable")]
    assert sent["error"] == "canceling statement due to lock timeout"


def test_a_request_is_answered_in_time_while_postgresql_is_silent(
    own_url: DatabaseUrl, redis_url: str
) -> None:
    limit_s = 1.0
    with proxy_to(own_url) as proxy:
        config = ApiConfig(
            database_url=through(own_url, proxy),
            redis_url=redis_url,
            secret_key=SECRET_KEY,
            reply_timeout_s=limit_s - GRACE_S,
        )
        with server(config) as root, Api(root, new_tenant(own_url)) as api:
            assert api.get("/config").is_success
            proxy.freeze()
            read, written, repeatable = (
                api.get("/customers"),
                api.post("/customers", CUSTOMER),
                api.raw("POST", "/customers", json.dumps(CUSTOMER), idempotency_key="one"),
            )
            proxy.thaw()
            eventually(lambda: api.get("/customers").is_success)

    # Each statement alone, and each connection, has five seconds.
    assert all(
        (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        and answer.elapsed.total_seconds() < limit_s + 2
        for answer in (read, written, repeatable)
    )
    assert "may have taken effect" not in read.json()["message"]
    assert "may have taken effect" in written.json()["message"]
    assert written.headers["x-should-retry"] == "false"
    assert "x-should-retry" not in repeatable.headers


def test_the_time_in_which_a_caller_sends_its_request_does_not_count(
    own_url: DatabaseUrl, redis_url: str
) -> None:
    limit = limit_s(1)
    config = ApiConfig(
        database_url=own_url, redis_url=redis_url, secret_key=SECRET_KEY, reply_timeout_s=limit
    )
    body = json.dumps(CUSTOMER).encode()
    waited = threading.Event()

    def slowly() -> Iterator[bytes]:
        yield body[:5]
        waited.wait(limit + 1)  # Longer than a request may take; the event is never set.
        yield body[5:]

    with server(config) as root, Api(root, new_tenant(own_url)) as api:
        answer = api.http.post(
            "/customers", content=slowly(), headers={"Content-Type": "application/json"}
        )

    assert answer.status_code == 201


def test_a_connection_that_was_lost_below_sqlalchemy_is_given_back_quietly(
    own_url: DatabaseUrl, postgres_url: DatabaseUrl, caplog: pytest.LogCaptureFixture
) -> None:
    engine = sync_engine(own_url, pool_size=1, max_overflow=0)
    connection = engine.connect()
    end_all(postgres_url, own_url.database)
    with pytest.raises(psycopg.OperationalError):
        driver(connection).execute("SELECT 1")
    connection.close()

    with engine.connect() as connection:
        assert connection.scalar(text("SELECT 1")) == 1
    engine.dispose()
    assert not caplog.records


def test_what_was_not_committed_is_rolled_back_when_a_connection_is_given_back(
    own_url: DatabaseUrl,
) -> None:
    engine = sync_engine(own_url, pool_size=1, max_overflow=0)
    raw = engine.raw_connection()
    raw.cursor().execute("CREATE TABLE left_over ()")
    raw.close()

    with engine.connect() as connection:
        assert connection.scalar(text("SELECT to_regclass('left_over')")) is None
    engine.dispose()


def test_a_list_has_a_total_up_to_ten_thousand_rows(own_url: DatabaseUrl, redis_url: str) -> None:
    config = ApiConfig(database_url=own_url, redis_url=redis_url, secret_key=SECRET_KEY)
    tenant = new_tenant(own_url)
    statement = (
        "INSERT INTO webhook_deliveries (id, customer_id, platform_id, type, subject_id, body,"
        " state, created_at, webhook_id) SELECT gen_random_uuid(), %(platform)s, %(platform)s,"
        " 'CARD.STATE_CHANGE', %(platform)s, '{}', 'NO_ENDPOINT', now(), gen_random_uuid()"
        " FROM generate_series(1, %(count)s)"
    )
    with (
        psycopg.connect(own_url, autocommit=True) as owner,
        server(config) as root,
        Api(root, tenant) as api,
    ):
        owner.execute(statement, {"platform": tenant.platform_id, "count": 10_000})
        at_limit = ok(api.get("/webhooks/deliveries"))
        owner.execute(statement, {"platform": tenant.platform_id, "count": 1})
        above = ok(api.get("/webhooks/deliveries"))

    assert (at_limit["totalCount"], at_limit["hasMore"]) == (10_000, True)
    assert (len(above["data"]), above["hasMore"]) == (20, True)
    assert "totalCount" not in above


# --- plans -----------------------------------------------------------------------------------

_MANY = 20_000
_CARDS = 100
_EXCEPTIONS = 3


@pytest.fixture(scope="module")
def filled(database_url: DatabaseUrl) -> tuple[DatabaseUrl, Id, Id]:
    """A database with many card transactions; its platform and one of its cards."""
    platform_id = new_tenant(database_url).platform_id
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO customers (id, platform_id, platform_customer_id, customer_type,"
            " kyc_status, uma_address, currencies, created_at, updated_at)"
            " SELECT gen_random_uuid(), %s, n, 'INDIVIDUAL', 'APPROVED', n, '{USD}', now(), now()"
            " FROM generate_series(1, %s) n",
            [platform_id, _CARDS],
        )
        connection.execute(
            "INSERT INTO cards (id, customer_id, platform_id, platform_card_id, state, form,"
            " currency, funding_sources, processor_ref, issuer_ref, created_at, updated_at)"
            " SELECT gen_random_uuid(), id, platform_id, platform_customer_id, 'ACTIVE',"
            " 'VIRTUAL', 'USD', '{}', '', '', now(), now() FROM customers"
        )
        connection.execute(
            "INSERT INTO internal_accounts (id, customer_id, platform_id, currency, type, status,"
            " created_at, updated_at) SELECT gen_random_uuid(), id, platform_id, 'USD',"
            " 'INTERNAL_FIAT', 'ACTIVE', now(), now() FROM customers"
        )
        connection.execute(
            "INSERT INTO deposits SELECT gen_random_uuid(), customer_id, id, 5, gen_random_uuid(),"
            " now(), platform_id FROM internal_accounts, generate_series(1, %s)",
            [_MANY // _CARDS],
        )
        connection.execute(
            "INSERT INTO transfers (id, customer_id, platform_id, source_account_id,"
            " destination_account_id, amount, currency, status, agent_id, created_at, updated_at)"
            " SELECT gen_random_uuid(), customer_id, platform_id, id, gen_random_uuid(), 5, 'USD',"
            " CASE n %% 1000 WHEN 0 THEN 'PENDING' ELSE 'PROCESSING' END, platform_id, now(), now()"
            " FROM internal_accounts, generate_series(1, %s) n",
            [_MANY // _CARDS],
        )
        connection.execute(
            "INSERT INTO card_transactions (id, customer_id, platform_id, card_id, account_id,"
            " issuer_transaction_token, currency, status, created_at, updated_at)"
            " SELECT gen_random_uuid(), customer_id, platform_id, id, id, n, 'USD', 'SETTLED',"
            " now(), now() FROM cards, generate_series(1, %s) n",
            [_MANY // _CARDS],
        )
        connection.execute(
            "INSERT INTO webhook_deliveries (id, customer_id, platform_id, type, subject_id, body,"
            " state, created_at, webhook_id) SELECT id, customer_id, platform_id,"
            " 'CARD_TRANSACTION.SETTLED', card_id, '{}', 'NO_ENDPOINT', now(), id"
            " FROM card_transactions"
        )
        connection.execute(
            "UPDATE card_transactions SET status = 'EXCEPTION', debt_id = id, debt_since = now()"
            " WHERE id IN (SELECT id FROM card_transactions LIMIT %s)",
            [_EXCEPTIONS],
        )
        connection.execute("VACUUM ANALYZE")
        found = connection.execute("SELECT id FROM cards LIMIT 1").fetchone()
    assert found is not None
    return database_url, platform_id, found[0]


def test_transactions_of_a_card_are_found_by_key(filled: tuple[DatabaseUrl, Id, Id]) -> None:
    url, platform_id, card_id = filled

    page, plans = asyncio.run(
        _planned(url, platform_id, card_transactions.CardTransactionFilters(card_id=card_id))
    )

    assert page.total_count == _MANY // _CARDS
    assert {item.card_id for item in page.items} == {card_id}
    few, total, rows = plans
    assert "card_transactions_token_key" in few, few
    assert "card_transactions_token_key" in total, total
    assert "card_transactions_pkey" in rows, rows
    assert all("Seq Scan" not in plan for plan in plans)


def test_exceptions_are_found_without_reading_what_is_settled(
    filled: tuple[DatabaseUrl, Id, Id],
) -> None:
    url, platform_id, _ = filled

    page, plans = asyncio.run(
        _planned(url, platform_id, card_transactions.CardTransactionFilters(status="EXCEPTION"))
    )

    assert (page.total_count, len(page.items)) == (_EXCEPTIONS, _EXCEPTIONS)
    assert len(plans) == 2
    for plan in plans:
        assert "card_transactions_open_exceptions_idx" in plan, plan


def test_an_unknown_card_has_no_transactions(
    filled: tuple[DatabaseUrl, Id, Id],
) -> None:
    url, platform_id, _ = filled

    filters = card_transactions.CardTransactionFilters(card_id=Id(bytes(15) + b"\x07"))
    page, _ = asyncio.run(_planned(url, platform_id, filters))

    assert (page.total_count, list(page.items)) == (0, [])


_BRANCHES = {
    "CARD": "card_transactions_platform_id_idx",
    "OUTGOING": "transfers_platform_id_idx",
    "INCOMING": "deposits_platform_id_idx",
}
_BY_ACCOUNT = "transfers_source_account_id_idx"
_OWN_BRANCHES = {
    # In the order of the list, where a share of the platform's payments are of the account.
    "OUTGOING": {"transfers_customer_id_idx", _BY_ACCOUNT, "transfers_platform_id_idx"},
    "INCOMING": {"deposits_customer_id_idx", _BY_ACCOUNT, "transfers_platform_id_idx"},
}
"""Indexes by which payments of a type are found, where an account or its owner is named."""


def test_every_type_of_a_list_of_all_is_read_in_its_order_by_key(
    filled: tuple[DatabaseUrl, Id, Id],
) -> None:
    url, platform_id, _ = filled
    wanted = paging.Wanted(limit=20, newest_first=True)

    page, plans = asyncio.run(
        _plans(
            url,
            lambda connection: transactions.page(
                connection,
                platform_id=platform_id,
                filters=transactions.TransactionFilters(),
                wanted=wanted,
            ),
        )
    )

    assert page.total_count is None, "there are more than 10,000"
    assert len(plans) == 2 * len(_BRANCHES)
    for index, (count, rows) in zip(
        _BRANCHES.values(), zip(plans[::2], plans[1::2], strict=True), strict=True
    ):
        assert f"Index Only Scan using {index}" in count, count
        assert f"Index Scan Backward using {index}" in rows, rows
        assert "Sort" not in rows, rows


def test_deliveries_of_a_resource_are_found_by_index(
    filled: tuple[DatabaseUrl, Id, Id],
) -> None:
    url, platform_id, subject_id = filled

    page, plans = asyncio.run(
        _plans(
            url,
            lambda connection: deliveries.page(
                connection,
                platform_id=platform_id,
                filters=deliveries.DeliveryFilters(subject_ids=[subject_id]),
                wanted=paging.Wanted(limit=20, newest_first=True),
            ),
        )
    )

    assert page.total_count == _MANY // _CARDS
    for plan in plans:
        assert "webhook_deliveries_subject_id_idx" in plan, plan
        assert "Sort" not in plan, plan


@pytest.mark.parametrize("kind", _OWN_BRANCHES)
def test_payments_of_an_account_are_found_by_its_owner(
    filled: tuple[DatabaseUrl, Id, Id], kind: str
) -> None:
    url, platform_id, _ = filled
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT id FROM internal_accounts LIMIT 1").fetchone()
    assert found is not None
    filters = transactions.TransactionFilters(type=kind, account_id=found[0])

    page, plans = asyncio.run(
        _plans(
            url,
            lambda connection: transactions.page(
                connection,
                platform_id=platform_id,
                filters=filters,
                wanted=paging.Wanted(limit=20, newest_first=True),
            ),
        )
    )

    assert page.total_count == _MANY // _CARDS
    for plan in plans:
        assert any(index in plan for index in _OWN_BRANCHES[kind]), plan
        assert "Seq Scan" not in plan, plan


def test_what_waits_for_approval_is_found_without_what_does_not(
    filled: tuple[DatabaseUrl, Id, Id],
) -> None:
    url, platform_id, _ = filled

    _, plans = asyncio.run(
        _plans(
            url,
            lambda connection: action_queries.pending_approval(
                connection,
                platform_id=platform_id,
                filters=action_queries.ActionFilters(),
                wanted=paging.Wanted(limit=20),
            ),
        )
    )

    for plan in plans:
        assert "transfers_pending_idx" in plan, plan


def test_what_an_agent_has_spent_is_found_by_key(filled: tuple[DatabaseUrl, Id, Id]) -> None:
    url, agent_id, _ = filled

    _, plans = asyncio.run(
        _plans(url, lambda connection: usage.of_agent(connection, agent_id, datetime.now(UTC)))
    )

    [plan] = plans
    assert "transfers_agent_id_idx" in plan, plan
    assert "Seq Scan" not in plan


async def _planned(
    url: str, platform_id: Id, filters: card_transactions.CardTransactionFilters
) -> tuple[paging.Page[Any], list[str]]:
    """Return a page of card transactions and the plans of the statements that it took."""
    return await _plans(
        url,
        lambda connection: card_transactions.page(
            connection,
            platform_id=platform_id,
            filters=filters,
            wanted=paging.Wanted(limit=20, newest_first=True),
        ),
    )


async def _plans(
    url: str, read: Callable[[AsyncConnection], Awaitable[Read]]
) -> tuple[Read, list[str]]:
    """Return what `read` reads and the plans of the statements that it took."""
    engine = async_engine(url, keyed=True)
    statements: list[tuple[str, Any]] = []
    event.listen(
        engine.sync_engine,
        "before_cursor_execute",
        lambda _connection, _cursor, statement, given, *_: statements.append((statement, given)),
    )
    async with engine.connect() as connection:
        # The first statement of a connection asks more than it needs.
        await connection.execute(select(tables.cards.c.id).limit(1))
        statements.clear()
        page = await read(connection)
        raw = await connection.get_raw_connection()
        driver: psycopg.AsyncConnection[Any] = raw.driver_connection  # type: ignore[assignment]
        plans = []
        for statement, given in statements.copy():
            cursor = await driver.execute("EXPLAIN " + statement, given)
            plans.append("\n".join(line for (line,) in await cursor.fetchall()))
    await engine.dispose()
    return page, plans


# --- what a request may wait for while it holds a connection ------------------------------------


def test_the_guard_of_these_tests_names_what_a_request_waits_for(app_database_url: str) -> None:
    engine = async_engine(app_database_url, pool_size=3)

    async def handle(scope: Scope, _receive: Receive, _send: Send) -> None:
        async with engine.connect() as connection, connection.begin():
            await connection.execute(text("SELECT pg_sleep(0.01)"))
            match scope["path"]:
                case "/sleeps":
                    await asyncio.sleep(0)
                case "/connects":
                    async with engine.connect():
                        pass
                case "/blocks":
                    socket.getaddrinfo("127.0.0.1", 1)
        await asyncio.sleep(0)

    async def run() -> None:
        for path in ("/reads", "/sleeps", "/connects", "/blocks"):
            scope = {"type": "http", "method": "GET", "path": path}
            await GuardedApp(handle)(scope, _never, _never)
        await engine.dispose()

    asyncio.run(run())

    blocks, connects, *more, sleeps = violations()
    assert blocks == "GET /blocks holds a database connection and calls socket.getaddrinfo"
    assert connects == "GET /connects holds a database connection and takes a second one"
    assert all(one.startswith("GET /connects ") for one in more)
    assert sleeps.startswith("GET /sleeps holds a database connection and waits for sleep (")


async def _never(*_: object) -> Any:  # noqa: ANN401 - as ASGI has it
    raise AssertionError
