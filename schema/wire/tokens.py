"""API tokens: the credentials of a platform."""

from ipaddress import IPv6Network, ip_network
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from cardledger.schema.wire.common import (
    NOT_NULLABLE,
    Name,
    PageQuery,
    Request,
    Response,
    Time,
    TokenId,
)

PermissionName = Literal["VIEW", "TRANSACT", "MANAGE", "TOKENS", "AGENTS", "INGEST"]

_ADDRESS_LIMIT = 20
_MAPPED = IPv6Network("::ffff:0:0/96")


def _each_once(value: list[PermissionName]) -> list[PermissionName]:
    if len(set(value)) != len(value):
        message = "has a duplicate; send each permission once"
        raise ValueError(message)
    return value


def _network(value: str) -> str:
    try:
        network = ip_network(value)
    except ValueError:
        message = "is not a network such as 203.0.113.0/24 or 2001:db8::/32, or an address"
        raise ValueError(message) from None
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        message = "is an IPv4 network written as IPv6; send it as IPv4, such as 203.0.113.0/24"
        raise ValueError(message)
    return str(network)


Network = Annotated[str, Field(max_length=43), AfterValidator(_network)]


class TokenCreate(Request):
    """A token to create."""

    name: Name
    permissions: Annotated[
        list[PermissionName], Field(min_length=1, max_length=6), AfterValidator(_each_once)
    ]
    expires_at: Annotated[Time | None, NOT_NULLABLE] = None
    allowed_addresses: Annotated[
        list[Network] | None, Field(min_length=1, max_length=_ADDRESS_LIMIT), NOT_NULLABLE
    ] = None


class TokenSecretRotate(Request):
    """A rotation of a token's secret; both secrets count during the overlap."""

    overlap_hours: Annotated[int, Field(strict=True, ge=0, le=168)] = 24


class TokensQuery(PageQuery):
    """Filters of the list of tokens; all must match, times are inclusive."""

    name: Name | None = None
    created_after: Time | None = None
    created_before: Time | None = None
    updated_after: Time | None = None
    updated_before: Time | None = None


class TokenResource(Response):
    """An API token; `clientSecret` is returned only when the token is created or rotated."""

    id: TokenId
    name: str
    permissions: list[PermissionName]
    client_id: str
    client_secret: str | None = None
    expires_at: Time | None = None
    allowed_addresses: list[str] | None = None
    former_secret_until: Time | None = None
    last_used_at: Time | None = None
    created_at: Time
    updated_at: Time
