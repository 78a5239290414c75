"""API tokens: the credentials of a platform."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from cardledger.schema.wire.common import Name, PageQuery, Request, Response, Time, TokenId

PermissionName = Literal["VIEW", "TRANSACT", "MANAGE", "TOKENS", "AGENTS"]


def _each_once(value: list[PermissionName]) -> list[PermissionName]:
    if len(set(value)) != len(value):
        message = "has a duplicate; send each permission once"
        raise ValueError(message)
    return value


class TokenCreate(Request):
    """A token to create."""

    name: Name
    permissions: Annotated[
        list[PermissionName], Field(min_length=1, max_length=5), AfterValidator(_each_once)
    ]


class TokensQuery(PageQuery):
    """Filters of the list of tokens; all must match, times are inclusive."""

    name: Name | None = None
    created_after: Time | None = None
    created_before: Time | None = None
    updated_after: Time | None = None
    updated_before: Time | None = None


class TokenResource(Response):
    """An API token; `clientSecret` is returned only once, when the token is created."""

    id: TokenId
    name: str
    permissions: list[PermissionName]
    client_id: str
    client_secret: str | None = None
    created_at: Time
    updated_at: Time
