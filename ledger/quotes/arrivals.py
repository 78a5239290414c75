"""Payments that arrive at the UMA address of a customer from an institution elsewhere."""

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Row, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.messaging.inbox import Owner
from cardledger.ledger.payments.messages import Arrival
from cardledger.ledger.ports import UmaReceiver
from cardledger.ledger.projections import accounts
from cardledger.ledger.quotes.refusals import QuoteRefusedError, Refusal
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import tables
from cardledger.schema.ids import Id

_CUSTOMER: Final = tables.customers.c
_ACCOUNT: Final = tables.internal_accounts.c


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A payment that arrives; `amount` in minor units of `currency`.

    The receiver is a customer of the platform, by its id or its UMA address: one of them is given.
    """

    sender: UmaReceiver
    customer_id: Id | None
    address: str | None
    amount: int
    currency: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """A customer to whom a payment can arrive, and the account that it goes to."""

    customer_id: Id
    account_id: Id
    uma_address: str | None


async def draft(connection: AsyncConnection, *, platform_id: Id, wanted: Wanted) -> Arrival | None:
    """Return the payment that arrives, which the platform has to approve; None: no such customer.

    It goes to the customer's oldest account in its currency.
    Raises: QuoteRefusedError.
    """
    found = await receiver(
        connection,
        platform_id=platform_id,
        customer_id=wanted.customer_id,
        address=wanted.address,
        currency=wanted.currency,
    )
    if found is None:
        return None
    mandatory = [name for name, is_needed in wanted.sender.required_fields.items() if is_needed]
    return Arrival(
        id=new_id(),
        owner=Owner(found.customer_id, platform_id),
        account_id=found.account_id,
        amount=wanted.amount,
        currency=wanted.currency,
        needs_approval=True,
        uma_address=wanted.sender.address,
        own_uma_address=found.uma_address,
        counterparty_information=(
            None if wanted.sender.name is None else {"FULL_NAME": wanted.sender.name}
        ),
        requested_fields=mandatory or None,
    )


async def receiver(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    customer_id: Id | None,
    address: str | None,
    currency: str,
) -> Receiver | None:
    """Return who receives a payment in `currency`, and on which account; None: no such customer.

    The customer is one of the platform, by its id or its UMA address: one of them is given.
    Raises: QuoteRefusedError.
    """
    customer = await _customer(connection, platform_id, customer_id, address)
    if customer is None:
        return None
    if customer.kyc_status != "APPROVED":
        message = (
            "The customer's identity is not approved; it needs kycStatus or kybStatus APPROVED."
        )
        raise QuoteRefusedError(Refusal.NOT_READY, message)
    account_id: Id | None = await connection.scalar(
        select(_ACCOUNT.id)
        .where(
            _ACCOUNT.customer_id == customer.id,
            _ACCOUNT.platform_id == platform_id,
            _ACCOUNT.currency == currency,
            _ACCOUNT.status == accounts.ACTIVE,
        )
        .order_by(_ACCOUNT.created_at, _ACCOUNT.id)
        .limit(1)
    )
    if account_id is None:
        message = f"is not a currency in which the customer has an ACTIVE account: {currency}"
        raise QuoteRefusedError(Refusal.CURRENCY, message, field="receivingCurrencyCode")
    return Receiver(
        customer_id=customer.id, account_id=account_id, uma_address=customer.uma_address
    )


async def _customer(
    connection: AsyncConnection, platform_id: Id, customer_id: Id | None, address: str | None
) -> Row[*tuple[Any, ...]] | None:
    named = _CUSTOMER.uma_address == address if customer_id is None else _CUSTOMER.id == customer_id
    rows = await connection.execute(
        select(_CUSTOMER.id, _CUSTOMER.uma_address, _CUSTOMER.kyc_status).where(
            named, _CUSTOMER.platform_id == platform_id, ~_CUSTOMER.is_deleted
        )
    )
    return rows.one_or_none()
