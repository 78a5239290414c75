"""The last requests of this process, without bodies: what the console of a sandbox shows.

They are in memory only, and few. A request of no platform, such as one without credentials, is not
noted: no page could show it.
"""

import json
from collections import Counter, deque
from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from cardledger.schema.ids import Id

LIMIT: Final = 500
"""Requests that are kept, of all platforms."""


class RecentRequest(NamedTuple):
    """A request that was answered; `template` is its path with the names of its parameters."""

    at: datetime
    platform_id: Id
    request_id: str
    caller: str | None
    method: str
    path: str
    template: str
    status: int
    code: str | None  # Of an error.
    duration_ms: float


class RecentRequests:
    """A ring of the last requests."""

    def __init__(self) -> None:
        """Hold none."""
        self._ring: Final[deque[RecentRequest]] = deque(maxlen=LIMIT)

    def note(self, request: RecentRequest) -> None:
        """Keep `request`, in the place of the oldest one."""
        self._ring.append(request)

    def of(self, platform_id: Id) -> list[RecentRequest]:
        """Return the requests of a platform, the newest first."""
        return [each for each in reversed(self._ring) if each.platform_id == platform_id]


def errors(requests: Sequence[RecentRequest]) -> list[tuple[str, str, str, int]]:
    """Return code, method, path and number of the errors among `requests`, the most first."""
    counted = Counter(
        (each.code, each.method, each.template) for each in requests if each.code is not None
    )
    return [(*error, count) for error, count in counted.most_common()]


def code_in(body: bytes) -> str | None:
    """Return the code of the body of an error; None when it has none."""
    try:
        content = json.loads(body)
    except ValueError:
        return None
    code = content.get("code") if isinstance(content, dict) else None
    return code if isinstance(code, str) else None
