"""A worker process: actors, sweeper, webhook sender and card activation in one, until SIGTERM."""

import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Final

import structlog
from dramatiq import Worker
from dramatiq.middleware import AgeLimit, ShutdownNotifications

from ledger import cards, schedule
from ledger.batch import Decided
from ledger.database import driver, sync_engine
from ledger.engine import Engine, UnavailableError
from ledger.inbox import Lane
from ledger.secrets import KeyRing
from workers.actors import Handlers, declare
from workers.broker import WakingBroker, connect
from workers.chores import Chore
from workers.drains import Drains
from workers.replies import Replies
from workers.sender import CONNECTIONS, Sender

_DOORBELL_AGE_MS: Final = 60_000  # An older doorbell is moot: the sweeper has been there.
_REPLY_TIMEOUT_S: Final = 1.0
# Batches of one lane at a time in this process: one is decided while the other waits for
# PostgreSQL. More would only be smaller.
_AT_WORK: Final = 2
# Threads of the sweeper, which drains what no doorbell was heard for. Each lane has its own, so
# that with Redis away, too, a file never keeps an authorization waiting.
_SWEEPERS: Final = {Lane.LIVE: 2, Lane.BULK: 1}
_STOP_S: Final = 20.0

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """What a worker process needs to know."""

    database_url: str
    redis_url: str
    secret_key: str
    threads: int = 8
    batch_size: int = 500
    sweep_interval_s: float = 0.5
    webhook_timeout_s: float = 15.0
    webhook_retry_scale: float = 1.0
    sandbox: bool = True
    sandbox_delay_s: float = 30.0


class WorkerProcess:
    """Everything that runs in a worker process."""

    def __init__(
        self, config: WorkerConfig, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """Build the parts; `start` starts them."""
        self._clock: Final = clock
        self._is_sandbox: Final = config.sandbox
        # For the batches of every lane, and for the sweeper's look around.
        connections = _AT_WORK * len(Lane) + 1
        self._hot: Final = sync_engine(
            config.database_url, keyed=True, pool_size=connections, max_overflow=0
        )
        self._telling: Final = sync_engine(
            config.database_url,
            keyed=True,
            waits_for_disk=False,
            pool_size=CONNECTIONS,
            max_overflow=0,
        )
        self._cold: Final = sync_engine(config.database_url, pool_size=2, max_overflow=0)
        self._engine: Final = Engine(
            self._hot,
            clock=clock,
            batch_size=config.batch_size,
            sandbox_delay=timedelta(seconds=config.sandbox_delay_s) if config.sandbox else None,
        )
        self._replies: Final = Replies(connect(config.redis_url, timeout_s=_REPLY_TIMEOUT_S))
        # Files never have all the threads: one is left for authorizations.
        self._drains: Final = Drains(
            self._step,
            threads={
                Lane.LIVE: min(_AT_WORK, config.threads),
                Lane.BULK: max(1, min(_AT_WORK, config.threads // 2)),
            },
        )
        self._sweepers: Final = {
            lane: ThreadPoolExecutor(threads, thread_name_prefix=f"sweeper-{lane.name.lower()}")
            for lane, threads in _SWEEPERS.items()
        }
        self._sweeps: Final[dict[Lane, list[Future[None]]]] = {lane: [] for lane in Lane}
        self._sender: Final = Sender(
            self._telling,
            KeyRing(config.secret_key),
            clock=clock,
            timeout_s=config.webhook_timeout_s,
            retry_scale=config.webhook_retry_scale,
            every_s=config.sweep_interval_s,
            allow_loopback=config.sandbox,
        )
        every_s = config.sweep_interval_s
        self._cards: Final = Chore("cards", self._activate_cards, every_s=every_s)
        self._schedule: Final = Chore("schedule", self._enqueue_due, every_s=every_s)
        self._sweep: Final = Chore("sweep", self._sweep_inbox, every_s=every_s)
        broker = WakingBroker(
            config.redis_url,
            middleware=[AgeLimit(max_age=_DOORBELL_AGE_MS), ShutdownNotifications()],
        )
        declare(
            broker,
            Handlers(
                drain=self._drains.run,
                activate_cards=self._cards.wake,
                send_webhooks=self._sender.wake,
            ),
        )
        self._worker: Final = Worker(broker, worker_threads=config.threads)

    def start(self) -> None:
        """Start consuming, sweeping and sending."""
        self._worker.start()
        for part in (self._sender, self._cards, self._schedule, self._sweep):
            part.start()
            part.wake()

    def stop(self) -> None:
        """Finish the batches in flight and end; what waits stays in PostgreSQL."""
        self._engine.stop()
        self._sweep.stop(_STOP_S)
        self._worker.stop(timeout=int(_STOP_S * 1000))
        for pool in self._sweepers.values():
            pool.shutdown(cancel_futures=True)
        self._cards.stop(_STOP_S)
        self._schedule.stop(_STOP_S)
        self._sender.close()
        for engine in (self._hot, self._telling, self._cold):
            engine.dispose()

    def _step(self, lane: Lane, shards: Sequence[int]) -> Sequence[int]:
        try:
            return self._engine.step(lane, shards, self._committed)
        except UnavailableError as error:
            _log.warning("PostgreSQL is away; the sweeper comes back", error=str(error.__cause__))
            return []

    def _committed(self, decided: list[Decided]) -> None:
        self._sender.wake()
        self._replies.send(decided)

    def _sweep_inbox(self) -> bool:
        """Drain what no doorbell was heard for; in threads, for a file can take its time."""
        try:
            queues = self._engine.waiting()
        except UnavailableError as error:
            _log.warning("PostgreSQL is away; the sweeper comes back", error=str(error.__cause__))
            return False
        for lane, pool in self._sweepers.items():
            shards = [shard for found, shard in queues if found is lane]
            running = [sweep for sweep in self._sweeps[lane] if not sweep.done()]
            if shards and len(running) < _SWEEPERS[lane]:
                running.append(pool.submit(self._drains.run, lane, shards))
            self._sweeps[lane] = running
        return False

    def _enqueue_due(self) -> bool:
        """Put into the inbox what time has brought about."""
        with self._cold.begin() as connection:
            due = schedule.enqueue_due(driver(connection), self._clock())
        if due:
            self._sweep.wake()
        return False

    def _activate_cards(self) -> bool:
        with self._cold.begin() as connection:
            activated = cards.activate_due(
                connection, now=self._clock(), is_sandbox=self._is_sandbox
            )
        if activated:
            self._sender.wake()
        return bool(activated)


def run(config: WorkerConfig, *, ready: Callable[[], None] = lambda: None) -> None:
    """Work until SIGTERM or SIGINT; a second one ends the process at once.

    Calls `ready` once everything runs.
    """
    stopping = Event()

    def stop(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        stopping.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    process = WorkerProcess(config)
    process.start()
    _log.info("worker ready", threads=config.threads, batch_size=config.batch_size)
    ready()
    stopping.wait()
    process.stop()
    _log.info("worker stopped")
