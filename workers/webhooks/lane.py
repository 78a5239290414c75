"""A lane of the sender: threads that send, and the task that records and claims for them."""

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import Final

import structlog
from sqlalchemy import Engine

from cardledger.ledger.webhooks.leases import AttemptResult, Delivery
from cardledger.ledger.webhooks.ordering import Queue
from cardledger.schema.ids import Id
from cardledger.workers.signals.periodic_task import PeriodicTask
from cardledger.workers.signals.stop_deadline import StopDeadline
from cardledger.workers.tracing.hints import TraceHints
from cardledger.workers.webhooks.attempts import AttemptMaker
from cardledger.workers.webhooks.coordinator import Coordinator
from cardledger.workers.webhooks.fair_share import Share
from cardledger.workers.webhooks.http_client import HttpClient
from cardledger.workers.webhooks.signer_cache import SignerCache

_RECORD_S: Final = 2.0  # Of the time to stop, what recording the finished attempts gets.

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneConfig:
    """How a lane sends; without wake-ups it polls `every_s`."""

    name: str
    in_order: bool  # The deliveries of a resource that are claimed together.
    concurrency: int
    timeout_s: float
    retry_scale: float
    every_s: float
    allow_loopback: bool


class Lane:
    """Sends the deliveries that its share of the sender's threads allows.

    Lanes share nothing but the signers: none waits for a thread or a receiver of another.
    """

    def __init__(  # noqa: PLR0913 - what a lane is made of, by name
        self,
        config: LaneConfig,
        engine: Engine,
        signers: SignerCache,
        share: Share,
        *,
        clock: Callable[[], datetime],
        on_result: Callable[[AttemptResult], None],
        is_held: Callable[[Id], bool] = lambda _delivery_id: False,
        yields: Callable[[], bool] = lambda: False,
        traces: TraceHints | None = None,
    ) -> None:
        """Build the lane; `on_result` is called in a sending thread after each attempt.

        What is held by another lane (`holds`) is not sent by this one.

        While `yields` returns true, the task rests after each run (`PeriodicTask`).

        `traces`, if given, find the traces that deliveries belong to.
        """
        timeout = timedelta(seconds=config.timeout_s)
        self._in_order: Final = config.in_order
        self._on_result: Final = on_result
        self._http: Final = HttpClient(
            timeout_s=config.timeout_s,
            connections=config.concurrency,
            allow_loopback=config.allow_loopback,
        )
        self._attempts: Final = AttemptMaker(
            signers,
            self._http,
            clock=clock,
            timeout=timeout,
            retry_scale=config.retry_scale,
            traces=traces,
        )
        self._threads: Final = ThreadPoolExecutor(
            config.concurrency, thread_name_prefix=config.name
        )
        self._sending: Final[set[Future[None]]] = set()
        self._coordinator: Final = Coordinator(
            engine,
            share,
            clock=clock,
            attempt_timeout=timeout,
            send=self._send_in_threads,
            is_held=is_held,
        )
        self._needs_thread = False  # One could not be started for what was submitted.
        self.task: Final = PeriodicTask(
            config.name, self._deliver_due, every_s=config.every_s, yields=yields
        )
        """The task that uses PostgreSQL at every interval."""

    def start(self) -> None:
        """Start sending."""
        self.task.start()

    def wake(self) -> None:
        """Send what is due, at once."""
        self.task.wake()

    def deliver(self) -> int:
        """Record finished attempts and start what is due; return how many were started."""
        if self._needs_thread:
            self._threads.submit(bool)  # Nothing: it starts the thread that was missing.
            self._needs_thread = False
        return self._coordinator.run_once()

    def holds(self, delivery_id: Id) -> bool:
        """Return whether a delivery is under way, or sent and not recorded yet; for any thread."""
        return self._coordinator.holds(delivery_id)

    def claim_nothing_more(self) -> None:
        """Begin nothing new; takes no time."""
        self._coordinator.close()

    def close(self, deadline: StopDeadline) -> None:
        """Wait for the attempts under way and record them.

        Attempts that have not ended before `deadline` are made again when their leases end.
        """
        deadline.run(self._coordinator.wait_for_round, reserve_s=_RECORD_S)
        self._threads.shutdown(wait=False)
        _, unfinished = wait_for(self._sending.copy(), max(0.0, deadline.left_s - _RECORD_S))
        if unfinished:
            _log.warning("webhook attempts left behind; they are repeated", count=len(unfinished))
        self.task.stop(deadline.left_s)
        deadline.run(self._coordinator.record_remaining)
        self._http.close()

    def _deliver_due(self) -> bool:
        self.deliver()
        return False  # What exceeds the capacity waits for an attempt to end.

    def _send_in_threads(self, deliveries: Sequence[Delivery]) -> None:
        by_queue: dict[Queue | Id, list[Delivery]] = defaultdict(list)
        for delivery in deliveries:
            by_queue[delivery.queue if self._in_order else delivery.id].append(delivery)
        queues = deque(by_queue.values())
        try:
            while queues:
                # What is submitted is sent, even if no thread could be started for it: by the next
                # one that is idle.
                sending = self._threads.submit(self._send_in_order, queues.popleft())
                self._sending.add(sending)
                sending.add_done_callback(self._sending.discard)
        except RuntimeError:
            self._needs_thread = True
            for delivery in chain.from_iterable(queues):
                self._coordinator.finish(delivery, None)  # Its lease ends.
            raise

    def _send_in_order(self, deliveries: Sequence[Delivery]) -> None:
        """Send the webhooks of one resource to an endpoint, one after the other; in a thread."""
        has_failed = False
        for delivery in deliveries:
            result = None
            try:
                # Webhooks behind one whose attempt raised must not overtake it.
                result = None if has_failed else self._attempts.attempt(delivery)
            except Exception:  # noqa: BLE001 - no thread waits for this one
                has_failed = True
                # The lease ends, and the delivery is attempted again.
                _log.exception(
                    "webhook attempt failed",
                    webhook=delivery.webhook_id,
                    type=delivery.type,
                    resource=str(delivery.subject_id),
                )
            finally:
                self._coordinator.finish(delivery, result)
                self.task.wake()
            if result is not None:
                self._on_result(result)
