"""What an attack has at hand: the system, a platform of its own, and the other platform."""

import asyncio
import itertools
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import httpx2
from typing_extensions import override

from attack.judge import Measure, Strike, statuses_in_words
from attack.measures import DOCUMENT_BYTES, WAITING_DELIVERIES
from attack.wire import Address, Answer, Connection, basic, request
from benchmarks import workload
from cardledger.api import BASE_PATH
from cardledger.install import credentials
from cardledger.install.credentials import Access
from cardledger.schema.ids import Id
from cardledger.schema.wire.customers.accounts import MAX_FUND
from storm.proxy import free_port
from storm.system import API, Process, System, wait_until

BALANCE: Final = MAX_FUND

_DEFAULTS: Final = (
    "CARDLEDGER_RATE_LIMIT",
    "CARDLEDGER_WEBHOOK_RETRY_SCALE",
    "CARDLEDGER_WEBHOOK_TIMEOUT_S",
)
"""What a storm sets to its own ends, and an attack has to find as it is delivered."""

_PRIORITY: Final = 15
_FUND_TRIES: Final = 10
_START_TIMEOUT_S: Final = 300.0


class Stage(System):
    """A system with the limits that it is delivered with, and without anything in between."""

    def __init__(self, home: Path) -> None:
        """Keep data and logs below `home`."""
        super().__init__(home, is_direct=True)

    @override
    def environment(self, name: str) -> dict[str, str]:
        """Return the environment of process `name`."""
        environment = super().environment(name)
        for variable in _DEFAULTS:
            environment.pop(variable, None)
        few = {
            "CARDLEDGER_DOCUMENT_BYTES": str(DOCUMENT_BYTES),
            "CARDLEDGER_WEBHOOK_WAITING_LIMIT": str(WAITING_DELIVERIES),
        }
        return environment | few | {"CARDLEDGER_CONSOLE": "act"}

    def pids(self) -> list[int]:
        """Return the process ids of everything that runs, without children."""
        servers = [] if self.redis.pid is None else [self.redis.pid]
        return [*self.pids_without_redis(), *servers]

    def pids_without_redis(self) -> list[int]:
        """Return them without Redis: what fills it itself has its memory anyway."""
        servers = [] if self.postgres.pid is None else [self.postgres.pid]
        running = [process.pid for process in self.processes.values() if process.is_running]
        return [*running, *servers]

    def lives(self) -> dict[str, int]:
        """Return what is another number once a process, or a server, has ended by itself."""
        with self.connect() as connection:
            [(checkpointer,)] = connection.execute(
                # It is replaced when a session of PostgreSQL crashes, which ends all of them.
                "SELECT coalesce(max(pid), 0) FROM pg_stat_activity"
                " WHERE backend_type = 'checkpointer'"
            )
        servers = {"Redis": self.redis.pid or 0, "PostgreSQL": checkpointer}
        return {name: process.ends for name, process in self.processes.items()} | servers

    @contextmanager
    def another(
        self, name: str, arguments: Sequence[str], settings: Mapping[str, str]
    ) -> Iterator[Process]:
        """Run another process like the one called `name`, until the end of the block.

        With `settings` of its own. It is not kept running, and not among the `lives`.
        """
        data = {"CARDLEDGER_DATA_DIR": str(self.home / "another")}
        process = Process(
            f"another {name}",
            [sys.executable, "-m", "cardledger", *arguments],
            {**self.environment(name), **data, **settings},
            self.home / f"another-{name}.log",
        )
        process.start()
        with suppress(OSError, AttributeError):  # It serves; its starter attacks.
            os.setpriority(os.PRIO_PROCESS, process.pid, 0)
        try:
            yield process
        finally:
            process.stop()

    def start_and_wait(self) -> None:
        """Start the processes; return when the API is ready."""
        self.start_processes()
        wait_until(lambda: is_ready(self.port), "the API serves", timeout_s=_START_TIMEOUT_S)


def is_ready(port: int) -> bool:
    """Return whether the API at `port` of this machine serves."""
    with suppress(httpx2.TransportError):
        url = f"http://127.0.0.1:{port}/readyz"
        return httpx2.get(url, timeout=5, trust_env=False).is_success
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """A platform with its credentials, and cards with money on their accounts."""

    access: Access
    cards: list[str]
    accounts: list[str]
    customers: list[str]

    @property
    def platform_id(self) -> Id:
        """The platform."""
        return Id.parse(self.access.platform_id)

    @property
    def authorization(self) -> str:
        """Its value of the header."""
        return basic(self.access.client_id, self.access.client_secret)


def admit(stage: Stage, access: Access, cardholders: int) -> Party:
    """Return the platform of `access` with new cardholders, who have money."""
    made = workload.new_cardholders(stage.owner_url, Id.parse(access.platform_id), cardholders)
    login = (access.client_id, access.client_secret)
    base = f"{stage.base_url}{BASE_PATH}"
    with httpx2.Client(base_url=base, auth=login, timeout=30, trust_env=False) as api:
        for one in made:
            path = f"/sandbox/internal-accounts/InternalAccount:{one.account_id}/fund"
            _fund(api, path)
    return Party(
        access=access,
        cards=[f"Card:{one.card_id}" for one in made],
        accounts=[f"InternalAccount:{one.account_id}" for one in made],
        customers=[f"Customer:{one.owner.customer_id}" for one in made],
    )


def _fund(api: httpx2.Client, path: str) -> None:
    headers = {"Idempotency-Key": str(uuid4())}
    refusals: list[str] = []
    while len(refusals) < _FUND_TRIES:
        try:
            answer = api.post(path, json={"amount": BALANCE}, headers=headers)
        except httpx2.TransportError as error:
            refusals.append(repr(error))
            continue
        if answer.is_success:
            return
        refusals.append(f"{answer.status_code} {answer.text}")
        time.sleep(1)  # A busy machine: the system is not attacked yet.
    raise RuntimeError(f"POST {path}: {refusals[-1]}")


def new_party(stage: Stage, name: str, cardholders: int) -> Party:
    """Return a new platform."""
    made = credentials.create_platform(stage.owner_url, name, stage.keys)
    return admit(stage, made.access, cardholders)


class Arena:
    """The means of one attack, and the time that it has."""

    def __init__(self, stage: Stage, attacker: Party, victim: Party, seconds: float) -> None:
        """Strike for `seconds`, once everything is prepared (`begin`)."""
        self.stage: Final = stage
        self.attacker: Final = attacker
        self.victim: Final = victim
        self.seconds: Final = seconds
        url = urlsplit(stage.base_url)
        assert url.hostname is not None
        assert url.port is not None
        self.address: Final = Address(url.hostname, url.port, BASE_PATH)
        self._opened: Final[list[Connection]] = []
        self.began = 0.0
        self.ended = 0.0

    def begin(self) -> None:
        """Everything is prepared: from now on the other platform's samples count."""
        self.began = time.time()

    def end(self) -> None:
        """The samples count no longer; without it, they count until the attack returns."""
        self.ended = time.time()

    async def run_out(self) -> None:
        """Return when the time is over."""
        await asyncio.sleep(max(0.0, self.began + self.seconds - time.time()))

    @property
    def is_on(self) -> bool:
        """Whether there is time left."""
        return time.time() < self.began + self.seconds

    def connection(self, *, timeout_s: float = 30.0, address: Address | None = None) -> Connection:
        """Return a connection, closed after the attack at the latest."""
        self._opened.append(Connection(address or self.address, timeout_s=timeout_s))
        return self._opened[-1]

    @contextmanager
    def another_api(self, **settings: str) -> Iterator[Address]:
        """Run another process of the API until the end of the block; yields where it listens.

        As one that has just been restarted, it knows only what the processes share.
        """
        port = free_port()
        given = settings | {"CARDLEDGER_PORT": str(port)}
        with self.stage.another(API, ["api"], given):
            wait_until(lambda: is_ready(port), "another API serves")
            yield replace(self.address, port=port)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        by: str | None = "",
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Return a request of the attacker, or with the header `by`, or with none (None)."""
        authorization = self.attacker.authorization if by == "" else by
        return request(
            method, self.address, path, authorization=authorization, body=body, headers=headers
        )

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        by: str | None = "",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request on a connection of its own."""
        connection = Connection(self.address)
        try:
            whole = self.request(method, path, body, by=by, headers=headers)
            return await connection.exchange(whole)
        finally:
            connection.abort()

    async def made(self, path: str, body: object, *, by: str | None = "") -> dict[str, Any]:
        """Make a resource for the attack.

        Raises: RuntimeError when it is refused.
        """
        answer = await self.call("POST", path, body, by=by)
        if not 200 <= answer.status < 300:
            raise RuntimeError(f"POST {path}: {answer.status} {answer.body[:200]!r}")
        found: dict[str, Any] = answer.json()
        return found

    async def flood(
        self, requests: Callable[[], bytes], connections: int, *, address: Address | None = None
    ) -> "Flood":
        """Send the next request on each connection as soon as the last one is answered.

        To another process of the API, with its `address`.
        """
        flood = Flood()

        async def send_on(connection: Connection) -> None:
            while self.is_on:
                flood.note(await connection.exchange(requests()))

        opened = (self.connection(address=address) for _ in range(connections))
        await asyncio.gather(*(send_on(connection) for connection in opened))
        return flood

    def close(self) -> None:
        """Close every connection at once."""
        for connection in self._opened:
            connection.abort()


class Flood:
    """The answers to many requests."""

    def __init__(self) -> None:
        """Begin with none."""
        self.statuses: Final[Counter[int]] = Counter()
        self.bodies: Final[dict[int, bytes]] = {}  # By status, the first that was answered.
        self.largest = 0
        self.example = b""

    def note(self, answer: Answer) -> None:
        """Count an answer."""
        self.statuses[answer.status] += 1
        self.bodies.setdefault(answer.status, answer.body[:200])
        if answer.size > self.largest:
            self.largest, self.example = answer.size, answer.body[:200]

    @property
    def sent(self) -> int:
        """Requests, answered or not."""
        return self.statuses.total()

    @property
    def errors(self) -> int:
        """Answers that say that the service itself failed."""
        return self.statuses[500]

    def strike(
        self,
        *intended: int,
        processed: Collection[int] = (),
        measures: Sequence[Measure] = (),
        proof: str = "",
    ) -> Strike:
        """Return what the attack did whose requests are to get one of the statuses `intended`.

        A request without an answer strikes nothing, and breaks nothing: it is the attacker's. When
        none has a status in `processed`, nothing was attacked but the limits before the work.
        """
        struck = sum(self.statuses[status] for status in intended)
        others = self.sent - struck - self.statuses[0]
        unintended = [
            body.decode(errors="replace")
            for status, body in self.bodies.items()
            if status and status not in intended
        ]
        return Strike(
            struck=struck,
            proof="; ".join([f"{self.words()}{proof}", *unintended]),
            measures=[
                Measure(name="answers of other statuses", value=others, limit=0),
                Measure(name="answers 500", value=self.errors, limit=0),
                *(
                    [
                        Measure(
                            name="times without work",
                            value=not any(self.statuses[status] for status in processed),
                            limit=0,
                        )
                    ]
                    if processed
                    else []
                ),
                *measures,
            ],
        )

    def words(self) -> str:
        """Return the statuses and how often each was answered."""
        return statuses_in_words(self.statuses)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """An attack: what it is after, and how it is played."""

    item: str  # The line of the list of attacks that it belongs to, such as A2.
    name: str
    aim: str
    run: Callable[[Arena], Awaitable[Strike]]
    longest_ms: float | None = None
    """The limit of the other platform's longest wait, in the place of that of its p99."""

    ends_system: bool = False
    """Whether nothing runs afterwards, so that it has to come last."""


def yield_processor() -> None:
    """Let the machine's other work go first, from now on, while this thread attacks.

    Attackers have machines of their own; here they would take the processor from what they attack.
    """
    with suppress(OSError, AttributeError):  # Elsewhere than on Linux, priorities are of processes.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _PRIORITY)


def cycle(values: list[str]) -> Callable[[], str]:
    """Return a function that returns `values` in turn."""
    return itertools.cycle(values).__next__
