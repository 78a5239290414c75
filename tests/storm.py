"""A storm for the webhook sender: a receiver that fails at random, a worker that is killed.

Shared by tests/system/test_webhooks.py, which is small, and benchmarks/webhook_faults.py.
"""

import asyncio
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from standardwebhooks import Webhook
from typing_extensions import override

from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.ledger.storage.secrets.sealed_columns import ENDPOINT_SECRET
from cardledger.ledger.webhooks import signatures
from cardledger.schema.ids import Id
from cardledger.webhooks.receiver import Reply
from cardledger.workers.client import Client
from tests.receiver import Receiver
from tests.waiting import eventually, limit_s
from tests.world import SECRET_KEY, Cardholder, World

CONSECUTIVE_FAILURE_LIMIT: Final = 4
"""Failures of one webhook: ten would have it given up, which chance must not decide here."""

_WORKER: Final = """
import sys
from cardledger.workers.process.config import WorkerConfig
from cardledger.workers.process.main import run
database_url, redis_url, secret_key, scale = sys.argv[1:]
run(WorkerConfig(database_url=database_url, redis_url=redis_url, secret_key=secret_key, threads=4,
                 webhook_timeout_s=2, webhook_retry_scale=float(scale)))
"""
_KINDS: Final = ["CARD_TRANSACTION.*"]


@dataclass(frozen=True, slots=True)
class Hit:
    """A request that arrived: when, what, and whether it was accepted."""

    at: datetime
    webhook_id: str
    subject: str
    sequence: int
    occurred_at: datetime
    body: bytes
    taken: bool


class FlakyReceiver(Receiver):
    """Fails some requests at random; keeps every request, and the problems of its signatures."""

    def __init__(self, *, failing: float, seed: int = 7) -> None:
        super().__init__()
        self._failing: Final = failing
        self._random: Final = random.Random(seed)  # noqa: S311 - chance, not secrecy
        self._guard: Final = threading.Lock()
        self._failed: Final[Counter[str]] = Counter()
        self._judge: Webhook | None = None
        self.hits: Final[list[Hit]] = []
        self.taken: Final[set[str]] = set()
        self.problems: Final[list[str]] = []

    def judge(self, public_key: str, secret: str) -> None:
        """Verify everything with our own code, and once more with an independent library."""
        self.trust(public_key, secret)
        self._judge = Webhook(secret)

    def has_taken(self, count: int) -> bool:
        """Return whether that many webhooks have been taken."""
        return len(self.taken) >= count

    @override
    def take(self, headers: dict[str, str], body: bytes) -> Reply:
        at = datetime.now(UTC)
        reply = super().take(headers, body)
        envelope = json.loads(body)
        if envelope["type"] == "TEST":
            return reply
        with self._guard:
            if reply.status != 200 or self._judge is None:
                self.problems.append(f"{envelope['id']}: not verified")
            else:
                self._judge.verify(body, headers)
            is_hit = (
                self._random.random() < self._failing
                and self._failed[envelope["id"]] < CONSECUTIVE_FAILURE_LIMIT
            )
            self._failed[envelope["id"]] += is_hit
            self.hits.append(
                Hit(
                    at=at,
                    webhook_id=envelope["id"],
                    subject=envelope["data"]["id"],
                    sequence=envelope["sequence"],
                    occurred_at=datetime.fromisoformat(envelope["timestamp"]),
                    body=body,
                    taken=not is_hit,
                )
            )
            if not is_hit:
                self.taken.add(envelope["id"])
        return Reply(status=500) if is_hit else reply


@contextmanager
def worker(
    world: World, redis_url: str, *, scale: float = 0.0002
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker process that is killed at the end, if it has not been before."""
    process = subprocess.Popen(
        [sys.executable, "-c", _WORKER, world.app_url, redis_url, SECRET_KEY, str(scale)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def subscribe(world: World, platform_id: Id, receiver: FlakyReceiver, mode: str) -> None:
    """Subscribe `receiver` to the events of card transactions."""
    secret, endpoint_id = signatures.new_webhook_secret(), new_id()
    [(public_key,)] = world.rows("SELECT public_key FROM platforms WHERE id = %s", platform_id)
    receiver.judge(public_key, secret)
    world.connection.execute(
        "INSERT INTO webhook_endpoints (id, platform_id, is_default, url, event_types, mode, state,"
        " secret, created_at, updated_at)"
        " VALUES (%s, %s, false, %s, %s, %s, 'ENABLED', %s, now(), now())",
        [
            endpoint_id,
            platform_id,
            receiver.url,
            _KINDS,
            mode,
            KeyRing(SECRET_KEY).encrypt(
                secret.encode(), ENDPOINT_SECRET.of(platform_id, endpoint_id)
            ),
        ],
    )


def purchases(
    world: World, cardholders: Sequence[Cardholder], count: int
) -> list[tuple[Cardholder, Any]]:
    """Return `count` events: purchases of three, an authorization and two partial clearings."""
    events = []
    for number in range(count):
        cardholder, token = cardholders[number // 3 % len(cardholders)], f"T{number // 3}"
        if number % 3 == 0:
            events.append((cardholder, world.authorization(cardholder, token, 100)))
        else:
            events.append(
                (cardholder, world.clearing(cardholder, token, 50, final=number % 3 == 2))
            )
    return events


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a storm left behind."""

    events: int
    webhooks: int
    requests: int
    repeated_after_taken: int
    kills: int
    seconds: float
    out_of_order: int
    with_two_bodies: int
    unproven: int
    not_delivered: int


def storm(  # noqa: PLR0913 - its sizes, by name
    world: World,
    redis_url: str,
    *,
    events: int,
    kills: int,
    failing: float = 0.3,
    patience_s: float = 120,
) -> Report:
    """Send `events` card events to a FIFO endpoint while the sender is killed again and again."""
    platform = world.platform()
    cardholders = [world.cardholder(platform, 10_000_000) for _ in range(20)]
    began = time.monotonic()
    with FlakyReceiver(failing=failing) as receiver:
        subscribe(world, platform, receiver, "FIFO")
        world.accept(purchases(world, cardholders, events), Lane.BULK)
        for number in range(1, kills + 1):
            with worker(world, redis_url) as process:
                goal = events * number // (kills + 1)
                eventually(
                    partial(receiver.has_taken, goal),
                    timeout_s=patience_s,
                    poll_s=0.02,
                    process=process,
                )
                process.send_signal(signal.SIGKILL)
                process.wait()
        with worker(world, redis_url) as process:
            eventually(
                lambda: _all_told(world, platform),
                timeout_s=patience_s,
                poll_s=0.02,
                process=process,
            )
        return _report(world, platform, receiver, events, kills, time.monotonic() - began)


def _all_told(world: World, platform_id: Id) -> bool:
    if world.count("inbox") or world.count("outbox"):
        return False
    [(left,)] = world.rows(
        "SELECT count(*) FROM webhook_deliveries WHERE platform_id = %s AND state = 'PENDING'",
        platform_id,
    )
    return int(left) == 0


def _report(  # noqa: PLR0913, PLR0917 - the inputs of the report
    world: World,
    platform_id: Id,
    receiver: FlakyReceiver,
    events: int,
    kills: int,
    seconds: float,
) -> Report:
    rows = world.rows(
        "SELECT webhook_id, state FROM webhook_deliveries WHERE platform_id = %s"
        " AND type LIKE 'CARD!_TRANSACTION.%%' ESCAPE '!'",
        platform_id,
    )
    sent = {f"Webhook:{key}" for key, _ in rows}
    bodies: dict[str, set[bytes]] = defaultdict(set)
    last: dict[str, int] = defaultdict(int)
    taken: set[str] = set()
    out_of_order = repeated = 0
    for hit in receiver.hits:
        bodies[hit.webhook_id].add(hit.body)
        if hit.webhook_id in taken:
            repeated += 1  # The worker was killed between the answer and its record.
            continue
        # A try, taken or not, must not come before everything earlier has been taken.
        out_of_order += hit.sequence <= last[hit.subject]
        if hit.taken:
            taken.add(hit.webhook_id)
            last[hit.subject] = hit.sequence
    return Report(
        events=events,
        webhooks=len(sent),
        requests=len(receiver.hits),
        repeated_after_taken=repeated,
        kills=kills,
        seconds=seconds,
        out_of_order=out_of_order,
        with_two_bodies=sum(len(variants) > 1 for variants in bodies.values()),
        unproven=len(receiver.problems),
        not_delivered=len(sent ^ taken) + sum(state != "DELIVERED" for _, state in rows),
    )


# --- how soon ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """How long until first attempts, counted from before the commit; and until they were read.

    The receiver is in the process that makes the load, so what arrives waits for that, too.
    """

    events: int
    p50_ms: float
    p99_ms: float
    longest_ms: float
    arrived_p50_ms: float
    arrived_p99_ms: float


def latency(world: World, redis_url: str, *, rate: int, seconds: float) -> Latency:
    """Commit `rate` events a second for a while; measure when the webhook of each arrives."""
    platform = world.platform()
    cardholders = [world.cardholder(platform, 10_000_000) for _ in range(20)]
    warm_up = purchases(world, cardholders, 30)
    count = int(rate * seconds)
    events = [
        (cardholder, world.authorization(cardholder, f"L{number}", 1))
        for number, cardholder in ((number, cardholders[number % 20]) for number in range(count))
    ]
    with (
        FlakyReceiver(failing=0) as receiver,
        worker(world, redis_url, scale=1.0) as process,
    ):
        subscribe(world, platform, receiver, "FIFO")
        world.accept(warm_up, Lane.LIVE)
        eventually(partial(receiver.has_taken, len(warm_up)), process=process)
        asyncio.run(_commit(world, redis_url, [event for _, event in events], rate))
        eventually(partial(receiver.has_taken, len(warm_up) + count), process=process)
        eventually(lambda: _all_told(world, platform), process=process)
        arrived = sorted(_first_waits(receiver.hits[len(warm_up) :]))
    kinds = ["CARD_TRANSACTION.AUTHORIZED"]
    tried = sorted(float(wait) for (wait,) in world.rows(_FIRST_TRIES, platform, kinds))
    return Latency(
        events=len(arrived),
        p50_ms=tried[len(tried) // 2],
        p99_ms=tried[len(tried) * 99 // 100],
        longest_ms=tried[-1],
        arrived_p50_ms=arrived[len(arrived) // 2],
        arrived_p99_ms=arrived[len(arrived) * 99 // 100],
    )


# From before the commit (the clock was read when the accounts were locked) to the request.
_FIRST_TRIES: Final = """
    SELECT extract(epoch FROM a.attempted_at - (w.body::json ->> 'timestamp')::timestamptz) * 1000
    FROM webhook_attempts a JOIN webhook_deliveries w ON w.id = a.delivery_id
    WHERE w.platform_id = %s AND a.number = 1 AND w.type = ANY (%s)
"""


def _first_waits(hits: Sequence[Hit]) -> Iterator[float]:
    seen: set[str] = set()
    for hit in hits:
        if hit.webhook_id not in seen:
            seen.add(hit.webhook_id)
            yield (hit.at - hit.occurred_at) / timedelta(milliseconds=1)


async def _commit(
    world: World, redis_url: str, events: Sequence[dict[str, Any]], rate: int
) -> None:
    engine = async_engine(world.app_url, keyed=True)
    try:
        async with Client(
            engine, redis_url, secret_key=SECRET_KEY, reply_timeout_s=limit_s()
        ) as client:
            began, under_way = time.monotonic(), []
            for number, event in enumerate(events):
                await asyncio.sleep(max(began + number / rate - time.monotonic(), 0))
                under_way.append(asyncio.ensure_future(client.submit([event])))
            await asyncio.gather(*under_way)
    finally:
        await engine.dispose()
