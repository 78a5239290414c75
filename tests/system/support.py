"""The command as a person runs it: real processes, waited for by polling conditions."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import httpx2
import psutil
import psycopg
from psycopg import sql

from cardledger.embedded.servers import DatabaseUrl
from cardledger.schema import roles
from tests.command_process import run_command
from tests.databases import fresh_database
from tests.waiting import LIMIT_S, eventually, limit_s

COMMAND: Final = [sys.executable, "-m", "cardledger"]
FUNDED: Final = 50_000


def environment(**given: str | None) -> dict[str, str]:
    """Return this process's environment without settings of ours, and with `given`.

    Decisions get the time that the machine needs now.
    """
    ours = ("CARDLEDGER_", "DATABASE_URL", "REDIS_URL", "PYTEST_", "FORCE_COLOR", "COLUMNS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    kept["CARDLEDGER_REPLY_TIMEOUT_S"] = f"{limit_s(5):.0f}"
    return kept | {name: value for name, value in given.items() if value is not None}


def run(
    *arguments: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float = 2 * LIMIT_S,
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return run_command(*arguments, env=env or environment(), cwd=cwd, timeout_s=timeout_s)


class Up:
    """`cardledger up`, ready or being watched while it is not."""

    def __init__(self, home: Path, env: Mapping[str, str], *arguments: str) -> None:
        self.data_dir = home / "data"
        self.ready_file = home / "ready.json"
        self.output_file = home / "output.txt"
        self.logs = home / "logs.txt"
        self.env = dict(env)
        command = [*COMMAND, "up", "--data-dir", str(self.data_dir), "--port", "0"]
        with self.output_file.open("wb") as output, self.logs.open("wb") as logs:
            self.process = subprocess.Popen(
                [*command, "--ready-file", str(self.ready_file), *arguments],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=logs,
            )

    def wait(self) -> Self:
        """Return when it is ready."""
        eventually(lambda: self.ready_file.exists() or self._ended(), timeout_s=200)
        assert self.process.poll() is None, self.output()
        return self

    @property
    def ready(self) -> dict[str, Any]:
        """What the ready file says now."""
        content: dict[str, Any] = json.loads(self.ready_file.read_text())
        return content

    def api(self) -> httpx2.Client:
        """Return a caller of its API."""
        ready = self.ready
        login = (ready["clientId"], ready["clientSecret"])
        return httpx2.Client(base_url=ready["baseUrl"], auth=login, timeout=limit_s())

    def submit(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `cardledger submit` against it."""
        return run("submit", "--data-dir", str(self.data_dir), *arguments)

    def verify(self) -> subprocess.CompletedProcess[str]:
        """Run `cardledger verify` against it."""
        return run("verify", "--data-dir", str(self.data_dir))

    def children(self) -> list[psutil.Process]:
        """Return every process below it."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to stop and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(limit_s())

    def output(self) -> str:
        """Return the whole output."""
        return self.output_file.read_text() + self.logs.read_text()

    def _ended(self) -> bool:
        return self.process.poll() is not None


@contextmanager
def up(home: Path, env: Mapping[str, str], *arguments: str) -> Iterator[Up]:
    """Yield a ready `cardledger up`; stop it, and see that it leaves nothing behind."""
    started = Up(home, env, *arguments)
    try:
        yield started.wait()
    finally:
        if started.process.poll() is None:
            started.stop()


@contextmanager
def own_database(postgres_url: DatabaseUrl) -> Iterator[DatabaseUrl]:
    """Yield an empty database for `up` to migrate; the roles that it makes go with it."""
    with fresh_database(postgres_url) as url:
        yield url
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for name in roles.names_in(url):
            connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(name)))


def cardholder(api: httpx2.Client, *, funds: int = FUNDED) -> dict[str, str]:
    """Create a customer with money and an active card; returns their ids."""
    body = {"customerType": "INDIVIDUAL", "fullName": "Ada Lovelace"}
    customer = _answer(api.post("/customers", json=body))["id"]
    accounts = _answer(api.get("/customers/internal-accounts", params={"customerId": customer}))
    account = accounts["data"][0]["id"]
    if funds:
        _answer(api.post(f"/sandbox/internal-accounts/{account}/fund", json={"amount": funds}))
    request = {"cardholderId": customer, "form": "VIRTUAL", "fundingSources": [account]}
    card = _answer(api.post("/cards", json=request))["id"]
    eventually(lambda: _answer(api.get(f"/cards/{card}"))["state"] == "ACTIVE")
    return {"customer": customer, "account": account, "card": card}


def authorize(api: httpx2.Client, card: str, amount: int = 1250) -> dict[str, Any]:
    """Simulate an authorization and return the card transaction."""
    body = {
        "amount": amount,
        "currency": {"code": "USD"},
        "merchant": {"descriptor": "CHEZ ROUX", "mcc": "5812", "country": "FR"},
    }
    return _answer(api.post(f"/sandbox/cards/{card}/simulate/authorization", json=body))


def clear(api: httpx2.Client, card: str, card_transaction: str, amount: int) -> dict[str, Any]:
    """Simulate a clearing and return the card transaction."""
    body = {"cardTransactionId": card_transaction, "amount": amount}
    return _answer(api.post(f"/sandbox/cards/{card}/simulate/clearing", json=body))


def purchases(cards: Sequence[str], count: int, *, prefix: str) -> list[dict[str, Any]]:
    """Return `count` events: authorizations of 1000, each followed by a clearing of 1200."""
    return [
        {
            "type": "CLEARING" if number % 2 else "AUTHORIZATION",
            "source": "test-network",
            "reference": f"{prefix}-{number}",
            "issuerTransactionToken": f"{prefix}-{number // 2}",
            "cardId": cards[number // 2 % len(cards)],
            "amount": 1200 if number % 2 else 1000,
            "currency": "USD",
        }
        for number in range(count)
    ]


def write_lines(path: Path, events: Sequence[Mapping[str, Any]]) -> str:
    """Write `events` as JSON lines and return the file's name."""
    path.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    return str(path)


def outcomes(finished: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """Return the outcomes that `submit` printed."""
    return [json.loads(line) for line in finished.stdout.splitlines()]


def has_ended(process: psutil.Process) -> bool:
    """Return whether `process` has ended; its new parent may not have collected it yet.

    Where the first process of a machine collects orphans every few seconds, they are zombies until
    then: without memory, files and locks.
    """
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _answer(response: httpx2.Response) -> dict[str, Any]:
    assert response.is_success, response.text
    sent_body: dict[str, Any] = response.json()
    return sent_body


@contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:  # noqa: ANN401 - those of Popen
    """Run `command`; whatever happens in between, it has ended afterwards.

    A test that fails before it has stopped its process must not wait for it without end.
    """
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise
