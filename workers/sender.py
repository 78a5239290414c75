"""The webhook sender: dispatches the outbox and delivers what is due.

Any number of senders, in any number of threads and processes, may run at once: PostgreSQL says
who has what, and for how long. In this process a few threads send; each platform may have a
share of them, and one that did not answer at all gets a single one until it does, so a dead
endpoint costs others nothing but a moment.
"""

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from importlib.metadata import version
from typing import Final
from uuid import UUID

import structlog
from sqlalchemy import Engine

from ledger import webhooks
from ledger.secrets import KeyRing
from ledger.webhooks import Attempt, Delivery, Room, Signer
from workers.egress import Egress

DISPATCH_LIMIT: Final = 500
"""How many rows of the outbox one database transaction dispatches."""

_HEADERS: Final = {
    "Content-Type": "application/json",
    "User-Agent": f"cardledger/{version('cardledger')}",
}
# What a lease lasts beyond the time that an attempt may take: to start it and to record it.
_LEASE_MARGIN: Final = timedelta(seconds=5)
_SIGNERS_LAST: Final = timedelta(minutes=1)
_JITTER: Final = (0.8, 1.2)

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
        concurrency: int = 16,
    ) -> None:
        self._engine: Final = engine
        # An attempt is recorded by one statement: a database transaction without BEGIN and COMMIT.
        self._single: Final = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._clock: Final = clock
        self._timeout: Final = timedelta(seconds=timeout_s)
        self._retry_scale: Final = retry_scale
        self._egress: Final = Egress(timeout_s=timeout_s, connections=concurrency)
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
            return webhooks.dispatch(connection, limit=DISPATCH_LIMIT, at=self._clock())

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
        room = self._traffic.room()
        if self._closed or not room.total:
            return 0
        deliveries = self._claim(room)
        self._traffic.enter(deliveries)
        by_resource: dict[UUID, list[Delivery]] = defaultdict(list)
        for delivery in deliveries:
            by_resource[delivery.subject_id].append(delivery)
        for group in by_resource.values():
            self._threads.submit(self._send_in_order, group)
        return len(deliveries)

    def _claim(self, room: Room) -> list[Delivery]:
        with self._engine.begin() as connection:
            return webhooks.claim_due(
                connection, room=room, at=self._clock(), lease=self._timeout + _LEASE_MARGIN
            )

    def _send_in_order(self, deliveries: Sequence[Delivery]) -> None:
        """Send the webhooks of one resource, one after the other; then start what is due."""
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
        self._traffic.heard(delivery.platform_id, answered=attempt.status is not None)
        retry_at = None if attempt.delivered else self._retry_at(delivery, attempt)
        with self._single.connect() as connection:
            webhooks.record_attempt(connection, delivery, attempt, retry_at=retry_at)
        _tell(delivery, attempt, retry_at)

    def _attempt(self, delivery: Delivery) -> Attempt:
        signer = self._signers.get(delivery.platform_id)
        at, started = self._clock(), time.monotonic_ns()
        headers = signer.sign(delivery.body, webhook_id=delivery.webhook_id, at=at)
        answer = self._egress.post(delivery.url, delivery.body, _HEADERS | headers)
        return Attempt(
            at=at,
            ended_at=self._clock(),
            duration_ms=(time.monotonic_ns() - started) // 1_000_000,
            status=answer.status,
            error=answer.error,
            response_head=answer.head,
        )

    def _retry_at(self, delivery: Delivery, attempt: Attempt) -> datetime | None:
        return webhooks.next_attempt_at(
            delivery.attempts + 1,
            at=attempt.ended_at,
            scale=self._retry_scale,
            jitter=self._random.uniform(*_JITTER),
        )


class _Traffic:
    """Who has which of the threads; may be used from all of them."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency: Final = concurrency
        # A quarter is left for others when a platform falls silent with all its share in use.
        self._share: Final = max(concurrency * 3 // 4, 1)
        self._lock: Final = threading.Lock()
        self._sending: Final[Counter[UUID]] = Counter()
        self._busy: Final[set[UUID]] = set()
        self._silent: Final[set[UUID]] = set()

    def room(self) -> Room:
        """Return what can be taken on now."""
        with self._lock:
            platforms = dict.fromkeys(self._silent, 0) | self._sending
            return Room(
                total=self._concurrency - self._sending.total(),
                share=self._share,
                shares={
                    platform: max(self._share_of(platform) - sending, 0)
                    for platform, sending in platforms.items()
                },
                busy=frozenset(self._busy),
            )

    def enter(self, deliveries: Sequence[Delivery]) -> None:
        """Note that `deliveries` are being sent."""
        with self._lock:
            self._sending.update(delivery.platform_id for delivery in deliveries)
            self._busy.update(delivery.subject_id for delivery in deliveries)

    def leave(self, deliveries: Sequence[Delivery]) -> None:
        """Note that they are not any more."""
        with self._lock:
            for delivery in deliveries:
                self._busy.discard(delivery.subject_id)
                self._sending[delivery.platform_id] -= 1
                if not self._sending[delivery.platform_id]:
                    del self._sending[delivery.platform_id]

    def heard(self, platform_id: UUID, *, answered: bool) -> None:
        """Note whether a platform answered at all."""
        with self._lock:
            if answered:
                self._silent.discard(platform_id)
            else:
                self._silent.add(platform_id)

    def _share_of(self, platform_id: UUID) -> int:
        return 1 if platform_id in self._silent else self._share


class _Signers:
    """The platforms' keys, decrypted for a short time, so that a new key soon counts."""

    def __init__(self, engine: Engine, keys: KeyRing, clock: Callable[[], datetime]) -> None:
        self._engine: Final = engine
        self._keys: Final = keys
        self._clock: Final = clock
        self._known: Final[dict[UUID, tuple[datetime, Signer]]] = {}

    def get(self, platform_id: UUID) -> Signer:
        """Return what signs a platform's webhooks.

        Raises: SecretsError when the server key cannot decrypt it.
        """
        now = self._clock()
        good_until, signer = self._known.get(platform_id, (now, None))
        if signer is None or now >= good_until:
            with self._engine.connect() as connection:
                signer = webhooks.signer(connection, platform_id, self._keys)
            self._known[platform_id] = now + _SIGNERS_LAST, signer
        return signer


def _tell(delivery: Delivery, attempt: Attempt, retry_at: datetime | None) -> None:
    """Log an attempt: no body, no URL (it may carry a token), no keys."""
    log = _log.bind(
        webhook=delivery.webhook_id,
        platform=str(delivery.platform_id),
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
