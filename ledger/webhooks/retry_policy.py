"""The result of an attempt to deliver a webhook, and when it is retried.

Pure: times arrive as arguments.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

PAUSES: Final = (
    timedelta(seconds=5),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=5),
    timedelta(hours=10),
    timedelta(hours=14),
    timedelta(hours=20),
    timedelta(hours=24),
)
"""The pause after the first, second, ... failed attempt; after the tenth, no retry."""

NO_RESPONSE: Final = "no response within"
"""How the error of an attempt begins whose receiver took too long."""

NO_CONNECTION: Final = "no connection in time"
"""The error of an attempt whose receiver took too long to accept a connection."""

_RETRY_AFTER_LIMIT: Final = timedelta(hours=1)
_ALREADY_RECEIVED: Final = 409
_GONE: Final = 410
_REFUSALS: Final = frozenset({403, 422})
_RETRY_AFTER_STATUSES: Final = frozenset({429, 503})


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The result of one attempt; without a `status` there is an `error`."""

    at: datetime
    ended_at: datetime
    duration_ms: int
    status: int | None
    error: str | None
    response_head: str | None
    retry_after: str | None = None  # The header as received.
    is_approval: bool = False  # Its response decides on a payment.

    @property
    def is_gone(self) -> bool:
        """Whether the receiver wants no further webhooks (410)."""
        return self.status == _GONE

    @property
    def delivered(self) -> bool:
        """Whether the receiver has the webhook: any 2xx, or 409 for one received before.

        A request for approval is also answered by a rejection (403), and by a request for more
        data (422).
        """
        if self.status is None:
            return False
        if self.is_approval and self.status in _REFUSALS:
            return True
        return 200 <= self.status < 300 or self.status == _ALREADY_RECEIVED  # noqa: PLR2004


def next_attempt_at(failed: int, *, at: datetime, scale: float, jitter: float) -> datetime | None:
    """Return when to retry after `failed` attempts, the last one at `at`; None: never.

    Units: `scale` and `jitter` are factors of the pause; 1 and 1 follow the schedule exactly.
    """
    if failed > len(PAUSES):
        return None
    return at + PAUSES[failed - 1] * scale * jitter


def not_before(attempt: Attempt, *, scale: float) -> datetime | None:
    """Return the time of the receiver's `Retry-After`, at most an hour ahead; None: there is none.

    The header counts with 429 and 503 only.
    """
    if attempt.status not in _RETRY_AFTER_STATUSES or attempt.retry_after is None:
        return None
    pause = _pause(attempt.retry_after.strip(), attempt.ended_at)
    if pause is None or pause <= timedelta(0):
        return None
    return attempt.ended_at + min(pause, _RETRY_AFTER_LIMIT) * scale


def _pause(retry_after: str, now: datetime) -> timedelta | None:
    """Return the pause that `Retry-After` gives in seconds or as a date; None: it is invalid."""
    if retry_after.isascii() and retry_after.isdigit():
        return min(timedelta(seconds=int(retry_after[:9])), _RETRY_AFTER_LIMIT)
    try:
        moment = parsedate_to_datetime(retry_after)
    except (ValueError, OverflowError):
        return None
    return moment.replace(tzinfo=moment.tzinfo or UTC) - now
