"""The worker that decides events, moves enqueued ones, and enqueues what is due."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from time import monotonic, time_ns
from typing import Final

import structlog

from cardledger.ledger.cards import issuing
from cardledger.ledger.engine.commit import Engine
from cardledger.ledger.engine.failures import UnavailableError
from cardledger.ledger.engine.records import Decided
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.ports import NONE_CONNECTED, Adapters
from cardledger.ledger.sandbox.funding_rail import SandboxFundingRail
from cardledger.ledger.sandbox.issuer import SandboxIssuer
from cardledger.ledger.storage import batch_connections, database_clock
from cardledger.ledger.storage.engines import driver
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.workers.books.totals import Totals
from cardledger.workers.books.trial_balances import TrialBalances
from cardledger.workers.client.replies import Replies
from cardledger.workers.metrics import counted, families, table_figures
from cardledger.workers.metrics.instruments import Gauge, Source
from cardledger.workers.metrics.verified import LastVerification
from cardledger.workers.process.actors import Handlers, declare
from cardledger.workers.process.config import WorkerConfig
from cardledger.workers.process.doorbell_worker import DoorbellWorker
from cardledger.workers.process.health import Checks, recent
from cardledger.workers.process.mover import EnqueuedEventsListener, Mover
from cardledger.workers.process.queue_probe import QueueProbe
from cardledger.workers.process.schedule import RUNS_EVERY_S, Schedule, Scheduled, enqueueing
from cardledger.workers.process.shard_scheduler import ShardScheduler
from cardledger.workers.process.sweep_pace import SweepPace
from cardledger.workers.process.sweepers import Sweepers
from cardledger.workers.process.watch import Watch
from cardledger.workers.signals import doorbell
from cardledger.workers.signals.best_effort_redis import BestEffort
from cardledger.workers.signals.broker import WakingBroker
from cardledger.workers.signals.message_key import MessageKey
from cardledger.workers.signals.outage_log import DATABASE
from cardledger.workers.signals.periodic_task import PeriodicTask
from cardledger.workers.signals.stop_deadline import StopDeadline
from cardledger.workers.signals.webhook_signals import Wakeable
from cardledger.workers.tracing import hints, spans

_BATCH_LIMIT_S: Final = 4.0  # Of a batch, which takes a small part of it.
_TASK_LIMIT_S: Final = 15.0  # A statement of a periodic task works on a page of rows.
# Concurrent batches of one lane in this process: one is decided while the other waits for
# PostgreSQL. More of them would only be smaller.
_CONCURRENT_BATCHES: Final = 2

_log = structlog.get_logger()


class EventWorker:
    """Decides events, moves enqueued ones, activates cards and enqueues events that are due."""

    table_figures: Final = table_figures.OF_EVENTS

    def __init__(
        self,
        config: WorkerConfig,
        watch: Watch,
        best_effort: BestEffort,
        webhooks: Wakeable,
        worker_id: str,
    ) -> None:
        """Reply over `best_effort`; wake `webhooks` when there may be webhooks to send.

        Nothing is decided while the clock that `watch` compares is wrong.
        """
        self._webhooks: Final = webhooks
        self._best_effort: Final = best_effort
        adapters = _adapters(config)
        self._issuer: Final = adapters.issuer
        # For the batches of every lane, for the sweeper's query, and for the mover.
        connections = _CONCURRENT_BATCHES * len(Lane) + 2
        self._batch_database: Final = batch_connections.batch_engine(
            config.database_url, worker_id, pool_size=connections, max_overflow=0
        )
        self._task_database: Final = batch_connections.task_engine(
            config.database_url,
            worker_id,
            reply_limit_s=_TASK_LIMIT_S,
            pool_size=4,
            max_overflow=0,
        )
        inbox_key = InboxKey(config.secret_key)
        self._look_database: Final = batch_connections.look_engine(config.database_url, worker_id)
        self._engine: Final = Engine(
            self._batch_database,
            key=inbox_key,
            batch_size=config.batch_size,
            rail=adapters.funding_rail,
        )
        self._replies: Final = Replies(best_effort, MessageKey(config.secret_key))
        self._scheduler: Final = ShardScheduler(self._step, threads=_batches(config.threads))
        self._sweepers: Final = Sweepers(self._scheduler)
        every_s = config.sweep_interval_s
        self._pace: Final = SweepPace(every_s)
        self._card_activation: Final = PeriodicTask(
            "card activation", self._activate_cards, every_s=RUNS_EVERY_S
        )
        self._sweep: Final = PeriodicTask("sweep", self._sweep_inbox, every_s=self._pace.next_s)
        scheduled = enqueueing(
            self._task_database,
            inbox_key,
            self._sweep.wake,
            rail_connected=adapters.funding_rail is not None,
            quotes_kept=config.quote_retention,
        )
        is_answer_due = "false" if self._issuer is None else issuing.ANSWER_IS_DUE
        scheduled.append(Scheduled(is_answer_due, self._card_activation))
        self._schedule: Final = Schedule(self._look_database, scheduled, every_s=every_s)
        self._mover: Final = Mover(
            self._batch_database,
            inbox_key,
            lambda doorbells: best_effort.send(partial(doorbell.notify, doorbells=doorbells)),
        )
        self._listener: Final = EnqueuedEventsListener(config.database_url, self._mover.task.wake)
        self._queue_probe: Final = QueueProbe(self._task_database, inbox_key)
        totals = Totals(self._task_database)
        trial_balances = TrialBalances(self._task_database)
        self._tasks: Final = (
            *self._schedule.tasks,
            self._mover.task,
            totals.task,
            trial_balances.task,
        )
        self._watch: Final = watch
        watch.call(self._sweep.wake)
        self.metrics: Final[Sequence[Source]] = (
            *counted.OF_EVENTS,
            *watch.metrics,
            Gauge(families.QUEUES_STUCK, self._queue_probe.count_stuck),
            Gauge(families.CARDHOLDERS_LOCKED, lambda: len(self._engine.locked_cardholders())),
            *([LastVerification(config.health_dir)] if config.health_dir else []),
        )
        self._worker: Final = DoorbellWorker(self._broker(config.redis_url), threads=config.threads)

    def _broker(self, redis_url: str) -> WakingBroker:
        """Return a broker whose doorbells wake the parts of this worker.

        When none can arrive, the sweeper polls from now on, and not from its next run.
        """
        broker = WakingBroker(redis_url, on_failure=self._sweep.wake)
        handlers = Handlers(
            drain=self._scheduler.run,
            activate_cards=self._card_activation.wake,
            send_webhooks=self._webhooks.wake,
        )
        declare(broker, handlers)
        return broker

    @property
    def checks(self) -> Checks:
        # An issuer that fails to answer is no reason to restart the worker.
        scheduled = [each for each in self._schedule.tasks if each is not self._card_activation]
        return Checks(
            of_worker=[
                recent(self._watch.task),
                recent(self._sweep),
                *map(recent, scheduled),
                recent(self._mover.task),
                self._check_replies,
                self._check_batches,
                self._watch.check_clock,
            ],
            of_installation=[self._check_stalls, self._queue_probe.check],
        )

    def start(self) -> None:
        self._worker.start()
        for task in (self._sweep, *self._tasks):
            task.start()
            task.wake()
        self._listener.start()
        self._queue_probe.start()

    def stop(self, limit_s: float) -> None:
        deadline = StopDeadline(limit_s)
        self._engine.stop()
        self._listener.end_soon()
        # At once: what it announces again is for other workers while batches of this one end. Its
        # own limits are for each thread and connection.
        deadline.run_together([self._worker.stop, lambda: self._sweep.stop(deadline.left_s)])
        self._sweepers.begin_no_more()
        self._sweepers.wait(deadline.left_s)
        for task in self._tasks:
            task.stop(deadline.left_s)
        self._listener.stop(deadline.left_s)
        self._queue_probe.stop(deadline.left_s)
        for engine in (self._batch_database, self._task_database, self._look_database):
            engine.dispose()

    def prove_progress(self) -> None:
        """Return, unless the scheduler is stuck."""
        self._scheduler.prove_progress()

    def _step(self, lane: Lane, shards: Sequence[int]) -> Sequence[int]:
        if not self._watch.is_clock_right:
            return []  # When the clock is correct again, the watch wakes the sweeper.
        try:
            return self._engine.step(lane, shards, partial(self._committed, lane, time_ns()))
        except UnavailableError as error:
            DATABASE.failed(error.__cause__ or error)  # The sweeper tries again.
            return []

    def _committed(self, lane: Lane, began_ns: int, decided: list[Decided]) -> None:
        self._pace.decided()
        # Replies first: callers wait for them.
        self._replies.send(decided)
        self._scheduler.note_decided(
            lane, is_awaited=any(each.message.reply_to for each in decided)
        )
        if spans.is_active():  # Before the sender is woken, which asks for the traces.
            hints.keep(self._best_effort, spans.decided(decided, began_ns))
        self._webhooks.wake_dispatch()
        counted.decisions(decided, datetime.now(UTC))

    def _sweep_inbox(self) -> bool:
        """Let shards be drained whose doorbell was lost."""
        began = monotonic()
        self._pace.failed()  # Unless it succeeds.
        try:
            waiting = self._engine.waiting()
        except UnavailableError as error:
            raise (error.__cause__ or error) from None  # The task notes its failure.
        self._pace.looked(monotonic() - began, found=bool(waiting))
        DATABASE.succeeded()
        counted.sweep(waiting)
        self._sweepers.drain(waiting)
        return False

    def _check_stalls(self) -> str | None:
        stalled = self._engine.stopped_queues()
        if not stalled:
            return None
        return (
            f"{stalled} queues are stalled: every event in them fails with an internal error;"
            " see stalled_queues.error, or run cardledger doctor"
        )

    def _check_replies(self) -> str | None:
        if self._best_effort.is_running:
            return None
        return "the thread that sends replies and doorbells has ended; restart the worker"

    def _check_batches(self) -> str | None:
        seconds = self._scheduler.longest_s
        if seconds <= _BATCH_LIMIT_S:
            return None
        return (
            f"a batch has been running for {seconds:.0f} s; check what it waits for in PostgreSQL"
        )

    def _activate_cards(self) -> bool:
        if self._issuer is None:
            return False
        with self._task_database.begin() as connection:
            now = database_clock.read(driver(connection))
            activated = issuing.record_answers(connection, self._issuer, now=now)
        if activated:
            self._webhooks.wake_dispatch()
        return bool(activated)


def _batches(threads: int) -> dict[Lane, int]:
    """Return how many batches of each lane run at a time in `threads` threads."""
    # Files never take all the threads: one is left for authorizations.
    return {
        Lane.LIVE: min(_CONCURRENT_BATCHES, threads),
        Lane.BULK: max(1, min(_CONCURRENT_BATCHES, threads // 2)),
    }


def _adapters(config: WorkerConfig) -> Adapters:
    """Return the adapters that this worker calls; the API has the others."""
    if not config.sandbox:
        return NONE_CONNECTED
    delay = timedelta(seconds=config.sandbox_delay_s)
    return Adapters(
        issuer=SandboxIssuer(KeyRing(config.secret_key), delay=delay),
        funding_rail=SandboxFundingRail(delay=delay),
    )
