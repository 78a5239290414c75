"""The webhook sender: dispatches the outbox and delivers what is due.

Any number of senders, in any number of processes, may run at once: PostgreSQL keeps which sender
has leased which delivery, and until when. In this process some threads send, and do nothing else;
one thread records their results and claims what is due (`coordinator`), another dispatches, and a
third disables endpoints (`disabling`); none waits for another.
Source: docs/decisions/0021-one-coordinator-for-attempts.md
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Final

import structlog
from sqlalchemy import Engine

from cardledger.ledger.storage.secrets import KeyRing
from cardledger.ledger.webhooks import dispatch as webhook_dispatch
from cardledger.ledger.webhooks.dispatch import Dispatched
from cardledger.ledger.webhooks.leases import Delivery
from cardledger.ledger.webhooks.ordering import Queue
from cardledger.workers.signals.periodic_task import PeriodicTask
from cardledger.workers.webhooks.attempts import AttemptMaker
from cardledger.workers.webhooks.coordinator import Coordinator
from cardledger.workers.webhooks.disabling import EndpointDisabler
from cardledger.workers.webhooks.fair_share import FairShare
from cardledger.workers.webhooks.http_client import HttpClient
from cardledger.workers.webhooks.signer_cache import SignerCache

DISPATCH_LIMIT: Final = 500
"""Rows of the outbox that one database transaction dispatches."""

CONNECTIONS: Final = 4
"""Database connections of a sender: to dispatch, to record and claim, for keys, to disable."""

_GATHER_S: Final = 0.01  # Rows that are written within a hundredth of a second share a dispatch.
_STOP_S: Final = 20.0

_log = structlog.get_logger()


class Sender:
    """Delivers webhooks at least once: an attempt counts when it is recorded."""

    def __init__(  # noqa: PLR0913 - what a process decides, by name
        self,
        engine: Engine,
        keys: KeyRing,
        *,
        clock: Callable[[], datetime],
        timeout_s: float,
        retry_scale: float,
        every_s: float,
        concurrency: int = 64,
        allow_loopback: bool = False,
    ) -> None:
        """Build the parts; `start` starts them. Without wake-ups, poll `every_s`."""
        self._engine: Final = engine
        self._clock: Final = clock
        timeout = timedelta(seconds=timeout_s)
        self._http: Final = HttpClient(
            timeout_s=timeout_s, connections=concurrency, allow_loopback=allow_loopback
        )
        self._attempts: Final = AttemptMaker(
            SignerCache(engine, keys, clock),
            self._http,
            clock=clock,
            timeout=timeout,
            retry_scale=retry_scale,
        )
        self._threads: Final = ThreadPoolExecutor(concurrency, thread_name_prefix="webhooks")
        self._coordinator: Final = Coordinator(
            engine,
            FairShare(concurrency),
            clock=clock,
            attempt_timeout=timeout,
            send=self._send_in_threads,
        )
        self._disabler: Final = EndpointDisabler(engine, every_s=every_s)
        self._dispatching: Final = PeriodicTask(
            "dispatch", self._dispatch_batch, every_s=every_s, gather_s=_GATHER_S
        )
        self._delivering: Final = PeriodicTask("webhooks", self._deliver_due, every_s=every_s)

    def start(self) -> None:
        """Start dispatching and delivering."""
        self._dispatching.start()
        self._delivering.start()
        self._disabler.start()

    def wake(self) -> None:
        """Dispatch the outbox, and send what is due or has become sendable, at once."""
        self._dispatching.wake()
        self._delivering.wake()

    def wake_dispatch(self) -> None:
        """Dispatch the outbox at once; the deliveries made from it are then sent."""
        self._dispatching.wake()

    def close(self) -> None:
        """Wait for the attempts under way, at most as long as one may take, and record them.

        Nothing new is begun.
        """
        self._dispatching.stop(_STOP_S)
        self._coordinator.close()
        self._threads.shutdown(wait=True)
        self._delivering.stop(_STOP_S)
        self._coordinator.record_remaining()
        self._disabler.stop(_STOP_S)
        self._http.close()

    def dispatch(self) -> Dispatched:
        """Make deliveries of a batch of the outbox."""
        with self._engine.begin() as connection:
            return webhook_dispatch.dispatch(connection, limit=DISPATCH_LIMIT, at=self._clock())

    def deliver(self) -> int:
        """Record finished attempts and start what is due; return how many were started."""
        return self._coordinator.run_once()

    def _dispatch_batch(self) -> bool:
        dispatched = self.dispatch()
        if dispatched.deliveries:
            self._delivering.wake()
        return dispatched.has_more

    def _deliver_due(self) -> bool:
        self.deliver()
        return False  # What exceeds the capacity waits for an attempt to end.

    def _send_in_threads(self, deliveries: Sequence[Delivery]) -> None:
        by_queue: dict[Queue, list[Delivery]] = defaultdict(list)
        for delivery in deliveries:
            by_queue[delivery.queue].append(delivery)
        for queue in by_queue.values():
            self._threads.submit(self._send_in_order, queue)

    def _send_in_order(self, deliveries: Sequence[Delivery]) -> None:
        """Send the webhooks of one resource to an endpoint, one after the other; in a thread."""
        has_failed = False
        for delivery in deliveries:
            result = None
            try:
                # Webhooks behind one whose attempt raised must not overtake it.
                result = None if has_failed else self._attempts.attempt(delivery)
            except Exception:  # noqa: BLE001 - no thread waits for this one
                # The lease ends, and the delivery is attempted again.
                _log.exception("webhook attempt failed", webhook=delivery.webhook_id)
                has_failed = True
            self._coordinator.finish(delivery, result)
            self._delivering.wake()
            if result is not None:
                self._disabler.consider(result)
