"""Requests for transfers within one currency, and the estimate of a withdrawal's fee."""

from typing import Annotated, Final

from pydantic import Field, StringConstraints

from cardledger.schema.wire.common import (
    STORABLE,
    AnyAccountId,
    Currency,
    InternalAccountId,
    Name,
    PaymentRail,
    Request,
    Response,
)
from cardledger.schema.wire.payments.parts import Network, PurposeOfPayment

MAX_REMITTANCE_LENGTH: Final = 80

Remittance = Annotated[
    str,
    StringConstraints(strict=True, min_length=1, max_length=MAX_REMITTANCE_LENGTH),
    STORABLE,
]

RequestedAmount = Annotated[int, Field(strict=True)]
"""Minor units, from 1 to 2^63 - 1: `INVALID_AMOUNT` otherwise, also when it is missing."""


class TransferSource(Request):
    """The account that is debited."""

    account_id: AnyAccountId


class TransferDestination(Request):
    """The account that is credited; `paymentRail` is for external accounts."""

    account_id: AnyAccountId
    payment_rail: PaymentRail | None = None


class TransferInDestination(Request):
    """The internal account that is credited."""

    account_id: AnyAccountId


class TransferInCreate(Request):
    """A collection from an external account; `amount` is required and in minor units."""

    source: TransferSource
    destination: TransferInDestination
    amount: RequestedAmount | None = None


class TransferOutCreate(Request):
    """A transfer to an external account or to an internal one.

    `amount` is required and in minor units. Without a `paymentRail` the fastest one is chosen that
    the account has and that takes the amount.
    """

    source: TransferSource
    destination: TransferDestination
    amount: RequestedAmount | None = None
    remittance_information: Remittance | None = None
    purpose_of_payment: PurposeOfPayment | None = None


class WithdrawalFeeRequest(Request):
    """A withdrawal of a crypto currency to an address, whose fee is to be estimated."""

    internal_account_id: InternalAccountId
    currency: Currency
    crypto_network: Network
    amount: RequestedAmount
    destination_address: Name


class WithdrawalFee(Response):
    """The estimate of the fee of a withdrawal.

    `networkFee` is in minor units of `networkFeeAsset`. `applicationFee`, `totalFee` (both fees)
    and `netAmount` (what arrives) are in minor units of the currency of the withdrawal.
    """

    network_fee: int
    network_fee_asset: str
    application_fee: int
    total_fee: int
    net_amount: int
