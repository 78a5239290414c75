"""Cards: what they may spend from, and how the issuer sees them."""

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
"""Internal accounts by priority."""


class CardCreate(Request):
    """A card that is asked for; `fundingSources` by priority, all of one currency."""

    cardholder_id: CustomerId
    platform_card_id: Name | None = None
    form: Literal["VIRTUAL"]
    funding_sources: FundingSources
    max_spend_per_transaction: Amount | None = None


class CardUpdate(Request):
    """What changes about a card; a field that is not there stays.

    `fundingSources` replaces the whole list. `maxSpendPerTransaction` null takes the limit away.
    """

    state: Annotated[Literal["ACTIVE", "FROZEN", "CLOSED"] | None, NOT_NULLABLE] = None
    funding_sources: Annotated[FundingSources | None, NOT_NULLABLE] = None
    max_spend_per_transaction: Amount | None = None


class CardsQuery(PageQuery):
    """Filters of the list of cards; all have to match. `accountId` is any funding source."""

    cardholder_id: CustomerId | None = None
    account_id: InternalAccountId | None = None
    platform_card_id: Name | None = None
    state: CardState | None = None
    sort_order: SortOrder = "desc"


class CardResource(Response):
    """A card as every reader sees it; what the issuer has not made yet is not there."""

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
        """Return the JSON object that is sent; two of its fields say null in so many words."""
        return {
            "stateReason": None,
            "maxSpendPerTransaction": None,
            **super().wire(),
        }


class RevealResource(Response):
    """Where a card's number can be seen, once and not for long."""

    pan_embed_url: str
    expires_at: Time
