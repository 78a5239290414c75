"""A worker process, until SIGTERM: it decides events, sends webhooks, or does both.

Events are decided in Python, and webhooks are rendered, signed and sent in Python: in one process
each waits for the other, whatever the number of threads. So the two roles can be two processes,
and each imports what its role needs.
"""

# ruff: noqa: PLC0415 - see above.

import signal
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import structlog

from cardledger.ledger.storage import batch_connections
from cardledger.workers.metrics.table_figures import TableFigures
from cardledger.workers.process.config import WorkerConfig
from cardledger.workers.process.end import STOP_S, ended_in_time, leave_threads_behind
from cardledger.workers.process.health import Checks, HealthReport, role_name
from cardledger.workers.process.schema_gate import SchemaGate
from cardledger.workers.process.stop_request import StopRequest, stop_on
from cardledger.workers.process.watch import Watch
from cardledger.workers.signals.best_effort_redis import BestEffort
from cardledger.workers.signals.redis_connections import connect
from cardledger.workers.signals.roles import WorkerRole
from cardledger.workers.signals.stop_deadline import StopDeadline
from cardledger.workers.signals.webhook_signals import WebhookWakeup, WebhookWakeupListener

if TYPE_CHECKING:
    from cardledger.workers.process.event_worker import EventWorker
    from cardledger.workers.process.webhook_worker import WebhookWorker

_REPLY_TIMEOUT_S: Final = 0.5  # Of a thread that only sends to Redis.

_log = structlog.get_logger()


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

    def stop(self, limit_s: float = STOP_S) -> None:
        """Finish what is in flight and end; waiting work stays in PostgreSQL.

        What is not finished after `limit_s` is left behind, to be rolled back or repeated.
        """
        deadline = StopDeadline(limit_s)
        for component in reversed(self._components):
            component.stop(deadline.left_s)

    def prove_progress(self) -> None:
        """Return, unless threads of this process wait for each other."""
        for component in self._components:
            if isinstance(component, _Proving):
                component.prove_progress()


class _Component(Protocol):
    def start(self) -> None: ...
    def stop(self, limit_s: float) -> None: ...


@runtime_checkable
class _Proving(Protocol):
    def prove_progress(self) -> None: ...


def load(role: WorkerRole | None) -> None:
    """Import what a worker of `role` needs, which otherwise happens when it is built."""
    if role is not WorkerRole.WEBHOOKS:
        _event_worker()
    if role is not WorkerRole.EVENTS:
        _webhook_worker()


def _event_worker() -> "type[EventWorker]":
    from cardledger.workers.process.event_worker import EventWorker

    return EventWorker


def _webhook_worker() -> "type[WebhookWorker]":
    from cardledger.workers.process.webhook_worker import WebhookWorker

    return WebhookWorker


def _components(config: WorkerConfig, clock: Callable[[], datetime]) -> list[_Component]:
    """Return the components of `config.role`; a component that is woken comes before its waker."""
    best_effort = BestEffort(connect(config.redis_url, timeout_s=_REPLY_TIMEOUT_S))
    worker_id = batch_connections.new_worker_id()
    watch = Watch(
        config.database_url,
        worker_id,
        clock=clock,
        decides_events=config.role is not WorkerRole.WEBHOOKS,
    )
    # The watch is the first: it stops last, so that what others finish is not taken for silent.
    if config.role is WorkerRole.EVENTS:
        events = _event_worker()(config, watch, best_effort, WebhookWakeup(best_effort), worker_id)
        return [watch, best_effort, events, *_report(config, events)]
    webhooks = _webhook_worker()(config, watch, worker_id)
    if config.role is WorkerRole.WEBHOOKS:
        listener = WebhookWakeupListener(
            connect(config.redis_url), webhooks, every_s=config.sweep_interval_s
        )
        return [watch, webhooks, listener, *_report(config, webhooks)]
    events = _event_worker()(config, watch, best_effort, webhooks, worker_id)
    return [watch, best_effort, webhooks, events, *_report(config, webhooks, events)]


def _report(config: WorkerConfig, *workers: "EventWorker | WebhookWorker") -> list[_Component]:
    """Return the components that report the health and the metrics of `workers`, if wanted."""
    reports: list[_Component] = []
    if config.health_dir is not None:
        checks = [worker.checks for worker in workers]
        reports.append(HealthReport(config.health_dir, role_name(config.role), checks))
    if config.metrics is not None:
        # Where there are no metrics, their library is not loaded.
        from cardledger.workers.metrics.server import MetricsServer

        sources = dict.fromkeys(source for worker in workers for source in worker.metrics)
        figures = [figure for worker in workers for figure in worker.table_figures]
        tables = TableFigures(config.database_url, figures)
        reports.append(MetricsServer(config.metrics, [*sources, tables]))
    return reports


def _schema_is_usable(config: WorkerConfig, stop: StopRequest) -> bool:
    """Wait until it is and return True, or False on `stop`; report what is missing."""
    gate = SchemaGate(config.database_url)
    reports = (
        []
        if config.health_dir is None
        else [
            HealthReport(
                config.health_dir,
                role_name(config.role),
                [Checks(of_worker=[lambda: gate.problem])],
            )
        ]
    )
    for report in reports:
        report.start()
    try:
        return gate.wait(stop)
    finally:
        for report in reports:
            report.stop()


def run(config: WorkerConfig, *, ready: Callable[[WorkerProcess], None] = lambda _: None) -> None:
    """Work until SIGTERM or SIGINT, once the database has a schema that this release can use.

    The process ends within ten seconds then, and at once with a second signal.

    Calls `ready` with the process once all components run.
    """

    def restore_default(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)

    known = set(threading.enumerate())
    with (
        stop_on(signal.SIGTERM, signal.SIGINT, handler=restore_default) as stop,
        ended_in_time(stop),
    ):
        if not _schema_is_usable(config, stop):
            return
        process = WorkerProcess(config)
        process.start()
        _log.info(
            "worker ready", role=config.role, threads=config.threads, batch_size=config.batch_size
        )
        ready(process)
        stop.wait()
        process.stop()
        _log.info("worker stopped")
        leave_threads_behind(known)
