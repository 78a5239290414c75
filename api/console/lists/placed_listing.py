"""Pages of lists in the order of a time, whose cursors have more than an id."""

from typing import Final

from cardledger.api.console.access.context import ConsoleContext
from cardledger.api.http.errors import invalid_field
from cardledger.ledger.storage import paging, places
from cardledger.ledger.storage.places import Place
from cardledger.schema.wire.common import PageQuery


class PlacedListing:
    """One list of one caller with its filters; a cursor is valid for this list only."""

    def __init__(
        self, call: ConsoleContext, name: str, query: PageQuery, *, numbers: int = 0
    ) -> None:
        """List `name` with the filters of `query`; its places have so many `numbers`."""
        filters = query.model_dump_json(exclude={"limit", "cursor"})
        self._keys: Final = call.keys
        self._binding: Final = f"{name} {call.platform_id}{call.idempotency_scope} {filters}"
        self._cursor: Final = query.cursor
        self._size: Final = places.size_of(numbers)

    def after(self) -> Place | None:
        """Return the place after which the page begins; None: it is the first.

        Raises: ApiError INVALID_INPUT when the cursor is not valid for this list.
        """
        if not self._cursor:
            return None
        try:
            packed = paging.place_of(self._keys, self._binding, self._cursor, size=self._size)
        except paging.CursorError as error:
            raise invalid_field("cursor", str(error)) from None
        return places.unpacked(packed)

    def next_cursor(self, last: Place | None) -> str | None:
        """Return the cursor of the page after `last`; None on the last one."""
        if last is None:
            return None
        return paging.cursor_of(self._keys, self._binding, last.packed())
