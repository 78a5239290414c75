"""What a platform may have in progress: large bodies in memory, and events without an outcome."""

from asyncio import Future
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from time import monotonic
from typing import Any, Final, Self

from cardledger.ledger.messaging.inbox import Lane
from cardledger.schema.ids import Id
from cardledger.workers.client.admission import UNDECIDED_LIMIT

LIVE_EVENTS: Final = 20
"""Live events of one request: the live events of others wait for them."""

UNDECIDED: Final[Mapping[Lane, int]] = {Lane.LIVE: 60, Lane.BULK: 20_000}
"""Events of a platform that one process has accepted and that are not decided, for each lane.

Of the live lane those of the last `RECENT_S` seconds: what waits for longer belongs to cardholders
who are locked or stalled, and does not stop the events of others.
"""

UNDECIDED_IN_ALL: Final[Mapping[Lane, int]] = {
    Lane.LIVE: UNDECIDED_LIMIT // 4,
    Lane.BULK: UNDECIDED[Lane.BULK],
}
"""The same whatever their age; each takes about 2 kB of memory.

Of the live lane a quarter of the number at which a process refuses the authorizations of all.
"""

RECENT_S: Final = 5.0
"""A live event is decided within some milliseconds."""

FILES: Final = 3
"""Requests in one process whose bodies are large; each takes up to 70 MB, of which most is its
events until they are decided."""

FILES_OF_PLATFORM: Final = 1

UPLOADS_OF_PLATFORM: Final = 33 * 1024 * 1024
"""Bytes of forms with a large file: three of documents, or one of customers."""

UPLOADS: Final = 2 * UPLOADS_OF_PLATFORM
"""Bytes of such forms in one process, which are held once more while they are prepared."""


_Key = tuple[Id, Lane]


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
        self.check(platform_id, size)
        self._files[platform_id] += size

    def check(self, platform_id: Id, size: int) -> None:
        """Raise TooManyEventsError where `begin` does; counts nothing."""
        if self._files[platform_id] + size > self._of_platform:
            raise TooManyEventsError("this platform has too many large requests in progress")
        if self._files.total() + size > self._limit:
            raise TooManyEventsError("too many large requests of all platforms are in progress")

    def end(self, platform_id: Id, size: int = 1) -> None:
        """Count one less."""
        _count_down(self._files, platform_id, size)


class UndecidedEvents:
    """Counts accepted events until they are decided, by platform and lane."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Count nothing yet; `clock` counts seconds."""
        self._clock: Final = clock
        self._reserved: Final[Counter[_Key]] = Counter()
        # When the events were accepted, in this order.
        self._accepted: Final[defaultdict[_Key, OrderedDict[Future[Any], float]]] = defaultdict(
            OrderedDict
        )

    def reserve(self, platform_id: Id, lane: Lane, count: int) -> "Room":
        """Return room for `count` events.

        Raises: TooManyEventsError.
        """
        key = platform_id, lane
        in_all = self._reserved[key] + len(self._accepted.get(key, ()))
        recent = self._reserved[key] + self._recent(key) if lane is Lane.LIVE else in_all
        for undecided, limit in ((recent, UNDECIDED[lane]), (in_all, UNDECIDED_IN_ALL[lane])):
            if undecided + count > limit:
                raise TooManyEventsError(
                    f"{undecided} events of this platform are undecided, of {limit} at most"
                )
        self._reserved[key] += count
        return Room(self, key, count)

    def _recent(self, key: _Key) -> int:
        since = self._clock() - RECENT_S
        newest_first = reversed(self._accepted.get(key, OrderedDict()).values())
        return sum(1 for _ in takewhile(lambda at: at >= since, newest_first))

    def accept(self, key: _Key, outcomes: "Sequence[Future[Any]]") -> None:
        """Count events whose places are reserved until their `outcomes` are there."""
        self.free(key, len(outcomes))
        accepted, now = self._accepted[key], self._clock()
        for outcome in outcomes:
            accepted[outcome] = now
            outcome.add_done_callback(partial(self._decided, key))

    def free(self, key: _Key, count: int) -> None:
        """Free `count` of the places that are reserved."""
        _count_down(self._reserved, key, count)

    def _decided(self, key: _Key, outcome: "Future[Any]") -> None:
        accepted = self._accepted[key]
        del accepted[outcome]
        if not accepted:
            del self._accepted[key]


class Room:
    """Room for some events, each of which keeps its place until it is decided.

    As a context manager it frees the places at its end that no event has taken.
    """

    def __init__(self, undecided: UndecidedEvents, key: _Key, count: int) -> None:
        self._undecided: Final = undecided
        self._key: Final = key
        self._left = count

    def take(self, outcomes: "Sequence[Future[Any]]") -> None:
        """Let events that are accepted keep their places until their `outcomes` are there."""
        self._left -= len(outcomes)
        assert self._left >= 0, "no more events than there is room for"
        self._undecided.accept(self._key, outcomes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._undecided.free(self._key, self._left)
        self._left = 0


class IngestionLimits:
    """The limits of one process."""

    def __init__(self) -> None:
        self.files: Final = FilesInProgress()
        self.undecided: Final = UndecidedEvents()


def _count_down(counts: "Counter[Any]", key: object, by: int) -> None:
    counts[key] -= by
    if not counts[key]:
        del counts[key]
