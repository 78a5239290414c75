"""Look-ups of receivers: which currencies they take, and what they want to know."""

from typing import Annotated

from pydantic import Field

from cardledger.schema.wire.common import (
    CurrencyInfo,
    CustomerId,
    ExternalAccountId,
    LookupId,
    Request,
    Response,
)
from cardledger.schema.wire.exchange.quotes import UmaAddress
from cardledger.schema.wire.exchange.rates import ShownRate
from cardledger.schema.wire.payments.counterparties import RequiredField


class ReceiverQuery(Request):
    """Who wants to pay: a UMA address, or a customer."""

    sender_uma_address: UmaAddress | None = None
    customer_id: CustomerId | None = None


class ReceiverCurrency(Response):
    """A currency that the receiver takes; amounts in its minor units.

    `estimatedExchangeRate` is minor units of the sender's currency for one of this one.
    """

    currency: CurrencyInfo
    estimated_exchange_rate: ShownRate
    min: int
    max: int


class ReceiverLookup(Response):
    """What a receiver takes; `lookupId` goes into a quote within five minutes."""

    lookup_id: LookupId
    supported_currencies: list[ReceiverCurrency]
    required_payer_data_fields: list[RequiredField]


class UmaReceiverLookup(ReceiverLookup):
    """What the owner of a UMA address takes."""

    receiver_uma_address: Annotated[str, Field(examples=["$success.usd@sandbox.uma.money"])]


class ExternalAccountReceiverLookup(ReceiverLookup):
    """What an external account takes: its currency."""

    account_id: ExternalAccountId
