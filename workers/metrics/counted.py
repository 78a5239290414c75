"""What this process has counted since it started."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.messaging.timeout_reversals import TIMEOUT_REVERSAL
from cardledger.ledger.storage.ids import time_of_id
from cardledger.schema.wire.network_events import EventType
from cardledger.schema.wire.webhooks.envelope import WebhookType
from cardledger.workers.metrics import families
from cardledger.workers.metrics.instruments import Counts, Gauge, Histogram, Labels, Source
from cardledger.workers.signals.outage_log import DATABASE, REDIS

if TYPE_CHECKING:
    from cardledger.ledger.engine.records import Decided
    from cardledger.ledger.webhooks.leases import AttemptResult

OTHER: Final = "other"
"""The label of what has no label of its own."""


class Refusal(StrEnum):
    """Why the API had no capacity for a request."""

    CONNECTIONS = "connections"
    RATE_LIMIT = "rate_limit"
    IN_PROGRESS = "in_progress"
    WRITE_TURNS = "write_turns"
    UNDECIDED_EVENTS = "undecided_events"
    OVERLOADED = "overloaded"
    NO_OUTCOME_IN_TIME = "no_outcome_in_time"
    TOO_SLOW = "too_slow"
    DATABASE_UNAVAILABLE = "database_unavailable"


def _lanes() -> list[tuple[str]]:
    return [(lane_label(lane),) for lane in Lane]


def lane_label(lane: Lane) -> str:
    """Return the label of `lane`."""
    return lane.name.lower()


_EVERYWHERE: Final[Sequence[Source]] = (
    Gauge(families.BUILD_INFO, lambda: 1, version("cardledger")),
    Gauge(families.POSTGRESQL_AVAILABLE, lambda: not DATABASE.is_out),
    Gauge(families.REDIS_AVAILABLE, lambda: not REDIS.is_out),
)

# --- HTTP ----------------------------------------------------------------------------------------

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_HTTP_REQUESTS: Final = Counts(families.HTTP_REQUESTS)
_HTTP_SECONDS: Final = Histogram(families.HTTP_SECONDS)
_REFUSALS: Final = Counts(families.HTTP_REFUSALS, *((reason,) for reason in Refusal))


class _InProgress:
    """Requests of the event loop of the API: one thread changes the number."""

    def __init__(self) -> None:
        self.number = 0


_IN_PROGRESS: Final = _InProgress()


def begin_request() -> None:
    """Count a request that has arrived; in the event loop of the API."""
    _IN_PROGRESS.number += 1


def end_request(route: str | None, method: str, status: int, seconds: float) -> None:
    """Count a request that has ended, of the template `route`; None: there is no such route."""
    _IN_PROGRESS.number -= 1
    labels = (route or OTHER, method if method in _METHODS else OTHER)
    _HTTP_REQUESTS.add(*labels, str(status))
    _HTTP_SECONDS.observe(*labels, value=seconds)


def refuse(reason: Refusal) -> None:
    """Count a request for which there is no capacity."""
    _REFUSALS.add(reason)


OF_API: Final[Sequence[Source]] = (
    *_EVERYWHERE,
    _HTTP_REQUESTS,
    _HTTP_SECONDS,
    Gauge(families.HTTP_IN_PROGRESS, lambda: _IN_PROGRESS.number),
    _REFUSALS,
)
"""What the API counts."""

# --- decisions -----------------------------------------------------------------------------------

_TYPES: Final = frozenset(
    {
        *EventType,
        inbox.DEPOSIT,
        inbox.TRANSFER,
        inbox.CARD_CLOSED,
        inbox.RECOVERY,
        inbox.SUSPENSE,
        inbox.PULL_CONFIRMATION,
        TIMEOUT_REVERSAL,
    }
)
_DECISIONS: Final = Counts(families.DECISIONS)
_DECISION_SECONDS: Final = Histogram(families.DECISION_SECONDS, *_lanes())
_BATCH_SIZE: Final = Histogram(families.BATCH_SIZE, *_lanes())
_SWEEPS: Final = Counts(families.SWEEPS, ())
_SWEEPER_FINDS: Final = Counts(families.SWEEPER_FINDS, *_lanes())


def decisions(decided: "Sequence[Decided]", at: datetime) -> None:
    """Count a batch of one lane that was committed `at`, without canaries and forged messages."""
    own = [
        each
        for each in decided
        if each.message.customer_id < inbox.CANARIES_FROM and not each.is_forged
    ]
    if not own:
        return
    numbers: Counter[Labels] = Counter([(_type_of(each), str(each.outcome)) for each in own])
    _DECISIONS.add_all(numbers)
    lane, now = (lane_label(own[0].message.lane),), at.timestamp()
    _DECISION_SECONDS.observe_all(
        lane, [max(now - each.message.received_at.timestamp(), 0.0) for each in own]
    )
    _BATCH_SIZE.observe_all(lane, (len(own),))


def _type_of(decided: "Decided") -> str:
    body = decided.message.body
    kind = body.get("type") if isinstance(body, dict) else None  # It may be malformed.
    return kind if isinstance(kind, str) and kind in _TYPES else OTHER


def sweep(found: Sequence[tuple[Lane, int]]) -> None:
    """Count a look at the inbox that has `found` queues with messages."""
    _SWEEPS.add()
    if found:
        _SWEEPER_FINDS.add_all(Counter([(lane_label(lane),) for lane, _ in found]))


OF_EVENTS: Final[Sequence[Source]] = (
    *_EVERYWHERE,
    _DECISIONS,
    _DECISION_SECONDS,
    _BATCH_SIZE,
    _SWEEPS,
    _SWEEPER_FINDS,
)
"""What a worker counts that decides events."""

# --- webhooks ------------------------------------------------------------------------------------

_ATTEMPTS: Final = Counts(
    families.ATTEMPTS, ("delivered", "2xx"), ("retried", "none"), ("exhausted", "none")
)
_ATTEMPT_SECONDS: Final = Histogram(families.ATTEMPT_SECONDS, ())
_DELIVERY_SECONDS: Final = Histogram(families.DELIVERY_SECONDS, ())


def attempt(result: "AttemptResult") -> None:
    """Count an attempt to deliver a webhook."""
    made, delivery = result.attempt, result.delivery
    status = "none" if made.status is None else f"{min(max(made.status // 100, 1), 5)}xx"
    _ATTEMPTS.add(_result_of(result), status)
    _ATTEMPT_SECONDS.observe(value=made.duration_ms / 1000)
    if made.delivered and delivery.type != WebhookType.TEST:
        age = made.ended_at - time_of_id(delivery.webhook)
        _DELIVERY_SECONDS.observe(value=max(age.total_seconds(), 0.0))


def _result_of(result: "AttemptResult") -> str:
    if result.attempt.delivered:
        return "delivered"
    return "exhausted" if result.retry_at is None else "retried"


OF_WEBHOOKS: Final[Sequence[Source]] = (
    *_EVERYWHERE,
    _ATTEMPTS,
    _ATTEMPT_SECONDS,
    _DELIVERY_SECONDS,
)
"""What a worker counts that sends webhooks."""
