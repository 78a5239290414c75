"""A PostgreSQL that is silent, and one with several hosts: no process of ours waits for good."""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Timer
from time import perf_counter
from typing import Any, Final

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from cardledger.commands import expire
from cardledger.config.errors import CommandError
from cardledger.embedded.servers import DatabaseUrl, EmbeddedPostgres
from cardledger.install import hosts
from cardledger.ledger.engine import timers
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.storage import engines
from cardledger.ledger.storage.engines import (
    async_engine,
    driver,
    driver_async,
    prepared,
    sync_engine,
)
from cardledger.schema import connections, location, migrate
from cardledger.schema.connections import SilentServerError
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import Outcome
from cardledger.workers.client import Client
from cardledger.workers.client.errors import UnavailableError
from cardledger.workers.client.redis_gateway import RedisGateway
from cardledger.workers.client.timeout_reversals import TimeoutReversals
from cardledger.workers.process import event_worker
from tests.integration.workers import with_client, working
from tests.proxy import Proxy, proxy_to, through
from tests.waiting import Deadline, eventually, limit_s
from tests.world import SECRET_KEY, Cardholder, World, open_world

LIMIT_S: Final = 1.0
"""The reply limit of these tests; PostgreSQL itself answers in milliseconds."""

FROZEN_LIMIT_S: Final = 0.2
"""The limit once nothing can be answered."""

RESUMED_S: Final = 15.0
"""Within how long approvals resume by themselves after a silent loss."""

POOL: Final = 4


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


@pytest.fixture
def proxy(app_database_url: DatabaseUrl) -> Iterator[Proxy]:
    with proxy_to(app_database_url) as made:
        yield made


@pytest.fixture
def url(app_database_url: DatabaseUrl, proxy: Proxy) -> DatabaseUrl:
    """The application's URL through `proxy`."""
    return through(app_database_url, proxy)


@pytest.fixture(scope="module")
def closed_port() -> Iterator[int]:
    """A port that refuses connections and that no other process can take."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


# --- one connection ------------------------------------------------------------------------------


def query(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SELECT 1")


def copy(connection: psycopg.Connection[Any]) -> None:
    with connection.cursor().copy("COPY (SELECT 1) TO STDOUT") as rows:
        rows.read()


def commit(connection: psycopg.Connection[Any]) -> None:
    connection.commit()


def pipeline(connection: psycopg.Connection[Any]) -> None:
    with connection.pipeline():
        connection.execute("SELECT 1")
        connection.execute("SELECT 2")


@contextmanager
def thawed_in_the_end(proxy: Proxy) -> Iterator[None]:
    """Thaw `proxy` after a while: a wait without a limit then fails its test, and does not hang."""
    timer = Timer(limit_s(5), proxy.thaw)
    timer.start()
    yield
    timer.cancel()


@pytest.mark.parametrize("work", [query, copy, commit, pipeline])
def test_no_wait_for_a_silent_server_lasts(
    url: DatabaseUrl, proxy: Proxy, work: Callable[[psycopg.Connection[Any]], None]
) -> None:
    engine = sync_engine(url, reply_limit_s=LIMIT_S)

    with engine.connect() as outer:
        connection = driver(outer)
        assert isinstance(connection, connections.LimitedConnection)
        assert connection.reply_limit_s == LIMIT_S
        connection.execute("SELECT 1")  # A database transaction has begun.
        proxy.freeze()
        connection.reply_limit_s = FROZEN_LIMIT_S
        with thawed_in_the_end(proxy), pytest.raises(SilentServerError):
            work(connection)
        assert connection.closed

    assert proxy.held_chunks
    engine.dispose()


def test_a_coroutine_does_not_wait_for_a_silent_server_either(
    url: DatabaseUrl, proxy: Proxy
) -> None:
    async def wait() -> None:
        engine = async_engine(url, reply_limit_s=LIMIT_S)
        try:
            async with engine.connect() as outer:
                connection = await driver_async(outer)
                await connection.execute("SELECT 1")
                proxy.freeze()
                with thawed_in_the_end(proxy), pytest.raises(SilentServerError):
                    await connection.execute("SELECT 1")
                assert connection.closed
        finally:
            await engine.dispose()

    asyncio.run(wait())


def test_sqlalchemy_reports_a_silent_server_as_unavailable(url: DatabaseUrl, proxy: Proxy) -> None:
    engine = sync_engine(url, reply_limit_s=LIMIT_S)

    with engine.connect() as connection:
        proxy.freeze()
        with pytest.raises(OperationalError) as raised:
            connection.execute(text("SELECT 1"))

    assert isinstance(raised.value.orig, SilentServerError)
    assert raised.value.connection_invalidated
    engine.dispose()


def test_a_server_that_is_slow_ends_the_statement_itself(app_database_url: DatabaseUrl) -> None:
    """A closed connection would leave the statement running, with its locks."""
    engine = sync_engine(app_database_url, reply_limit_s=LIMIT_S)

    with engine.connect() as connection, pytest.raises(OperationalError) as raised:
        connection.execute(text("SELECT pg_sleep(60)"))

    assert isinstance(raised.value.orig, psycopg.errors.QueryCanceled)
    assert not raised.value.connection_invalidated
    engine.dispose()


def test_without_a_limit_a_statement_takes_as_long_as_it_needs(url: DatabaseUrl) -> None:
    with connections.connect(url, reply_limit_s=None) as connection:
        row = connection.execute("SELECT 1 FROM pg_sleep(0.3)").fetchone()

    assert row == (1,)


def test_expire_does_not_wait_for_a_server_that_falls_silent(
    url: DatabaseUrl, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    enqueue_all_due = timers.enqueue_all_due

    def freeze_before(*arguments: Any, **named: Any) -> Iterator[int]:  # noqa: ANN401 - handed on
        proxy.freeze()
        return enqueue_all_due(*arguments, **named)

    monkeypatch.setenv("DATABASE_URL", url)
    monkeypatch.setenv("CARDLEDGER_SECRET_KEY", SECRET_KEY)
    monkeypatch.setattr(expire, "_REPLY_LIMIT_S", LIMIT_S)
    monkeypatch.setattr(timers, "enqueue_all_due", freeze_before)

    with thawed_in_the_end(proxy), pytest.raises(CommandError, match="did not answer within 1 s"):
        expire.run(at=None, data_dir=tmp_path)


# --- the pool ------------------------------------------------------------------------------------


def test_after_one_silent_connection_the_pool_is_renewed(url: DatabaseUrl, proxy: Proxy) -> None:
    engine = sync_engine(url, reply_limit_s=LIMIT_S, pool_size=POOL, max_overflow=0)
    with ExitStack() as opened:
        for _ in range(POOL):
            opened.enter_context(engine.connect())
    proxy.freeze_present()

    with engine.connect() as outer, pytest.raises(SilentServerError):
        driver(outer).execute("SELECT 1")  # As the hot path does: SQLAlchemy sees no error.

    # None of the others is found out one by one.
    with ExitStack() as opened:
        for _ in range(POOL):
            query(driver(opened.enter_context(engine.connect())))
    engine.dispose()


def test_an_event_loop_renews_its_pool_too(url: DatabaseUrl, proxy: Proxy) -> None:
    async def renew() -> None:
        engine = async_engine(url, reply_limit_s=LIMIT_S, pool_size=POOL, max_overflow=0)
        held = [await engine.connect() for _ in range(POOL)]
        for connection in held:
            await connection.close()
        proxy.freeze_present()

        async with engine.connect() as outer:
            with pytest.raises(SilentServerError):
                await (await driver_async(outer)).execute("SELECT 1")

        renewed = [await engine.connect() for _ in range(POOL)]
        for connection in renewed:
            await (await driver_async(connection)).execute("SELECT 1")
            await connection.close()
        await engine.dispose()

    asyncio.run(renew())


# --- parameters of libpq -------------------------------------------------------------------------


def test_every_connection_has_keepalives_and_the_url_wins() -> None:
    given = "postgresql://ada@db/ledger?connect_timeout=2&tcp_user_timeout=3000"

    named = connections.parameters(given)

    assert (named["keepalives_idle"], named["keepalives_count"]) == (4, 3)
    assert (named["connect_timeout"], named["tcp_user_timeout"]) == ("2", "3000")


def test_a_host_that_does_not_accept_a_connection_has_five_seconds() -> None:
    named = connections.parameters("postgresql://ada@db,spare/ledger")

    assert named["connect_timeout"] == 5


def test_the_kernel_has_the_limits_of_a_tcp_connection(url: DatabaseUrl) -> None:
    engine = sync_engine(url)

    with (
        engine.connect() as outer,
        socket.fromfd(driver(outer).pgconn.socket, socket.AF_INET, socket.SOCK_STREAM) as link,
    ):
        idle = link.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        unacknowledged_ms = link.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        is_kept = link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)

    assert (idle, unacknowledged_ms, bool(is_kept)) == (4, 10_000, True)
    engine.dispose()


# --- the whole way -------------------------------------------------------------------------------


@pytest.fixture
def quick_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the periodic tasks of a worker give up with its batches, so that it soon stops."""
    monkeypatch.setattr(event_worker, "_TASK_LIMIT_S", connections.REPLY_LIMIT_S)


async def submitted(client: Client, event: dict[str, Any]) -> Outcome:
    """Submit `event` again and again until it has an outcome, as a caller of the API does."""
    deadline = Deadline(RESUMED_S)
    while True:
        try:
            [outcome] = await client.submit([event])
        except UnavailableError:
            assert not deadline.has_passed, f"no approval within {RESUMED_S:g} s"
        else:
            return outcome


def with_loss(  # noqa: PLR0913 - who is connected, through what, and what happens to it
    world: World,
    redis_url: str,
    urls: tuple[DatabaseUrl, DatabaseUrl],
    cardholder: Cardholder,
    *,
    proxy: Proxy,
    lose: Callable[[], object],
    engine_of: Callable[[DatabaseUrl], AsyncEngine] = lambda url: async_engine(url, keyed=True),
) -> Outcome:
    """Approve one purchase, `lose` the server, and return the outcome of the next purchase.

    `urls` are those of worker and client, which has an engine by `engine_of`. After a failure
    `proxy` is thawed: processes that wait for the server would not stop.
    """
    first = world.authorization(cardholder, "T1", 100)
    second = world.authorization(cardholder, "T2", 200)

    async def run() -> Outcome:
        engine = engine_of(urls[1])
        try:
            async with Client(
                engine,
                redis_url,
                secret_key=SECRET_KEY,
                reply_timeout_s=4 * RESUMED_S,
            ) as client:
                assert (await submitted(client, first)).outcome == "APPLIED"
                await asyncio.to_thread(lose)
                lost_at = perf_counter()
                try:
                    outcome = await submitted(client, second)
                    seconds = perf_counter() - lost_at
                    assert seconds < limit_s(RESUMED_S / 2)  # All of it on an idle machine.
                except BaseException:
                    await asyncio.to_thread(proxy.thaw)
                    raise
                return outcome
        finally:
            await engine.dispose()

    with working(world, redis_url, database_url=urls[0]):
        return asyncio.run(run())


@pytest.mark.usefixtures("quick_end")
def test_approvals_resume_when_every_connection_has_fallen_silent(
    world: World, platform: Id, redis_url: str, url: DatabaseUrl, proxy: Proxy
) -> None:
    """A moved address: what is connected hears nothing any more, and new connections work."""
    cardholder = world.cardholder(platform, 10_000)

    outcome = with_loss(
        world, redis_url, (url, url), cardholder, proxy=proxy, lose=proxy.freeze_present
    )

    # The lost connection may have carried the event into the inbox.
    assert outcome.outcome in {"APPLIED", "DUPLICATE"}
    assert proxy.held_chunks
    assert world.account(cardholder)["balance"] == 10_000 - 300
    world.check_books(cardholder)


def foreign_engine(url: DatabaseUrl) -> AsyncEngine:
    """Return an engine as a project makes its own, which knows no limits."""
    place = conninfo_to_dict(url, options="")
    return create_async_engine("postgresql+psycopg://", connect_args=place)


@pytest.mark.usefixtures("quick_end")
def test_approvals_resume_for_a_client_with_an_engine_of_others(
    world: World, platform: Id, redis_url: str, url: DatabaseUrl, proxy: Proxy
) -> None:
    cardholder = world.cardholder(platform, 10_000)

    outcome = with_loss(
        world,
        redis_url,
        (url, url),
        cardholder,
        proxy=proxy,
        lose=proxy.freeze_present,
        engine_of=foreign_engine,
    )

    assert outcome.outcome in {"APPLIED", "DUPLICATE"}
    assert proxy.held_chunks
    assert world.account(cardholder)["balance"] == 10_000 - 300
    world.check_books(cardholder)


class OfAProject(psycopg.AsyncConnection[Any]):
    """A connection of a class that a project has made."""


def test_connections_by_the_creator_of_others_have_our_limits(url: DatabaseUrl) -> None:
    place: Any = conninfo_to_dict(url, options="", keepalives_idle="7")
    foreign = create_async_engine(
        "postgresql+psycopg://", async_creator=lambda: OfAProject.connect(**place)
    )

    async def look() -> tuple[Any, list[int], bool]:
        made = prepared(foreign, schema=location.DEFAULT)
        try:
            async with made.connect() as outer, foreign.connect() as own:
                connection = await driver_async(outer)
                assert isinstance(connection, OfAProject)
                with socket.socket(fileno=os.dup(connection.pgconn.socket)) as link:
                    options = [
                        link.getsockopt(socket.IPPROTO_TCP, option)
                        for option in (socket.TCP_KEEPIDLE, socket.TCP_USER_TIMEOUT)
                    ]
                limited = isinstance(await driver_async(own), connections.LimitedAsyncConnection)
                assert isinstance(connection, connections.LimitedAsyncConnection)
                return connection.reply_limit_s, options, limited
        finally:
            await made.dispose()
            await foreign.dispose()

    limit, options, limited = asyncio.run(look())

    assert limit == connections.REPLY_LIMIT_S
    assert options == [7, 10_000], "what the owner names wins"
    assert not limited, "the connections of the owner stay as they are"


def test_a_creator_of_others_may_not_connect_without_end(
    url: DatabaseUrl, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_CONNECT_LIMIT_S", FROZEN_LIMIT_S)

    async def connect() -> None:
        foreign = foreign_engine(url)
        made = prepared(foreign, schema=location.DEFAULT)
        try:
            with thawed_in_the_end(proxy), pytest.raises(OperationalError) as raised:
                async with made.connect():
                    pass
            assert isinstance(raised.value.orig, SilentServerError)
        finally:
            await made.dispose()
            await foreign.dispose()

    proxy.freeze()
    asyncio.run(connect())


def test_one_silent_connection_stops_one_write_only(
    world: World, platform: Id, redis_url: str, url: DatabaseUrl, proxy: Proxy
) -> None:
    cardholder = world.cardholder(platform, 10_000)
    first, silent, other = (world.authorization(cardholder, f"T{n}", 100) for n in range(3))

    async def run() -> tuple[Outcome, bool]:
        # One connection is kept; a second write opens one.
        engine = async_engine(url, keyed=True, pool_size=1, reply_limit_s=None)
        try:
            async with Client(
                engine, redis_url, secret_key=SECRET_KEY, reply_timeout_s=limit_s()
            ) as client:
                await client.submit([first])
                proxy.freeze_present()
                stuck = asyncio.create_task(client.submit([silent]))
                await asyncio.to_thread(eventually, lambda: proxy.held_chunks)
                with thawed_in_the_end(proxy):
                    [outcome] = await client.submit([other])
                is_stuck = not stuck.done()
                proxy.thaw()
                await stuck
                return outcome, is_stuck
        finally:
            await engine.dispose()

    with working(world, redis_url):
        outcome, is_stuck = asyncio.run(run())

    assert (outcome.outcome, is_stuck) == ("APPLIED", True)
    assert world.account(cardholder)["balance"] == 10_000 - 300
    world.check_books(cardholder)


def test_a_worker_that_alone_has_lost_redis_costs_its_callers_one_wait(
    world: World, platform: Id, redis_url: str, closed_port: int
) -> None:
    """Each outcome was looked up after a second, five beside a worker that replies."""
    cardholder = world.cardholder(platform, 1_000)
    clearings = [world.clearing(cardholder, f"T{n}", 1) for n in range(20)]

    async def one_after_the_other(client: Client) -> list[float]:
        seconds = []
        for clearing in clearings:
            began = perf_counter()
            await client.submit([clearing])
            seconds.append(perf_counter() - began)
        return seconds

    with working(world, f"redis://127.0.0.1:{closed_port}"):
        first, *later = with_client(world, redis_url, one_after_the_other)

    assert first > 0.5  # Or its reply was not lost.
    assert sum(later) < 8 * first


def test_one_silent_connection_delays_no_timeout_reversal(
    world: World, platform: Id, redis_url: str, url: DatabaseUrl, proxy: Proxy
) -> None:
    """An attempt that was cancelled on it had to end before the next one began."""
    cardholder = world.cardholder(platform, 10_000)
    [late, silent] = world.accept(
        [(cardholder, world.authorization(cardholder, f"T{n}", 100)) for n in range(2)]
    )

    async def run() -> float:
        engine = async_engine(url, keyed=True, pool_size=1, reply_limit_s=None)
        key, redis = InboxKey(SECRET_KEY), RedisGateway(redis_url)
        reversals = TimeoutReversals(engine, redis, key, now=lambda: datetime.now(UTC))
        try:
            durable = reversals.put(late)
            await reversals.write_next()
            await durable
            proxy.freeze_present()
            with thawed_in_the_end(proxy):
                began = perf_counter()
                durable = reversals.put(silent)
                while not durable.done():
                    await reversals.write_next()
                seconds = perf_counter() - began
            proxy.thaw()
            await reversals.close(limit_s())
            return seconds
        finally:
            await redis.close()
            await engine.dispose()

    seconds = asyncio.run(run())
    world.drain(world.engine())

    assert seconds < 4  # Of any machine: a silent connection is given up after five.
    assert world.account(cardholder)["held"] == 0
    world.check_books(cardholder)


@pytest.mark.usefixtures("quick_end")
def test_approvals_resume_on_the_next_host_of_the_url(
    world: World, platform: Id, redis_url: str, app_database_url: DatabaseUrl
) -> None:
    """A fenced host: it accepts connections and says nothing, also on new ones."""
    cardholder = world.cardholder(platform, 10_000)
    with proxy_to(app_database_url) as fenced, proxy_to(app_database_url) as promoted:
        both = DatabaseUrl(f"{through(app_database_url, fenced, promoted)}&connect_timeout=2")

        outcome = with_loss(
            world, redis_url, (both, both), cardholder, proxy=fenced, lose=fenced.freeze
        )

        assert fenced.held_chunks
    assert outcome.outcome in {"APPLIED", "DUPLICATE"}
    assert world.account(cardholder)["balance"] == 10_000 - 300
    world.check_books(cardholder)


def test_a_hung_pooler_that_continues_applies_nothing_twice(
    world: World, platform: Id, redis_url: str, url: DatabaseUrl, proxy: Proxy
) -> None:
    cardholder = world.cardholder(platform, 10_000)

    def hang() -> None:
        proxy.freeze()
        # Statements of the worker hang; then everything that was sent arrives.
        eventually(lambda: proxy.held_chunks >= 2)
        proxy.thaw()

    outcome = with_loss(world, redis_url, (url, url), cardholder, proxy=proxy, lose=hang)

    assert outcome.outcome in {"APPLIED", "DUPLICATE"}
    assert world.account(cardholder)["balance"] == 10_000 - 300
    world.check_books(cardholder)


# --- several hosts -------------------------------------------------------------------------------


def test_every_client_takes_the_host_that_answers(
    app_database_url: DatabaseUrl, database_url: DatabaseUrl, proxy: Proxy, closed_port: int
) -> None:
    def two(given: DatabaseUrl) -> DatabaseUrl:
        live = f"127.0.0.1:{proxy.port}"
        several = through(given, proxy).replace(live, f"127.0.0.1:{closed_port},{live}")
        return DatabaseUrl(f"{several}&target_session_attrs=read-write")

    async def run() -> Any:  # noqa: ANN401 - a scalar
        engine = async_engine(two(app_database_url))
        async with engine.connect() as connection:
            found = (await connection.execute(text("SELECT count(*) FROM inbox"))).scalar()
        await engine.dispose()
        return found

    engine = sync_engine(two(app_database_url))
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM inbox")).scalar() is not None
    engine.dispose()
    assert asyncio.run(run()) is not None
    assert migrate.current(two(database_url)) == migrate.head()
    migrate.upgrade(two(database_url))
    found = list(hosts.examine(two(database_url)))
    assert [host.is_primary for host in found] == [False, True]
    assert found[0].problem is not None


def test_a_server_that_accepts_no_writes_is_passed_over(
    database_url: DatabaseUrl, proxy: Proxy, passable_dir: Path
) -> None:
    reader = EmbeddedPostgres(passable_dir)
    reader.start()
    try:
        with psycopg.connect(reader.url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            connection.execute("SELECT pg_reload_conf()")
        with proxy_to(reader.url) as read_only:
            both = through(database_url, read_only, proxy)
            chosen = DatabaseUrl(f"{both}&target_session_attrs=read-write")
            eventually(lambda: refuses_writes(through(reader.url, read_only)))

            engine = sync_engine(chosen)
            with engine.connect() as outer:
                port = driver(outer).info.port
            engine.dispose()

            assert port == proxy.port
            assert migrate.current(chosen) == migrate.head()
    finally:
        reader.stop()


def refuses_writes(url: DatabaseUrl) -> bool:
    with psycopg.connect(url) as connection:
        row = connection.execute("SHOW transaction_read_only").fetchone()
    return row == ("on",)
