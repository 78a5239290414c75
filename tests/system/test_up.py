import json
import os
import re
import signal
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import psutil
import psycopg
import pytest
from standardwebhooks import Webhook

from cardledger.embedded.servers import DatabaseUrl, OwnRedis
from cardledger.schema import roles
from cardledger.schema.finance import VERSION
from cardledger.supervisor.silence import LIMIT_S
from tests.receiver import Receiver
from tests.system import support
from tests.system.support import Up
from tests.waiting import eventually, limit_s


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnRedis]:
    """A Redis of this module alone, because it is stopped here."""
    server = OwnRedis(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def system(
    tmp_path_factory: pytest.TempPathFactory, postgres_url: DatabaseUrl, redis: OwnRedis
) -> Iterator[Up]:
    with support.own_database(postgres_url) as database_url:
        env = support.environment(
            DATABASE_URL=database_url,
            REDIS_URL=redis.url,
            CARDLEDGER_METRICS_PORT=str(first_of_two_ports()),
        )
        with support.up(tmp_path_factory.mktemp("up"), env) as running:
            yield running


def listens(port: int) -> bool:
    """Return whether something accepts connections at `port`."""
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def first_of_two_ports() -> int:
    """Return a port on which nothing listens, nor on the next one."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            with suppress(OSError, OverflowError):
                second.bind(("127.0.0.1", port + 1))
                return port


def test_the_ready_file_is_private_and_complete(system: Up) -> None:
    ready = system.ready

    assert stat.S_IMODE(system.ready_file.stat().st_mode) == 0o600
    assert ready["baseUrl"].endswith("/2025-10-13")
    assert ready["webhookPublicKey"].startswith("-----BEGIN PUBLIC KEY-----")
    assert ready["webhookSecret"].startswith("whsec_")
    assert set(ready["pids"]) == {"api", "worker-1", "webhooks"}
    assert all(psutil.pid_exists(pid) for pid in ready["pids"].values())
    kept = system.data_dir / "credentials.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert json.loads(kept.read_text())["clientId"] == ready["clientId"]


def test_the_finance_url_of_the_ready_file_reads_the_books_and_no_table(system: Up) -> None:
    with psycopg.connect(system.ready["financeUrl"], autocommit=True) as connection:
        assert connection.execute("SELECT finance.version()").fetchone() == (VERSION,)
        with pytest.raises(
            psycopg.errors.UndefinedTable
        ):  # Its schema is not on a path of its own.
            connection.execute("SELECT FROM entries")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT FROM cardledger.entries")


def test_the_database_url_of_the_ready_file_has_append_only_access(system: Up) -> None:
    with (
        psycopg.connect(system.ready["databaseUrl"]) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("DELETE FROM entries")


def test_each_process_logs_in_as_its_own_role(system: Up) -> None:
    url = DatabaseUrl(system.ready["databaseUrl"])
    login = (system.ready["clientId"], system.ready["clientSecret"])
    sessions = (
        "SELECT DISTINCT usename FROM pg_stat_activity WHERE datname = current_database()"
        " AND starts_with(application_name, 'cardledger')"
    )

    httpx2.get(f"{system.ready['baseUrl']}/config", auth=login)

    own = {f"{url.database}_{role}" for role in roles.PROCESSES}
    with psycopg.connect(url, autocommit=True) as connection:
        eventually(lambda: {name for (name,) in connection.execute(sessions)} == own)
    found = support.run("doctor", "--json", "--data-dir", str(system.data_dir))
    states = {one["name"]: one["state"] for one in json.loads(found.stdout)["findings"]}
    examined = ("process roles", "role in use", "workers", "queue locks")
    assert {states[name] for name in examined} == {"ok"}


def test_the_console_shows_the_findings_of_doctor_and_the_workers(system: Up) -> None:
    ready = system.ready
    root = httpx2.URL(ready["baseUrl"]).join("/console")
    login = {"client_id": ready["clientId"], "client_secret": ready["clientSecret"]}
    of_workers = [f"<td>{ready['pids'][name]}</td>" for name in ("worker-1", "webhooks")]

    with httpx2.Client(headers={"Origin": str(root.join("/")).rstrip("/")}) as browser:
        browser.post(f"{root}/login", data=login)

        def page() -> str | None:
            found = browser.get(f"{root}/system").text
            return found if all(row in found for row in of_workers) else None

        shown = eventually(page)

    assert re.search(r'role in use</th><td><b class="fine">ok</b>', shown)
    assert "decides events of every queue" in shown


def test_each_worker_serves_its_metrics_on_a_port_of_its_own(system: Up) -> None:
    port = int(system.env["CARDLEDGER_METRICS_PORT"])
    for number in (port, port + 1):  # The system is ready before its webhooks are sent.
        eventually(partial(listens, number))

    pages = [
        httpx2.get(f"http://127.0.0.1:{number}/metrics", timeout=limit_s()).text
        for number in (port, port + 1, httpx2.URL(system.ready["baseUrl"]).port)
    ]

    own = ("cardledger_inbox_messages", "cardledger_outbox_webhooks", "cardledger_http_requests")
    for page, name in zip(pages, own, strict=True):
        assert [each in page for each in own] == [each == name for each in own]


def test_secrets_are_on_no_command_line(system: Up) -> None:
    secrets = [system.ready["clientSecret"], system.ready["redisUrl"]]
    secrets.append(json.loads((system.data_dir / "credentials.json").read_text())["secretKey"])

    lines = [" ".join(child.cmdline()) for child in system.children()]

    assert lines
    assert not any(secret in line for secret in secrets for line in lines)


def test_the_restaurant_tip_works_over_http_and_an_independent_receiver_verifies_it(
    system: Up,
) -> None:
    ready = system.ready
    with (
        system.api() as api,
        Receiver(ready["webhookPublicKey"], ready["webhookSecret"]) as receiver,
    ):
        api.patch("/config", json={"webhookEndpoint": receiver.url}).raise_for_status()
        who = support.cardholder(api)

        authorized = support.authorize(api, who["card"], 1250)
        settled = support.clear(api, who["card"], authorized["id"], 1500)

        assert (authorized["status"], authorized["pullSummary"]["count"]) == ("AUTHORIZED", 1)
        assert (settled["status"], settled["pullSummary"]["count"]) == ("SETTLED", 2)
        assert settled["settlementSummary"]["totalAmount"] == 1500
        assert api.get(f"/transactions/{authorized['id']}").json()["status"] == "SETTLED"
        accounts = api.get("/customers/internal-accounts", params={"customerId": who["customer"]})
        assert accounts.json()["data"][0]["balance"]["amount"] == 48_500
        wanted = {
            "CARD.STATE_CHANGE",
            "CARD_TRANSACTION.AUTHORIZED",
            "CARD_TRANSACTION.SETTLED",
            "INTERNAL_ACCOUNT.BALANCE_UPDATED",
        }
        arrived = receiver.wait_for(lambda all_: wanted <= {arrival.type for arrival in all_})
        assert all(arrival.problem is None for arrival in arrived)
        # Once more by an independent library.
        judge = Webhook(ready["webhookSecret"])
        assert all(judge.verify(arrival.body, arrival.headers) for arrival in arrived)
        api.patch("/config", json={"webhookEndpoint": None}).raise_for_status()


@pytest.mark.parametrize("command", ["migrate", "person list"])
def test_a_command_of_the_owner_names_the_database_that_the_system_works_on(
    system: Up, command: str
) -> None:
    finished = support.run(*command.split(), "--data-dir", str(system.data_dir))

    assert finished.returncode == 1
    database = DatabaseUrl(system.ready["databaseUrl"]).redacted
    assert f"works on {database}; set DATABASE_URL" in finished.stderr
    assert finished.stderr.count("\n") == 1
    assert not (system.data_dir / "postgres").exists()


def test_a_second_system_in_the_same_directory_is_refused(system: Up) -> None:
    refused = support.run("up", "--data-dir", str(system.data_dir), "--port", "0")

    assert refused.returncode == 1
    assert refused.stderr.startswith("cardledger: another cardledger runs in ")
    assert "Traceback" not in refused.stderr
    assert system.ready_file.exists()


def test_a_taken_port_is_one_clear_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        refused = support.run("up", "--data-dir", str(tmp_path / "data"), "--port", str(port))

    assert refused.returncode == 1
    assert f"port {port} on 127.0.0.1 is already in use" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["api", "worker-1", "webhooks"])
def test_a_child_that_is_killed_is_restarted(system: Up, name: str) -> None:
    killed = system.ready["pids"][name]

    os.kill(killed, signal.SIGKILL)

    _wait_for_another(system, name, killed)
    with system.api() as api:
        who = support.cardholder(api)
        assert support.authorize(api, who["card"])["status"] == "AUTHORIZED"


@pytest.mark.parametrize("name", ["api", "worker-1", "webhooks"])
def test_a_child_that_is_frozen_is_replaced(system: Up, name: str) -> None:
    with system.api() as api:
        who = support.cardholder(api)
        frozen = _that_serves(system, name)

        os.kill(frozen, signal.SIGSTOP)
        began = time.perf_counter()
        if name == "worker-1":
            # Accepted at once, and decided by the successor.
            assert support.authorize(api, who["card"])["status"] == "AUTHORIZED"
        else:
            _wait_for_another(system, name, frozen)
        seconds = time.perf_counter() - began

    # Five seconds on an idle machine.
    assert seconds < limit_s(2.5)
    assert f"silent for {LIMIT_S:g} s; killing it" in system.logs.read_text()


def test_the_check_of_a_container_asks_the_worker_and_opens_no_connection(system: Up) -> None:
    # Of the container that the check runs in: no server listens at these addresses.
    nowhere = {"DATABASE_URL": "postgresql://ada@127.0.0.1:1/x", "REDIS_URL": "redis://[::1]:1"}
    env = {**system.env, **nowhere, "CARDLEDGER_DATA_DIR": str(system.data_dir)}

    def check(role: str) -> tuple[int, str]:
        done = support.run("worker", "--only", role, "--check", env=env)
        return done.returncode, done.stdout

    def is_healthy(role: str) -> bool:
        return check(role) == (0, "healthy\n")

    eventually(lambda: is_healthy("events") and is_healthy("webhooks"))
    processes = (_that_serves(system, "worker-1"), system.process.pid)
    for pid in processes[::-1]:  # First the parent, which would replace a frozen worker.
        os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: not is_healthy("events"))
        code, problem = check("events")
        is_other_healthy = is_healthy("webhooks")
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGCONT)

    assert code == 1
    assert "it is frozen; restart it" in problem
    assert is_other_healthy
    eventually(lambda: is_healthy("events"))


def test_a_child_that_has_died_is_removed_from_the_ready_file(system: Up) -> None:
    seen: list[int | None] = []
    for _ in range(3):  # The delay before the restart grows each time.
        killed = eventually(lambda: system.ready["pids"].get("worker-1"))
        os.kill(killed, signal.SIGKILL)
        seen.append(_after(system, killed))

    assert None in seen
    eventually(lambda: system.ready["pids"].get("worker-1"))


def test_without_redis_an_authorization_is_decided_and_nothing_needs_repair(
    system: Up, redis: OwnRedis
) -> None:
    with system.api() as api:
        who = support.cardholder(api)
        assert redis.pid is not None
        os.kill(redis.pid, signal.SIGSTOP)  # Reachable and silent: the worst kind of outage.
        try:
            during = support.authorize(api, who["card"])
        finally:
            os.kill(redis.pid, signal.SIGCONT)
        after = support.clear(api, who["card"], during["id"], 1500)

    assert during["status"] == "AUTHORIZED"
    assert (after["status"], after["pullSummary"]["count"]) == ("SETTLED", 2)
    assert system.verify().returncode == 0


def test_sigterm_stops_everything_and_removes_the_ready_file(system: Up) -> None:
    children = system.children()

    code = system.stop()  # The last test of this system.

    assert code == 0, system.output()
    assert not system.ready_file.exists()
    assert not (system.data_dir / "up.json").exists()
    assert not any(child.is_running() for child in children)


def test_what_is_killed_loses_nothing_and_leaves_no_process(passable_dir: Path) -> None:
    # With servers of its own, because they have to go as well.
    killed = Up(passable_dir, support.environment()).wait()
    children = killed.children()
    assert {"postgres", "redis"} <= set(killed.ready["pids"])
    with killed.api() as api:
        who = support.cardholder(api)
        authorized = support.authorize(api, who["card"])

    killed.stop(signal.SIGKILL)

    eventually(lambda: all(map(support.has_ended, children)))
    assert not killed.ready_file.exists()
    with support.up(passable_dir, killed.env, "--workers", "2") as again, again.api() as api:
        workers = {"api", "worker-1", "worker-2", "webhooks"}
        assert set(again.ready["pids"]) == workers | {"postgres", "redis"}
        card_transaction = api.get(f"/transactions/{authorized['id']}").json()
        assert card_transaction["status"] == "AUTHORIZED"
        assert again.verify().returncode == 0
        _kill_servers(again)
        eventually(lambda: _authorized(api, who["card"]))
        assert again.verify().returncode == 0


def _kill_servers(system: Up) -> None:
    """Kill PostgreSQL and Redis, and wait until they have been restarted."""
    before = system.ready["pids"]
    for name in ("postgres", "redis"):
        os.kill(before[name], signal.SIGKILL)
    for name in ("postgres", "redis"):
        _wait_for_another(system, name, before[name])


def _after(system: Up, killed: int) -> int | None:
    """Return the next entry of the ready file for a worker that was killed."""
    eventually(lambda: system.ready["pids"].get("worker-1") != killed)
    pid: int | None = system.ready["pids"].get("worker-1")
    return pid


def _that_serves(system: Up, name: str) -> int:
    """Return the process of a child once it serves: one that starts may be silent for longer.

    A worker reports its health again and again, and sends heartbeats from its first report on.
    """

    if name == "api":  # It has answered.
        return int(system.ready["pids"][name])
    first: dict[int, float] = {}

    def reported_again() -> int | None:
        pid: int | None = system.ready["pids"].get(name)
        for path in (system.data_dir / "health").glob(f"worker-*-{pid}.json"):
            with suppress(FileNotFoundError):
                changed_at = path.stat().st_mtime
                if pid is not None and first.setdefault(pid, changed_at) != changed_at:
                    return pid
        return None

    return eventually(reported_again)


def _wait_for_another(system: Up, name: str, killed: int) -> None:
    eventually(lambda: system.ready["pids"].get(name) not in {None, killed})


def _authorized(api: httpx2.Client, card: str) -> dict[str, Any] | None:
    """Return an approved authorization; None while the servers start, which may take too long."""
    try:
        authorization = support.authorize(api, card)
    except AssertionError:
        return None
    if authorization["status"] == "AUTHORIZED":
        return authorization
    assert authorization["declineReason"] == "DECISION_TIMEOUT"
    return None
