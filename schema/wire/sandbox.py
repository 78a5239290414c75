"""What the sandbox is asked to simulate."""

from typing import Annotated

from pydantic import Field

from schema.wire.common import Amount, CardTransactionId, Currency, Merchant, Name, Request


class CurrencyCode(Request):
    """A currency as requests name it: the code counts, the rest may be echoed."""

    code: Currency
    name: Name | None = None
    symbol: Annotated[str, Field(strict=True, max_length=16)] | None = None
    decimals: Annotated[int, Field(strict=True, ge=0, le=18)] | None = None


class SimulateAuthorization(Request):
    """The network asks whether `amount` may be spent at `merchant`.

    The last three characters of `merchant.descriptor` may ask for a refusal.
    """

    amount: Amount
    currency: CurrencyCode
    merchant: Merchant


class SimulateClearing(Request):
    """The network has moved `amount`; `final` says that no further clearing follows."""

    card_transaction_id: CardTransactionId
    amount: Amount
    final: Annotated[bool, Field(strict=True)] | None = None
