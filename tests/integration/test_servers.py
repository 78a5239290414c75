import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import dramatiq
import psutil
import psycopg
import pytest
import sqlalchemy as sa
from dramatiq.brokers.redis import RedisBroker
from redis import Redis

from cardledger.embedded import directories
from cardledger.embedded.servers import (
    DatabaseUrl,
    EmbeddedPostgres,
    OwnRedis,
    RedisProgram,
    Server,
    ServerError,
    find_postgres,
    find_redis,
    redis_in_wheel,
    redis_on_path,
)
from tests.databases import fresh_database
from tests.waiting import eventually, limit_s

PROGRAMS = {"path": redis_on_path(), "wheel": redis_in_wheel()}
OWNER = """
import pathlib, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # A job in the background ignores it.
from cardledger.embedded.servers import EmbeddedPostgres, OwnRedis
for server in (EmbeddedPostgres(pathlib.Path(sys.argv[1])), OwnRedis(pathlib.Path(sys.argv[1]))):
    server.start()
    print(server.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def data_dir(passable_dir: Path) -> Path:
    return passable_dir / "data"


@contextmanager
def running(*servers: Server) -> Iterator[None]:
    try:
        for server in servers:
            server.start()
        yield
    finally:
        for server in servers:
            server.stop()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Path]:
    """A data directory that was initialised and is not in use."""
    directory = directories.temporary("cardledger-test-")
    try:
        data_dir = directory / "data"
        with running(EmbeddedPostgres(data_dir)):
            pass
        yield data_dir
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def initialised(cluster: Path, data_dir: Path) -> Path:
    """Return a copy of `cluster`, made in a tenth of the time that initdb takes."""
    # With the owner: of root's cluster, that is another user.
    subprocess.run([shutil.which("cp") or "cp", "-a", str(cluster), str(data_dir)], check=True)
    return data_dir


def ask(url: str, question: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(question.encode())
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def wait_for_end(pid: int) -> None:
    with suppress(psutil.NoSuchProcess):
        eventually(
            lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE,
            message=f"process {pid} did not end",
        )


def kill_with_children(pid: int) -> None:
    everyone = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    for process in everyone:
        with suppress(psutil.NoSuchProcess):  # PostgreSQL's children notice, and leave.
            process.kill()
    for process in everyone:
        wait_for_end(process.pid)


def redis_at(url: str) -> Redis:
    return Redis.from_url(url, decode_responses=True)


# --- PostgreSQL ------------------------------------------------------------------------------


def test_the_embedded_postgres_keeps_what_it_acknowledged_across_a_stop(initialised: Path) -> None:
    server = EmbeddedPostgres(initialised)

    with running(server):
        ask(server.url, "CREATE TABLE public.facts AS SELECT 42 AS fact")
        first = server.pid
    with running(server):
        kept = ask(server.url, "SELECT fact FROM public.facts")
        second = server.pid

    assert kept == 42
    assert first != second
    assert server.pid is None
    assert server.origin.startswith("embedded PostgreSQL 1")


def test_the_embedded_postgres_is_durable_and_on_utc(data_dir: Path) -> None:
    server = EmbeddedPostgres(data_dir)

    with running(server):
        settings = {name: ask(server.url, f"SHOW {name}") for name in ("fsync", "full_page_writes")}
        commit = ask(server.url, "SHOW synchronous_commit")
        zone = ask(server.url, "SHOW timezone")
        connections = ask(server.url, "SHOW max_connections")
        address = ask(server.url, "SHOW listen_addresses")

    assert settings == {"fsync": "on", "full_page_writes": "on"}
    assert commit == "on"
    assert zone == "UTC"
    assert int(str(connections)) >= 100
    assert address == ""


def test_the_port_of_another_server_in_the_environment_is_not_used(
    initialised: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPORT", "15440")
    server = EmbeddedPostgres(initialised)

    with running(server):
        port = ask(server.url, "SHOW port")

    assert port == "5432"


def test_the_embedded_postgres_starts_again_after_kill_9(initialised: Path) -> None:
    server = EmbeddedPostgres(initialised)

    with running(server):
        ask(server.url, "CREATE TABLE public.facts AS SELECT 42 AS fact")
        assert server.pid is not None
        kill_with_children(server.pid)
        server.start()
        kept = ask(server.url, "SELECT fact FROM public.facts")

    assert kept == 42


def test_a_stale_pid_file_with_the_number_of_another_process_is_no_obstacle(
    initialised: Path,
) -> None:
    server = EmbeddedPostgres(initialised)
    with running(server):
        left = (initialised / "postgres" / "postmaster.pid").read_text().splitlines()

    left[0] = str(os.getpid())
    (initialised / "postgres" / "postmaster.pid").write_text("\n".join(left) + "\n")

    with running(server):
        assert ask(server.url, "SELECT 1") == 1


def test_half_an_initialisation_is_started_over(data_dir: Path) -> None:
    (data_dir / "postgres.new" / "base").mkdir(parents=True)
    server = EmbeddedPostgres(data_dir)

    with running(server):
        assert ask(server.url, "SELECT 1") == 1


def test_a_path_that_is_too_long_for_a_socket_gets_a_short_one(data_dir: Path) -> None:
    server = EmbeddedPostgres(data_dir / ("deep, 'quoted' " * 8) / "down")

    with running(server):
        sockets = Path(str(ask(server.url, "SHOW unix_socket_directories")).strip('"'))
        mode = stat.S_IMODE(sockets.stat().st_mode)
        answer = ask(server.url, "SELECT 1")

    assert answer == 1
    assert len(str(sockets)) < 100
    assert mode == 0o700


def test_a_path_with_spaces_commas_and_quotes_is_served(data_dir: Path) -> None:
    server = EmbeddedPostgres(data_dir / 'a, "b" %20c')

    with running(server):
        assert ask(server.url, "SELECT 1") == 1


def test_a_second_process_shares_the_server_and_leaves_it_running(initialised: Path) -> None:
    owner, guest = EmbeddedPostgres(initialised), EmbeddedPostgres(initialised)

    with running(owner):
        with running(guest):
            assert guest.url == owner.url
            assert guest.pid is None
            assert "of another process" in guest.origin
        assert ask(owner.url, "SELECT 1") == 1


def test_two_processes_that_start_at_once_share_one_server(data_dir: Path) -> None:
    servers = [EmbeddedPostgres(data_dir) for _ in range(2)]
    starts = [threading.Thread(target=server.start) for server in servers]

    for start in starts:
        start.start()
    for start in starts:
        start.join()

    # The threads are gone and the server is not: a parent-death signal would have stopped it.
    try:
        assert servers[0].url == servers[1].url
        assert ask(servers[0].url, "SELECT 1") == 1
        assert sorted(server.pid is None for server in servers) == [False, True]
    finally:
        for server in servers:
            server.stop()


def test_one_url_is_good_for_psycopg_sqlalchemy_and_another_role(initialised: Path) -> None:
    server = EmbeddedPostgres(initialised)

    with running(server), fresh_database(server.url) as url:
        ask(url, "CREATE ROLE \"o'app\" LOGIN PASSWORD 'p@ss/word'")
        application = url.with_user("o'app", "p@ss/word")
        engine = sa.create_engine(application.sqlalchemy)
        with engine.connect() as connection:
            through_sqlalchemy = connection.scalar(sa.text("SELECT current_user::text"))
        engine.dispose()

        assert through_sqlalchemy == "o'app"
        assert ask(application, "SELECT current_database()::text") == url.database


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_servers_end_with_their_owner_however_it_ends(
    initialised: Path, how: signal.Signals
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(initialised)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as owner:
        assert owner.stdout is not None
        pids = [int(owner.stdout.readline()) for _ in range(2)]
        owner.send_signal(how)
        owner.wait()

    for pid in pids:
        wait_for_end(pid)
    server = EmbeddedPostgres(initialised)
    with running(server):
        assert ask(server.url, "SELECT 1") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_servers_end_even_when_their_guard_is_killed(initialised: Path) -> None:
    postgres, redis = EmbeddedPostgres(initialised), OwnRedis(initialised)

    with running(postgres, redis):
        pids = [pid for pid in (postgres.pid, redis.pid) if pid is not None]
        for pid in pids:
            guard = psutil.Process(pid).parent()
            assert guard is not None
            assert "watchdog.py" in " ".join(guard.cmdline())
            guard.kill()

        for pid in pids:
            wait_for_end(pid)

    assert len(pids) == 2


def test_a_given_postgres_is_named_and_left_running(postgres_url: DatabaseUrl) -> None:
    server = find_postgres(postgres_url, Path("/nonexistent"))

    server.start()
    server.stop()

    assert server.origin.startswith("from DATABASE_URL (PostgreSQL ")
    assert ask(postgres_url, "SELECT 1") == 1


def test_a_given_postgres_that_is_silent_is_a_clear_error_without_its_password() -> None:
    server = find_postgres("postgresql://me:hush@127.0.0.1:1/x", Path("/nonexistent"))

    with pytest.raises(ServerError, match=r"me@127.0.0.1:1/x \(DATABASE_URL\)") as refused:
        server.start()

    assert "hush" not in str(refused.value)


# --- Redis -----------------------------------------------------------------------------------


@pytest.fixture(params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> RedisProgram:
    found = PROGRAMS[request.param]
    if found is None:
        pytest.skip(f"no such Redis here: {request.param}")
    return found


def test_every_kind_of_redis_answers_stops_and_answers_again(
    data_dir: Path, program: RedisProgram
) -> None:
    server = OwnRedis(data_dir, program)

    with running(server):
        redis_at(server.url).set("doorbell", "rung")
    pid = server.pid
    with running(server):
        kept = redis_at(server.url).get("doorbell")

    assert pid is None
    assert kept == "rung"
    assert server.origin == program.origin


def test_every_kind_of_redis_starts_again_after_kill_9(
    data_dir: Path, program: RedisProgram
) -> None:
    server = OwnRedis(data_dir, program)

    with running(server):
        assert server.pid is not None
        kill_with_children(server.pid)
        server.start()

        assert redis_at(server.url).ping()


def test_every_kind_of_redis_requires_its_password_and_evicts_nothing(
    data_dir: Path, program: RedisProgram
) -> None:
    server = OwnRedis(data_dir, program)

    with running(server):
        client = redis_at(server.url)
        settings = {  # One by one: Redis 6 takes no list.
            name: value
            for wanted in ("maxmemory-policy", "appendonly", "bind")
            for name, value in client.config_get(wanted).items()
        }
        other_platform = Redis.from_url("redis://" + server.url.partition("@")[2])
        with pytest.raises(Exception, match=r"(?i)authenticat"):
            other_platform.ping()
        other_platform.close()

    assert settings["maxmemory-policy"] == "noeviction"
    assert settings["appendonly"] == "yes"
    assert settings["bind"] == "127.0.0.1"


def test_a_second_process_shares_the_redis(data_dir: Path, program: RedisProgram) -> None:
    owner, guest = OwnRedis(data_dir, program), OwnRedis(data_dir, program)

    with running(owner, guest):
        assert guest.url == owner.url
        guest.stop()
        assert redis_at(owner.url).ping()


def test_a_message_of_dramatiq_goes_through_every_kind_of_redis(
    data_dir: Path, program: RedisProgram
) -> None:
    server = OwnRedis(data_dir, program)
    arrived = threading.Event()

    with running(server):
        broker = RedisBroker(url=server.url)  # type: ignore[no-untyped-call] # Dramatiq's own gap.

        @dramatiq.actor(broker=broker)
        def ring(shard: int) -> None:
            if shard == 7:
                arrived.set()

        worker = dramatiq.Worker(broker, worker_timeout=50, worker_threads=1)
        worker.start()
        ring.send(7)
        came = arrived.wait(limit_s())
        worker.stop()
        broker.close()

    assert came


def test_a_given_redis_is_left_running(redis_url: str) -> None:
    server = find_redis(redis_url, Path("/nonexistent"))

    server.start()
    server.stop()

    assert server.origin == "from REDIS_URL"
    assert redis_at(redis_url).ping()


def test_a_given_redis_that_is_silent_is_a_clear_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        server = find_redis(f"redis://127.0.0.1:{taken.getsockname()[1]}/0", Path("/nonexistent"))

        with pytest.raises(ServerError, match="REDIS_URL does not answer"):
            server.start()
