"""Cards: requests, filters and the resource."""

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import override

from cardledger.schema.wire.common import (
    NOT_NULLABLE,
    Amount,
    CardId,
    CustomerId,
    InternalAccountId,
    Name,
    PageQuery,
    Request,
    Response,
    SortOrder,
    Time,
)

CardState = Literal["PENDING_KYC", "PROCESSING", "ACTIVE", "FROZEN", "CLOSED"]

FundingSources = Annotated[list[InternalAccountId], Field(min_length=1, max_length=20)]
"""Internal accounts, by priority."""


class CardCreate(Request):
    """A card to issue; `fundingSources` are ordered by priority and share one currency."""

    cardholder_id: CustomerId
    platform_card_id: Name | None = None
    form: Literal["VIRTUAL"]
    funding_sources: FundingSources
    max_spend_per_transaction: Amount | None = None


class CardUpdate(Request):
    """A change of a card; fields that are left out keep their value.

    `fundingSources` replaces the whole list. A null `maxSpendPerTransaction` removes the limit.
    """

    state: Annotated[Literal["ACTIVE", "FROZEN", "CLOSED"] | None, NOT_NULLABLE] = None
    funding_sources: Annotated[FundingSources | None, NOT_NULLABLE] = None
    max_spend_per_transaction: Amount | None = None


class CardsQuery(PageQuery):
    """Filters of the list of cards; all must match. `accountId` matches any funding source."""

    cardholder_id: CustomerId | None = None
    account_id: InternalAccountId | None = None
    platform_card_id: Name | None = None
    state: CardState | None = None
    sort_order: SortOrder = "desc"


class CardResource(Response):
    """A card; `brand`, `last4` and expiry are absent until the issuer has created the card."""

    id: CardId
    cardholder_id: CustomerId
    platform_card_id: str
    state: CardState
    state_reason: Literal["ISSUER_REJECTED", "CLOSED_BY_PLATFORM", "CLOSED_BY_GRID"] | None
    brand: Literal["VISA", "MASTERCARD"] | None = None
    form: Literal["VIRTUAL"]
    last4: str | None = None
    exp_month: int | None = None
    exp_year: int | None = None
    funding_sources: list[InternalAccountId]
    max_spend_per_transaction: int | None
    currency: str
    processor_ref: str
    issuer_ref: str
    created_at: Time
    updated_at: Time

    @override
    def wire(self) -> dict[str, Any]:
        """Return the JSON object that is sent; two of its fields are null rather than absent."""
        return {
            "stateReason": None,
            "maxSpendPerTransaction": None,
            **super().wire(),
        }


class RevealResource(Response):
    """The page that shows a card's number, once and until it expires."""

    pan_embed_url: str
    expires_at: Time
