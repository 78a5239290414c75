"""Pages of a list: a place in the order of creation, and a cursor that says it."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import ColumnElement, Row, Select, Table, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.storage.secrets import KeyRing
from cardledger.schema.ids import Id

Item = TypeVar("Item")

_KEY_BYTES: Final = 16


class CursorError(ValueError):
    """A cursor that we did not make for this list and these filters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which page: at most `limit` rows that come after the key `after`, newest or oldest first."""

    limit: int
    after: Id | None = None
    newest_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[Item]):
    """A page; `last` is the key where the next one begins, None when there is no next one."""

    items: Sequence[Item]
    last: Id | None
    total_count: int


async def read(  # noqa: PLR0913 - the parts of a query, by name
    connection: AsyncConnection,
    query: Select[*tuple[Any, ...]],
    *,
    table: Table,
    matching: Sequence[ColumnElement[bool]],
    wanted: Wanted,
    item: Callable[[Row[*tuple[Any, ...]]], Item],
) -> Page[Item]:
    """Return one page of those rows of `table` that match, as `query` shows them.

    Shape: `query` has the table's `id` first: a UUIDv7, so its order is that of creation.
    """
    key = table.c.id
    total = await connection.scalar(select(func.count()).select_from(table).where(*matching))
    page = query.where(*matching).order_by(key.desc() if wanted.newest_first else key)
    if wanted.after is not None:
        page = page.where(key < wanted.after if wanted.newest_first else key > wanted.after)
    # One row more than is shown says whether there is a next page.
    rows = (await connection.execute(page.limit(wanted.limit + 1))).all()
    shown = rows[: wanted.limit]
    return Page(
        items=[item(row) for row in shown],
        last=shown[-1][0] if len(rows) > len(shown) else None,
        total_count=total or 0,
    )


def cursor_of(keys: KeyRing, binding: str, last: Id) -> str:
    """Return the cursor of the page after `last` in the list and filters that `binding` names."""
    return urlsafe_b64encode(last + keys.sign_cursor(_signed(binding, last))).decode()


def place_of(keys: KeyRing, binding: str, cursor: str) -> Id:
    """Return the key that `cursor` stands for.

    Raises: CursorError when it was changed, or made for another list or other filters.
    """
    try:
        raw = urlsafe_b64decode(cursor.encode("ascii"))
    except ValueError:  # Also what the two kinds of bad characters raise.
        raw = b""
    key, tag = raw[:_KEY_BYTES], raw[_KEY_BYTES:]
    if len(key) != _KEY_BYTES or not keys.verify_cursor(_signed(binding, key), tag):
        message = "is not a cursor of this list with these filters; send a nextCursor unchanged"
        raise CursorError(message)
    return Id(key)


def _signed(binding: str, key: bytes) -> bytes:
    return key + binding.encode()
