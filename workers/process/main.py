"""A worker process, until SIGTERM: it decides events, sends webhooks, or does both.

Events are decided in Python, and webhooks are rendered, signed and sent in Python: in one process
each waits for the other, whatever the number of threads. So the two roles can be two processes.
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
from cardledger.workers.process.shard_scheduler import ShardScheduler
from cardledger.workers.signals.best_effort_redis import BestEffort
from cardledger.workers.signals.broker import WakingBroker, connect
from cardledger.workers.signals.periodic_task import PeriodicTask
from cardledger.workers.signals.roles import WorkerRole
from cardledger.workers.signals.webhook_signals import (
    Wakeable,
    WebhookWakeup,
    WebhookWakeupListener,
)
from cardledger.workers.webhooks.sender import CONNECTIONS, Sender

_DOORBELL_AGE_LIMIT_MS: Final = 60_000  # The sweeper has run since; an older doorbell is moot.
_REPLY_TIMEOUT_S: Final = 1.0
# Concurrent batches of one lane in this process: one is decided while the other waits for
# PostgreSQL. More of them would only be smaller.
_CONCURRENT_BATCHES: Final = 2
# Threads of the sweeper, which drains shards whose doorbell was lost. Each lane has its own, so
# that without Redis, too, a file never keeps an authorization waiting.
_SWEEPER_THREADS: Final = {Lane.LIVE: 2, Lane.BULK: 1}
_STOP_S: Final = 20.0

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """The configuration of a worker process."""

    database_url: str
    redis_url: str
    secret_key: str
    role: WorkerRole | None = None  # None: all roles in one process.
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
        """Build the components of `config.role`; `start` starts them."""
        self._components: Final = _components(config, clock)

    def start(self) -> None:
        """Start consuming, sweeping and sending."""
        for component in self._components:
            component.start()

    def stop(self) -> None:
        """Finish what is in flight and end; waiting work stays in PostgreSQL."""
        for component in reversed(self._components):
            component.stop()


class _Component(Protocol):
    def start(self) -> None: ...
    def stop(self) -> None: ...


def _components(config: WorkerConfig, clock: Callable[[], datetime]) -> list[_Component]:
    """Return the components of `config.role`; a component that is woken comes before its waker."""
    best_effort = BestEffort(connect(config.redis_url, timeout_s=_REPLY_TIMEOUT_S))
    if config.role is WorkerRole.EVENTS:
        return [_EventWorker(config, clock, best_effort, WebhookWakeup(best_effort))]
    webhooks = _WebhookWorker(config, clock)
    if config.role is WorkerRole.WEBHOOKS:
        listener = WebhookWakeupListener(
            connect(config.redis_url), webhooks, every_s=config.sweep_interval_s
        )
        return [webhooks, listener]
    return [webhooks, _EventWorker(config, clock, best_effort, webhooks)]


class _WebhookWorker:
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
        """Dispatch the outbox and send what is due, at once."""
        self._sender.wake()

    def wake_dispatch(self) -> None:
        """Dispatch the outbox at once."""
        self._sender.wake_dispatch()

    def start(self) -> None:
        self._sender.start()
        self._sender.wake()

    def stop(self) -> None:
        self._sender.close()
        self._database.dispose()


class _EventWorker:
    """Decides events, activates cards and enqueues events that are due."""

    def __init__(
        self,
        config: WorkerConfig,
        clock: Callable[[], datetime],
        best_effort: BestEffort,
        webhooks: Wakeable,
    ) -> None:
        """Reply over `best_effort`; wake `webhooks` when there may be webhooks to send."""
        self._clock: Final = clock
        self._webhooks: Final = webhooks
        adapters = _adapters(config)
        self._issuer: Final = adapters.issuer
        # For the batches of every lane, and for the sweeper's query.
        connections = _CONCURRENT_BATCHES * len(Lane) + 1
        self._batch_database: Final = sync_engine(
            config.database_url, keyed=True, pool_size=connections, max_overflow=0
        )
        self._task_database: Final = sync_engine(config.database_url, pool_size=2, max_overflow=0)
        self._engine: Final = Engine(
            self._batch_database,
            clock=clock,
            batch_size=config.batch_size,
            rail=adapters.funding_rail,
        )
        self._replies: Final = Replies(best_effort)
        # Files never take all the threads: one is left for authorizations.
        self._scheduler: Final = ShardScheduler(
            self._step,
            threads={
                Lane.LIVE: min(_CONCURRENT_BATCHES, config.threads),
                Lane.BULK: max(1, min(_CONCURRENT_BATCHES, config.threads // 2)),
            },
        )
        self._sweepers: Final = {
            lane: ThreadPoolExecutor(threads, thread_name_prefix=f"sweeper-{lane.name.lower()}")
            for lane, threads in _SWEEPER_THREADS.items()
        }
        self._sweeps: Final[dict[Lane, list[Future[None]]]] = {lane: [] for lane in Lane}
        every_s = config.sweep_interval_s
        self._card_activation: Final = PeriodicTask(
            "card activation", self._activate_cards, every_s=every_s
        )
        self._timers: Final = PeriodicTask("timers", self._enqueue_due, every_s=every_s)
        self._sweep: Final = PeriodicTask("sweep", self._sweep_inbox, every_s=every_s)
        broker = WakingBroker(
            config.redis_url,
            middleware=[AgeLimit(max_age=_DOORBELL_AGE_LIMIT_MS), ShutdownNotifications()],
        )
        declare(
            broker,
            Handlers(
                drain=self._scheduler.run,
                activate_cards=self._card_activation.wake,
                send_webhooks=webhooks.wake,
            ),
        )
        self._worker: Final = Worker(broker, worker_threads=config.threads)

    def start(self) -> None:
        self._worker.start()
        for task in (self._card_activation, self._timers, self._sweep):
            task.start()
            task.wake()

    def stop(self) -> None:
        self._engine.stop()
        self._sweep.stop(_STOP_S)
        self._worker.stop(timeout=int(_STOP_S * 1000))
        for pool in self._sweepers.values():
            pool.shutdown(cancel_futures=True)
        self._card_activation.stop(_STOP_S)
        self._timers.stop(_STOP_S)
        for engine in (self._batch_database, self._task_database):
            engine.dispose()

    def _step(self, lane: Lane, shards: Sequence[int]) -> Sequence[int]:
        try:
            return self._engine.step(lane, shards, self._committed)
        except UnavailableError as error:
            _log.warning("database unavailable; the sweeper will retry", error=str(error.__cause__))
            return []

    def _committed(self, decided: list[Decided]) -> None:
        # Replies first: callers wait for them.
        self._replies.send(decided)
        self._webhooks.wake_dispatch()

    def _sweep_inbox(self) -> bool:
        """Drain shards whose doorbell was lost; in threads, because a file may take long."""
        try:
            waiting = self._engine.waiting()
        except UnavailableError as error:
            _log.warning("database unavailable; the sweeper will retry", error=str(error.__cause__))
            return False
        for lane, pool in self._sweepers.items():
            shards = [shard for waiting_lane, shard in waiting if waiting_lane is lane]
            running = [sweep for sweep in self._sweeps[lane] if not sweep.done()]
            if shards and len(running) < _SWEEPER_THREADS[lane]:
                running.append(pool.submit(self._scheduler.run, lane, shards))
            self._sweeps[lane] = running
        return False

    def _enqueue_due(self) -> bool:
        """Put events that are due into the inbox."""
        with self._task_database.begin() as connection:
            due = timers.enqueue_due(driver(connection), self._clock())
        if due:
            self._sweep.wake()
        return False

    def _activate_cards(self) -> bool:
        if self._issuer is None:
            return False
        with self._task_database.begin() as connection:
            activated = issuing.record_answers(connection, self._issuer, now=self._clock())
        if activated:
            self._webhooks.wake_dispatch()
        return bool(activated)


def run(config: WorkerConfig, *, ready: Callable[[], None] = lambda: None) -> None:
    """Work until SIGTERM or SIGINT; a second signal ends the process at once.

    Calls `ready` once all components run.
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
        "worker ready", role=config.role, threads=config.threads, batch_size=config.batch_size
    )
    ready()
    stopping.wait()
    process.stop()
    _log.info("worker stopped")
