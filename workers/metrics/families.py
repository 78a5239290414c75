"""The metrics by name: type, labels and meaning. `docs/observability.md` is made from them.

Labels have few values, none of which a client chooses: templates of routes, codes, currencies; no
ids. Durations are seconds, amounts minor units of their currency.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """Types of metrics, as Prometheus names them."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Exporter(StrEnum):
    """Which process has a metric."""

    API = "API"
    EVENTS = "events"
    WEBHOOKS = "webhooks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A metric: what its samples have in common."""

    name: str
    kind: Kind
    meaning: str
    exporters: tuple[Exporter, ...]
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()  # Upper bounds, of a histogram.


_ALL: Final = tuple(Exporter)
_API: Final = (Exporter.API,)
_EVENTS: Final = (Exporter.EVENTS,)
_WEBHOOKS: Final = (Exporter.WEBHOOKS,)
_WORKERS: Final = (*_EVENTS, *_WEBHOOKS)

_LIMIT: Final = "at most 10,001 are counted"


def _gauge(name: str, meaning: str, exporters: tuple[Exporter, ...], *labels: str) -> Family:
    return Family(name=name, kind=Kind.GAUGE, meaning=meaning, exporters=exporters, labels=labels)


def _counter(name: str, meaning: str, exporters: tuple[Exporter, ...], *labels: str) -> Family:
    return Family(name=name, kind=Kind.COUNTER, meaning=meaning, exporters=exporters, labels=labels)


def _histogram(
    name: str,
    meaning: str,
    exporters: tuple[Exporter, ...],
    *labels: str,
    buckets: tuple[float, ...],
) -> Family:
    kind = Kind.HISTOGRAM
    return Family(
        name=name, kind=kind, meaning=meaning, exporters=exporters, labels=labels, buckets=buckets
    )


# --- every process -------------------------------------------------------------------------------

BUILD_INFO: Final = _gauge("cardledger_build_info", "Always 1; the release.", _ALL, "version")
POSTGRESQL_AVAILABLE: Final = _gauge(
    "cardledger_postgresql_available",
    "0 while this process has an outage of PostgreSQL, as its log says; else 1.",
    _ALL,
)
REDIS_AVAILABLE: Final = _gauge(
    "cardledger_redis_available",
    "0 while this process has an outage of Redis, as its log says; else 1.",
    _ALL,
)

# --- API -----------------------------------------------------------------------------------------

HTTP_REQUESTS: Final = _counter(
    "cardledger_http_requests_total",
    "Requests by route template, method and status; 499: the client left before the response.",
    _API,
    "route",
    "method",
    "status",
)
HTTP_SECONDS: Final = _histogram(
    "cardledger_http_request_duration_seconds",
    "Time from the head of a request to the head of its response.",
    _API,
    "route",
    "method",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
HTTP_IN_PROGRESS: Final = _gauge(
    "cardledger_http_requests_in_progress", "Requests that have no complete response yet.", _API
)
HTTP_REFUSALS: Final = _counter(
    "cardledger_http_refusals_total",
    "Requests that were refused or given up for lack of capacity (429, 503), by reason.",
    _API,
    "reason",
)

# --- workers that decide events ------------------------------------------------------------------

DECISIONS: Final = _counter(
    "cardledger_decisions_total",
    "Messages decided, by type and outcome; messages of the ledger itself, such as timers, too.",
    _EVENTS,
    "type",
    "outcome",
)
DECISION_SECONDS: Final = _histogram(
    "cardledger_decision_latency_seconds",
    "Time from the receipt of a message to the commit of its decision.",
    _EVENTS,
    "lane",
    buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0),
)
BATCH_SIZE: Final = _histogram(
    "cardledger_batch_messages",
    "Messages of a batch, which one commit decides.",
    _EVENTS,
    "lane",
    buckets=(1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0),
)
SWEEPS: Final = _counter(
    "cardledger_sweeps_total", "Times that the sweeper has looked at the inbox.", _EVENTS
)
SWEEPER_FINDS: Final = _counter(
    "cardledger_sweeper_finds_total",
    "Queues with messages that the sweeper has found; most are being decided, or have a canary.",
    _EVENTS,
    "lane",
)
CLOCK_OFFSET: Final = _gauge(
    "cardledger_clock_offset_seconds",
    "How far the clock of the process is ahead of PostgreSQL's, if by more than 250 ms; else 0."
    " While it is not 0 the process decides nothing; webhooks go by PostgreSQL's clock.",
    _WORKERS,
)
QUEUES_STUCK: Final = _gauge(
    "cardledger_queues_stuck",
    "Queues that have not moved for 2.5 s although a message waits in them: locked, or no worker.",
    _EVENTS,
)
CARDHOLDERS_LOCKED: Final = _gauge(
    "cardledger_cardholders_locked",
    "Cardholders left out of batches now, because another session has locked their rows.",
    _EVENTS,
)
TABLES_READ: Final = _gauge(
    "cardledger_tables_read",
    "1 when all figures of tables could be read; a figure that could not be read is missing.",
    (Exporter.EVENTS, Exporter.WEBHOOKS),
)
INBOX_DEPTH: Final = _gauge(
    "cardledger_inbox_messages", f"Messages that wait for a decision; {_LIMIT}.", _EVENTS, "lane"
)
INBOX_AGE: Final = _gauge(
    "cardledger_inbox_oldest_age_seconds",
    "Age of the oldest message that waits for a decision; 0: none waits.",
    _EVENTS,
    "lane",
)
PARKED: Final = _gauge(
    "cardledger_parked_events",
    f"Events that wait for the event that they reverse or change; {_LIMIT}.",
    _EVENTS,
)
REJECTIONS: Final = _gauge(
    "cardledger_rejections_last_day",
    f"Events rejected in the last 24 h, by reason; INTERNAL_ERROR: quarantined; {_LIMIT}.",
    _EVENTS,
    "reason",
)
FORGED: Final = _gauge(
    "cardledger_forged_messages_last_day",
    f"Messages refused in the last 24 h because no process here had accepted them; {_LIMIT}.",
    _EVENTS,
)
QUEUES_STALLED: Final = _gauge(
    "cardledger_queues_stalled",
    "Queues in which every message fails by an internal error.",
    _EVENTS,
)
CARDHOLDERS_STALLED: Final = _gauge(
    "cardledger_cardholders_stalled",
    f"Cardholders whose messages wait for a repair while their queue moves; {_LIMIT}.",
    _EVENTS,
)
EXCEPTIONS: Final = _gauge(
    "cardledger_exceptions",
    f"Card transactions for which money is due (status EXCEPTION), by currency; {_LIMIT}.",
    _EVENTS,
    "currency",
)
EXCEPTIONS_DUE: Final = _gauge(
    "cardledger_exceptions_due_minor_units",
    "What is due for those card transactions together, in minor units of the currency.",
    _EVENTS,
    "currency",
)
EXCEPTIONS_OWED: Final = _gauge(
    "cardledger_exceptions_owed_minor_units",
    "What the network has taken of what is due, in minor units; the rest is for holds.",
    _EVENTS,
    "currency",
)
EXCEPTIONS_AGE: Final = _gauge(
    "cardledger_exceptions_oldest_age_seconds",
    "For how long money has been due for the oldest of those card transactions.",
    _EVENTS,
    "currency",
)
VERIFIED_AT: Final = _gauge(
    "cardledger_verified_timestamp_seconds",
    "Unix time at which `cardledger verify` last ended with this data directory; missing: never.",
    _EVENTS,
)
VERIFIED_EVENTS: Final = _gauge(
    "cardledger_verified_events", "Events that it had folded again: its position.", _EVENTS
)
VERIFIED_DIFFERENCES: Final = _gauge(
    "cardledger_verified_differences", "Differences that it had found.", _EVENTS
)

# --- workers that send webhooks ------------------------------------------------------------------

OUTBOX_DEPTH: Final = _gauge(
    "cardledger_outbox_webhooks", f"Webhooks that wait to be dispatched; {_LIMIT}.", _WEBHOOKS
)
OUTBOX_AGE: Final = _gauge(
    "cardledger_outbox_oldest_age_seconds",
    "Age of the oldest webhook that waits to be dispatched; 0: none waits.",
    _WEBHOOKS,
)
DELIVERIES_PENDING: Final = _gauge(
    "cardledger_webhook_deliveries_pending",
    f"Deliveries that are still to be sent, retries and disabled endpoints included; {_LIMIT}.",
    _WEBHOOKS,
)
DELIVERY_OVERDUE: Final = _gauge(
    "cardledger_webhook_oldest_due_seconds",
    "For how long the delivery that is due for longest could have been sent; 0: none is due.",
    _WEBHOOKS,
)
ATTEMPTS: Final = _counter(
    "cardledger_webhook_attempts_total",
    "Attempts by result (delivered, retried, exhausted) and class of the status (none: no"
    " response).",
    _WEBHOOKS,
    "result",
    "status",
)
ATTEMPT_SECONDS: Final = _histogram(
    "cardledger_webhook_attempt_duration_seconds",
    "Time that a receiver took, or its time limit.",
    _WEBHOOKS,
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0),
)
DELIVERY_SECONDS: Final = _histogram(
    "cardledger_webhook_delay_seconds",
    "Time from the event to the delivery of its webhook; replays count from there, too.",
    _WEBHOOKS,
    buckets=(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0, 3600.0, 86400.0),
)

FAMILIES: Final = tuple(value for value in globals().copy().values() if isinstance(value, Family))
"""All metrics, in the order of this module."""
