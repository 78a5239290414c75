"""Queues that callers share: a caller that sends much waits behind its own items only.

Round robin by caller (Nagle, RFC 970): each turn takes the oldest item of the caller whose last
turn is longest ago. So of n callers that wait each gets every n-th place, whatever the others send.
Every operation takes the same time, whatever waits.
"""

from collections import OrderedDict
from collections.abc import Collection, Hashable
from typing import Final, Generic, TypeVar

Caller = TypeVar("Caller", bound=Hashable)
Item = TypeVar("Item", bound=Hashable)


class FairQueue(Generic[Caller, Item]):
    """Items of callers; those of one caller are taken in the order in which they were put."""

    def __init__(self) -> None:
        """Begin empty."""
        # In the order of their turns; only callers that have items. Of items an OrderedDict: taking
        # the first of a dict looks at all that were taken before it.
        self._queues: Final[OrderedDict[Caller, OrderedDict[Item, None]]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._queues)

    def has(self, caller: Caller) -> bool:
        """Return whether an item of `caller` waits."""
        return caller in self._queues

    def put(self, caller: Caller, item: Item) -> None:
        """Put `item`, which does not wait yet, behind those of `caller`."""
        self._queues.setdefault(caller, OrderedDict())[item] = None

    def discard(self, caller: Caller, item: Item) -> None:
        """Remove `item` of `caller` if it waits."""
        queue = self._queues.get(caller)
        if queue is not None:
            queue.pop(item, None)
            if not queue:
                del self._queues[caller]

    def take(self, *, without: Collection[Caller] = ()) -> tuple[Caller, Item] | None:
        """Return the next item and its caller, None when only callers `without` wait."""
        caller = next((caller for caller in self._queues if caller not in without), None)
        if caller is None:
            return None
        queue = self._queues[caller]
        item, _ = queue.popitem(last=False)
        if queue:
            self._queues.move_to_end(caller)
        else:
            del self._queues[caller]
        return caller, item
