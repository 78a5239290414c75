"""What a platform may have in progress: large bodies in memory, and events without an outcome."""

from asyncio import Future
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from cardledger.ledger.messaging.inbox import Lane
from cardledger.schema.ids import Id

LIVE_EVENTS: Final = 20
"""Live events of one request: the live events of others wait for them."""

UNDECIDED: Final[Mapping[Lane, int]] = {Lane.LIVE: 60, Lane.BULK: 20_000}
"""Events of a platform that one process has accepted and that are not decided, for each lane."""

FILES: Final = 3
"""Requests in one process whose bodies are large; each takes up to 70 MB, of which most is its
events until they are decided."""

FILES_OF_PLATFORM: Final = 1

UPLOADS_OF_PLATFORM: Final = 33 * 1024 * 1024
"""Bytes of forms with a large file: three of documents, or one of customers."""

UPLOADS: Final = 2 * UPLOADS_OF_PLATFORM
"""Bytes of such forms in one process, which are held once more while they are prepared."""


class TooManyEventsError(Exception):
    """The platform has too much in progress; nothing was accepted. The message says what."""


class FilesInProgress:
    """Counts what the large bodies of requests occupy in this process, by platform.

    Each counts as one, or with its bytes.
    """

    def __init__(self, *, limit: int = FILES, of_platform: int = FILES_OF_PLATFORM) -> None:
        """Let `limit` be occupied, and `of_platform` by one platform."""
        self._limit: Final = limit
        self._of_platform: Final = of_platform
        self._files: Final[Counter[Id]] = Counter()

    def begin(self, platform_id: Id, size: int = 1) -> None:
        """Count a request with a large body, until `end`.

        Raises: TooManyEventsError.
        """
        if self._files[platform_id] + size > self._of_platform:
            raise TooManyEventsError("this platform has too many large requests in progress")
        if self._files.total() + size > self._limit:
            raise TooManyEventsError("too many large requests of all platforms are in progress")
        self._files[platform_id] += size

    def end(self, platform_id: Id, size: int = 1) -> None:
        """Count one less."""
        _count_down(self._files, platform_id, size)


class UndecidedEvents:
    """Counts accepted events until they are decided, by platform and lane."""

    def __init__(self) -> None:
        self._counts: Final[Counter[tuple[Id, Lane]]] = Counter()

    def reserve(self, platform_id: Id, lane: Lane, count: int) -> "Room":
        """Return room for `count` events.

        Raises: TooManyEventsError.
        """
        key, limit = (platform_id, lane), UNDECIDED[lane]
        if self._counts[key] + count > limit:
            raise TooManyEventsError(
                f"{self._counts[key]} events of this platform are undecided, of {limit} at most"
            )
        self._counts[key] += count
        return Room(self._counts, key, count)


class Room:
    """Room for some events, each of which keeps its place until it is decided.

    As a context manager it frees the places at its end that no event has taken.
    """

    def __init__(
        self, counts: "Counter[tuple[Id, Lane]]", key: tuple[Id, Lane], count: int
    ) -> None:
        self._counts: Final = counts
        self._key: Final = key
        self._left = count

    def take(self, outcomes: "Sequence[Future[Any]]") -> None:
        """Let events that are accepted keep their places until their `outcomes` are there."""
        self._left -= len(outcomes)
        assert self._left >= 0, "no more events than there is room for"
        for outcome in outcomes:
            outcome.add_done_callback(self._decided)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _count_down(self._counts, self._key, self._left)
        self._left = 0

    def _decided(self, _: "Future[Any]") -> None:
        _count_down(self._counts, self._key, 1)


class IngestionLimits:
    """The limits of one process."""

    def __init__(self) -> None:
        self.files: Final = FilesInProgress()
        self.undecided: Final = UndecidedEvents()


def _count_down(counts: "Counter[Any]", key: object, by: int) -> None:
    counts[key] -= by
    if not counts[key]:
        del counts[key]
