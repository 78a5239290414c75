"""What came of sending a webhook, and when it is sent again.

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
"""How long to wait after the first, second, ... failed attempt; after the tenth, no more."""

_LONGEST_RETRY_AFTER: Final = timedelta(hours=1)
_RETURNED_AS_KNOWN: Final = 409  # The receiver has had it before: what we wanted.
_GONE: Final = 410
_SAYS_WHEN: Final = frozenset({429, 503})


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What came of sending a webhook once; without a status there is an error."""

    at: datetime
    ended_at: datetime
    duration_ms: int
    status: int | None
    error: str | None
    response_head: str | None
    retry_after: str | None = None  # As the receiver wrote it.

    @property
    def is_gone(self) -> bool:
        """Whether the receiver wants nothing any more (410)."""
        return self.status == _GONE

    @property
    def delivered(self) -> bool:
        """Whether the receiver has it: any 2xx, or it had taken it before (409)."""
        if self.status is None:
            return False
        return 200 <= self.status < 300 or self.status == _RETURNED_AS_KNOWN  # noqa: PLR2004


def next_attempt_at(failed: int, *, at: datetime, scale: float, jitter: float) -> datetime | None:
    """Return when to try again after `failed` attempts, the last at `at`; None: no more.

    Units: `scale` and `jitter` are factors of the pause; 1 and 1 follow the schedule exactly.
    """
    if failed > len(PAUSES):
        return None
    return at + PAUSES[failed - 1] * scale * jitter


def not_before(attempt: Attempt, *, scale: float) -> datetime | None:
    """Return when the receiver asked to be tried again, an hour from now at most; None: it did not.

    Only 429 and 503 ask: anywhere else `Retry-After` means something else or nothing.
    """
    if attempt.status not in _SAYS_WHEN or attempt.retry_after is None:
        return None
    pause = _pause(attempt.retry_after.strip(), attempt.ended_at)
    if pause is None or pause <= timedelta(0):
        return None
    return attempt.ended_at + min(pause, _LONGEST_RETRY_AFTER) * scale


def _pause(said: str, now: datetime) -> timedelta | None:
    """Return what `Retry-After` says, in seconds or as a date; None: nothing that we understand."""
    if said.isascii() and said.isdigit():
        return min(timedelta(seconds=int(said[:9])), _LONGEST_RETRY_AFTER)
    try:
        moment = parsedate_to_datetime(said)
    except (ValueError, OverflowError):
        return None
    return moment.replace(tzinfo=moment.tzinfo or UTC) - now
