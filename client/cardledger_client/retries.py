"""When a call is repeated, and for how long."""

from collections.abc import Callable
from random import uniform
from time import monotonic
from typing import Final

from cardledger_client.errors import Error

_FIRST_DELAY_S: Final = 0.1
_DELAY_LIMIT_S: Final = 5.0


class Attempts:
    """The attempts of one call: until `limit_s` have passed without progress."""

    def __init__(self, limit_s: float, *, clock: Callable[[], float] = monotonic) -> None:
        """Begin now, by `clock`."""
        self._limit_s: Final = limit_s
        self._clock: Final = clock
        self._until = clock() + limit_s
        self._failures = 0

    @property
    def left_s(self) -> float:
        """How long the next attempt may take; never zero, which may mean no limit."""
        return max(self._until - self._clock(), 0.001)

    def progressed(self) -> None:
        """Begin anew: something has arrived."""
        self._until = self._clock() + self._limit_s
        self._failures = 0

    def delay_s(self, failure: Error) -> float:
        """Return how long to wait before the next attempt.

        It doubles with each failure, up to five seconds, and is never shorter than the server asks
        for; a random part keeps clients apart.
        Raises: `failure`, when there is no next attempt.
        """
        if not failure.may_retry:
            raise failure
        backoff = min(_FIRST_DELAY_S * 2.0 ** min(self._failures, 10), _DELAY_LIMIT_S)
        backoff *= uniform(0.5, 1.0)  # noqa: S311 - no secret
        self._failures += 1
        delay = max(backoff, failure.retry_after_s or 0.0)
        if self._clock() + delay >= self._until:
            raise failure
        return delay
