"""Deleting a customer: its agents lose access, its accounts are closed, its records are kept."""

from datetime import datetime
from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.agents import registry as agents
from cardledger.ledger.core.payments.payment import Kind, RefundStatus
from cardledger.ledger.customers import registry
from cardledger.ledger.customers.authentication import state
from cardledger.ledger.customers.documents import registry as documents
from cardledger.ledger.customers.documents.registry import Erased
from cardledger.ledger.customers.registry import locked
from cardledger.ledger.messaging import outbox
from cardledger.ledger.projections import accounts, transfers
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import public_id
from cardledger.schema.wire.customers.customers import CustomerResource
from cardledger.schema.wire.webhooks.envelope import WebhookType

_UNDER_WAY: Final = (transfers.PENDING, transfers.PROCESSING)


class CustomerInUseError(Exception):
    """The customer cannot be deleted while it has what `reason` names."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason: Final = reason


async def delete(
    connection: AsyncConnection, *, platform_id: Id, customer_id: Id, at: datetime
) -> tuple[CustomerResource | None, Erased]:
    """Delete a customer and its agents, and close its accounts; entries and events are kept.

    Documents that no verification relies on are deleted, the others when their time is over. Their
    files are to be removed after the commit.

    None when the platform has no such customer.
    Raises: CustomerDeletedError; CustomerInUseError while it has an open card, a payment under way,
    or money.
    """
    before = await locked(connection, platform_id, customer_id)
    if before is None:
        return None, Erased()
    # Before the accounts: a transfer of an agent locks the agent before the accounts, too.
    await agents.delete_of_customer(connection, customer_id=customer_id, at=at)
    await _check_unused(connection, customer_id)
    erased = await documents.remove_of_customer(
        connection, platform_id=platform_id, customer_id=customer_id, at=at
    )
    await _close_accounts(connection, platform_id, customer_id, at)
    await connection.execute(
        tables.customers.update()
        .where(tables.customers.c.id == customer_id)
        .values(is_deleted=True, updated_at=at)
    )
    await state.forget(connection, customer_id=customer_id)
    deleted = await registry.get(connection, platform_id=platform_id, customer_id=customer_id)
    return deleted, erased


async def _close_accounts(
    connection: AsyncConnection, platform_id: Id, customer_id: Id, at: datetime
) -> None:
    columns = tables.internal_accounts.c
    closed = await connection.execute(
        tables.internal_accounts.update()
        .where(columns.customer_id == customer_id, columns.status != accounts.CLOSED)
        .values(status=accounts.CLOSED, updated_at=at)
        .returning(columns.id)
    )
    for (account_id,) in closed.all():
        account = await accounts.get(connection, platform_id=platform_id, account_id=account_id)
        assert account is not None, "an account that was closed just now"
        await connection.execute(
            outbox.insert(
                type=WebhookType.INTERNAL_ACCOUNT_STATUS_UPDATED,
                subject_id=account_id,
                customer_id=customer_id,
                platform_id=platform_id,
                sequence=account.sequence,
                data=account.wire(),
                at=at,
            )
        )


async def _check_unused(connection: AsyncConnection, customer_id: Id) -> None:
    card, account, transfer = tables.cards.c, tables.internal_accounts.c, tables.transfers.c
    # Issuing a card locks the customer as well, so no card can be added now.
    open_card = await connection.scalar(
        select(card.id).where(card.customer_id == customer_id, card.state != "CLOSED").limit(1)
    )
    if open_card is not None:
        message = "The customer has a card that is not CLOSED; close its cards first."
        raise CustomerInUseError("OPEN_CARDS", message)
    # In the order of their ids, as the engine locks accounts.
    rows = await connection.execute(
        select(account.currency, account.balance, account.held, account.owed, account.pending)
        .where(account.customer_id == customer_id)
        .order_by(account.id)
        .with_for_update()
    )
    for row in rows.all():
        if any((row.balance, row.held, row.owed, row.pending)):
            message = (
                f"The customer's {row.currency} account has a balance, or owes an amount; bring it"
                " to zero first, for example with POST /transfer-out."
            )
            raise CustomerInUseError("OPEN_BALANCE", message)
    # After the accounts, whose lock keeps the engine from booking: what failed before is refunded.
    # Of a collection it goes back outside, which needs no account here.
    is_stopped = (transfer.kind == Kind.OUT.value) & (
        transfer.refund_status == RefundStatus.FAILED.value
    )
    payment = await connection.execute(
        select(transfer.id, is_stopped)
        .where(
            transfer.customer_id == customer_id,
            # Or completed, and about to be returned: to an account that would be closed.
            transfer.status.in_(_UNDER_WAY) | transfer.due_at.is_not(None) | is_stopped,
        )
        .limit(1)
    )
    for payment_id, has_stopped in payment.all():
        key = public_id("Transaction", payment_id)
        message = (
            f"The customer has a payment under way, {key}; wait until it has ended, or cancel it."
        )
        if has_stopped:
            message = (
                f"The refund of the customer's payment {key} has failed; delete the customer once"
                " the operator has repeated it."
            )
        raise CustomerInUseError("OPEN_PAYMENTS", message)
