"""A release is deployed beside the previous one and taken back under load."""

import itertools
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Final, Self

import httpx2
import psycopg
import pytest

from cardledger.api import BASE_PATH
from cardledger.embedded.servers import DatabaseUrl
from cardledger.install import credentials, databases
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema import migrate
from storm.proxy import free_port
from tests.command_process import run_command
from tests.releases import PRESENT, next_release
from tests.system.support import cardholder, environment, own_database
from tests.waiting import eventually, limit_s

HEAD: Final = int(migrate.head())
COLUMN, INDEX = f"{HEAD + 1:04}", f"{HEAD + 2:04}"

EXPANDS: Final = {
    f"{COLUMN}_network_reference.py": f'''"""Card transactions have a reference of the network."""

from alembic import op

revision, down_revision = "{COLUMN}", "{migrate.head()}"


def upgrade() -> None:
    op.execute("ALTER TABLE card_transactions ADD COLUMN network_reference TEXT")


def downgrade() -> None:
    op.execute("ALTER TABLE card_transactions DROP COLUMN network_reference")
''',
    f"{INDEX}_outcomes_by_time.py": f'''"""Outcomes are found by their time."""

from cardledger.schema.migrations import steps

revision, down_revision = "{INDEX}", "{COLUMN}"


def upgrade() -> None:
    steps.create_index_concurrently("outcomes_by_time_idx", "outcomes (recorded_at)")


def downgrade() -> None:
    steps.drop_index_concurrently("outcomes_by_time_idx")
''',
}
CONTRACT: Final = {
    f"{COLUMN}_no_region.py": f'''"""No release reads the region any more."""

from cardledger.schema.migrations import views

revision, down_revision, oldest_head = "{COLUMN}", "{migrate.head()}", "{COLUMN}"


def upgrade() -> None:
    views.change_table_below_view("customers", "DROP COLUMN region")


def downgrade() -> None:
    views.add_to_table_and_view("customers", "ADD COLUMN region TEXT")
''',
}

FILLS: Final = {
    f"{COLUMN}_marks.py": f'''"""Every queue has a mark."""

from cardledger.schema.migrations import steps

revision, down_revision = "{COLUMN}", "{migrate.head()}"


def upgrade() -> None:
    steps.change_in_pages(
        "UPDATE inbox_shards SET lock = 'x' WHERE (lane, shard) IN"
        " (SELECT lane, shard FROM inbox_shards WHERE lock IS NULL ORDER BY 1, 2 LIMIT 10)"
    )


def downgrade() -> None:
    pass
''',
}

CALLERS: Final = 3
AMOUNT: Final = 10
PAUSE_S: Final = 0.05  # Of a caller between two requests: the processes have to start beside them.
RETRIED: Final = {408, 425, 429, 500, 502, 503, 504}  # As the interface says.
REQUEST_LIMIT_S: Final = (
    1.0  # For how long a request may fail, and how long the slowest 1 % may take.
)


Finished = subprocess.CompletedProcess[str]


class Installation:
    """A database with its credentials, and the processes of two releases."""

    def __init__(self, home: Path, owner: DatabaseUrl, redis_url: str) -> None:
        self.home = home
        self.owner = owner
        data = home / "data"
        data.mkdir()
        kept = credentials.load(data)
        secret_key = credentials.secret_key(kept, None)
        app_url = databases.prepare(owner, kept).app_url
        self.access = credentials.enter(kept, app_url, KeyRing(secret_key)).access
        self.environment = environment(
            DATABASE_URL=app_url,
            REDIS_URL=redis_url,
            CARDLEDGER_SECRET_KEY=secret_key,
            CARDLEDGER_DATA_DIR=str(data),
            CARDLEDGER_WORKER_THREADS="2",
            CARDLEDGER_RATE_LIMIT="off",
        )
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            process.kill()
            process.wait()

    def run(self, release: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of `release` as the owner of the database.

        Only the other release needs an interpreter that has not imported this one.
        """
        if release == PRESENT:
            env = self._of(release, DATABASE_URL=str(self.owner))
            return run_command(*arguments, env=env, cwd=self.home, timeout_s=120)
        return subprocess.run(
            [sys.executable, "-m", "cardledger", *arguments],
            env=self._of(release, DATABASE_URL=str(self.owner)),
            cwd=self.home,
            capture_output=True,
            check=False,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=limit_s(120),
        )

    def start(self, release: Path, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start a process of `release`."""
        with (self.home / "log.txt").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "cardledger", *arguments],
                env=self._of(release, **variables),
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._running.append(process)
        return process

    def client(self, base_url: str) -> httpx2.Client:
        """Return a caller of the API at `base_url`."""
        login = (self.access.client_id, self.access.client_secret)
        return httpx2.Client(
            base_url=f"{base_url}{BASE_PATH}", auth=login, timeout=limit_s(10), trust_env=False
        )

    def one(self, query: str) -> Any:  # noqa: ANN401 - a value of PostgreSQL
        """Return the one value of `query`."""
        with psycopg.connect(self.owner) as connection:
            row = connection.execute(query.encode()).fetchone()
            assert row is not None
            return row[0]

    def _of(self, release: Path, **variables: str) -> dict[str, str]:
        return self.environment | {"PYTHONPATH": str(release)} | variables


class Release:
    """An API process and a worker of one release, behind the load balancer while they serve."""

    def __init__(self, installation: Installation, release: Path, balancer: "Balancer") -> None:
        port = free_port()
        self.base_url = f"http://127.0.0.1:{port}"
        self._balancer = balancer
        self._processes = [
            installation.start(release, "worker"),
            installation.start(release, "api", CARDLEDGER_PORT=str(port)),
        ]
        eventually(self.is_ready, timeout_s=60)
        balancer.add(self.base_url)

    def is_ready(self) -> bool:
        assert all(process.poll() is None for process in self._processes)
        try:
            return httpx2.get(f"{self.base_url}/readyz", timeout=limit_s(5)).is_success
        except httpx2.TransportError:
            return False

    def stop(self) -> None:
        """Take it out of the load balancer, then stop it."""
        self._balancer.remove(self.base_url)
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            # uvicorn has answered what it had accepted, then ends by the signal that it got.
            assert process.wait(limit_s()) in {0, -signal.SIGTERM}


class Balancer:
    """Knows who serves."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._serving: list[str] = []

    def add(self, base_url: str) -> None:
        with self._guard:
            self._serving.append(base_url)

    def remove(self, base_url: str) -> None:
        with self._guard:
            self._serving.remove(base_url)

    def choose(self) -> str:
        with self._guard:
            return random.choice(self._serving)  # noqa: S311 - no secret


class Load:
    """Callers who authorize one purchase after the other, each until it has an answer."""

    def __init__(self, installation: Installation, balancer: Balancer) -> None:
        self._installation = installation
        self._balancer = balancer
        self._stopping = Event()
        self._has_failed = Event()  # The test: what has no answer may never have one.
        self._threads: list[Thread] = []
        self.answers: list[str] = []  # The card transaction of each request.
        self.took_s: list[float] = []
        self.failures: list[str] = []
        self.failed_s: list[float] = []  # From the first failure of a request to its answer.
        self.wrong: list[str] = []

    def __enter__(self) -> Self:
        with self._installation.client(self._balancer.choose()) as api:
            cards = [cardholder(api, funds=1_000_000)["card"] for _ in range(CALLERS)]
        for number, card in enumerate(cards):
            self._threads.append(Thread(target=self._call, args=(number, card)))
            self._threads[-1].start()
        self.go_on()
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:
            self._has_failed.set()
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def answered_during(self, command: Callable[[], Finished]) -> tuple[Finished, int]:
        """Return the result of `command`, and how many requests were answered meanwhile."""
        before = len(self.answers)
        finished = command()
        return finished, len(self.answers) - before

    def go_on(self, count: int = 20) -> None:
        """Return when `count` more requests have been answered."""
        wanted = len(self.answers) + count
        eventually(lambda: len(self.answers) >= wanted or self.wrong)
        assert self.wrong == []

    def _call(self, caller: int, card: str) -> None:
        clients: dict[str, httpx2.Client] = {}
        for number in itertools.count():
            if self._stopping.is_set():
                break
            self._stopping.wait(PAUSE_S)
            try:
                self._authorize(clients, card, f"caller-{caller}-{number}")
            except Exception as error:  # noqa: BLE001 - reported by the test
                self.wrong.append(repr(error))
                break
        for client in clients.values():
            client.close()

    def _authorize(self, clients: dict[str, httpx2.Client], card: str, key: str) -> None:
        began_at, failed_at = time.monotonic(), None
        while (content := self._ask(clients, card, key)) is None:
            if self._has_failed.is_set():
                return
            failed_at = failed_at or time.monotonic()
            self._stopping.wait(PAUSE_S)
        assert content["status"] != "DECLINED", content
        self.answers.append(content["id"])
        self.took_s.append(time.monotonic() - began_at)
        if failed_at is not None:
            self.failed_s.append(time.monotonic() - failed_at)

    def _ask(self, clients: dict[str, httpx2.Client], card: str, key: str) -> dict[str, Any] | None:
        """Return the card transaction; None when the same request may be sent again."""
        base_url = self._balancer.choose()
        if base_url not in clients:
            clients[base_url] = self._installation.client(base_url)
        body = {"amount": AMOUNT, "currency": {"code": "USD"}, "merchant": {"descriptor": key}}
        try:
            answer = clients[base_url].post(
                f"/sandbox/cards/{card}/simulate/authorization",
                json=body,
                headers={"Idempotency-Key": key},
            )
        except httpx2.TransportError as error:
            self.failures.append(repr(error))
            return None
        if answer.is_success:
            content: dict[str, Any] = answer.json()
            return content
        self.failures.append(answer.text)
        assert answer.status_code in RETRIED, answer.text
        return None


@pytest.fixture
def installation(
    tmp_path: Path, postgres_url: DatabaseUrl, redis_url: str
) -> Iterator[Installation]:
    with own_database(postgres_url) as url, Installation(tmp_path, url, redis_url) as made:
        yield made


@contextmanager
def outsider(installation: Installation, statement: str) -> Iterator[int]:
    """Execute `statement` in a transaction that stays open; yield the process id."""
    with psycopg.connect(installation.owner) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute(statement.encode())
        yield connection.info.backend_pid


IS_VALID: Final = """
    SELECT indisvalid FROM pg_index WHERE indexrelid = 'cardledger.outcomes_by_time_idx'::regclass
"""


OLDEST_HEAD: Final = "SELECT oldest_head FROM cardledger.schema_compatibility"

# Canaries of an API process may be left when the last worker stops.
WAITING: Final = """
    SELECT count(*) FROM cardledger.inbox
    WHERE customer_id < 'ffffffff-ffff-ffff-ffff-fffffffffff0'
"""


@pytest.mark.slow
def test_two_releases_run_side_by_side_under_load_up_and_back(
    installation: Installation, tmp_path: Path
) -> None:
    balancer = Balancer()
    following = next_release(tmp_path / "next", EXPANDS)
    previous = Release(installation, PRESENT, balancer)

    with Load(installation, balancer) as load:
        # A report reads the table that gets a column: the migration gives up, the load goes on.
        with outsider(installation, "SELECT FROM card_transactions") as pid:
            busy, answered_while_busy = load.answered_during(
                lambda: installation.run(following, "migrate", "--give-up-after", "2")
            )
            load.go_on()
        # Another one is older than the index that is built.
        with outsider(installation, "SELECT FROM platforms"):
            half = installation.run(following, "migrate", "--give-up-after", "2")
            was_valid = installation.one(IS_VALID)
            load.go_on()
        up, answered_meanwhile = load.answered_during(
            lambda: installation.run(following, "migrate")
        )
        is_valid = installation.one(IS_VALID)
        load.go_on()
        again = installation.run(PRESENT, "migrate")
        was_ready = previous.is_ready()

        upcoming = Release(installation, following, balancer)
        load.go_on()
        previous.stop()
        load.go_on()
        previous = Release(installation, PRESENT, balancer)
        load.go_on()
        upcoming.stop()
        load.go_on()  # The previous release alone decides, on the newer schema.
        down = installation.run(following, "migrate", "--down", migrate.head(), "--yes")
        load.go_on()
        is_ready = previous.is_ready()
    verified = installation.run(PRESENT, "verify")
    previous.stop()

    assert (busy.returncode, half.returncode) == (1, 1)
    assert f"tables are in use by session {pid} " in busy.stderr
    assert "gave up after" in busy.stderr
    assert f"up {COLUMN} in" in half.stderr
    assert f"the schema is at {COLUMN}: run it again" in half.stderr
    # The workers of the previous release decided while the migration waited, and while it ran.
    assert answered_while_busy > 0
    assert answered_meanwhile > 0
    assert (was_valid, is_valid) == (False, True)
    assert up.stdout == f"schema {COLUMN} -> {INDEX}\n", up.stderr
    assert again.stdout == f"schema {INDEX}, as it was\n", again.stderr
    assert was_ready
    assert is_ready
    assert down.stdout == f"schema {INDEX} -> {migrate.head()}\n", down.stderr
    # Nothing was lost or doubled, and no caller waited long.
    assert len(set(load.answers)) == len(load.answers)
    assert installation.one("SELECT count(*) FROM cardledger.card_transactions") == len(
        load.answers
    )
    assert installation.one(WAITING) == 0
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert max(load.failed_s, default=0) < limit_s(REQUEST_LIMIT_S), load.failures
    assert sorted(load.took_s)[len(load.took_s) * 99 // 100] < limit_s(REQUEST_LIMIT_S)


def test_a_contract_revision_ends_the_releases_that_it_names(
    installation: Installation, tmp_path: Path
) -> None:
    following = next_release(tmp_path / "next", CONTRACT)

    before = installation.one(OLDEST_HEAD)
    up = installation.run(following, "migrate")
    refused = {
        command: installation.run(PRESENT, command) for command in ("migrate", "verify", "doctor")
    }
    oldest_head = installation.one(OLDEST_HEAD)
    down = installation.run(following, "migrate", "--down", migrate.head(), "--yes")
    after = installation.one(OLDEST_HEAD)
    verified = installation.run(PRESENT, "verify")

    assert up.returncode == 0, up.stderr
    assert oldest_head == COLUMN
    assert {name: finished.returncode for name, finished in refused.items()} == dict.fromkeys(
        refused, 1
    )
    assert "does not know" in refused["migrate"].stderr
    assert "deploy the release that belongs to it" in refused["verify"].stderr
    assert down.returncode == 0, down.stderr
    assert after == before
    assert verified.returncode == 0, verified.stderr


def test_rows_are_changed_in_pages_and_an_interruption_keeps_those_that_are_complete(
    installation: Installation, tmp_path: Path
) -> None:
    following = next_release(tmp_path / "next", FILLS)

    with outsider(
        installation, "SELECT FROM cardledger.inbox_shards WHERE lane = 1 AND shard = 15 FOR UPDATE"
    ):
        busy = installation.run(following, "migrate", "--give-up-after", "0")
        # The last page has the row that the outsider has locked.
        changed = installation.one("SELECT count(*) FROM cardledger.inbox_shards WHERE lock = 'x'")
    up = installation.run(following, "migrate")
    at_last = installation.one("SELECT count(*) FROM cardledger.inbox_shards WHERE lock = 'x'")

    assert busy.returncode == 1
    assert f"the schema is at {migrate.head()}: run it again" in busy.stderr
    assert changed == 30
    assert up.returncode == 0, up.stderr
    assert "2 rows changed" in up.stderr
    assert at_last == 32
