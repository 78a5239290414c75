"""What a program that may write to Redis can do: cost a little time. And how to keep it out."""

import asyncio
import json
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import redis
from cryptography import x509
from redis import Redis
from sqlalchemy.exc import OperationalError

from cardledger.embedded.servers import DatabaseUrl, best_redis, serves_without_password
from cardledger.ledger.storage.engines import async_engine, sync_engine
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import Outcome, OutcomeType
from cardledger.workers.client import Client, redis_gateway
from cardledger.workers.client.replies import LISTS, written
from cardledger.workers.process import main as worker_process
from cardledger.workers.process.end import EXIT_CODE
from cardledger.workers.signals import doorbell, redis_connections
from cardledger.workers.signals.message_key import MessageKey
from cardledger.workers.signals.outage_log import REDIS
from cardledger.workers.signals.redis_connections import connect
from cardledger.workers.signals.roles import WorkerRole
from cardledger.workers.signals.shared_counts import Increment, SharedCounts
from tests.authority import Authority
from tests.integration.workers import client_of, config_of, outcome_types, with_client, working
from tests.proxy import address_of, proxy_to, through
from tests.tls_proxy import tls_proxy
from tests.waiting import eventually, limit_s
from tests.worker_process import hanging, started
from tests.world import SECRET_KEY, Cardholder, World, open_world

DAY_S = 86_400.0


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


@pytest.fixture
def attacker(redis_url: str) -> Iterator[Redis]:
    with Redis.from_url(redis_url) as client:
        yield client


# --- forged replies ------------------------------------------------------------------------------


async def waiting_message(world: World) -> tuple[Id, str]:
    """Return the id and the reply list of the only message in the inbox, once there is one."""
    rows: list[Any] = []

    def look() -> bool:
        rows[:] = world.connection.execute("SELECT id, reply_to FROM inbox").fetchall()
        return bool(rows)

    await asyncio.to_thread(eventually, look)
    [(key, reply_to)] = rows
    return key, reply_to


def forged(message_id: Id, reference: str) -> bytes:
    approval = json.dumps({"reference": reference, "outcome": "APPLIED"}).encode()
    return b"%s APPLIED %s" % (message_id.hex().encode(), approval)


async def submitted_under_attack(
    world: World, cardholder: Cardholder, attacker: Redis, client: Client
) -> Outcome:
    """Submit more than the account holds, and forge approvals before the worker decides."""
    event = world.authorization(cardholder, "T1", 5_000)
    submitting = asyncio.create_task(client.submit([event]))
    message_id, reply_list = await waiting_message(world)
    line = forged(message_id, event["reference"])
    other_key = MessageKey("the key of another installation, of 32 characters")
    [of_another] = written([line], reply_list, other_key)
    [to_another] = written([line], f"{LISTS}another", MessageKey(SECRET_KEY))
    for reply in (line, b"junk", b"", of_another, to_another, b"0 " * 100_000):
        await asyncio.to_thread(attacker.rpush, reply_list, reply)
    await asyncio.to_thread(eventually, lambda: not attacker.exists(reply_list))
    [repeated] = written([forged(new_id(), "another")], reply_list, MessageKey(SECRET_KEY))
    await asyncio.to_thread(attacker.rpush, reply_list, repeated)
    await asyncio.to_thread(eventually, lambda: not attacker.exists(reply_list))
    assert not client._pending.last_reply_at, "a reply that no caller waits for shows nothing"
    assert not submitting.done()
    await asyncio.to_thread(world.drain, world.engine())
    [outcome] = await submitting
    return outcome


def test_a_forged_outcome_is_not_believed(
    world: World, platform: Id, redis_url: str, attacker: Redis
) -> None:
    cardholder = world.cardholder(platform, 1000)

    outcome = with_client(
        world, redis_url, partial(submitted_under_attack, world, cardholder, attacker)
    )

    assert (outcome.outcome, outcome.reason) == (OutcomeType.DECLINED, "INSUFFICIENT_FUNDS")


def test_after_a_forged_reply_the_record_is_asked_and_not_redis(
    world: World, redis_url: str, attacker: Redis
) -> None:
    async def attack() -> None:
        async with client_of(world, redis_url) as client:
            reply_list = str(client.reply_list)

            def is_record_asked() -> bool:
                attacker.rpush(reply_list, "forged")
                return not client._redis.is_available

            await asyncio.to_thread(eventually, is_record_asked)

    asyncio.run(attack())


def test_a_client_without_the_key_of_the_workers_gets_the_outcomes_of_the_record(
    world: World, platform: Id, redis_url: str
) -> None:
    cardholder = world.cardholder(platform, 1000)
    events = [world.authorization(cardholder, f"T{n}", 400) for n in range(3)]

    async def submit() -> tuple[list[Outcome], bool]:
        async with client_of(world, redis_url) as client:
            client._key = MessageKey("the key of another installation, of 32 characters")  # type: ignore[misc]
            outcomes = await client.submit(events)
            return outcomes, bool(client._pending.last_reply_at)

    with working(world, redis_url):
        outcomes, is_replied = asyncio.run(submit())

    assert outcome_types(outcomes) == ["APPLIED", "APPLIED", "DECLINED"]
    assert not is_replied


def test_a_reply_list_of_another_type_delays_its_client_and_no_other(
    world: World, platform: Id, redis_url: str, attacker: Redis
) -> None:
    cardholder = world.cardholder(platform, 10_000)

    async def submit() -> float:
        async with client_of(world, redis_url) as hit, client_of(world, redis_url) as other:
            assert hit.reply_list is not None
            for number in range(3):
                await asyncio.to_thread(attacker.set, hit.reply_list, "a text")
                events = [world.authorization(cardholder, f"T{number}{n}", 10) for n in range(2)]
                pair = await asyncio.gather(hit.submit(events[:1]), other.submit(events[1:]))
                assert outcome_types([*pair[0], *pair[1]]) == ["APPLIED", "APPLIED"]
            return other._pending.last_reply_at

    with working(world, redis_url):
        assert asyncio.run(submit()) > 0


# --- doorbells and counts ------------------------------------------------------------------------


def message(*args: object) -> bytes:
    fields = {
        "queue_name": "live",
        "actor_name": "drain_inbox",
        "args": args,
        "kwargs": {},
        "options": {},
        "message_id": str(new_id()),
        "message_timestamp": int(time.time() * 1000),
    }
    return json.dumps(fields).encode()


def test_doorbells_for_many_shards_do_not_stop_decisions(
    world: World, platform: Id, redis_url: str, attacker: Redis
) -> None:
    cardholder = world.cardholder(platform, 10_000)
    _, messages, queue, _ = doorbell.keys_of("live")
    body = message(0, *range(200_000))

    with working(world, redis_url, threads=2):
        for number in range(50):
            attacker.hset(messages, str(number), body)
            attacker.rpush(queue, number)
        event = world.authorization(cardholder, "T1", 10)
        outcomes = with_client(
            world, redis_url, lambda client: client.submit([event]), reply_timeout_s=limit_s(2)
        )

        eventually(lambda: not attacker.exists(messages))

    assert outcome_types(outcomes) == ["APPLIED"]


def test_counts_that_no_process_has_signed_do_not_count(redis_url: str, attacker: Redis) -> None:
    name, window = str(new_id()), 7

    def added(times: int) -> Increment:
        return Increment(name=name, window=window, times=times, expires_s=60)

    async def exchange() -> tuple[list[int], list[int]]:
        one, other = SharedCounts(redis_url, SECRET_KEY), SharedCounts(redis_url, SECRET_KEY)
        [(first, _)], [(both, _)] = await one.exchange([added(3)]), await other.exchange([added(4)])
        key = f"cardledger:counts:{name}:{window}"
        fields: dict[bytes, bytes] = attacker.hgetall(key)  # type: ignore[assignment]
        signed = fields[one._process]
        forged = {b"x": b"1000:" + b"0" * 64, b"y": b"junk", one._process + b"1": signed}
        attacker.hset(key, mapping=forged)  # type: ignore[arg-type]
        [(forged_total, _)] = await other.exchange([added(1)])
        attacker.delete(key)
        [(deleted, _)] = await other.exchange([added(1)])
        attacker.hset(key, mapping={str(n): signed for n in range(5_000)})
        [(flooded, _)] = await other.exchange([added(1)])
        await one.close()
        await other.close()
        return [first, both, forged_total], [deleted, flooded]

    believed, own = asyncio.run(exchange())

    assert believed == [3, 7, 8]
    assert own == [6, 7]


# --- the end of a worker -------------------------------------------------------------------------


def test_a_worker_ends_within_ten_seconds_of_sigterm_whatever_is_silent(
    world: World, platform: Id, app_database_url: DatabaseUrl
) -> None:
    cardholder = world.cardholder(platform, 10_000)
    with (
        proxy_to(app_database_url) as proxy,
        socket.create_server(("127.0.0.1", 0)) as silent,
        started(
            config_of(
                world,
                f"redis://127.0.0.1:{silent.getsockname()[1]}/0",
                database_url=through(app_database_url, proxy),
            )
        ) as worker,
    ):
        world.accept([(cardholder, world.authorization(cardholder, "T1", 10))])
        eventually(lambda: world.count("inbox") == 0)
        proxy.freeze()
        world.accept([(cardholder, world.authorization(cardholder, "T2", 10))])
        eventually(lambda: proxy.held_chunks)

        worker.terminate()

        eventually(lambda: worker.exitcode is not None, timeout_s=10)
    world.drain(world.engine())
    assert world.account(cardholder)["balance"] == 9_980


def test_a_worker_whose_main_thread_hangs_is_ended_after_sigterm(
    world: World, redis_url: str
) -> None:
    with hanging(config_of(world, redis_url)) as worker:
        worker.terminate()

        eventually(lambda: worker.exitcode is not None, timeout_s=20)

        assert worker.exitcode == EXIT_CODE


# --- users of Redis ------------------------------------------------------------------------------


USERS = Path(__file__).parents[2] / "docs" / "redis-users.acl"
PASSWORDS = {"API": "one", "WORKER": "two", "WEBHOOKS": "three"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The host and port of a Redis with the users of the documentation."""
    directory = tmp_path_factory.mktemp("redis")
    users = USERS.read_text()
    for role, password in PASSWORDS.items():
        users = users.replace(f">{role}_PASSWORD", f">{password}")
    (directory / "users.acl").write_text(users)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    options = ["--aclfile", str(directory / "users.acl"), "--save", "", "--dir", str(directory)]
    server = subprocess.Popen(
        [best_redis().path, "--bind", "127.0.0.1", "--port", str(port), *options],
        stdout=subprocess.DEVNULL,
    )
    try:
        with Redis(port=port) as client:
            eventually(partial(answers, client), process=server)
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(limit_s())


def answers(client: Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def url_of(role: str, guarded: str) -> str:
    return f"redis://cardledger_{role.lower()}:{PASSWORDS[role]}@{guarded}/0"


def test_workers_leave_traces_and_senders_of_webhooks_find_them(guarded: str) -> None:
    key = "cardledger:traces:change"
    with (
        Redis.from_url(url_of("WORKER", guarded)) as worker,
        Redis.from_url(url_of("WEBHOOKS", guarded)) as webhooks,
    ):
        worker.set(key, "trace", ex=60)

        assert webhooks.get(key) == b"trace"
        with pytest.raises(redis.exceptions.NoPermissionError):
            webhooks.set(key, "other")


def test_each_role_works_with_a_user_of_its_own(world: World, platform: Id, guarded: str) -> None:
    cardholder = world.cardholder(platform, 10_000)
    api, worker, webhooks = (url_of(role, guarded) for role in PASSWORDS)

    async def submit(client: Client) -> None:
        await asyncio.sleep(0)
        for number in range(3):
            event = world.authorization(cardholder, f"T{number}", 10)
            assert outcome_types(await client.submit([event])) == ["APPLIED"]
        await asyncio.to_thread(eventually, lambda: client._pending.last_reply_at)
        assert await client.is_redis_available()

    async def count() -> None:
        counts = SharedCounts(api, SECRET_KEY)
        await counts.exchange([Increment(name="x", window=1, times=1, expires_s=9)])
        await counts.close()

    # By polling alone nothing would happen for a day.
    with (
        working(world, webhooks, role=WorkerRole.WEBHOOKS, sweep_interval_s=DAY_S),
        working(world, worker, role=WorkerRole.EVENTS, sweep_interval_s=DAY_S),
    ):
        with_client(world, api, submit)
        asyncio.run(count())
        eventually(lambda: world.count("outbox") == 0)

    assert not REDIS.is_out, "and no command was refused"


def test_without_a_login_no_key_is_shown(guarded: str) -> None:
    assert not serves_without_password(url_of("API", guarded))


FORBIDDEN: Mapping[str, Sequence[tuple[str, ...]]] = {
    "API": [
        ("RPUSH", "cardledger:replies:1", "x"),
        ("BLPOP", "cardledger:webhooks.wake", "1"),
        ("EVAL", "return redis.call('RPUSH', KEYS[1], 'x')", "1", "cardledger:replies:1"),
    ],
    "WORKER": [
        ("BLPOP", "cardledger:replies:1", "1"),
        ("LRANGE", "cardledger:replies:1", "0", "1"),
        ("HSET", "cardledger:counts:x:1", "a", "1"),
    ],
    "WEBHOOKS": [
        ("RPUSH", "cardledger:replies:1", "x"),
        ("RPUSH", "cardledger:live", "x"),
        ("EVAL", "return 1", "0"),
    ],
}
ADMINISTRATION: Sequence[tuple[str, ...]] = [
    ("FLUSHALL",),
    ("CONFIG", "GET", "*"),
    ("KEYS", "*"),
    ("SCAN", "0"),
    ("ACL", "LIST"),
    ("SAVE",),
    ("SHUTDOWN",),
    ("MONITOR",),
    ("REPLICAOF", "NO", "ONE"),
    ("SET", "cardledger:replies:1", "x"),
    ("SET", "another:application", "x"),
    ("PUBLISH", "x", "x"),
]


@pytest.mark.parametrize("role", PASSWORDS)
def test_a_user_can_do_nothing_else(role: str, guarded: str) -> None:
    with closing(connect(url_of(role, guarded))) as client:
        for command in (*FORBIDDEN[role], *ADMINISTRATION):
            with pytest.raises(redis.ResponseError, match=r"permission|can't"):
                client.execute_command(*command)  # type: ignore[no-untyped-call]

    for url in (f"redis://{guarded}/0", f"redis://cardledger_{role.lower()}:wrong@{guarded}/0"):
        with closing(connect(url)) as client, pytest.raises(redis.RedisError):
            client.blpop(["cardledger:live"], timeout=1)


# --- TLS -----------------------------------------------------------------------------------------


THIS_MACHINE = x509.IPAddress(ip_address("127.0.0.1"))


@pytest.fixture
def handshakes_may_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a handshake take longer, on a busy machine, than a doorbell or a reply may."""
    monkeypatch.setattr(redis_gateway, "_SEND_TIMEOUT_S", limit_s())
    monkeypatch.setattr(redis_gateway, "_LISTEN_TIMEOUT_S", limit_s())
    monkeypatch.setattr(worker_process, "_REPLY_TIMEOUT_S", limit_s())
    monkeypatch.setattr(redis_connections, "_CONNECT_TIMEOUT_S", limit_s())


@dataclass
class Secured:
    """URLs of Redis and PostgreSQL behind proxies that speak TLS."""

    redis_url: str
    database_url: DatabaseUrl
    handshakes: Sequence[list[str]]  # Of each.


@contextmanager
def secured(
    redis_url: str,
    database_url: DatabaseUrl,
    authority: Authority,
    *,
    name: x509.GeneralName = THIS_MACHINE,
    trusted: Authority | None = None,
) -> Iterator[Secured]:
    """Have `authority` certify `name` for both; their clients trust `trusted`, or `authority`."""
    parts = urlsplit(redis_url)
    assert parts.hostname is not None
    login, at, _ = parts.netloc.rpartition("@")
    certificate = (trusted or authority).file
    context = authority.context(name)
    with (
        tls_proxy((parts.hostname, parts.port or 6379), context, asks=False) as to_redis,
        tls_proxy(address_of(database_url), context, asks=True) as to_postgres,
    ):
        place = f"{login}{at}127.0.0.1:{to_redis.port}{parts.path}"
        direct = through(database_url, to_postgres)
        yield Secured(
            f"rediss://{place}?ssl_ca_certs={certificate}",
            DatabaseUrl(f"{direct}&sslmode=verify-full&sslrootcert={certificate}"),
            (to_redis.handshakes, to_postgres.handshakes),
        )


@pytest.mark.usefixtures("handshakes_may_last")
def test_a_worker_and_a_client_use_verified_tls(
    world: World, platform: Id, redis_url: str, app_database_url: DatabaseUrl, tmp_path: Path
) -> None:
    cardholder = world.cardholder(platform, 1000)

    async def submit(stores: Secured) -> tuple[list[Outcome], float]:
        engine = async_engine(stores.database_url, keyed=True)
        event = world.authorization(cardholder, "T", 10)
        try:
            async with Client(
                engine, stores.redis_url, secret_key=SECRET_KEY, reply_timeout_s=limit_s()
            ) as client:
                # By its doorbell: without one, nothing happens for a day.
                outcomes = await client.submit([event])
                replied = partial(getattr, client._pending, "last_reply_at")
                return outcomes, await asyncio.to_thread(eventually, replied)
        finally:
            await engine.dispose()

    with (
        secured(redis_url, app_database_url, Authority(tmp_path)) as stores,
        working(
            world,
            stores.redis_url,
            database_url=stores.database_url,
            role=WorkerRole.EVENTS,
            sweep_interval_s=DAY_S,
        ),
    ):
        outcomes, replied_at = asyncio.run(submit(stores))

    assert outcome_types(outcomes) == ["APPLIED"]
    assert replied_at
    for handshakes in stores.handshakes:
        assert set(handshakes) == {"TLSv1.3"}


@pytest.mark.usefixtures("handshakes_may_last")
@pytest.mark.parametrize("wrong", ["authority", "name"])
def test_a_server_that_cannot_prove_its_name_is_refused(
    redis_url: str, app_database_url: DatabaseUrl, tmp_path: Path, wrong: str
) -> None:
    (tmp_path / "another").mkdir()
    authority, another = Authority(tmp_path), Authority(tmp_path / "another")
    changes: dict[str, Any] = (
        {"trusted": another}
        if wrong == "authority"
        else {"name": x509.DNSName("elsewhere.example")}
    )
    with secured(redis_url, app_database_url, authority, **changes) as stores:
        engine = sync_engine(stores.database_url)
        with pytest.raises(OperationalError, match=r"SSL error|certificate"):
            engine.connect()
        engine.dispose()
        refused = pytest.raises(redis.ConnectionError, match="certificate verify failed")
        with closing(connect(stores.redis_url)) as client, refused:
            client.ping()


def test_a_server_without_tls_is_refused(redis_url: str, app_database_url: DatabaseUrl) -> None:
    with proxy_to(app_database_url) as proxy:
        url = f"{through(app_database_url, proxy)}&sslmode=verify-full&sslrootcert=system"
        with pytest.raises(psycopg.OperationalError, match="does not support SSL"):
            psycopg.connect(url)
    # Redis waits for the end of what it takes for a command, and the client for an answer.
    plain = connect(redis_url.replace("redis://", "rediss://"), timeout_s=0.5)
    with closing(plain), pytest.raises(redis.RedisError):
        plain.ping()
