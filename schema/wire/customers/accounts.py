"""Internal accounts: money of a customer or of the platform, held in the service."""

from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from cardledger.schema.wire.common import (
    Currency,
    CurrencyAmount,
    CustomerId,
    Documented,
    InternalAccountId,
    Name,
    PageQuery,
    Request,
    Response,
    Time,
)

MAX_FUND: Final = 100_000_000_000
"""The largest amount of one sandbox deposit."""

AccountType = Literal["INTERNAL_FIAT", "INTERNAL_CRYPTO", "EMBEDDED_WALLET"]
AccountStatus = Literal["PENDING", "ACTIVE", "CLOSED", "FROZEN", "FAILED"]


class FundRequest(Request):
    """A deposit that the sandbox creates.

    `occurredAt` is when the money arrived, by which its business day is found; absent: now.
    `externalReference` is the reference of the payment outside of the ledger.
    """

    amount: Annotated[int, Field(strict=True, gt=0, le=MAX_FUND)]
    occurred_at: Time | None = None
    external_reference: Name | None = None


class InternalAccountCreate(Request):
    """A further account of a customer, in one of the platform's currencies."""

    customer_id: CustomerId
    currency: Currency


class InternalAccountsQuery(PageQuery):
    """Filters of the list of internal accounts."""

    currency: Currency | None = None
    customer_id: CustomerId | None = None
    type: AccountType | None = None


class PlatformAccountsQuery(Request):
    """Filters of the list of the platform's own accounts."""

    currency: Currency | None = None
    type: AccountType | None = None


class FundingInstructions(Response):
    """A way to fund an account from outside, as the connected rail describes it."""

    model_config = ConfigDict(extra="allow")


class InternalAccountResource(Response):
    """An internal account.

    `balance` is available for spending. `totalBalance` also includes pulls that are not confirmed
    yet. `heldAmount` is reserved for clearings to come; `owedAmount` is due for clearings that the
    account could not cover. `sequence` is the number of ledger entries of the account, the same
    number as in its `INTERNAL_ACCOUNT.BALANCE_UPDATED` webhooks. Without a `customerId` it is the
    platform's own.
    """

    id: InternalAccountId
    customer_id: CustomerId | None = None
    type: Annotated[str, Documented(AccountType)]
    status: Annotated[str, Documented(AccountStatus)]
    balance: CurrencyAmount
    total_balance: CurrencyAmount
    held_amount: CurrencyAmount
    owed_amount: CurrencyAmount
    funding_payment_instructions: Annotated[
        list[dict[str, Any]], Documented(list[FundingInstructions])
    ]
    sequence: int
    created_at: Time
    updated_at: Time


class PlatformAccounts(Response):
    """The platform's own internal accounts, all of them."""

    data: list[InternalAccountResource]
