"""API tokens: making, listing and deleting what callers present."""

from typing import Annotated

from fastapi import Query, Response

from cardledger.api.http import routing
from cardledger.api.http.errors import ApiError, not_found
from cardledger.api.http.request_context import PlatformCall
from cardledger.api.http.responses import CREATED, Listing, answer
from cardledger.ledger.platforms import api_tokens
from cardledger.ledger.platforms.api_tokens import Permission
from cardledger.schema.wire.common import Page, TokenId
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.tokens import TokenCreate, TokenResource, TokensQuery

_TAG = "API Tokens"
_NO_CONTENT = 204

reads = routing.routes(Permission.VIEW, tag=_TAG)
writes = routing.routes(Permission.MANAGE, tag=_TAG)


@writes.post("/tokens", status_code=CREATED, response_model=TokenResource)
async def create_token(body: TokenCreate, call: PlatformCall) -> Response:
    """Make a token; its `clientSecret` is in this answer and in no other."""
    async with call.writing() as connection:
        made = await api_tokens.issue(
            connection,
            platform_id=call.platform_id,
            name=body.name,
            permissions=body.permissions,
            keys=call.keys,
            at=call.now(),
        )
    response = answer(made, CREATED)
    response.headers["Cache-Control"] = "no-store"
    return response


@reads.get("/tokens", response_model=Page[TokenResource])
async def list_tokens(query: Annotated[TokensQuery, Query()], call: PlatformCall) -> Response:
    """List the platform's tokens, newest first."""
    listing = Listing(call, "tokens", query)
    filters = api_tokens.TokenFilters(
        name=query.name,
        created_from=query.created_after,
        created_to=query.created_before,
        updated_from=query.updated_after,
        updated_to=query.updated_before,
    )
    async with call.reading() as connection:
        page = await api_tokens.page(
            connection,
            platform_id=call.platform_id,
            filters=filters,
            wanted=listing.wanted(newest_first=True),
        )
    return listing.answer(page)


@reads.get("/tokens/{token_id}", response_model=TokenResource)
async def get_token(token_id: TokenId, call: PlatformCall) -> Response:
    """Return a token, without its secret."""
    async with call.reading() as connection:
        found = await api_tokens.get(connection, platform_id=call.platform_id, token_id=token_id)
    if found is None:
        raise _no_token()
    return answer(found)


@writes.delete("/tokens/{token_id}", status_code=_NO_CONTENT)
async def delete_token(token_id: TokenId, call: PlatformCall) -> Response:
    """Delete a token; within a few seconds nobody is let in with it any more.

    Not the one that asks for it: so a platform that can manage its tokens stays one.
    """
    if token_id == call.token.id:
        message = "this is the token that you call with; delete it with another one"
        raise ApiError(Code.INVALID_INPUT, message)
    async with call.writing() as connection:
        was_there = await api_tokens.delete(
            connection, platform_id=call.platform_id, token_id=token_id
        )
    if not was_there:
        raise _no_token()
    call.services.authenticator.forget(token_id)
    return Response(status_code=_NO_CONTENT)


def _no_token() -> ApiError:
    return not_found(Code.TOKEN_NOT_FOUND, "token")
