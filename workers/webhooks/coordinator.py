"""Records finished attempts and claims deliveries, all in one database transaction.

Sending threads leave their results here, and one thread at a time records them: while one batch
is being recorded, the results for the next one gather, so load makes batches larger.
Source: docs/decisions/0021-one-coordinator-for-attempts.md
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Final

import structlog
from sqlalchemy import Engine

from cardledger.ledger.storage.engines import is_unable, message_of
from cardledger.ledger.webhooks import leases
from cardledger.ledger.webhooks.claims import Capacity, PlatformCapacity
from cardledger.ledger.webhooks.leases import AttemptResult, BatchResult, Delivery
from cardledger.schema.ids import Id
from cardledger.workers.webhooks.fair_share import SLOW_S, Share

# What a lease lasts beyond the time of an attempt: to start the attempt and to record it.
_LEASE_MARGIN: Final = timedelta(seconds=5)
_RECORD_REMAINING_S: Final = 2.0  # How long recording may take when the sender stops.
_RETRY_DELAY_S: Final = 0.02

_log = structlog.get_logger()


class Coordinator:
    """Knows which attempts are under way, in this process."""

    def __init__(  # noqa: PLR0913 - what a round needs, by name
        self,
        engine: Engine,
        share: Share,
        *,
        clock: Callable[[], datetime],
        attempt_timeout: timedelta,
        send: Callable[[Sequence[Delivery]], None],
        is_held: Callable[[Id], bool],
    ) -> None:
        """Hand claimed deliveries to `send`, which returns at once.

        Not those that another coordinator of this process still holds (`is_held`): it has sent
        them, or does.
        """
        self._autocommit: Final = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._clock: Final = clock
        self._lease: Final = attempt_timeout + _LEASE_MARGIN
        self._send: Final = send
        self._is_held: Final = is_held
        # Appended to by the sending threads.
        self._finished: Final[deque[tuple[Delivery, AttemptResult | None]]] = deque()
        self._is_closed = False
        # Everything below is used under this lock only; others ask the share whether it is shared.
        self._lock: Final = threading.Lock()
        self._share: Final = share
        self._unrecorded: Final[deque[AttemptResult]] = deque()
        self._held: Final[set[Id]] = set()  # Deliveries; other coordinators ask, without the lock.

    def holds(self, delivery_id: Id) -> bool:
        """Return whether a delivery is under way, or sent and not recorded yet; for any thread."""
        return delivery_id in self._held

    def finish(self, delivery: Delivery, result: AttemptResult | None) -> None:
        """Leave the result of an attempt to be recorded; None when there was no attempt."""
        self._finished.append((delivery, result))

    def run_once(self) -> int:
        """Record the finished attempts and start what is due; return how many were started.

        One run at a time: the next must see what this one has claimed.
        """
        with self._lock:
            self._collect_finished()
            capacity = None if self._is_closed else self._share.capacity(time.monotonic())
            if not self._unrecorded and (capacity is None or not capacity.total):
                return 0
            claimed = [
                delivery
                for delivery in self._record_and_claim(capacity)
                if not self._is_held(delivery.id)
            ]
            self._held.update(delivery.id for delivery in claimed)
            self._share.start(claimed, time.monotonic())
            self._send(claimed)
            return len(claimed)

    def close(self) -> None:
        """Claim nothing more; a round that is under way may still, until `wait_for_round`."""
        self._is_closed = True  # Without the lock: a round may wait for PostgreSQL.

    def wait_for_round(self) -> None:
        """Wait for the end of the round that is under way."""
        with self._lock:
            pass

    def record_remaining(self) -> None:
        """Record what was sent; try again while another transaction holds a row, as dispatch does.

        What cannot be recorded now is sent again when its lease ends.
        """
        deadline = time.monotonic() + _RECORD_REMAINING_S
        try:
            self.run_once()
            while self._unrecorded and time.monotonic() < deadline:
                time.sleep(_RETRY_DELAY_S)
                self.run_once()
        except Exception as error:  # noqa: BLE001 - the sender stops in any case
            _log.error(
                "webhook attempts not recorded",
                count=len(self._unrecorded),
                error=message_of(error),
            )
            return
        if self._unrecorded:
            _log.error("webhook attempts not recorded", count=len(self._unrecorded))

    def _collect_finished(self) -> None:
        while self._finished:
            delivery, result = self._finished.popleft()
            self._share.finish(delivery)
            if result is None:
                self._held.discard(delivery.id)
            else:
                attempt = result.attempt
                is_quick = attempt.status is not None and attempt.duration_ms < SLOW_S * 1000
                self._share.note_response(delivery.endpoint_id, is_quick=is_quick)
                self._unrecorded.append(result)

    def _record_and_claim(self, capacity: Capacity | PlatformCapacity | None) -> list[Delivery]:
        """Record what can be recorded now, and claim what there is capacity for."""
        sent = {result.delivery.id for result in self._unrecorded}
        try:
            return self._recorded_and_claimed(capacity)
        finally:
            self._held.difference_update(sent - {result.delivery.id for result in self._unrecorded})

    def _recorded_and_claimed(self, capacity: Capacity | PlatformCapacity | None) -> list[Delivery]:
        try:
            batch = self._commit(self._unrecorded, capacity)
        except Exception as error:
            if is_unable(error) or not self._unrecorded:
                raise  # The unrecorded results are kept for the next run.
            _log.exception("recording webhook attempts one by one after a failed batch")
            self._record_one_by_one()
            return self._commit((), capacity).claimed
        remaining = [
            result for result in self._unrecorded if result.delivery.id in batch.passed_over
        ]
        self._unrecorded.clear()
        self._unrecorded.extend(remaining)
        # A delivery that was sent and is not recorded yet may be due again: its lease has ended.
        return [delivery for delivery in batch.claimed if delivery.id not in batch.passed_over]

    def _record_one_by_one(self) -> None:
        """Record each result by itself, so that one that cannot be recorded stops only itself."""
        for _ in range(len(self._unrecorded)):
            result = self._unrecorded[0]
            passed_over: Collection[Id] = ()
            try:
                passed_over = self._commit([result], None).passed_over
            except Exception as error:
                if is_unable(error):
                    raise
                # Its lease ends, and it is sent again.
                _log.exception(
                    "webhook attempt not recorded",
                    webhook=result.delivery.webhook_id,
                    type=result.delivery.type,
                    resource=str(result.delivery.subject_id),
                )
            self._unrecorded.popleft()
            if passed_over:
                self._unrecorded.append(result)

    def _commit(
        self, results: Sequence[AttemptResult], capacity: Capacity | PlatformCapacity | None
    ) -> BatchResult:
        with self._autocommit.connect() as connection:
            return leases.record_and_claim(
                connection, results, capacity=capacity, at=self._clock(), lease=self._lease
            )
