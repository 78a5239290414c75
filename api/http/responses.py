"""What a route returns."""

from typing import Any, Final, TypeVar

from fastapi import Response
from pydantic_core import to_json

from cardledger.api.http.errors import invalid_field
from cardledger.api.http.request_context import AnyCall
from cardledger.ledger.storage import paging
from cardledger.schema.wire.common import PageQuery
from cardledger.schema.wire.common import Response as Resource

CREATED: Final = 201

Item = TypeVar("Item", bound=Resource)


def answer(resource: Resource, status: int = 200) -> Response:
    """Return `resource` as an answer."""
    return answer_json(resource.wire(), status)


def answer_json(body: dict[str, Any], status: int = 200) -> Response:
    """Return `body` as an answer."""
    return Response(to_json(body), status_code=status, media_type="application/json")


class Listing:
    """One list of one caller with its filters: what a cursor is bound to."""

    def __init__(self, call: AnyCall, name: str, query: PageQuery) -> None:
        """List `name` as `query` asks for it."""
        filters = query.model_dump_json(exclude={"limit", "cursor"})
        self._keys: Final = call.keys
        self._binding: Final = f"{name} {call.platform_id}{call.idempotency_scope} {filters}"
        self._query: Final = query

    def wanted(self, *, newest_first: bool) -> paging.Wanted:
        """Return which page is asked for.

        Raises: ApiError INVALID_INPUT when the cursor is not one of this list.
        """
        cursor = self._query.cursor
        try:
            after = paging.place_of(self._keys, self._binding, cursor) if cursor else None
        except paging.CursorError as error:
            raise invalid_field("cursor", str(error)) from None
        return paging.Wanted(limit=self._query.limit, after=after, newest_first=newest_first)

    def answer(self, page: paging.Page[Item]) -> Response:
        """Return `page` as a response.

        `nextCursor` is present only when there is a next page, `totalCount` only when it is known.
        """
        body: dict[str, Any] = {
            "data": [item.wire() for item in page.items],
            "hasMore": page.last is not None,
        }
        if page.total_count is not None:
            body["totalCount"] = page.total_count
        if page.last is not None:
            body["nextCursor"] = paging.cursor_of(self._keys, self._binding, page.last)
        return answer_json(body)
