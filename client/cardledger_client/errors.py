"""The one exception of this package."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from cardledger_client.resources import Outcome

NO_RESPONSE: Final = "NO_RESPONSE"
"""No response, or not all of it, in time; what was sent may have been processed."""

INVALID_RESPONSE: Final = "INVALID_RESPONSE"
"""The response is not one of cardledger: another server may have sent it."""

DECIDE_BY_PASSED: Final = "DECIDE_BY_PASSED"
"""An authorization has no outcome that may be reported, and its `decideBy` has passed."""


class Error(Exception):
    """A call failed; programs decide by `code`.

    `code` is that of the server's error, or one of this module. `status` is the HTTP status, if
    there was a response; `details` says what to change; `request_id` is in the logs of the server.
    `outcomes` are those of the first events of a call of `events`: all that it has.
    """

    def __init__(  # noqa: PLR0913 - the fields, by name
        self,
        code: str,
        message: str,
        *,
        status: int | None = None,
        details: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        retry_after_s: float | None = None,
        may_retry: bool = False,
        outcomes: Sequence[Outcome] = (),
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code: Final = code
        self.message: Final = message
        self.status: Final = status
        self.details: Final[Mapping[str, Any]] = details or {}
        self.request_id: Final = request_id
        self.retry_after_s: Final = retry_after_s
        self.may_retry: Final = may_retry
        self.outcomes: Final = outcomes

    def having(self, outcomes: Sequence[Outcome]) -> "Error":
        """Return this error with `outcomes`."""
        return self._remade(outcomes)(self.code, self.message)

    def __reduce__(self) -> tuple[Callable[..., "Error"], tuple[str, str]]:
        """Return how another process makes it again: queues of tasks pickle exceptions."""
        return self._remade(self.outcomes), (self.code, self.message)

    def _remade(self, outcomes: Sequence[Outcome]) -> "partial[Error]":
        return partial(
            Error,
            status=self.status,
            details=self.details,
            request_id=self.request_id,
            retry_after_s=self.retry_after_s,
            may_retry=self.may_retry,
            outcomes=outcomes,
        )
