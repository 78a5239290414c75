"""A worker process, until SIGTERM: it decides events, sends webhooks, or does both.

What has to be told is rendered, signed and sent in Python, as events are decided in Python: in one
process each has to wait for the other, whatever the number of threads.
"""

import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Final, Protocol

import structlog
from dramatiq import Worker
from dramatiq.middleware import AgeLimit, ShutdownNotifications

from cardledger.ledger import sandbox
from cardledger.ledger.cards import issuing
from cardledger.ledger.engine import timers
from cardledger.ledger.engine.commit import Engine, UnavailableError
from cardledger.ledger.engine.records import Decided
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.ports import NONE_CONNECTED, Adapters
from cardledger.ledger.storage.engines import driver, sync_engine
from cardledger.ledger.storage.secrets import KeyRing
from cardledger.workers.client.replies import Replies
from cardledger.workers.process.actors import Handlers, declare
from cardledger.workers.process.queue_scheduler import ShardScheduler
from cardledger.workers.signals.best_effort_redis import BestEffort
from cardledger.workers.signals.broker import WakingBroker, connect
from cardledger.workers.signals.periodic_task import PeriodicTask
from cardledger.workers.signals.roles import WorkerRole
from cardledger.workers.signals.webhook_signals import Nudges, Wakeable, WebhookWakeup
from cardledger.workers.webhooks.sender import CONNECTIONS, Sender

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
    only: WorkerRole | None = None  # None: everything in one process.
    threads: int = 8
    batch_size: int = 500
    sweep_interval_s: float = 0.5
    webhook_timeout_s: float = 15.0
    webhook_retry_scale: float = 1.0
    sandbox: bool = True
    sandbox_delay_s: float = 30.0


def _adapters(config: WorkerConfig) -> Adapters:
    if not config.sandbox:
        return NONE_CONNECTED
    delay = timedelta(seconds=config.sandbox_delay_s)
    return sandbox.adapters(KeyRing(config.secret_key), delay=delay)


class WorkerProcess:
    """Everything that runs in a worker process."""

    def __init__(
        self, config: WorkerConfig, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """Build the parts; `start` starts them."""
        self._parts: Final = _parts(config, clock)

    def start(self) -> None:
        """Start consuming, sweeping and sending."""
        for part in self._parts:
            part.start()

    def stop(self) -> None:
        """Finish what is in flight and end; what waits stays in PostgreSQL."""
        for part in reversed(self._parts):
            part.stop()


class _Part(Protocol):
    def start(self) -> None: ...
    def stop(self) -> None: ...


def _parts(config: WorkerConfig, clock: Callable[[], datetime]) -> list[_Part]:
    """Return what `config` asks for; who hears of others' work comes before those others."""
    best_effort = BestEffort(connect(config.redis_url, timeout_s=_REPLY_TIMEOUT_S))
    if config.only is WorkerRole.EVENTS:
        return [_Events(config, clock, best_effort, WebhookWakeup(best_effort))]
    webhooks = _Webhooks(config, clock)
    if config.only is WorkerRole.WEBHOOKS:
        nudges = Nudges(connect(config.redis_url), webhooks, every_s=config.sweep_interval_s)
        return [webhooks, nudges]
    return [webhooks, _Events(config, clock, best_effort, webhooks)]


class _Webhooks:
    """Sends webhooks."""

    def __init__(self, config: WorkerConfig, clock: Callable[[], datetime]) -> None:
        self._database: Final = sync_engine(
            config.database_url,
            keyed=True,
            waits_for_disk=False,
            pool_size=CONNECTIONS,
            max_overflow=0,
        )
        self._sender: Final = Sender(
            self._database,
            KeyRing(config.secret_key),
            clock=clock,
            timeout_s=config.webhook_timeout_s,
            retry_scale=config.webhook_retry_scale,
            every_s=config.sweep_interval_s,
            allow_loopback=config.sandbox,
        )

    def wake(self) -> None:
        """Look at once what there is to tell, and what is due."""
        self._sender.wake()

    def wake_dispatch(self) -> None:
        """Look at once what there is to tell."""
        self._sender.wake_dispatch()

    def start(self) -> None:
        self._sender.start()
        self._sender.wake()

    def stop(self) -> None:
        self._sender.close()
        self._database.dispose()


class _Events:
    """Decides events, activates cards and enqueues what time brings about."""

    def __init__(
        self,
        config: WorkerConfig,
        clock: Callable[[], datetime],
        best_effort: BestEffort,
        webhooks: Wakeable,
    ) -> None:
        """Reply over `best_effort`; wake `webhooks` whenever there may be some to send."""
        self._clock: Final = clock
        self._webhooks: Final = webhooks
        adapters = _adapters(config)
        self._issuer: Final = adapters.issuer
        # For the batches of every lane, and for the sweeper's look around.
        connections = _AT_WORK * len(Lane) + 1
        self._hot: Final = sync_engine(
            config.database_url, keyed=True, pool_size=connections, max_overflow=0
        )
        self._cold: Final = sync_engine(config.database_url, pool_size=2, max_overflow=0)
        self._engine: Final = Engine(
            self._hot,
            clock=clock,
            batch_size=config.batch_size,
            rail=adapters.funding_rail,
        )
        self._replies: Final = Replies(best_effort)
        # Files never have all the threads: one is left for authorizations.
        self._drains: Final = ShardScheduler(
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
        every_s = config.sweep_interval_s
        self._cards: Final = PeriodicTask("cards", self._activate_cards, every_s=every_s)
        self._schedule: Final = PeriodicTask("schedule", self._enqueue_due, every_s=every_s)
        self._sweep: Final = PeriodicTask("sweep", self._sweep_inbox, every_s=every_s)
        broker = WakingBroker(
            config.redis_url,
            middleware=[AgeLimit(max_age=_DOORBELL_AGE_MS), ShutdownNotifications()],
        )
        declare(
            broker,
            Handlers(
                drain=self._drains.run, activate_cards=self._cards.wake, send_webhooks=webhooks.wake
            ),
        )
        self._worker: Final = Worker(broker, worker_threads=config.threads)

    def start(self) -> None:
        self._worker.start()
        for chore in (self._cards, self._schedule, self._sweep):
            chore.start()
            chore.wake()

    def stop(self) -> None:
        self._engine.stop()
        self._sweep.stop(_STOP_S)
        self._worker.stop(timeout=int(_STOP_S * 1000))
        for pool in self._sweepers.values():
            pool.shutdown(cancel_futures=True)
        self._cards.stop(_STOP_S)
        self._schedule.stop(_STOP_S)
        for engine in (self._hot, self._cold):
            engine.dispose()

    def _step(self, lane: Lane, shards: Sequence[int]) -> Sequence[int]:
        try:
            return self._engine.step(lane, shards, self._committed)
        except UnavailableError as error:
            _log.warning("PostgreSQL is away; the sweeper comes back", error=str(error.__cause__))
            return []

    def _committed(self, decided: list[Decided]) -> None:
        # First those who wait for an answer.
        self._replies.send(decided)
        self._webhooks.wake_dispatch()

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
            due = timers.enqueue_due(driver(connection), self._clock())
        if due:
            self._sweep.wake()
        return False

    def _activate_cards(self) -> bool:
        if self._issuer is None:
            return False
        with self._cold.begin() as connection:
            activated = issuing.record_answers(connection, self._issuer, now=self._clock())
        if activated:
            self._webhooks.wake_dispatch()
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
    _log.info(
        "worker ready", only=config.only, threads=config.threads, batch_size=config.batch_size
    )
    ready()
    stopping.wait()
    process.stop()
    _log.info("worker stopped")
