"""Who can be paid: banks and mobile money, providers of UMA addresses, providers of wallets."""

from typing import Annotated, Literal

from pydantic import Field

from cardledger.schema.wire.common import (
    Country,
    Currency,
    PageQuery,
    Request,
    Response,
    SortOrder,
)


class DiscoveriesQuery(Request):
    """Filters of banks and mobile money; both must match."""

    country: Country | None = None
    currency: Currency | None = None


class DiscoveryResource(Response):
    """A bank or a provider of mobile money; `bankName` goes into external accounts."""

    bank_name: Annotated[str, Field(examples=["ALPENBANK"])]
    display_name: Annotated[str, Field(examples=["Alpenbank"])]
    country: Annotated[str, Field(examples=["DE"])]
    currency: Annotated[str, Field(examples=["EUR"])]


class DiscoveryList(Response):
    """Banks and providers of mobile money, by country, currency and name."""

    data: list[DiscoveryResource]


class UmaProvidersQuery(PageQuery):
    """Filters of providers; all must match. Blocked ones are listed on request only."""

    country_code: Country | None = None
    currency_code: Currency | None = None
    has_blocked_providers: Literal["true", "false"] | None = None
    sort_order: SortOrder = "desc"


class UmaProviderResource(Response):
    """A provider of UMA addresses; `allowListStatus` is whether payments to it are allowed."""

    name: Annotated[str, Field(examples=["Example Wallet"])]
    domain: Annotated[str, Field(examples=["wallet.example"])]
    logo_url: str | None = None
    lei: Annotated[str | None, Field(examples=["984500SANDBOX0000003"])] = None
    supported_regions: Annotated[list[str], Field(examples=[["GB", "IE"]])]
    supported_currencies: Annotated[list[str], Field(examples=[["GBP", "EUR"]])]
    allow_list_status: bool


class VaspsQuery(PageQuery):
    """The page of the list of providers of wallets."""


class VaspResource(Response):
    """A provider of wallets (virtual asset service provider)."""

    vasp_name: Annotated[str, Field(examples=["Example Custody"])]
    url: Annotated[str | None, Field(examples=["https://custody.example"])] = None
