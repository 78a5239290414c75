"""One attempt to deliver a webhook: sign, send, decide on a retry, log."""

import random
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import structlog

from cardledger.ledger.webhooks.leases import AttemptResult, Delivery
from cardledger.ledger.webhooks.retry_policy import Attempt, next_attempt_at, not_before
from cardledger.ledger.webhooks.signatures import HEADERS
from cardledger.ledger.webhooks.signers import Signer
from cardledger.workers.tracing import spans
from cardledger.workers.tracing.hints import TraceHints
from cardledger.workers.webhooks.http_client import HttpClient
from cardledger.workers.webhooks.signer_cache import SignerCache

APPROVAL_TIMEOUT_S: Final = 5.0
"""How long a platform may take to answer a request for approval: a payment waits."""

_JITTER: Final = (0.8, 1.2)

_log = structlog.get_logger()


class AttemptMaker:
    """Makes attempts; for many threads."""

    def __init__(  # noqa: PLR0913 - the parts of an attempt, by name
        self,
        signers: SignerCache,
        http: HttpClient,
        *,
        clock: Callable[[], datetime],
        timeout: timedelta,
        retry_scale: float,
        traces: TraceHints | None = None,
    ) -> None:
        """Let an attempt last `timeout`; multiply the delays between attempts by `retry_scale`."""
        self._traces: Final = traces
        self._signers: Final = signers
        self._http: Final = http
        self._clock: Final = clock
        self._timeout: Final = timeout
        self._retry_scale: Final = retry_scale
        self._random: Final = random.SystemRandom()

    def attempt(self, delivery: Delivery) -> AttemptResult | None:
        """Make one attempt; None when it could outlast the lease.

        Raises: SecretsError, or a database error of loading the signing keys.
        """
        # Before the lease is checked: Redis and PostgreSQL may be slow.
        trace = self._traces.of(delivery) if self._traces else None
        signer = self._signers.get(delivery.endpoint_id, delivery.endpoint_version)
        if self._clock() + self._timeout > delivery.leased_until:
            return None  # Earlier webhooks of its queue were slow. It will be claimed again.
        attempt = self._send_traced(delivery, signer, trace)
        retry_at = None if attempt.delivered else self._retry_at(delivery, attempt)
        _log_attempt(delivery, attempt, retry_at)
        return AttemptResult(delivery=delivery, attempt=attempt, retry_at=retry_at)

    def _send_traced(self, delivery: Delivery, signer: Signer, trace: str | None) -> Attempt:
        if trace is None:
            return self._send(delivery, signer)
        about = {
            "cardledger.webhook": delivery.webhook_id,
            "cardledger.webhook_type": delivery.type,
            "cardledger.attempt": delivery.attempts + 1,
        }
        with spans.delivery(trace, about) as span:
            attempt = self._send(delivery, signer)
            if span is not None and attempt.status is not None:
                span.set_attribute("http.response.status_code", attempt.status)
            return attempt

    def _send(self, delivery: Delivery, signer: Signer) -> Attempt:
        at, started = self._clock(), time.monotonic_ns()
        signatures = signer.sign(delivery.body, webhook_id=delivery.webhook_id, at=at)
        timeout_s = APPROVAL_TIMEOUT_S if delivery.is_approval else None
        result = self._http.post(
            delivery.url, delivery.body, HEADERS | signatures, timeout_s=timeout_s
        )
        return Attempt(
            at=at,
            ended_at=self._clock(),
            duration_ms=(time.monotonic_ns() - started) // 1_000_000,
            status=result.status,
            error=result.error,
            response_head=result.head,
            retry_after=result.retry_after,
            is_approval=delivery.is_approval,
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
        retry_after = not_before(attempt, scale=self._retry_scale)
        return due if due is None or retry_after is None else max(due, retry_after)


def _log_attempt(delivery: Delivery, attempt: Attempt, retry_at: datetime | None) -> None:
    """Log an attempt: no body, no URL (it may carry a token), no keys."""
    log = _log.bind(
        webhook=delivery.webhook_id,
        platform=str(delivery.platform_id),
        endpoint=str(delivery.endpoint_id),
        type=delivery.type,
        resource=str(delivery.subject_id),
        attempt=delivery.attempts + 1,
        duration_ms=attempt.duration_ms,
        status=attempt.status,
    )
    if attempt.delivered:
        log.debug("webhook delivered")
    elif retry_at is not None:
        log.warning("webhook not delivered", error=attempt.error, retry_at=retry_at.isoformat())
    else:
        log.error("webhook delivery exhausted retries", error=attempt.error)
