"""Pages of a list in order of creation, and their cursors."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Row,
    Select,
    Table,
    and_,
    any_,
    case,
    func,
    literal,
    select,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.storage.ids import first_id_at, time_of_id
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema.ids import Id

Item = TypeVar("Item")

COUNT_LIMIT: Final = 10_000
"""The highest exact total of a list; a larger list has none, since counting costs too much."""

KEY_BYTES: Final = 16
"""The size of a key in a cursor."""


class CursorError(ValueError):
    """A cursor that was not issued for this list and these filters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A requested page: at most `limit` rows after the key `after`, newest or oldest first."""

    limit: int
    after: Id | None = None
    newest_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[Item]):
    """A page of a list.

    `last` is the key after which the next page begins, None on the last page. `total_count` is
    the number of rows of the whole list, None when it is above `COUNT_LIMIT` or was not counted.
    `reached` is when the last row was made that was looked at, where the search ended before the
    page was full: the next page goes on from there, and there may be nothing that matches. None:
    the page is full, or the last one.
    """

    items: Sequence[Item]
    last: Id | None
    total_count: int | None
    reached: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Keys of the rows of a page and of one more: what a search has found of them.

    `end` is the key of the last row that was looked at, where others follow and the page is not
    full; None: the search is complete.
    """

    keys: Sequence[Id]
    end: Id | None = None


async def read(  # noqa: PLR0913 - the parts of a query, by name
    connection: AsyncConnection,
    query: Select[*tuple[Any, ...]],
    *,
    table: Table,
    matching: Sequence[ColumnElement[bool]],
    wanted: Wanted,
    item: Callable[[Row[*tuple[Any, ...]]], Item],
    count_limit: int | None = COUNT_LIMIT,
    found: Found | None = None,
) -> Page[Item]:
    """Return one page of those rows of `table` that match, as `query` shows them.

    At most one row more than `count_limit` is counted; None counts all of them, 0 counts nothing.
    `found` is what the caller has found by another way: it matched a moment before.
    Shape: `query` has the table's `id` first: a UUIDv7, so its order is that of creation.
    """
    key = table.c.id
    total_count = await count(connection, table, matching, count_limit)
    rows: Sequence[Row[*tuple[Any, ...]]] = ()
    if found is None or found.keys:
        rows_of_page = matching if found is None else [is_among(key, found.keys)]
        page = in_order(query.where(*rows_of_page), key, wanted)
        # One row more than is returned shows whether there is a next page.
        rows = (await connection.execute(page.limit(wanted.limit + 1))).all()
    shown = rows[: wanted.limit]
    end = None if found is None else found.end
    return Page(
        items=[item(row) for row in shown],
        last=shown[-1][0] if len(rows) > len(shown) else end,
        total_count=total_count,
        reached=None if end is None else time_of_id(end),
    )


async def search(  # noqa: PLR0913 - the parts of a query, by name
    connection: AsyncConnection,
    key: ColumnElement[Any],
    *,
    among: Sequence[ColumnElement[bool]],
    matching: Sequence[ColumnElement[bool]],
    wanted: Wanted,
    distance: int,
) -> Found:
    """Look for the rows of a page that match, among the next `distance` rows of `among`.

    For conditions without an index: a rare value would be looked for in all rows of a platform. The
    end comes first, from the index alone. A LIMIT instead does not bound what is read: PostgreSQL
    may find the rows of `among` by another index, with those of all platforms. The rows up to the
    end are read before it is asked which of them match: PostgreSQL may find those by an index of
    theirs, however many there are.
    Shape: an index has the keys of `among` in order; what matches is among them; `distance` is at
    least 1.
    """
    rest = in_order(select(key).where(*among), key, wanted).offset(distance - 1).limit(2)
    ends = (await connection.scalars(rest)).all()
    end = ends[0] if len(ends) > 1 else None
    rows = select(key, and_(*matching).label("matches")).where(*among)
    if end is not None:
        rows = rows.where(key >= end if wanted.newest_first else key <= end)
    # The limit keeps the condition out of what is read, and the rows in their order.
    near = in_order(rows, key, wanted).limit(distance).subquery("near")
    keys = await first(connection, select(near.c.id).where(near.c.matches), near.c.id, wanted)
    return Found(keys=keys, end=None if len(keys) > wanted.limit else end)


async def sort(
    connection: AsyncConnection,
    key: ColumnElement[Any],
    *,
    among: Sequence[ColumnElement[bool]],
    matching: Sequence[ColumnElement[bool]],
    wanted: Wanted,
) -> Found:
    """Return the rows of a page that match, among the few of `among`, which are all read.

    PostgreSQL may instead look for them in the order of keys, in all rows of a platform.
    Shape: an index has the rows of `among`; what matches is among them.
    """
    rows = select(key, and_(*matching).label("matches")).where(*among)
    few = rows.cte("few").prefix_with("MATERIALIZED")
    keys = select(few.c.id).where(few.c.matches)
    return Found(keys=await first(connection, keys, few.c.id, wanted))


def without_items(found: Found) -> Page[Any]:
    """Return the page of a search that has found nothing, without a total."""
    end = found.end
    return Page(
        items=[], last=end, total_count=None, reached=None if end is None else time_of_id(end)
    )


async def first_of_few(
    connection: AsyncConnection,
    table: Table,
    matching: Sequence[ColumnElement[bool]],
    wanted: Wanted,
    *,
    most: int,
) -> Sequence[Id] | None:
    """Return the keys of the page of rows that match, and one more; None: more than `most` match.

    All that match are sorted; of more, none.
    """
    few = select(table.c.id).where(*matching).limit(most + 1).cte("few")
    counted = select(func.count()).select_from(few).scalar_subquery()
    page = in_order(select(few.c.id), few.c.id, wanted).limit(wanted.limit + 1)
    keys = func.array(page.scalar_subquery(), type_=ARRAY(table.c.id.type))
    found: Sequence[Id] | None = await connection.scalar(select(case((counted <= most, keys))))
    return found


async def first(
    connection: AsyncConnection, keys: Select[Any], key: ColumnElement[Any], wanted: Wanted
) -> Sequence[Id]:
    """Return those of `keys` that are of the page, and one more."""
    page = in_order(keys, key, wanted).limit(wanted.limit + 1)
    return (await connection.scalars(page)).all()


def is_among(column: ColumnElement[Any], keys: Collection[Id]) -> ColumnElement[bool]:
    """Return the condition that `column` is one of `keys`, in one text for any number of them.

    A statement of another text would have to be prepared, and takes the place of a prepared one.
    """
    return column == any_(literal(list(keys), ARRAY(column.type)))


def in_order(query: Select[Any], key: ColumnElement[Any], wanted: Wanted) -> Select[Any]:
    """Return `query` from the beginning of the page that is `wanted`, in its order."""
    if wanted.after is not None:
        query = query.where(key < wanted.after if wanted.newest_first else key > wanted.after)
    return query.order_by(key.desc() if wanted.newest_first else key)


def made_within(
    key: ColumnElement[Any],
    since: datetime | None,
    until: datetime | None,
    *,
    difference: timedelta,
) -> Iterator[ColumnElement[bool]]:
    """Yield conditions on `key`, a UUIDv7, of rows that were created in this time.

    The time of a row and the time in its key differ at most by `difference`; so the conditions are
    wider, and stand beside those on the time. With them a list in the order of keys begins and ends
    near the time, instead of reading all rows of a platform.
    """
    if since is not None:
        yield key >= first_id_at(_moved(since, -difference))
    if until is not None:
        yield key < first_id_at(_moved(until, difference))


def _moved(at: datetime, by: timedelta) -> datetime:
    try:
        return at + by
    except OverflowError:
        return at


async def count(
    connection: AsyncConnection,
    table: Table,
    matching: Sequence[ColumnElement[bool]],
    count_limit: int | None,
) -> int | None:
    """Return how many rows of `table` match; None when that is more than `count_limit`, or 0."""
    if count_limit == 0:
        return None
    keys = select(table.c.id).where(*matching)
    if count_limit is not None:
        keys = keys.limit(count_limit + 1)
    counted = await connection.scalar(select(func.count()).select_from(keys.subquery())) or 0
    return None if count_limit is not None and counted > count_limit else counted


def total_of(pages: Sequence[Page[Any]]) -> int | None:
    """Return the total of a list that is merged from `pages`; None when above `COUNT_LIMIT`."""
    counts = [page.total_count for page in pages if page.total_count is not None]
    total = sum(counts)
    return total if len(counts) == len(pages) and total <= COUNT_LIMIT else None


def cursor_of(keys: KeyRing, binding: str, last: bytes) -> str:
    """Return the cursor of the page after `last`; `binding` names the list and its filters."""
    return urlsafe_b64encode(last + keys.sign_cursor(_signed(binding, last))).decode()


def place_of(keys: KeyRing, binding: str, cursor: str, *, size: int = KEY_BYTES) -> Id:
    """Return the key in `cursor`, of `size` bytes: more in a list that is not in order of ids.

    Raises: CursorError when it was changed, or issued for another list or other filters.
    """
    try:
        raw = urlsafe_b64decode(cursor.encode("ascii"))
    except ValueError:  # Also what the two kinds of bad characters raise.
        raw = b""
    key, tag = raw[:size], raw[size:]
    if len(key) != size or not keys.verify_cursor(_signed(binding, key), tag):
        message = "is not a cursor of this list with these filters; send nextCursor unchanged"
        raise CursorError(message)
    return Id(key)


def _signed(binding: str, key: bytes) -> bytes:
    return key + binding.encode()
