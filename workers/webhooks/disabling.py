"""Disables endpoints that are gone, or that have only failed for days."""

from datetime import datetime
from typing import Final

import structlog
from sqlalchemy import Engine

from cardledger.ledger.webhooks import endpoints
from cardledger.ledger.webhooks.leases import AttemptResult
from cardledger.schema.ids import Id
from cardledger.schema.wire.webhooks.endpoints import GivenUpReason
from cardledger.schema.wire.webhooks.envelope import WebhookType
from cardledger.workers.signals.periodic_task import PeriodicTask

_log = structlog.get_logger()


class EndpointDisabler:
    """Disables endpoints in a thread of its own.

    A transaction that changes an endpoint may lock its row for long, and a thread that waits for
    that lock sends no webhooks.
    """

    def __init__(self, engine: Engine, *, every_s: float) -> None:
        self._engine: Final = engine
        # The last failure of each endpoint to disable; the sending threads add to it.
        self._failures: Final[dict[Id, AttemptResult]] = {}
        self._task: Final = PeriodicTask("disable", self._disable_all, every_s=every_s)

    def start(self) -> None:
        """Start the thread."""
        self._task.start()

    def stop(self, timeout_s: float) -> None:
        """End the thread and disable what is left."""
        self._task.stop(timeout_s)
        self._disable_all()

    def consider(self, result: AttemptResult) -> None:
        """Disable the endpoint of `result` if that attempt is a reason to."""
        if _reason_to_disable(result) is not None:
            self._failures[result.delivery.endpoint_id] = result
            self._task.wake()

    def _disable_all(self) -> bool:
        while self._failures:
            endpoint_id, result = self._failures.popitem()
            try:
                self._disable(result)
            except Exception:  # noqa: BLE001 - the others must be disabled
                # The next attempt that fails is a reason again.
                _log.exception("webhook endpoint not disabled", endpoint=str(endpoint_id))
        return False

    def _disable(self, result: AttemptResult) -> None:
        delivery, ended_at = result.delivery, result.attempt.ended_at
        reason = _reason_to_disable(result)
        assert reason is not None, "only such results are kept"
        with self._engine.begin() as connection:
            has_changed = endpoints.disable(
                connection,
                delivery.endpoint_id,
                url=delivery.url,
                reason=reason,
                at=ended_at,
                failing_since_before=_failing_limit(ended_at) if reason == "FAILING" else None,
            )
        if has_changed:
            _log.error(
                "webhook endpoint disabled",
                endpoint=str(delivery.endpoint_id),
                platform=str(delivery.platform_id),
                reason=reason,
            )


def _reason_to_disable(result: AttemptResult) -> GivenUpReason | None:
    """Return why an endpoint is disabled after an attempt; None: it stays enabled.

    A test that fails says nothing of how long an endpoint has failed.
    """
    delivery, attempt = result.delivery, result.attempt
    failing_since = None if delivery.type == WebhookType.TEST else delivery.failing_since
    if attempt.delivered:
        return None
    if attempt.is_gone:
        return "GONE"
    if failing_since is not None and failing_since <= _failing_limit(attempt.ended_at):
        return "FAILING"
    return None


def _failing_limit(now: datetime) -> datetime:
    """Return since when an endpoint must have failed to be disabled `now`."""
    return now - endpoints.GIVES_UP_AFTER
