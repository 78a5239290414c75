"""The worker that sends webhooks."""

from collections.abc import Sequence
from typing import Final

from cardledger.ledger.storage import batch_connections
from cardledger.ledger.storage.engines import sync_engine
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.workers.metrics import counted, table_figures
from cardledger.workers.metrics.instruments import Source
from cardledger.workers.process.config import WorkerConfig
from cardledger.workers.process.health import Checks, recent
from cardledger.workers.process.watch import Watch
from cardledger.workers.signals.redis_connections import connect
from cardledger.workers.signals.stop_deadline import StopDeadline
from cardledger.workers.tracing import spans
from cardledger.workers.tracing.hints import TraceHints
from cardledger.workers.webhooks.retention import Retention
from cardledger.workers.webhooks.sender import CONNECTIONS, Sender

_TRACE_TIMEOUT_S: Final = 0.2  # Of a sender that looks for the trace of a webhook.


class WebhookWorker:
    """Sends webhooks."""

    table_figures: Final = table_figures.OF_WEBHOOKS

    def __init__(self, config: WorkerConfig, watch: Watch, worker_id: str) -> None:
        """Send by PostgreSQL's clock: retries, deadlines, signatures and what is old.

        By a clock that is wrong, endpoints would be disabled and deliveries deleted too early.
        """
        self._database: Final = sync_engine(
            config.database_url,
            keyed=True,
            waits_for_disk=False,
            application_name=f"{batch_connections.WEBHOOKS} {worker_id}",
            pool_size=CONNECTIONS + 1,  # One for retention, which must not keep a webhook waiting.
            max_overflow=0,
        )
        self._sender: Final = Sender(
            self._database,
            KeyRing(config.secret_key),
            clock=watch.now,
            timeout_s=config.webhook_timeout_s,
            retry_scale=config.webhook_retry_scale,
            every_s=config.sweep_interval_s,
            waiting_limit=config.webhook_waiting_limit,
            allow_loopback=config.sandbox and config.loopback_webhooks,
            traces=_traces(config),
        )
        self._retention: Final = Retention(
            self._database, config.webhook_retention, clock=watch.now
        )
        self._watch: Final = watch
        watch.call(self.wake)
        self.metrics: Final[Sequence[Source]] = (*counted.OF_WEBHOOKS, *watch.metrics)

    def wake(self) -> None:
        """Dispatch the outbox and send what is due, at once."""
        self._sender.wake()

    def wake_dispatch(self) -> None:
        """Dispatch the outbox at once."""
        self._sender.wake_dispatch()

    @property
    def checks(self) -> Checks:
        return Checks(of_worker=[*map(recent, (self._watch.task, *self._sender.tasks))])

    def start(self) -> None:
        self._sender.start()
        self._sender.wake()
        self._retention.start()

    def stop(self, limit_s: float) -> None:
        deadline = StopDeadline(limit_s)
        self._sender.close(deadline.left_s)
        self._retention.stop(deadline.left_s)
        self._database.dispose()


def _traces(config: WorkerConfig) -> TraceHints | None:
    if not spans.is_active():
        return None
    return TraceHints(connect(config.redis_url, timeout_s=_TRACE_TIMEOUT_S))
