"""Lists of exchange rates that were computed, so that the same list is computed once.

A list of hundreds of pairs takes a tenth of a second. Nothing is forgotten when a rate or a fee
changes: what a list was made of is read for each request, and has to be equal.
"""

from collections.abc import Hashable
from typing import Final

_BYTES: Final = 16 * 1024 * 1024  # Of all lists together.
_LISTS: Final = 64  # What a list was made of takes up to 50 KB besides.


class ExchangeOffers:
    """The bodies of lists, of which those that were used last are kept; for one event loop."""

    def __init__(self, limit_bytes: int = _BYTES) -> None:
        """Keep lists of `limit_bytes` together."""
        self._limit: Final = limit_bytes
        self._known: Final[dict[Hashable, tuple[object, bytes]]] = {}
        self._bytes = 0

    def find(self, key: Hashable, made_of: object) -> bytes | None:
        """Return the list `key` if it was made of what equals `made_of`."""
        known = self._known.get(key)
        if known is None or known[0] != made_of:
            return None
        self._known[key] = self._known.pop(key)  # As the last that is forgotten.
        return known[1]

    def keep(self, key: Hashable, made_of: object, body: bytes) -> None:
        """Keep the list `key`, unless it is larger than all may be."""
        if (known := self._known.pop(key, None)) is not None:
            self._bytes -= len(known[1])
        self._known[key] = made_of, body
        self._bytes += len(body)
        while self._bytes > self._limit or len(self._known) > _LISTS:
            self._bytes -= len(self._known.pop(next(iter(self._known)))[1])
