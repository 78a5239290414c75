"""The parts of a payment: where its money comes from and goes to, its rates, fees and refund."""

from decimal import Decimal
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import ConfigDict, Field, PlainSerializer, WithJsonSchema

from cardledger.schema.wire.common import (
    AnyAccountReference,
    CustomerId,
    Documented,
    PaymentRail,
    Response,
    Time,
)

PurposeOfPayment = Literal[
    "GIFT",
    "SELF",
    "GOODS_OR_SERVICES",
    "EDUCATION",
    "HEALTH_OR_MEDICAL",
    "REAL_ESTATE_PURCHASE",
    "TAX_PAYMENT",
    "LOAN_PAYMENT",
    "UTILITY_BILL",
    "DONATION",
    "TRAVEL",
    "FAMILY_SUPPORT",
    "SALARY_PAYMENT",
    "OTHER",
]

OutgoingStatus = Literal[
    "PENDING", "PENDING_AUTHORIZATION", "PROCESSING", "COMPLETED", "FAILED", "EXPIRED"
]
IncomingStatus = Literal["PENDING", "PROCESSING", "COMPLETED", "FAILED", "REJECTED"]

FailureReason = Literal[
    # Of the ledger.
    "ACCOUNT_INVALID",
    "ACCOUNT_CANNOT_RECEIVE",
    "INSUFFICIENT_FUNDS",
    "INTERNAL_ERROR",
    # Of the platform and its policies.
    "LIMIT_EXCEEDED",
    "AGENT_NOT_ALLOWED",
    "REJECTED_BY_PLATFORM",
    "CANCELLED",
    # Of the rail and of the counterparty.
    "REJECTED_BY_BANK",
    "COLLECTION_FAILED",
    "PAYOUT_RETURNED",
    "COUNTERPARTY_POST_TX_FAILED",
    "COMPLIANCE_REJECTED",
    # Of a quote.
    "QUOTE_EXECUTION_FAILED",
    "QUOTE_EXPIRED",
    # Of the platform that was asked for its approval.
    "PAYMENT_APPROVAL_WEBHOOK_ERROR",
    "PAYMENT_APPROVAL_TIMED_OUT",
    "MISSING_MANDATORY_PAYEE_DATA",
]

RefundStatus = Literal["PENDING", "COMPLETED", "FAILED"]
RefundReason = Literal["TRANSACTION_FAILED", "USER_CANCELLATION", "TIMEOUT"]
RailSelectionMode = Literal["AUTO", "MANUAL"]
Network = Literal["BITCOIN", "ETHEREUM", "SOLANA", "BASE", "POLYGON", "TRON", "SPARK"]

Ratio = Annotated[
    Decimal,
    PlainSerializer(float, return_type=float, when_used="json"),
    WithJsonSchema({"type": "number", "examples": [1.0875]}),
]
"""An exact decimal; a number in JSON, to be shown and not to be calculated with."""


class OnChainTransaction(Response):
    """The transaction on a blockchain that moved the money."""

    transaction_hash: str
    network: Annotated[str, Documented(Network)]


class AccountSource(Response):
    """The account that is debited: an internal account, or the external account that pays in."""

    source_type: Literal["ACCOUNT"] = "ACCOUNT"
    account_id: AnyAccountReference
    currency: str | None = None


class UmaSource(Response):
    """The UMA address that sends the money."""

    source_type: Literal["UMA_ADDRESS"] = "UMA_ADDRESS"
    uma_address: str
    currency: str | None = None


class RealtimeFundingSource(Response):
    """Money that arrives from outside the service as the payment is made."""

    source_type: Literal["REALTIME_FUNDING"] = "REALTIME_FUNDING"
    currency: str
    customer_id: CustomerId | None = None
    account_holder_name: str | None = None
    account_identifier: str | None = None
    bank_name: str | None = None
    bank_identifier: str | None = None
    payment_rail: Annotated[str, Documented(PaymentRail)] | None = None
    remittance_information: str | None = None
    end_to_end_id: str | None = None
    trace_number: str | None = None
    on_chain_transaction: OnChainTransaction | None = None


class AccountDestination(Response):
    """The account that is credited: an internal account, or the external account to be paid."""

    destination_type: Literal["ACCOUNT"] = "ACCOUNT"
    account_id: AnyAccountReference
    currency: str | None = None
    on_chain_transaction: OnChainTransaction | None = None


class UmaDestination(Response):
    """The UMA address that receives the money."""

    destination_type: Literal["UMA_ADDRESS"] = "UMA_ADDRESS"
    uma_address: str
    currency: str | None = None


PaymentSource: TypeAlias = Annotated[
    AccountSource | UmaSource | RealtimeFundingSource, Field(discriminator="source_type")
]
"""Where the money of a payment comes from."""

PaymentDestination: TypeAlias = Annotated[
    AccountDestination | UmaDestination, Field(discriminator="destination_type")
]
"""Where the money of a payment goes."""


class Refund(Response):
    """The refund of a payment that failed after its amount was debited.

    `reference` identifies the refund; `settledAt` is when the money was back.
    """

    reference: str
    status: Annotated[str, Documented(RefundStatus)]
    reason: Annotated[str, Documented(RefundReason)] | None = None
    initiated_at: Time
    settled_at: Time | None = None


class RateDetails(Response):
    """How an exchange rate and the fees of a payment were made up.

    Multipliers are factors of the amount; fees are minor units of the sending currency.
    """

    counterparty_multiplier: Ratio
    counterparty_fixed_fee: int
    grid_api_multiplier: Ratio
    grid_api_fixed_fee: int
    grid_api_variable_fee_rate: Ratio
    grid_api_variable_fee_amount: int


class ReconciliationInstructions(Response):
    """How to match an incoming payment with the sender's own records."""

    reference: str | None = None


class RequestedField(Response):
    """A detail of the receiver that the sender of a payment requests."""

    name: str
    mandatory: bool


class Counterparty(Response):
    """What is known of the counterparty, by the names of its fields."""

    model_config = ConfigDict(extra="allow")


class PaymentInstructions(Response):
    """A way to pay a quote from outside, as the connected rail describes it."""

    model_config = ConfigDict(extra="allow")


Instructions = Annotated[list[dict[str, Any]], Documented(list[PaymentInstructions])]
"""Ways to pay from outside."""
