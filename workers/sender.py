"""The webhook sender: dispatches the outbox and delivers what is due.

Any number of senders, in any number of threads and processes, may run at once: PostgreSQL says
who has what, and for how long. In this process some threads send, and each endpoint may have a
share of them: a large one when it answers quickly, a single one until it has done so. Of these
last, all that did nothing but fail until now have a quarter of the threads together, and the
others half, so that the dead hold up nobody, and those that answer quickly always find a thread.
"""

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from importlib.metadata import version
from typing import Final
from uuid import UUID

import structlog
from sqlalchemy import Engine

from ledger import webhook_claims, webhook_dispatch, webhook_endpoints
from ledger.secrets import KeyRing
from ledger.webhook_attempts import Attempt, next_attempt_at, not_before
from ledger.webhook_claims import Delivery, Room
from ledger.webhook_queues import Queue
from ledger.webhook_signers import Signer, signer_for
from schema.wire.webhook_endpoints import GivenUpReason
from workers.egress import Egress

DISPATCH_LIMIT: Final = 500
"""How many rows of the outbox one database transaction dispatches."""

HEADERS: Final = {
    "Content-Type": "application/json",
    "User-Agent": f"cardledger/{version('cardledger')}",
}
"""What every webhook carries beside its signatures."""

# What a lease lasts beyond the time that an attempt may take: to start it and to record it.
_LEASE_MARGIN: Final = timedelta(seconds=5)
# A key that others know must not sign for long after it was replaced.
_SIGNERS_LAST: Final = timedelta(seconds=5)
_JITTER: Final = (0.8, 1.2)
_SLOW_MS: Final = 1_000
_SLOW_S: Final = _SLOW_MS / 1000
_TURNS_KEPT: Final = 1_000  # Whoever is forgotten is as good as new.

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
        concurrency: int = 32,
        allow_loopback: bool = False,
    ) -> None:
        self._engine: Final = engine
        # An attempt is recorded by one statement: a database transaction without BEGIN and COMMIT.
        self._single: Final = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._clock: Final = clock
        self._timeout: Final = timedelta(seconds=timeout_s)
        self._retry_scale: Final = retry_scale
        self._egress: Final = Egress(
            timeout_s=timeout_s, connections=concurrency, allow_loopback=allow_loopback
        )
        self._threads: Final = ThreadPoolExecutor(concurrency, thread_name_prefix="webhooks")
        self._traffic: Final = _Traffic(concurrency)
        self._signers: Final = _Signers(engine, keys, clock)
        self._random: Final = random.SystemRandom()
        self._claiming: Final = threading.Lock()
        self._asked: Final = threading.Event()
        self._closed = False

    def run_once(self) -> int:
        """Dispatch a batch and start what is due; return how much that was, 0 when idle.

        Does not wait for receivers: their threads go on, and start what is due then, until
        nothing is.
        """
        moved = started = 0
        try:
            moved = self._dispatch()
        finally:
            # What was dispatched before must not wait for what cannot be dispatched.
            started = self._start_due()
        return moved + started

    def close(self) -> None:
        """Wait for the attempts on their way, at most the time that one may take."""
        with self._claiming:
            self._closed = True
        self._threads.shutdown(wait=True)
        self._egress.close()

    def _dispatch(self) -> int:
        with self._engine.begin() as connection:
            return webhook_dispatch.dispatch(connection, limit=DISPATCH_LIMIT, at=self._clock())

    def _start_due(self) -> int:
        """Claim and start what there is room for; return how much.

        One claim at a time in this process: the next must see what this one takes. Whoever asks
        meanwhile does not wait, and whoever claims goes round again for him; so, under load,
        one claim serves many.
        """
        started = 0
        self._asked.set()
        while self._asked.is_set() and self._claiming.acquire(blocking=False):
            try:
                self._asked.clear()
                started += self._claim_and_start()
            finally:
                self._claiming.release()
        return started

    def _claim_and_start(self) -> int:
        room = self._traffic.room(time.monotonic())
        if self._closed or not room.total:
            return 0
        deliveries = self._claim(room)
        self._traffic.enter(deliveries, time.monotonic())
        by_queue: dict[Queue, list[Delivery]] = defaultdict(list)
        for delivery in deliveries:
            by_queue[delivery.queue].append(delivery)
        for group in by_queue.values():
            self._threads.submit(self._send_in_order, group)
        return len(deliveries)

    def _claim(self, room: Room) -> list[Delivery]:
        with self._engine.begin() as connection:
            return webhook_claims.claim_due(
                connection, room=room, at=self._clock(), lease=self._timeout + _LEASE_MARGIN
            )

    def _send_in_order(self, deliveries: Sequence[Delivery]) -> None:
        """Send an endpoint the webhooks of one resource, one after the other; then start more."""
        try:
            for delivery in deliveries:
                self._send(delivery)
        except Exception:  # noqa: BLE001 - the end of the line
            # Nobody waits for this thread. The lease ends, and it is tried again.
            _log.exception("webhook attempt broke", webhook=deliveries[0].webhook_id)
        finally:
            self._traffic.leave(deliveries)
        try:
            self._start_due()
        except Exception:  # noqa: BLE001 - the end of the line
            _log.exception("webhooks cannot be claimed")

    def _send(self, delivery: Delivery) -> None:
        """Make one attempt and record it, if there is time for it before the lease ends."""
        if self._clock() + self._timeout > delivery.leased_until:
            return  # Those before it were slow. It will be claimed again.
        attempt = self._attempt(delivery)
        quick = attempt.status is not None and attempt.duration_ms < _SLOW_MS
        self._traffic.heard(delivery.endpoint_id, quick=quick)
        retry_at = None if attempt.delivered else self._retry_at(delivery, attempt)
        self._record(delivery, attempt, retry_at)
        _tell(delivery, attempt, retry_at)
        if not attempt.delivered:
            self._disable(delivery, attempt)

    def _record(self, delivery: Delivery, attempt: Attempt, retry_at: datetime | None) -> None:
        # Where order is promised, the end of one and the turn of the next are one commit.
        ends_turn = delivery.is_fifo and retry_at is None
        with self._engine.begin() if ends_turn else self._single.connect() as connection:
            webhook_claims.record_attempt(connection, delivery, attempt, retry_at=retry_at)

    def _disable(self, delivery: Delivery, attempt: Attempt) -> None:
        """Stop sending to an endpoint that is gone, or has done nothing but fail for days."""
        limit = attempt.ended_at - webhook_endpoints.GIVES_UP_AFTER
        has_failed_long = delivery.failing_since is not None and delivery.failing_since <= limit
        if not (attempt.is_gone or has_failed_long):
            return
        reason: GivenUpReason = "GONE" if attempt.is_gone else "FAILING"
        before = None if attempt.is_gone else limit
        with self._engine.begin() as connection:
            is_news = webhook_endpoints.disable(
                connection,
                delivery.endpoint_id,
                reason=reason,
                at=attempt.ended_at,
                failing_since_before=before,
            )
        if is_news:
            _log.error(
                "webhook endpoint disabled",
                endpoint=str(delivery.endpoint_id),
                platform=str(delivery.platform_id),
                reason=reason,
            )

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


class _Traffic:
    """Who has which of the threads; may be used from all of them."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency: Final = concurrency
        self._share: Final = max(concurrency // 4, 1)
        # The rest is for those that answer quickly, and no others.
        self._for_others: Final = max(concurrency // 2, 1)
        self._for_failing: Final = max(concurrency // 4, 1)
        self._lock: Final = threading.Lock()
        self._sending: Final[dict[UUID, dict[UUID, float]]] = defaultdict(dict)  # Since when.
        self._busy: Final[set[Queue]] = set()
        self._quick: Final[set[UUID]] = set()
        self._failing: Final[set[UUID]] = set()  # Of those that are being sent something.
        self._turns: Final[dict[UUID, int]] = {}  # The last one of each, oldest first.
        self._turn = 0

    def room(self, now: float) -> Room:
        """Return what can be taken on now."""
        with self._lock:
            quick = {one for one in self._quick if not self._is_stuck(one, now)}
            others = [one for one in self._sending if one not in quick]
            failing = sum(len(self._sending[one]) for one in others if one in self._failing)
            known = sum(len(self._sending[one]) for one in others) - failing
            left, left_for_failing = self._for_others - known, self._for_failing - failing
            total = self._concurrency - sum(map(len, self._sending.values()))
            shares = {one: self._share - len(self._sending.get(one, ())) for one in quick}
            return Room(
                total=total,
                # Of those that are not known to be quick, and are sent nothing just now.
                share=int(left > 0 or left_for_failing > 0),
                shares=dict.fromkeys(others, 0) | {one: max(n, 0) for one, n in shares.items()},
                others=max(left, 0),
                failing=max(left_for_failing, 0),
                busy=frozenset(self._busy),
                turns=dict(self._turns),
            )

    def enter(self, deliveries: Sequence[Delivery], now: float) -> None:
        """Note that `deliveries` are being sent."""
        with self._lock:
            self._turn += 1
            for delivery in deliveries:
                endpoint_id = delivery.endpoint_id
                self._sending[endpoint_id][delivery.id] = now
                self._busy.add(delivery.queue)
                if delivery.failing_since is not None:
                    self._failing.add(endpoint_id)
                self._turns.pop(endpoint_id, None)
                self._turns[endpoint_id] = self._turn
            while len(self._turns) > _TURNS_KEPT:
                del self._turns[next(iter(self._turns))]

    def leave(self, deliveries: Sequence[Delivery]) -> None:
        """Note that they are not any more."""
        with self._lock:
            for delivery in deliveries:
                self._busy.discard(delivery.queue)
                self._sending[delivery.endpoint_id].pop(delivery.id, None)
                if not self._sending[delivery.endpoint_id]:
                    del self._sending[delivery.endpoint_id]
                    self._failing.discard(delivery.endpoint_id)

    def heard(self, endpoint_id: UUID, *, quick: bool) -> None:
        """Note whether an endpoint answered quickly."""
        with self._lock:
            if quick:
                self._quick.add(endpoint_id)
            else:
                self._quick.discard(endpoint_id)

    def _is_stuck(self, endpoint_id: UUID, now: float) -> bool:
        # Whoever was quick before and lets us wait now is not asked more until he answers.
        return any(now - since > _SLOW_S for since in self._sending.get(endpoint_id, {}).values())


class _Signers:
    """The endpoints' keys, decrypted for a short time, so that a new key soon counts.

    A changed endpoint has another version, and its new secret signs at once.
    """

    def __init__(self, engine: Engine, keys: KeyRing, clock: Callable[[], datetime]) -> None:
        self._engine: Final = engine
        self._keys: Final = keys
        self._clock: Final = clock
        self._known: Final[dict[UUID, tuple[datetime, datetime, Signer]]] = {}

    def get(self, endpoint_id: UUID, endpoint_version: datetime) -> Signer:
        """Return what signs an endpoint's webhooks.

        Raises: SecretsError when the server key cannot decrypt it.
        """
        now = self._clock()
        known = self._known.get(endpoint_id)
        if known is not None and known[0] == endpoint_version and now < known[1]:
            return known[2]
        with self._engine.connect() as connection:
            signer = signer_for(connection, endpoint_id, self._keys, at=now)
        self._known[endpoint_id] = endpoint_version, now + _SIGNERS_LAST, signer
        return signer


def _tell(delivery: Delivery, attempt: Attempt, retry_at: datetime | None) -> None:
    """Log an attempt: no body, no URL (it may carry a token), no keys."""
    log = _log.bind(
        webhook=delivery.webhook_id,
        platform=str(delivery.platform_id),
        endpoint=str(delivery.endpoint_id),
        type=delivery.type,
        attempt=delivery.attempts + 1,
        duration_ms=attempt.duration_ms,
        status=attempt.status,
    )
    if attempt.delivered:
        log.debug("webhook delivered")
    elif retry_at is not None:
        log.warning("webhook not delivered", error=attempt.error, retry_at=retry_at.isoformat())
    else:
        log.error("webhook given up", error=attempt.error)
