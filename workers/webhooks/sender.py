"""The webhook sender: dispatches the outbox and delivers what is due.

Any number of senders, in any number of processes, may run at once: PostgreSQL says who has what,
and for how long. In this process some threads send, and do nothing else; what came of it they
leave at a desk, where one thread records all that has ended meanwhile, and claims what is due, in
one database transaction. So, the more there is to do, the less a webhook costs. Another thread
dispatches, and a third disables endpoints that are gone; none waits for another.
Source: docs/decisions/0021-one-coordinator-for-attempts.md
"""

import random
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from importlib.metadata import version
from typing import Final

import psycopg
import structlog
from sqlalchemy import Engine

from cardledger.ledger.storage.engines import is_unable
from cardledger.ledger.storage.secrets import KeyRing
from cardledger.ledger.webhooks import dispatch as webhook_dispatch
from cardledger.ledger.webhooks import endpoints, leases
from cardledger.ledger.webhooks.dispatch import Dispatched
from cardledger.ledger.webhooks.leases import AttemptResult, BatchResult, Capacity, Delivery
from cardledger.ledger.webhooks.ordering import Queue
from cardledger.ledger.webhooks.retry_policy import Attempt, next_attempt_at, not_before
from cardledger.ledger.webhooks.signers import Signer, signer_for
from cardledger.schema.ids import Id
from cardledger.schema.wire.webhooks.endpoints import GivenUpReason
from cardledger.workers.signals.periodic_task import PeriodicTask
from cardledger.workers.webhooks.fair_share import SLOW_S, FairShare
from cardledger.workers.webhooks.http_client import Egress

DISPATCH_LIMIT: Final = 500
"""How many rows of the outbox one database transaction dispatches."""

CONNECTIONS: Final = 4
"""How many connections a sender uses: to dispatch, at the desk, for keys, and to disable."""

HEADERS: Final = {
    "Content-Type": "application/json",
    "User-Agent": f"cardledger/{version('cardledger')}",
}
"""What every webhook carries beside its signatures."""

# What a lease lasts beyond the time that an attempt may take: to start it and to record it.
_LEASE_MARGIN: Final = timedelta(seconds=5)
# A key that others know must not sign for long after it was replaced.
_SIGNERS_LAST: Final = timedelta(seconds=5)
_GATHER_S: Final = 0.01  # What is told within a hundredth of a second is dispatched together.
_JITTER: Final = (0.8, 1.2)
_STOP_S: Final = 20.0
_RECORDS_FOR_S: Final = 2.0  # When it ends.
_RECORDS_AGAIN_S: Final = 0.02

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
        """Build the parts; `start` starts them. What nobody wakes it for it finds in `every_s`."""
        self._engine: Final = engine
        self._single: Final = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._clock: Final = clock
        self._timeout: Final = timedelta(seconds=timeout_s)
        self._retry_scale: Final = retry_scale
        self._egress: Final = Egress(
            timeout_s=timeout_s, connections=concurrency, allow_loopback=allow_loopback
        )
        self._signers: Final = _Signers(engine, keys, clock)
        self._random: Final = random.SystemRandom()
        self._threads: Final = ThreadPoolExecutor(concurrency, thread_name_prefix="webhooks")
        self._dispatching: Final = PeriodicTask(
            "dispatch", self._dispatch_some, every_s=every_s, gather_s=_GATHER_S
        )
        self._delivering: Final = PeriodicTask("webhooks", self._deliver_some, every_s=every_s)
        self._disabling: Final = PeriodicTask("disable", self._disable_hopeless, every_s=every_s)
        self._hopeless: Final[dict[Id, AttemptResult]] = {}  # By endpoint; by who has sent it.
        self._left: Final[deque[tuple[Delivery, AttemptResult | None]]] = (
            deque()
        )  # By who has sent it.
        # All below belongs to whoever is at the desk.
        self._desk: Final = threading.Lock()
        self._traffic: Final = FairShare(concurrency)
        self._unrecorded: Final[deque[AttemptResult]] = deque()
        self._closed = False

    def start(self) -> None:
        """Start dispatching and delivering."""
        self._dispatching.start()
        self._delivering.start()
        self._disabling.start()

    def wake(self) -> None:
        """Look now: something was told, or is due again, or may be sent that might not before."""
        self._dispatching.wake()
        self._delivering.wake()

    def wake_dispatch(self) -> None:
        """Dispatch now, for there is something to tell; what comes of it is delivered then."""
        self._dispatching.wake()

    def close(self) -> None:
        """Wait for the attempts on their way, at most the time that one may take, and record them.

        Nothing new is begun.
        """
        self._dispatching.stop(_STOP_S)
        with self._desk:
            self._closed = True
        self._threads.shutdown(wait=True)
        self._delivering.stop(_STOP_S)
        self._record_the_rest()
        self._disabling.stop(_STOP_S)
        self._disable_hopeless()
        self._egress.close()

    def dispatch(self) -> Dispatched:
        """Make deliveries of what the outbox has, a batch of it."""
        with self._engine.begin() as connection:
            return webhook_dispatch.dispatch(connection, limit=DISPATCH_LIMIT, at=self._clock())

    def deliver(self) -> int:
        """Record the attempts that have ended and start what is due; return how much was started.

        One at a time in this process: the next must see what this one takes.
        """
        with self._desk:
            self._take_what_is_left()
            room = None if self._closed else self._traffic.room(time.monotonic())
            if not self._unrecorded and (room is None or not room.total):
                return 0
            claimed = self._record_and_claim(room)
            self._start(claimed)
            return len(claimed)

    def _dispatch_some(self) -> bool:
        done = self.dispatch()
        if done.deliveries:
            self._delivering.wake()
        return done.has_more

    def _deliver_some(self) -> bool:
        self.deliver()
        return False  # Whatever there was no room for waits for an attempt to end.

    def _record_the_rest(self) -> None:
        """Record what has been sent; somebody may hold a resource a moment, as dispatching does.

        What cannot be recorded now is sent again when its lease ends.
        """
        deadline = time.monotonic() + _RECORDS_FOR_S
        try:
            self.deliver()
            while self._unrecorded and time.monotonic() < deadline:
                time.sleep(_RECORDS_AGAIN_S)
                self.deliver()
        except Exception:  # noqa: BLE001 - the end of the line
            _log.exception("webhook attempts are not recorded", count=len(self._unrecorded))
            return
        if self._unrecorded:
            _log.error("webhook attempts are not recorded", count=len(self._unrecorded))

    # --- at the desk ---------------------------------------------------------------------------

    def _take_what_is_left(self) -> None:
        while self._left:
            delivery, ended = self._left.popleft()
            self._traffic.leave(delivery)
            if ended is not None:
                attempt = ended.attempt
                is_quick = attempt.status is not None and attempt.duration_ms < SLOW_S * 1000
                self._traffic.heard(delivery.endpoint_id, is_quick=is_quick)
                self._unrecorded.append(ended)

    def _record_and_claim(self, room: Capacity | None) -> list[Delivery]:
        """Record what is unrecorded, as far as it can be now, and claim what there is room for."""
        try:
            found = self._commit(self._unrecorded, room)
        except Exception as error:
            if is_unable(error) or not self._unrecorded:
                raise  # What is unrecorded is kept for the next time.
            _log.exception("webhook attempts are recorded one by one")
            self._record_one_by_one()
            return self._commit((), room).claimed
        kept = [one for one in self._unrecorded if one.delivery.id in found.passed_over]
        self._unrecorded.clear()
        self._unrecorded.extend(kept)
        # What was sent already and only waits for its record may be due again: its lease has ended.
        return [one for one in found.claimed if one.id not in found.passed_over]

    def _record_one_by_one(self) -> None:
        """Record each by itself, so that one that cannot be recorded stops only itself."""
        for _ in range(len(self._unrecorded)):
            ended = self._unrecorded[0]
            passed_over: Collection[Id] = ()
            try:
                passed_over = self._commit([ended], None).passed_over
            except psycopg.errors.LockNotAvailable:
                passed_over = [ended.delivery.id]
            except Exception as error:
                if is_unable(error):
                    raise
                # Its lease ends, and it is sent again.
                _log.exception(
                    "webhook attempt is not recorded",
                    webhook=ended.delivery.webhook_id,
                )
            self._unrecorded.popleft()
            if passed_over:
                self._unrecorded.append(ended)

    def _commit(self, ended: Sequence[AttemptResult], room: Capacity | None) -> BatchResult:
        with self._single.connect() as connection:
            return leases.record_and_claim(
                connection,
                ended,
                capacity=room,
                at=self._clock(),
                lease=self._timeout + _LEASE_MARGIN,
            )

    def _start(self, deliveries: Sequence[Delivery]) -> None:
        self._traffic.enter(deliveries, time.monotonic())
        by_queue: dict[Queue, list[Delivery]] = defaultdict(list)
        for delivery in deliveries:
            by_queue[delivery.queue].append(delivery)
        for group in by_queue.values():
            self._threads.submit(self._send_in_order, group)

    # --- in the threads that send --------------------------------------------------------------

    def _send_in_order(self, deliveries: Sequence[Delivery]) -> None:
        """Send an endpoint the webhooks of one resource, one after the other."""
        is_broken = False
        for delivery in deliveries:
            ended = None
            try:
                # What comes after one that broke is not sent before it either.
                ended = None if is_broken else self._send(delivery)
            except Exception:  # noqa: BLE001 - the end of the line
                # Nobody waits for this thread. The lease ends, and it is tried again.
                _log.exception("webhook attempt broke", webhook=delivery.webhook_id)
                is_broken = True
            self._left.append((delivery, ended))
            self._delivering.wake()
            if ended is not None and _reason_to_disable(ended) is not None:
                self._hopeless[delivery.endpoint_id] = ended
                self._disabling.wake()

    def _send(self, delivery: Delivery) -> AttemptResult | None:
        """Make one attempt, if there is time for it before the lease ends."""
        if self._clock() + self._timeout > delivery.leased_until:
            return None  # Those before it were slow. It will be claimed again.
        attempt = self._attempt(delivery)
        retry_at = None if attempt.delivered else self._retry_at(delivery, attempt)
        _tell(delivery, attempt, retry_at)
        return AttemptResult(delivery=delivery, attempt=attempt, retry_at=retry_at)

    def _attempt(self, delivery: Delivery) -> Attempt:
        signer = self._signers.get(delivery.endpoint_id, delivery.endpoint_version)
        at, started = self._clock(), time.monotonic_ns()
        headers = signer.sign(delivery.body, webhook_id=delivery.webhook_id, at=at)
        answer = self._egress.post(delivery.url, delivery.body, HEADERS | headers)
        return Attempt(
            at=at,
            ended_at=self._clock(),
            duration_ms=(time.monotonic_ns() - started) // 1_000_000,
            status=answer.status,
            error=answer.error,
            response_head=answer.head,
            retry_after=answer.retry_after,
        )

    def _retry_at(self, delivery: Delivery, attempt: Attempt) -> datetime | None:
        if attempt.is_gone or not delivery.is_retried:
            return None
        due = next_attempt_at(
            delivery.attempts + 1,
            at=attempt.ended_at,
            scale=self._retry_scale,
            jitter=self._random.uniform(*_JITTER),
        )
        asked = not_before(attempt, scale=self._retry_scale)
        return due if due is None or asked is None else max(due, asked)

    # --- for those that are told no more ---------------------------------------------------------

    def _disable_hopeless(self) -> bool:
        """Stop sending to the endpoints that are gone, or have done nothing but fail for days.

        In a thread of its own, for whoever changes an endpoint holds it for as long as he needs,
        and a thread that waited for him would send nobody anything.
        """
        while self._hopeless:
            endpoint_id, ended = self._hopeless.popitem()
            try:
                self._disable(ended)
            except Exception:  # noqa: BLE001 - the others must be disabled
                # The next attempt that fails says it again.
                _log.exception("webhook endpoint is not disabled", endpoint=str(endpoint_id))
        return False

    def _disable(self, ended: AttemptResult) -> None:
        delivery, ended_at = ended.delivery, ended.attempt.ended_at
        reason = _reason_to_disable(ended)
        assert reason is not None, "nobody asks for another one"
        with self._engine.begin() as connection:
            is_news = endpoints.disable(
                connection,
                delivery.endpoint_id,
                reason=reason,
                at=ended_at,
                failing_since_before=_hopeless_since(ended_at) if reason == "FAILING" else None,
            )
        if is_news:
            _log.error(
                "webhook endpoint disabled",
                endpoint=str(delivery.endpoint_id),
                platform=str(delivery.platform_id),
                reason=reason,
            )


def _reason_to_disable(ended: AttemptResult) -> GivenUpReason | None:
    """Return why an endpoint is sent nothing more after an attempt; None: it is."""
    failing_since, attempt = ended.delivery.failing_since, ended.attempt
    if attempt.delivered:
        return None
    if attempt.is_gone:
        return "GONE"
    if failing_since is not None and failing_since <= _hopeless_since(attempt.ended_at):
        return "FAILING"
    return None


def _hopeless_since(now: datetime) -> datetime:
    """Return since when an endpoint must have failed that is disabled `now`."""
    return now - endpoints.GIVES_UP_AFTER


class _Signers:
    """The endpoints' keys, decrypted for a short time, so that a new key soon counts.

    A changed endpoint has another version, and its new secret signs at once. When one is too old,
    a single thread looks it up, for a lot of them need it at once.
    """

    def __init__(self, engine: Engine, keys: KeyRing, clock: Callable[[], datetime]) -> None:
        self._engine: Final = engine
        self._keys: Final = keys
        self._clock: Final = clock
        self._looking: Final = threading.Lock()
        self._known: Final[dict[Id, tuple[datetime, datetime, Signer]]] = {}

    def get(self, endpoint_id: Id, endpoint_version: datetime) -> Signer:
        """Return what signs an endpoint's webhooks.

        Raises: SecretsError when the server key cannot decrypt it.
        """
        now = self._clock()
        if signer := self._kept(endpoint_id, endpoint_version, now):
            return signer
        with self._looking:
            if signer := self._kept(endpoint_id, endpoint_version, now):
                return signer
            with self._engine.connect() as connection:
                signer = signer_for(connection, endpoint_id, self._keys, at=now)
            self._known[endpoint_id] = endpoint_version, now + _SIGNERS_LAST, signer
            return signer

    def _kept(self, endpoint_id: Id, endpoint_version: datetime, now: datetime) -> Signer | None:
        version, until, signer = self._known.get(endpoint_id, (None, now, None))
        return signer if version == endpoint_version and now < until else None


def _tell(delivery: Delivery, attempt: Attempt, retry_at: datetime | None) -> None:
    """Log an attempt: no body, no URL (it may carry a token), no keys."""
    said = {
        "webhook": delivery.webhook_id,
        "platform": str(delivery.platform_id),
        "endpoint": str(delivery.endpoint_id),
        "type": delivery.type,
        "attempt": delivery.attempts + 1,
        "duration_ms": attempt.duration_ms,
        "status": attempt.status,
    }
    if attempt.delivered:
        _log.debug("webhook delivered", **said)
    elif retry_at is not None:
        told = {"error": attempt.error, "retry_at": retry_at.isoformat()}
        _log.warning("webhook not delivered", **said, **told)
    else:
        _log.error("webhook given up", **said, error=attempt.error)
