"""API tokens: who may call, as the platform sees them."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from cardledger.schema.wire.common import Name, PageQuery, Request, Response, Time, TokenId

PermissionName = Literal["VIEW", "TRANSACT", "MANAGE"]


def _each_once(value: list[PermissionName]) -> list[PermissionName]:
    if len(set(value)) != len(value):
        message = "names a permission twice; send every permission once"
        raise ValueError(message)
    return value


class TokenCreate(Request):
    """A token that is asked for."""

    name: Name
    permissions: Annotated[
        list[PermissionName], Field(min_length=1, max_length=3), AfterValidator(_each_once)
    ]


class TokensQuery(PageQuery):
    """Filters of the list of tokens; all have to match, times included."""

    name: Name | None = None
    created_after: Time | None = None
    created_before: Time | None = None
    updated_after: Time | None = None
    updated_before: Time | None = None


class TokenResource(Response):
    """A token; `clientSecret` is there once, in the answer to its creation."""

    id: TokenId
    name: str
    permissions: list[PermissionName]
    client_id: str
    client_secret: str | None = None
    created_at: Time
    updated_at: Time
