"""The configuration of a worker process, without what its roles import."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from cardledger.ledger.storage.secrets.key_ring import ServerKey
from cardledger.workers.metrics.access import MetricsConfig
from cardledger.workers.signals.roles import WorkerRole

WEBHOOKS_KEPT: Final = timedelta(days=90)
"""How long deliveries are kept unless a setting says otherwise."""

QUOTES_KEPT: Final = timedelta(days=30)
"""How long an expired quote is kept unless a setting says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """The configuration of a worker process."""

    database_url: str
    redis_url: str
    secret_key: str | ServerKey
    role: WorkerRole | None = None  # None: all roles in one process.
    threads: int = 8
    batch_size: int = 500
    sweep_interval_s: float = 0.5
    webhook_timeout_s: float = 15.0
    webhook_retry_scale: float = 1.0
    webhook_retention: timedelta = WEBHOOKS_KEPT
    webhook_waiting_limit: int = 100_000  # Of a platform.
    quote_retention: timedelta = QUOTES_KEPT
    sandbox: bool = True
    loopback_webhooks: bool = True  # In a sandbox only.
    sandbox_delay_s: float = 30.0
    health_dir: Path | None = None  # Of the health file; None: no report.
    metrics: MetricsConfig | None = None  # None: not served.
