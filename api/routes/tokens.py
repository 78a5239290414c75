"""API tokens."""

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import Query, Response

from cardledger.api.http.errors import ApiError, invalid_field, not_found
from cardledger.api.http.request_context import PlatformCall
from cardledger.api.http.responses import CREATED, Listing, capped, granting, resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.ledger.platforms import api_tokens, scopes
from cardledger.ledger.platforms.scopes import Permission
from cardledger.schema.wire.common import Page, TokenId
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.tokens import (
    TokenCreate,
    TokenResource,
    TokenSecretRotate,
    TokensQuery,
)

_TAG = "API Tokens"
_NO_CONTENT = 204

router = guarded_router(_TAG)


@router.post("/tokens", status_code=CREATED, response_model=TokenResource)
@requires(Permission.TOKENS, secrets=("clientSecret",))
async def create_token(body: TokenCreate, call: PlatformCall) -> Response:
    """Create a token; only this response contains its `clientSecret`, and no repetition does.

    Its `permissions` are at most those of the token that creates it, and it ends no later and
    is used from no other networks: else 403 `FORBIDDEN`. `AGENTS` is not for tokens with
    `expiresAt` or `allowedAddresses`, because agents have neither. A platform has 100
    tokens at most, and may make 100,000 in all: one more is 409 `CONFLICT`.
    """
    limits = _limits(body, call.now())
    with granting(), capped():
        call.token.check_grant(body.permissions, limits)
        async with call.writing() as connection:
            created = await api_tokens.issue(
                connection,
                platform_id=call.platform_id,
                name=body.name,
                permissions=body.permissions,
                keys=call.keys,
                at=call.now(),
                limits=limits,
                granted_by=call.proven,
            )
    return _secret(resource_response(created, CREATED))


@router.get("/tokens", response_model=Page[TokenResource])
@requires(Permission.VIEW)
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
    return listing.response(page)


@router.get("/tokens/{token_id}", response_model=TokenResource)
@requires(Permission.VIEW)
async def get_token(token_id: TokenId, call: PlatformCall) -> Response:
    """Return a token, without its secret."""
    async with call.reading() as connection:
        token = await api_tokens.get(connection, platform_id=call.platform_id, token_id=token_id)
    if token is None:
        raise _no_token()
    return resource_response(token)


@router.post("/tokens/{token_id}/rotate-secret", response_model=TokenResource)
@requires(Permission.TOKENS, secrets=("clientSecret",))
async def rotate_token_secret(
    token_id: TokenId, body: TokenSecretRotate, call: PlatformCall
) -> Response:
    """Replace the secret of a token; only this response contains the new one.

    The previous secret counts for `overlapHours` more, so that programs can change over; 0 is for
    a leaked secret, which is refused within a few seconds, and needs another token: when the
    response is lost, the calling token must be able to rotate again. The calling token must have
    what the token has, or be the token itself: 403 `FORBIDDEN`. A repetition with the same
    `Idempotency-Key` has no secret. When it was lost, rotate again within ten minutes: the secret
    before the first rotation goes on counting.
    """
    if token_id == call.token.id and not body.overlap_hours:
        message = "must be at least 1 for the token's own secret; for 0, call with another token"
        raise invalid_field("overlapHours", message)
    with granting():
        async with call.writing() as connection:
            rotated = await api_tokens.rotate_secret(
                connection,
                token_id=token_id,
                rotated_by=call.proven,
                keys=call.keys,
                overlap=timedelta(hours=body.overlap_hours),
                at=call.now(),
            )
    if rotated is None:
        raise _no_token()
    call.services.authenticator.forget(token_id)
    return _secret(resource_response(rotated))


@router.delete("/tokens/{token_id}", status_code=_NO_CONTENT)
@requires(Permission.TOKENS)
async def delete_token(token_id: TokenId, call: PlatformCall) -> Response:
    """Delete a token; it is refused within a few seconds.

    A token cannot delete itself, so that a platform always keeps one that can create others.
    """
    if token_id == call.token.id:
        message = "A token cannot delete itself; delete it with another token."
        raise ApiError(Code.INVALID_INPUT, message)
    async with call.writing() as connection:
        existed = await api_tokens.delete(
            connection, platform_id=call.platform_id, token_id=token_id
        )
    if not existed:
        raise _no_token()
    call.services.authenticator.forget(token_id)
    return Response(status_code=_NO_CONTENT)


def _limits(body: TokenCreate, at: datetime) -> scopes.Limits:
    limits = scopes.Limits(expires_at=body.expires_at, allowed_addresses=body.allowed_addresses)
    if limits.is_expired(at):
        raise invalid_field("expiresAt", "must be in the future")
    if Permission.AGENTS in body.permissions and limits != scopes.NO_LIMITS:
        message = "must not have AGENTS with expiresAt or allowedAddresses; agents have neither"
        raise invalid_field("permissions", message)
    return limits


def _secret(response: Response) -> Response:
    response.headers["Cache-Control"] = "no-store"
    return response


def _no_token() -> ApiError:
    return not_found(Code.TOKEN_NOT_FOUND, "token")
