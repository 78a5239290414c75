"""Responses of routes: resources, pages, and refusals of one resource or permission too many."""

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from fastapi import Response
from pydantic_core import to_json

from cardledger.api.http.errors import ApiError, invalid_field
from cardledger.api.http.request_context import RequestContext
from cardledger.api.loop_turns import LoopTurns
from cardledger.ledger.platforms.api_tokens import RevokedTokenError
from cardledger.ledger.platforms.scopes import GrantExceededError, LimitsExceededError
from cardledger.ledger.storage import paging
from cardledger.ledger.storage.caps import CapReachedError
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import PageQuery
from cardledger.schema.wire.common import Response as Resource
from cardledger.schema.wire.errors import Code

CREATED: Final = 201

_JSON: Final = "application/json"

Item = TypeVar("Item", bound=Resource)


def resource_response(resource: Resource, status: int = 200) -> Response:
    """Return the response with `resource`."""
    return json_response(resource.wire(), status)


def json_response(body: dict[str, Any], status: int = 200) -> Response:
    """Return the response with `body`."""
    return Response(to_json(body), status_code=status, media_type=_JSON)


def _rendered(items: Iterable[Resource]) -> Generator[None, None, bytes]:
    """Render `items`, one in each step; return them with commas between them."""
    parts = []
    for item in items:
        parts.append(to_json(item.wire()))
        yield
    return b",".join(parts)


@contextmanager
def capped() -> Iterator[None]:
    """Answer 409 when the block would exceed a cap.

    Raises: ApiError CONFLICT with `details.limit`.
    """
    try:
        yield
    except CapReachedError as error:
        raise ApiError(Code.CONFLICT, str(error), details={"limit": error.limit}) from None


@contextmanager
def granting() -> Iterator[None]:
    """Answer 403 when the block would grant more than the caller's token has.

    Raises: ApiError FORBIDDEN with `details.missingPermissions`, or `details.reason`; UNAUTHORIZED
    when the token has been deleted meanwhile, or the caller's secret replaced.
    """
    try:
        yield
    except RevokedTokenError:
        message = "The token has been deleted, or its secret replaced."
        raise ApiError(Code.UNAUTHORIZED, message) from None
    except LimitsExceededError:
        message = "A token grants no access beyond its own expiresAt and allowedAddresses."
        details = {"reason": "LIMITS_EXCEEDED"}
        raise ApiError(Code.FORBIDDEN, message, details=details) from None
    except GrantExceededError as error:
        missing = [permission.value for permission in error.missing]
        message = (
            "A token grants at most its own permissions; use a token that also has"
            f" {', '.join(missing)}."
        )
        raise ApiError(Code.FORBIDDEN, message, details={"missingPermissions": missing}) from None


class Listing:
    """One list of one caller with its filters; a cursor is valid for this list only."""

    def __init__(self, call: RequestContext, name: str, query: PageQuery) -> None:
        """List `name` with the filters of `query`."""
        filters = query.model_dump_json(exclude={"limit", "cursor"})
        self._keys: Final = call.keys
        self._binding: Final = f"{name} {call.platform_id}{call.idempotency_scope} {filters}"
        self._query: Final = query

    def wanted(self, *, newest_first: bool) -> paging.Wanted:
        """Return the page to read.

        Raises: ApiError INVALID_INPUT when the cursor is not valid for this list.
        """
        return paging.Wanted(limit=self._query.limit, after=self.place(), newest_first=newest_first)

    def place(self, size: int = paging.KEY_BYTES) -> Id | None:
        """Return the place after which the page begins, of `size` bytes; None: it is the first.

        Raises: ApiError INVALID_INPUT when the cursor is not valid for this list.
        """
        cursor = self._query.cursor
        if not cursor:
            return None
        try:
            return paging.place_of(self._keys, self._binding, cursor, size=size)
        except paging.CursorError as error:
            raise invalid_field("cursor", str(error)) from None

    def response(self, page: paging.Page[Item]) -> Response:
        """Return the response with `page`.

        `nextCursor` is present only when there is a next page, `totalCount` only when it is known.
        """
        return json_response({"data": [item.wire() for item in page.items]} | self._rest(page))

    async def response_in_turns(self, page: paging.Page[Item], turns: LoopTurns) -> Response:
        """Return the response with `page`, whose items may be so large that all of them block."""
        data = await turns.run(_rendered(page.items))
        body = b'{"data":[%b],%b' % (data, to_json(self._rest(page))[1:])
        return Response(body, media_type=_JSON)

    def _rest(self, page: paging.Page[Any]) -> dict[str, Any]:
        """Return what a page has beside its items."""
        rest: dict[str, Any] = {"hasMore": page.last is not None}
        if page.total_count is not None:
            rest["totalCount"] = page.total_count
        if page.last is not None:
            rest["nextCursor"] = self.next_cursor(page)
        return rest

    def next_cursor(self, page: paging.Page[Any]) -> str | None:
        """Return the cursor of the page after `page`; None on the last one."""
        if page.last is None:
            return None
        return paging.cursor_of(self._keys, self._binding, page.last)
