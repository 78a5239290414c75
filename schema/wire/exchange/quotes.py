"""Quotes: what a payment would cost, and the promise to make it at that price."""

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import ConfigDict, Field, StringConstraints, WithJsonSchema

from cardledger.schema.wire.common import (
    STORABLE,
    AnyAccountId,
    AnyAccountReference,
    Currency,
    CurrencyInfo,
    CustomerId,
    Documented,
    LookupId,
    NonNegativeAmount,
    PaymentRail,
    QuoteId,
    Request,
    Response,
    Time,
    TransactionId,
)
from cardledger.schema.wire.customers.authentication import ScaChallengeResource
from cardledger.schema.wire.exchange.rates import MAX_QUOTED, ShownRate
from cardledger.schema.wire.payments.parts import (
    Counterparty,
    Instructions,
    PurposeOfPayment,
    RateDetails,
)
from cardledger.schema.wire.payments.transfers import Remittance
from cardledger.schema.wire.sandbox import CurrencyCode

MAX_INFO_FIELDS: Final = 30
"""The most fields of `senderCustomerInfo`."""

QuoteStatus = Literal[
    "PENDING", "PENDING_AUTHORIZATION", "PROCESSING", "COMPLETED", "FAILED", "EXPIRED"
]
LockedSideName = Literal["SENDING", "RECEIVING"]
CryptoNetwork = Literal[
    "BITCOIN",
    "BITCOIN_LIGHTNING",
    "SPARK",
    "SOLANA_MAINNET",
    "SOLANA_DEVNET",
    "ETHEREUM_MAINNET",
    "BASE_MAINNET",
    "POLYGON_MAINNET",
    "TRON_MAINNET",
]
"""Networks by which a quote can be paid from outside."""

LockedAmount = Annotated[
    int,
    Field(strict=True),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_QUOTED, "examples": [10_000]}),
]
"""Minor units, from 1 to 9,000,000,000,000,000: `AMOUNT_OUT_OF_RANGE` otherwise."""

UmaAddress = Annotated[
    str,
    StringConstraints(strict=True, min_length=4, max_length=320),
    STORABLE,
    Field(examples=["$success.usd@sandbox.uma.money"]),
]
"""A UMA address, `$name@domain`."""

InfoName = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=64), STORABLE]
InfoText = Annotated[str, StringConstraints(strict=True, max_length=500), STORABLE]
Memo = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=500), STORABLE]
BasisPoints = Annotated[int, Field(strict=True, ge=0, le=10_000)]

# --- requests ----------------------------------------------------------------------------------


class QuoteAccountSource(Request):
    """The internal account that pays; `customerId`, if sent, must be its owner."""

    source_type: Literal["ACCOUNT"]
    account_id: AnyAccountId
    customer_id: CustomerId | None = None


class QuoteRealtimeFundingSource(Request):
    """Money that is sent from outside by the payment instructions of the quote.

    For the customer `customerId`, or for the platform itself. A crypto currency needs its network.
    """

    source_type: Literal["REALTIME_FUNDING"]
    currency: Currency
    customer_id: CustomerId | None = None
    crypto_network: CryptoNetwork | None = None


class QuoteAccountDestination(Request):
    """The account that is paid; `paymentRail` is for external accounts."""

    destination_type: Literal["ACCOUNT"]
    account_id: AnyAccountId
    payment_rail: PaymentRail | None = None


class QuoteUmaDestination(Request):
    """The UMA address that is paid, in `currency` if it takes several."""

    destination_type: Literal["UMA_ADDRESS"]
    uma_address: UmaAddress
    currency: Currency | None = None


class FixedFeeOverride(Request):
    """A fixed fee, in the currency that is sent."""

    amount: NonNegativeAmount
    currency: CurrencyCode


class PlatformFeeOverride(Request):
    """The platform's fee for this quote, instead of `feeConfigs`."""

    platform_fixed_fee: FixedFeeOverride
    platform_variable_fee_bps: BasisPoints


class SenderCustomerInfo(Request):
    """What the receiver's institution wants to know of the sender, by the names of its fields."""

    model_config = ConfigDict(extra="allow")


class QuoteCreate(Request):
    """A payment that is to be quoted: from a source to a destination, with one amount locked.

    SENDING locks what is sent, fees included; RECEIVING what arrives. `lookupId` is that of the
    receiver's look-up, required for a UMA address.
    """

    source: Annotated[
        QuoteAccountSource | QuoteRealtimeFundingSource, Field(discriminator="source_type")
    ]
    destination: Annotated[
        QuoteAccountDestination | QuoteUmaDestination, Field(discriminator="destination_type")
    ]
    locked_currency_side: LockedSideName
    locked_currency_amount: LockedAmount
    lookup_id: LookupId | None = None
    immediately_execute: Annotated[bool, Field(strict=True)] = False
    description: Memo | None = None
    remittance_information: Remittance | None = None
    purpose_of_payment: PurposeOfPayment | None = None
    platform_fee_override: PlatformFeeOverride | None = None
    sca_factor: Literal["SMS_OTP", "PASSKEY"] | None = None
    sender_customer_info: Annotated[
        Annotated[dict[InfoName, InfoText], Field(max_length=MAX_INFO_FIELDS)] | None,
        Documented(SenderCustomerInfo),
    ] = None


class SandboxSend(Request):
    """The payment of a quote from outside; without `currencyAmount` exactly what it needs."""

    quote_id: QuoteId
    currency_code: Currency
    currency_amount: Annotated[int, Field(strict=True, gt=0, le=MAX_QUOTED)] | None = None


class SandboxUmaReceive(Request):
    """A payment from a UMA address elsewhere; the receiver by its address, or by its id.

    `receivingCurrencyAmount` is in minor units of `receivingCurrencyCode`.
    """

    sender_uma_address: UmaAddress
    receiving_currency_code: Currency
    receiving_currency_amount: Annotated[int, Field(strict=True, gt=0, le=MAX_QUOTED)]
    receiver_uma_address: UmaAddress | None = None
    customer_id: CustomerId | None = None


# --- responses ---------------------------------------------------------------------------------


class QuoteAccountSourceResource(Response):
    """The internal account that pays."""

    source_type: Literal["ACCOUNT"] = "ACCOUNT"
    account_id: AnyAccountReference
    customer_id: CustomerId | None = None


class QuoteRealtimeFundingSourceResource(Response):
    """Money that is sent from outside by the payment instructions of the quote."""

    source_type: Literal["REALTIME_FUNDING"] = "REALTIME_FUNDING"
    currency: str
    customer_id: CustomerId | None = None
    crypto_network: Annotated[str, Documented(CryptoNetwork)] | None = None


class QuoteAccountDestinationResource(Response):
    """The account that is paid."""

    destination_type: Literal["ACCOUNT"] = "ACCOUNT"
    account_id: AnyAccountReference
    payment_rail: Annotated[str, Documented(PaymentRail)] | None = None


class QuoteUmaDestinationResource(Response):
    """The UMA address that is paid."""

    destination_type: Literal["UMA_ADDRESS"] = "UMA_ADDRESS"
    uma_address: Annotated[str, Field(examples=["$success.usd@sandbox.uma.money"])]
    currency: str | None = None


QuoteSource: TypeAlias = Annotated[
    QuoteAccountSourceResource | QuoteRealtimeFundingSourceResource,
    Field(discriminator="source_type"),
]
QuoteDestination: TypeAlias = Annotated[
    QuoteAccountDestinationResource | QuoteUmaDestinationResource,
    Field(discriminator="destination_type"),
]


class QuoteResource(Response):
    """A quote: what is sent, what arrives, and until when.

    `totalReceivingAmount` is (`totalSendingAmount` - `feesIncluded`) / `exchangeRate`, rounded
    down; `exchangeRate` is minor units sent for one minor unit received. After its execution the
    status of a quote is that of its transaction, whose id it has from the beginning.
    """

    id: QuoteId
    status: Annotated[str, Documented(QuoteStatus)]
    created_at: Time
    expires_at: Time
    source: QuoteSource
    destination: QuoteDestination
    sending_currency: CurrencyInfo
    receiving_currency: CurrencyInfo
    total_sending_amount: int
    total_receiving_amount: int
    exchange_rate: ShownRate
    fees_included: int
    platform_fees_included: int
    payment_instructions: Instructions | None = None
    transaction_id: TransactionId
    counterparty_information: Counterparty | None = None
    rate_details: RateDetails
    sca_challenge: ScaChallengeResource | None = None
