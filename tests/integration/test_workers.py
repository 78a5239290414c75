"""Workers and their client on real servers: woken at once, and right when nobody wakes them."""

import asyncio
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar
from uuid import uuid4

import dramatiq
import psycopg
import pytest
from dramatiq.brokers.redis import RedisBroker
from redis import Redis, ResponseError
from sqlalchemy import NullPool

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.messaging.inbox import SHARDS, Lane
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from cardledger.schema.wire.network_events import NETWORK_EVENT, body_of
from cardledger.schema.wire.outcomes import Outcome, OutcomeType, RejectionReason
from cardledger.workers.client import Client, ReplyTimeoutError, UnavailableError, submit
from cardledger.workers.process.main import WorkerConfig, WorkerProcess
from cardledger.workers.process.shard_scheduler import ShardScheduler
from cardledger.workers.signals import doorbell
from cardledger.workers.signals.broker import WakingBroker
from cardledger.workers.signals.periodic_task import PeriodicTask
from tests.databases import fresh_database
from tests.world import SECRET_KEY, Holder, World, world_of

Result = TypeVar("Result")
PATIENCE_S = 20


def wait_until(true: Callable[[], object]) -> None:
    """Ask until `true` is; nothing here sleeps for a guessed time."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.002)


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with world_of(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


@contextmanager
def working(world: World, redis_url: str, **changes: Any) -> Iterator[WorkerProcess]:  # noqa: ANN401 - what an event says
    config = WorkerConfig(
        database_url=world.app_url,
        redis_url=redis_url,
        secret_key=SECRET_KEY,
        **({"threads": 4} | changes),
    )
    process = WorkerProcess(config)
    process.start()
    try:
        yield process
    finally:
        process.stop()


@pytest.fixture(scope="module")
def worker(world: World, redis_url: str) -> Iterator[WorkerProcess]:
    with working(world, redis_url) as process:
        yield process


@pytest.fixture(scope="module")
def dead_redis() -> Iterator[str]:
    """The URL of a port that nobody listens on, and that nobody else can take meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"redis://127.0.0.1:{taken.getsockname()[1]}/0"


@asynccontextmanager
async def client_of(
    world: World,
    redis_url: str,
    *,
    reply_timeout_s: float = PATIENCE_S,
    **changes: float,
) -> AsyncIterator[Client]:
    engine = async_engine(world.app_url, keyed=True)
    try:
        async with Client(engine, redis_url, reply_timeout_s=reply_timeout_s, **changes) as client:
            yield client
    finally:
        await engine.dispose()


def with_client(
    world: World,
    redis_url: str,
    use: Callable[[Client], Awaitable[Result]],
    **changes: float,
) -> Result:
    async def run() -> Result:
        async with client_of(world, redis_url, **changes) as client:
            return await use(client)

    return asyncio.run(run())


def words(outcomes: list[Outcome]) -> list[str]:
    return [outcome.outcome.value for outcome in outcomes]


def references(outcomes: list[Outcome]) -> list[str | None]:
    return [outcome.reference for outcome in outcomes]


# --- submit and wait ---------------------------------------------------------------------------


@pytest.mark.usefixtures("worker")
def test_outcomes_come_in_the_order_of_the_events(
    world: World, platform: Id, redis_url: str
) -> None:
    holders = [world.holder(platform, 10_000) for _ in range(10)]
    events = [
        world.authorization(holders[n % 10], f"T{n}", 30_000 if n % 7 == 0 else 10)
        for n in range(700)
    ]

    outcomes = with_client(world, redis_url, lambda client: client.submit(events))

    assert references(outcomes) == [event["reference"] for event in events]
    assert words(outcomes) == [
        "DECLINED" if event["amount"] == 30_000 else "APPLIED" for event in events
    ]
    for holder in holders:
        world.check_books(holder)


@pytest.mark.usefixtures("worker")
def test_the_tip_of_a_client_that_waits_for_each_answer(
    world: World, platform: Id, redis_url: str
) -> None:
    holder = world.holder(platform, 50_000)

    async def tip(client: Client) -> list[Outcome]:
        asked = await client.submit([world.authorization(holder, "T1", 1250)])
        taken = await client.submit([world.clearing(holder, "T1", 1500)])
        return asked + taken

    asked, taken = with_client(world, redis_url, tip)

    assert asked.card_transaction is not None
    assert taken.card_transaction is not None
    assert asked.card_transaction.status == "AUTHORIZED"
    assert taken.card_transaction.status == "SETTLED"
    assert taken.card_transaction.pull_summary.count == 2
    assert taken.card_transaction.sequence == 4


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("lane", Lane)
def test_both_lanes_answer(world: World, platform: Id, redis_url: str, lane: Lane) -> None:
    holder = world.holder(platform, 1000)
    event = world.authorization(holder, "T1", 10)

    outcomes = with_client(world, redis_url, lambda client: client.submit([event], lane=lane))

    assert words(outcomes) == ["APPLIED"]


@pytest.mark.usefixtures("worker")
def test_parsed_events_are_taken_as_well_as_objects(
    world: World, platform: Id, redis_url: str
) -> None:
    holder = world.holder(platform, 1000)
    event = world.authorization(holder, "T1", 10)
    parsed = NETWORK_EVENT.validate_python(event)

    outcomes = with_client(world, redis_url, lambda client: client.submit([event, parsed]))

    assert words(outcomes) == ["APPLIED", "DUPLICATE"]


@pytest.mark.usefixtures("worker")
def test_an_event_that_is_written_already_is_the_same_event(
    world: World, platform: Id, redis_url: str
) -> None:
    event = world.authorization(world.holder(platform, 1000), "T1", 10)
    written = body_of(NETWORK_EVENT.validate_python(event))

    async def twice(client: Client) -> list[Outcome]:
        return [
            *await client.submit_written([written], platform_id=platform),
            *await client.submit([event], platform_id=platform),
        ]

    outcomes = with_client(world, redis_url, twice)

    assert words(outcomes) == ["APPLIED", "DUPLICATE"]


@pytest.mark.usefixtures("worker")
def test_a_program_without_an_event_loop_submits_too(
    world: World, platform: Id, redis_url: str
) -> None:
    holder = world.holder(platform, 1000)

    outcomes = submit(
        [world.authorization(holder, "T1", 10)], database_url=world.app_url, redis_url=redis_url
    )

    assert words(outcomes) == ["APPLIED"]


@pytest.mark.usefixtures("worker")
def test_nothing_to_submit_is_nothing_to_wait_for(world: World, redis_url: str) -> None:
    assert with_client(world, redis_url, lambda client: client.submit([])) == []


@pytest.mark.usefixtures("worker")
def test_a_platform_reaches_its_own_cards_only(world: World, platform: Id, redis_url: str) -> None:
    stranger = world.platform()
    holder = world.holder(platform, 1000)
    event = world.authorization(holder, "T1", 10)

    async def ask(client: Client) -> list[Outcome]:
        return [
            *await client.submit([event], platform_id=stranger),
            *await client.submit([event | {"cardId": f"Card:{uuid4()}"}]),
            *await client.submit([event], platform_id=platform),
        ]

    foreign, unknown, own = with_client(world, redis_url, ask)

    assert foreign.reason == unknown.reason == RejectionReason.UNKNOWN_CARD
    assert foreign.card_transaction is None
    assert own.outcome is OutcomeType.APPLIED


@pytest.mark.usefixtures("worker")
def test_deposits_reach_the_platforms_own_accounts_only(
    world: World, platform: Id, redis_url: str
) -> None:
    stranger = world.platform()
    holder = world.holder(platform)
    account = holder.account_id

    async def bring(client: Client) -> list[Outcome]:
        say: dict[str, Any] = {"amount": 700, "source": "sandbox"}
        return [
            await client.deposit(platform_id=stranger, account_id=account, reference="a", **say),
            await client.deposit(platform_id=platform, account_id=new_id(), reference="b", **say),
            await client.deposit(platform_id=platform, account_id=account, reference="c", **say),
            await client.deposit(platform_id=platform, account_id=account, reference="c", **say),
        ]

    outcomes = with_client(world, redis_url, bring)

    assert words(outcomes) == ["REJECTED", "REJECTED", "APPLIED", "DUPLICATE"]
    assert outcomes[0].reason == outcomes[1].reason == RejectionReason.UNKNOWN_ACCOUNT
    assert world.account(holder)["balance"] == 700


circle: dict[str, Any] = {}
circle["me"] = circle
MALFORMED: dict[str, Any] = {
    "text": "AUTHORIZATION",
    "nothing": None,
    "empty": {},
    "list": [1, 2],
    "type": {"type": "DANCE", "source": "s", "reference": "type"},
    "nul type": {"type": "a\x00b"},
    "nul field": {"type": "CLEARING", "a\x00b": 1},
    "half a pair": {"type": "CLEARING", "\ud800": 1, "source": "\ud800", "reference": "a\x00b"},
    "endless number": {"type": "CLEARING", "amount": 10**5000},
    "bytes": {"type": b"CLEARING"},
    "keys": {("type",): "CLEARING"},
    "a circle": circle,
    "long": {"type": "CLEARING", "reference": "r" * 5000, "source": "s" * 5000},
}


@pytest.mark.usefixtures("worker")
def test_what_is_no_event_is_kept_with_its_reason_and_its_neighbours_go_on(
    world: World, platform: Id, redis_url: str
) -> None:
    holder = world.holder(platform, 1000)
    good = [world.authorization(holder, f"T{n}", 1) for n in range(len(MALFORMED) + 1)]
    mixed: list[Any] = [good[0]]
    for event, spoilt in zip(good[1:], MALFORMED.values(), strict=True):
        mixed += [spoilt, event]
    for amount in (0, -1, 12.5, "12", 2**63, True, None):
        mixed.append(world.authorization(holder, "TX", 1) | {"amount": amount})
    before = world.count("rejections")

    outcomes = with_client(world, redis_url, lambda client: client.submit(mixed))

    refused = [outcome for outcome in outcomes if outcome.outcome is OutcomeType.REJECTED]
    assert {outcome.reason for outcome in refused} == {RejectionReason.MALFORMED}
    assert all(outcome.detail for outcome in refused)
    assert len(refused) == len(MALFORMED) + 7
    assert words(outcomes[: 2 * len(MALFORMED) + 1 : 2]) == ["APPLIED"] * len(good)
    assert world.count("rejections") - before == len(refused)
    assert world.account(holder)["balance"] == 1000 - len(good)


@pytest.mark.usefixtures("worker")
def test_the_record_tells_the_same_as_the_replies(
    world: World, platform: Id, redis_url: str, dead_redis: str
) -> None:
    one, other = (world.holder(platform, 2000) for _ in range(2))

    told = with_client(world, redis_url, lambda client: one_of_each(world, one, client))
    looked_up = with_client(world, dead_redis, lambda client: one_of_each(world, other, client))

    assert told == looked_up
    assert {outcome["outcome"] for outcome in told} == {
        "APPLIED",
        "DECLINED",
        "DUPLICATE",
        "REJECTED",
    }


async def one_of_each(world: World, holder: Holder, client: Client) -> list[dict[str, Any]]:
    """Return the outcomes of a story, without ids and times."""
    asked = world.authorization(holder, "T1", 1250, merchant={"descriptor": "CAFE"})
    events = [
        asked,
        world.authorization(holder, "T2", 5000),
        world.clearing(holder, "T1", 1500),
        asked,
        asked | {"amount": 1},
        world.authorization(holder, "T3", 10, currency="EUR"),
        world.clearing(holder, "T4", 600),
        asked | {"amount": 0},
    ]
    outcomes = await client.submit(events)
    again = await client.submit(events[:3])
    names = {event["reference"]: f"event {n}" for n, event in enumerate(events)}
    return [comparable(outcome.wire, names) for outcome in outcomes + again]


def comparable(wire: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    changing = {"id", "cardId", "customerId", "platformCustomerId", "accountId"}
    changing |= {"authorizedAt", "createdAt", "updatedAt", "lastEventAt", "expiresAt"}
    shown = wire.get("cardTransaction")
    told = {**wire, "reference": names[wire["reference"]]}
    if shown:
        told["cardTransaction"] = {k: v for k, v in shown.items() if k not in changing}
        told["said"] = sorted(changing & set(shown))
    return told


# --- one write for many ---------------------------------------------------------------------------


@pytest.fixture
def idle_world(
    postgres_url: DatabaseUrl, template_database: DatabaseUrl, app_database_url: DatabaseUrl
) -> Iterator[World]:
    """A database that no worker works on, so that rows stay where they were written."""
    with (
        fresh_database(postgres_url, template=template_database.database) as url,
        world_of(url, app_database_url.with_database(url.database)) as made,
    ):
        yield made


def test_submissions_that_come_together_are_written_together(
    idle_world: World, redis_url: str
) -> None:
    world = idle_world
    platform = world.platform()
    holders = [world.holder(platform) for _ in range(5)]

    async def crowd(client: Client) -> list[object]:
        one = (
            client.submit([world.authorization(holders[n % 5], f"T{n}", 10)]) for n in range(200)
        )
        return await asyncio.gather(*one, return_exceptions=True)

    answers = with_client(world, redis_url, crowd, reply_timeout_s=1.5)

    assert {type(answer) for answer in answers} == {ReplyTimeoutError}
    [(events, writes)] = world.rows(
        "SELECT count(*), count(DISTINCT xmin::text) FROM inbox WHERE platform_id = %s", platform
    )
    assert events == 200
    assert writes <= 3


def test_while_others_wait_what_comes_in_gathers_until_an_outcome_is_there(
    idle_world: World, redis_url: str
) -> None:
    world = idle_world
    platform = world.platform()
    first, *others = [
        world.authorization(world.holder(platform, 1000), f"T{n}", 10) for n in range(3)
    ]

    def waiting() -> int:
        query = "SELECT count(*) FROM inbox WHERE platform_id = %s"
        [(count,)] = world.rows(query, platform)
        return int(count)

    async def one_by_one(client: Client) -> tuple[int, list[list[Outcome]]]:
        [accepted] = await client.enqueue([first], lane=Lane.LIVE)
        answers = []
        for event in others:
            answers.append(asyncio.create_task(client.submit([event])))
            await client.is_redis_available()  # Longer than a write takes to begin.
        written = waiting()
        with working(world, redis_url):
            return written, [[await accepted], *await asyncio.gather(*answers)]

    written, outcomes = with_client(world, redis_url, one_by_one, gather_s=PATIENCE_S)

    assert written == 1
    assert [words(one) for one in outcomes] == [["APPLIED"]] * 3


def test_an_answer_that_is_late_leaves_the_event_accepted(
    idle_world: World, redis_url: str
) -> None:
    world = idle_world
    holder = world.holder(world.platform(), 1000)
    event = world.authorization(holder, "T1", 10)

    with pytest.raises(ReplyTimeoutError):
        with_client(world, redis_url, lambda c: c.submit([event]), reply_timeout_s=0.3)

    [decided] = world.drain(world.engine())
    assert decided.message.reference == event["reference"]
    assert world.account(holder)["balance"] == 990
    with working(world, redis_url):
        [again] = with_client(world, redis_url, lambda client: client.submit([event]))

    assert (again.outcome, again.first_outcome) == (OutcomeType.DUPLICATE, OutcomeType.APPLIED)


def test_a_client_that_stops_while_it_writes_ends_that_in_order(
    idle_world: World,
    redis_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = idle_world
    event = world.authorization(world.holder(world.platform(), 1000), "T1", 10)
    cancel = psycopg.AsyncConnection.cancel_safe

    async def slowly(connection: psycopg.AsyncConnection[Any], **how: float) -> None:
        await asyncio.sleep(0.5)  # A server that has much to do.
        await cancel(connection, **how)

    monkeypatch.setattr(psycopg.AsyncConnection, "cancel_safe", slowly)
    writing = (
        "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ '^COPY inbox'"
    )

    async def stopped() -> list[object]:
        async with client_of(world, redis_url) as client:
            waits = asyncio.create_task(client.enqueue([event]))
            async with asyncio.timeout(PATIENCE_S):
                while not world.rows(writing):
                    await client.is_redis_available()
            comes_later = asyncio.create_task(client.submit([event]))
            await client.is_redis_available()
        comes_too_late = client.submit([event])
        return [*await asyncio.gather(waits, comes_later, comes_too_late, return_exceptions=True)]

    with psycopg.connect(world.url) as blocking:
        blocking.execute("LOCK TABLE inbox IN EXCLUSIVE MODE")
        ended = asyncio.run(stopped())

    assert [type(one) for one in ended] == [UnavailableError] * 3
    assert caplog.messages == []


@pytest.mark.usefixtures("worker")
def test_a_client_that_has_just_heard_an_answer_stops_at_once(world: World, redis_url: str) -> None:
    holder = world.holder(world.platform(), 1000)

    async def one(number: int) -> float:
        async with client_of(world, redis_url) as client:
            await client.submit([world.authorization(holder, f"once-{number}", 1)])
            answered = time.monotonic()
        return time.monotonic() - answered

    taken = [asyncio.run(one(number)) for number in range(5)]

    assert statistics.median(taken) < 0.5


def test_a_program_that_submits_keeps_its_own_connections_as_they_are(
    world: World, redis_url: str
) -> None:
    holder = world.holder(world.platform(), 1000)
    program = f"""
import uuid, psycopg
from cardledger.workers.client import ReplyTimeoutError, submit

event = {world.authorization(holder, "embedded", 1)!r}
try:
    submit([event], database_url={world.app_url!r}, redis_url={redis_url!r},
        platform_id=uuid.UUID({str(holder.home.platform_id)!r}), reply_timeout_s=0.1)
except ReplyTimeoutError:
    pass
with psycopg.connect({world.url!r}) as connection:
    [(key,)] = connection.execute("SELECT customer_id FROM inbox WHERE reference = %s UNION ALL"
        " SELECT customer_id FROM outcomes WHERE reference = %s", [event["reference"]] * 2)
print(repr(key))
"""
    printed = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )

    assert printed.stdout == f"UUID('{holder.home.customer_id}')\n", printed.stderr


def test_without_postgresql_events_are_not_accepted_and_the_sender_knows(redis_url: str) -> None:
    async def ask() -> None:
        engine = async_engine("postgresql://nobody@127.0.0.1:1/nothing", poolclass=NullPool)
        async with Client(engine, redis_url, reply_timeout_s=PATIENCE_S) as client:
            await client.submit([{**EVENT, "cardId": f"Card:{uuid4()}"}])

    with pytest.raises(UnavailableError):
        asyncio.run(ask())


EVENT = {
    "type": "AUTHORIZATION",
    "source": "test",
    "reference": "r",
    "issuerTransactionToken": "T1",
    "amount": 10,
    "currency": "USD",
}


# --- Redis is only a doorbell -------------------------------------------------------------------


@pytest.mark.usefixtures("worker")
def test_a_client_without_redis_gets_its_outcomes_from_the_record(
    world: World, platform: Id, dead_redis: str
) -> None:
    holder = world.holder(platform, 1000)
    events = [world.authorization(holder, f"T{n}", 10) for n in range(50)]

    outcomes = with_client(world, dead_redis, lambda client: client.submit(events))

    assert words(outcomes) == ["APPLIED"] * 50
    assert references(outcomes) == [event["reference"] for event in events]


def test_workers_and_clients_do_their_work_without_any_redis(
    world: World, platform: Id, dead_redis: str
) -> None:
    holder = world.holder(platform, 1000)

    async def tip(client: Client) -> list[Outcome]:
        asked = await client.submit([world.authorization(holder, "T1", 125)])
        return asked + await client.submit([world.clearing(holder, "T1", 150)])

    with working(world, dead_redis, sweep_interval_s=0.05):
        outcomes = with_client(world, dead_redis, tip)

    assert words(outcomes) == ["APPLIED", "APPLIED"]
    assert world.account(holder)["balance"] == 850


def test_without_redis_a_waiting_file_does_not_delay_an_authorization(
    world: World, platform: Id, dead_redis: str
) -> None:
    holder = world.holder(platform, 1000)
    others = [world.holder(platform) for _ in range(8)]
    file = [(o, world.clearing(o, f"T{n}", 1)) for n in range(1500) for o in others]
    world.accept(file, Lane.BULK)

    async def ask(client: Client) -> list[Outcome]:
        return await client.submit([world.authorization(holder, "T1", 125)])

    with working(world, dead_redis, sweep_interval_s=0.05):
        outcomes = with_client(world, dead_redis, ask)
        left = world.owner.execute("SELECT count(*) FROM inbox WHERE lane = 1").fetchone()

    assert words(outcomes) == ["APPLIED"]
    assert left is not None
    assert left[0] > 0, "the file was done before the authorization"
    world.owner.execute("DELETE FROM inbox")  # What is left of the file is nobody's business.


def test_messages_that_waited_before_redis_lost_everything_are_found_by_the_sweeper(
    world: World, platform: Id, redis_url: str
) -> None:
    holders = [world.holder(platform, 1000) for _ in range(8)]
    for lane in Lane:
        for holder in holders:
            waiting = [world.authorization(holder, f"{lane}-{n}", 1) for n in range(20)]
            world.accept([(holder, event) for event in waiting], lane)
    with Redis.from_url(redis_url) as redis:
        redis.flushdb()

    with working(world, redis_url):
        wait_until(lambda: world.count("inbox") == 0)

    assert {world.account(holder)["balance"] for holder in holders} == {960}


@pytest.mark.usefixtures("worker")
def test_redis_may_lose_everything_again_and_again_while_events_are_on_their_way(
    world: World, platform: Id, redis_url: str
) -> None:
    holders = [world.holder(platform, 10_000) for _ in range(8)]
    events = [world.authorization(holders[n % 8], f"T{n}", 1) for n in range(2000)]
    done = threading.Event()
    flushes = 0

    def forget() -> None:
        nonlocal flushes
        with Redis.from_url(redis_url) as redis:
            while not done.wait(0.01):
                redis.flushdb()
                flushes += 1

    async def in_parts(client: Client) -> list[Outcome]:
        parts = [client.submit(events[n : n + 100]) for n in range(0, len(events), 100)]
        return [outcome for part in await asyncio.gather(*parts) for outcome in part]

    forgetting = threading.Thread(target=forget)
    forgetting.start()
    try:
        outcomes = with_client(world, redis_url, in_parts)
    finally:
        done.set()
        forgetting.join()

    assert words(outcomes) == ["APPLIED"] * 2000
    assert flushes
    for holder in holders:
        world.check_books(holder)


@pytest.mark.usefixtures("worker")
def test_a_worker_whose_database_connections_are_cut_finishes_its_work(
    world: World, platform: Id, redis_url: str
) -> None:
    holders = [world.holder(platform, 10_000) for _ in range(8)]
    events = [world.authorization(holders[n % 8], f"T{n}", 1) for n in range(3000)]
    accepted = [(holders[n % 8], event) for n, event in enumerate(events)]
    world.accept(accepted, Lane.BULK)
    cuts = 0

    def cut_and_look() -> bool:
        nonlocal cuts
        world.owner.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND datname = current_database() AND usename LIKE '%%_app'"
        )
        cuts += 1
        return cuts >= 5

    wait_until(cut_and_look)
    wait_until(lambda: world.count("inbox") == 0)

    again = with_client(world, redis_url, lambda client: client.submit(events[:1]))
    assert words(again) == ["DUPLICATE"]
    for holder in holders:
        world.check_books(holder)


# --- the doorbell ------------------------------------------------------------------------------


@contextmanager
def consuming(redis_url: str, work: Callable[[int], None]) -> Iterator[tuple[WakingBroker, Any]]:
    """Run one idle worker with one actor, on queues of nobody else."""
    broker = WakingBroker(redis_url, middleware=[])
    declare = dramatiq.actor(actor_name="work", queue_name=f"test-{uuid4().hex}", broker=broker)
    actor = declare(work)
    worker = dramatiq.Worker(broker, worker_threads=2)
    worker.start()
    try:
        yield broker, actor
    finally:
        worker.stop()
        broker.client.close()


def is_asleep(redis: Redis, wake_list: str) -> bool:
    """Return whether a consumer sleeps on Redis, and has nothing to wake up for."""
    try:
        number = str(redis.connection_pool.connection_kwargs.get("db", 0))
        return any(one["cmd"] == "blpop" and one["db"] == number for one in redis.client_list())
    except ResponseError:
        return not redis.llen(wake_list)  # The one in memory does not say who does what.


def test_an_idle_worker_starts_within_milliseconds(redis_url: str) -> None:
    started: list[float] = []
    woken = threading.Event()

    def work(_: int) -> None:
        started.append(time.perf_counter())
        woken.set()

    latencies = []
    with Redis.from_url(redis_url) as redis, consuming(redis_url, work) as (_, actor):
        for number in range(40):
            wait_until(lambda: is_asleep(redis, doorbell.wake_list(actor.queue_name)))
            woken.clear()
            sent = time.perf_counter()
            actor.send(number)
            assert woken.wait(PATIENCE_S)
            latencies.append((started[-1] - sent) * 1000)

    p50 = statistics.median(latencies)
    assert p50 < 50, f"{p50:.2f} ms"  # Measured: 0.6 ms; Dramatiq's own consumer: 350 ms.


def test_a_lost_wake_token_costs_a_moment_and_no_message(redis_url: str) -> None:
    heard: list[int] = []
    with Redis.from_url(redis_url) as redis, consuming(redis_url, heard.append) as (broker, actor):
        wait_until(lambda: is_asleep(redis, doorbell.wake_list(actor.queue_name)))

        RedisBroker.enqueue(broker, actor.message(7))  # As Dramatiq itself would: no token.

        wait_until(lambda: heard == [7])


def test_many_tokens_do_not_heap_up(redis_url: str) -> None:
    with Redis.from_url(redis_url) as redis:
        for _ in range(200):
            pipeline = redis.pipeline(transaction=False)
            doorbell.wake(pipeline, "nobody-listens")
            pipeline.execute()

        assert redis.llen(doorbell.wake_list("nobody-listens")) <= 32
        redis.delete(doorbell.wake_list("nobody-listens"))


def test_doorbells_of_another_sender_are_heard_once_each(redis_url: str) -> None:
    heard: list[int] = []
    with Redis.from_url(redis_url) as redis, consuming(redis_url, heard.append) as (_, actor):
        bells = [doorbell.Doorbell(actor.queue_name, "work", (n,)) for n in range(100)]
        pipeline = redis.pipeline(transaction=False)
        doorbell.notify(pipeline, bells)
        pipeline.execute()

        wait_until(lambda: len(heard) == 100)
        assert sorted(heard) == list(range(100))


def test_a_busy_consumer_takes_all_that_waits(redis_url: str) -> None:
    heard: list[int] = []
    gate = threading.Event()

    def work(number: int) -> None:
        gate.wait(PATIENCE_S)
        heard.append(number)

    with consuming(redis_url, work) as (_, actor):
        for number in range(200):
            actor.send(number)
        gate.set()
        wait_until(lambda: len(heard) == 200)


# --- who drains what ------------------------------------------------------------------------------


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


ONE_EACH = dict.fromkeys(Lane, 1)


class Slow:
    """A step that says when it is at it and goes on when it is told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[Lane, list[int]]] = []
        self.entered = threading.Semaphore(0)
        self.leave = threading.Semaphore(0)

    def __call__(self, lane: Lane, shards: Sequence[int]) -> Sequence[int]:
        self.calls.append((lane, list(shards)))
        self.entered.release()
        assert self.leave.acquire(timeout=PATIENCE_S)
        return []

    def wait_entered(self) -> None:
        assert self.entered.acquire(timeout=PATIENCE_S)


def test_queues_rung_for_while_a_thread_is_at_work_are_its_next_batch() -> None:
    slow = Slow()
    drains = ShardScheduler(slow, threads=ONE_EACH)
    thread = in_thread(lambda: drains.run(Lane.LIVE, [3]))
    slow.wait_entered()

    for shard in (3, 5, 3, 4):
        drains.run(Lane.LIVE, [shard])  # Returns at once.
    slow.leave.release(2)
    thread.join(PATIENCE_S)

    assert slow.calls == [(Lane.LIVE, [3]), (Lane.LIVE, [3, 5, 4])]


def test_one_batch_takes_half_of_the_queues_and_leaves_the_rest_to_another_thread() -> None:
    slow = Slow()
    drains = ShardScheduler(slow, threads=dict.fromkeys(Lane, 2))
    first = in_thread(lambda: drains.run(Lane.LIVE, range(SHARDS)))
    slow.wait_entered()

    second = in_thread(lambda: drains.run(Lane.LIVE, [0]))
    slow.wait_entered()
    slow.leave.release(3)
    for thread in (first, second):
        thread.join(PATIENCE_S)

    half = SHARDS // 2
    assert slow.calls[:2] == [
        (Lane.LIVE, list(range(half))),
        (Lane.LIVE, list(range(half, SHARDS))),
    ]
    assert slow.calls[2:] == [(Lane.LIVE, [0])], "and what was rung for meanwhile once more"


def test_a_live_queue_never_waits_for_bulk_ones() -> None:
    slow = Slow()
    drains = ShardScheduler(slow, threads=ONE_EACH)
    bulk = in_thread(lambda: drains.run(Lane.BULK, [1]))
    slow.wait_entered()

    live = in_thread(lambda: drains.run(Lane.LIVE, [1]))
    slow.wait_entered()
    slow.leave.release(2)
    for thread in (bulk, live):
        thread.join(PATIENCE_S)

    assert slow.calls == [(Lane.BULK, [1]), (Lane.LIVE, [1])]


def test_a_queue_that_has_more_comes_again_after_those_rung_for_meanwhile() -> None:
    calls: list[list[int]] = []

    def step(_: Lane, shards: Sequence[int]) -> Sequence[int]:
        calls.append(list(shards))
        if len(calls) == 1:
            drains.run(Lane.BULK, [2])
        return [1] if len(calls) == 1 else []

    drains = ShardScheduler(step, threads=ONE_EACH)
    drains.run(Lane.BULK, [1, 3])

    assert calls == [[1, 3], [2, 1]], "and one that has nothing more does not"


def test_a_batch_that_fails_frees_its_queues() -> None:
    calls: list[list[int]] = []

    def fail(_: Lane, shards: Sequence[int]) -> Sequence[int]:
        calls.append(list(shards))
        raise RuntimeError

    drains = ShardScheduler(fail, threads=ONE_EACH)
    drains.run(Lane.BULK, [1])
    drains.run(Lane.BULK, [1])
    drains.run(Lane.BULK, [2])

    assert calls == [[1], [1], [2]]


def test_no_ring_is_lost_and_no_queue_is_in_two_batches_at_a_time() -> None:
    work = dict.fromkeys(((lane, shard) for lane in Lane for shard in range(SHARDS)), 0)
    done = dict.fromkeys(work, 0)
    busy: set[tuple[Lane, int]] = set()
    lock = threading.Lock()
    clashes: list[tuple[Lane, int]] = []

    def step(lane: Lane, shards: Sequence[int]) -> Sequence[int]:
        queues = {(lane, shard) for shard in shards}
        with lock:
            clashes.extend(queues & busy)
            busy.update(queues)
            done.update({queue: work[queue] for queue in queues})
        time.sleep(0)
        with lock:
            busy.difference_update(queues)
        return []

    drains = ShardScheduler(step, threads=dict.fromkeys(Lane, 2))

    def ring() -> None:
        for n in range(400):
            lane, shard = list(work)[n % len(work)]
            with lock:
                work[lane, shard] += 1
            drains.run(lane, [shard])

    threads = [in_thread(ring) for _ in range(6)]
    for thread in threads:
        thread.join(PATIENCE_S)

    assert not clashes
    assert done == work


# --- chores ------------------------------------------------------------------------------------


@contextmanager
def doing(work: Callable[[], bool], *, every_s: float) -> Iterator[PeriodicTask]:
    chore = PeriodicTask("test", work, every_s=every_s)
    chore.start()
    try:
        yield chore
    finally:
        chore.stop(PATIENCE_S)


def test_a_chore_is_done_when_it_is_woken() -> None:
    done = threading.Semaphore(0)

    def work() -> bool:
        done.release()
        return False

    with doing(work, every_s=3600) as chore:
        for _ in range(3):
            chore.wake()
            assert done.acquire(timeout=PATIENCE_S)


def test_what_a_chore_is_woken_for_within_a_moment_is_done_together() -> None:
    done = threading.Semaphore(0)

    def work() -> bool:
        done.release()
        return False

    chore = PeriodicTask("test", work, every_s=3600, gather_s=0.2)
    chore.start()
    for _ in range(10):
        chore.wake()
    assert done.acquire(timeout=PATIENCE_S)
    chore.stop(PATIENCE_S)

    assert not done.acquire(blocking=False)


def test_a_chore_is_done_now_and_then_anyway_and_after_a_failure() -> None:
    done: list[int] = []

    def work() -> bool:
        done.append(1)
        raise RuntimeError

    with doing(work, every_s=0.01):
        wait_until(lambda: len(done) >= 3)


def test_a_chore_goes_on_at_once_while_there_is_something_to_do() -> None:
    left = [True, True, True, False]

    with doing(lambda: bool(left) and left.pop(0), every_s=3600) as chore:
        chore.wake()
        wait_until(lambda: not left)


def test_a_stopped_chore_does_no_more() -> None:
    done: list[int] = []

    def work() -> bool:
        done.append(1)
        return True

    with doing(work, every_s=0.001):
        wait_until(lambda: done)
    seen = len(done)

    assert not [thread for thread in threading.enumerate() if thread.name == "test"]
    assert len(done) == seen
