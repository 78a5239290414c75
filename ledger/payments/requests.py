"""Requests of payments: each is a row, a webhook and a message, committed by the caller together.

The engine decides the message; the caller may wait for its outcome. What can be refused before
(balance, currency, status of accounts) is checked by callers: here nothing is refused.
"""

from dataclasses import replace
from datetime import datetime
from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.core.payments.transfer import FailureReason
from cardledger.ledger.messaging import inbox, outbox, signed_terms
from cardledger.ledger.messaging.inbox import Message, Owner
from cardledger.ledger.messaging.inbox_key import InboxKey, Signed
from cardledger.ledger.payments import messages
from cardledger.ledger.payments.messages import Arrival, Decision, RailOutcome
from cardledger.ledger.projections import accounts, payment_resources, transfers
from cardledger.ledger.projections.transfers import Transfer
from cardledger.ledger.storage.engines import driver_async
from cardledger.schema import tables
from cardledger.schema.wire.customers import external_accounts

_SHOWN_DIGITS: Final = 4


async def submit(
    connection: AsyncConnection,
    transfer: Transfer,
    *,
    inbox_key: InboxKey,
    reply_to: str | None,
    at: datetime,
) -> Message:
    """Record `transfer`, which is new, and send it to the engine."""
    drafted = _signed(await prepared(connection, transfer, at), inbox_key)
    recorded = sent(drafted, at=at)
    await connection.execute(transfers.insert(recorded))
    await _announce(connection, recorded, at)
    return await _accept(connection, messages.execution(recorded, reply_to, at), inbox_key)


async def hold(
    connection: AsyncConnection, transfer: Transfer, *, inbox_key: InboxKey, at: datetime
) -> None:
    """Record `transfer`, which is new and waits for an approval of the platform before `send`."""
    drafted = _signed(await prepared(connection, transfer, at), inbox_key)
    await connection.execute(transfers.insert(drafted))
    await _announce(connection, transfer, at)


async def is_signed(connection: AsyncConnection, transfer: Transfer, key: InboxKey) -> bool:
    """Return whether `hold` has recorded `transfer` as it is."""
    driver = await driver_async(connection)
    return await signed_terms.is_signed(driver, transfer, Signed.PAYMENT, key)


def _signed(transfer: Transfer, key: InboxKey) -> Transfer:
    return replace(transfer, mac=key.mac_of_terms(Signed.PAYMENT, transfer.signed_terms))


def sent(transfer: Transfer, *, at: datetime) -> Transfer:
    """Return `transfer` as it is once it was sent to the engine."""
    return transfer.processing(at=at) if transfer.is_internal else transfer.requested(at=at)


async def send(
    connection: AsyncConnection,
    transfer: Transfer,
    *,
    inbox_key: InboxKey,
    reply_to: str | None,
    at: datetime,
) -> Message:
    """Send `transfer`, whose row is locked, signed and waits for this, to the engine."""
    recorded = sent(transfer, at=at)
    await connection.execute(transfers.decide(recorded))
    if transfer.is_internal:
        await _announce(connection, recorded, at)
    return await _accept(connection, messages.execution(recorded, reply_to, at), inbox_key)


async def cancel(
    connection: AsyncConnection,
    transfer: Transfer,
    *,
    inbox_key: InboxKey,
    reply_to: str | None,
    at: datetime,
) -> Message:
    """Ask the engine to cancel `transfer`; it declines when the payment was handed over."""
    return await _accept(connection, messages.cancellation(transfer, reply_to, at), inbox_key)


async def decide_incoming(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    transfer: Transfer,
    *,
    decision: Decision,
    reason: str | None,
    inbox_key: InboxKey,
    reply_to: str | None,
    at: datetime,
) -> Message:
    """Approve, reject or fail `transfer`, which has arrived; the engine declines a second time."""
    owner = Owner(transfer.customer_id, transfer.platform_id)
    message = messages.approval(
        transfer.id, owner, decision, reason=reason, reply_to=reply_to, at=at
    )
    return await _accept(connection, message, inbox_key)


async def receive(
    connection: AsyncConnection,
    wanted: Arrival,
    *,
    inbox_key: InboxKey,
    reply_to: str | None,
    at: datetime,
) -> Message:
    """Let money arrive from outside; the engine makes the row of the payment."""
    return await _accept(connection, messages.arrival(wanted, reply_to, at), inbox_key)


async def answer(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    transfer: Transfer,
    *,
    outcome: RailOutcome,
    reason: FailureReason | None,
    inbox_key: InboxKey,
    at: datetime,
) -> Message:
    """Tell the engine what a rail has done with `transfer`."""
    message = messages.rail_answer(transfer, outcome, reason, at=at)
    return await _accept(connection, message, inbox_key)


async def prepared(connection: AsyncConnection, transfer: Transfer, at: datetime) -> Transfer:
    """Return `transfer`, a payment, with what its rail decides by; open the account for its fee."""
    if transfer.fee_amount:
        await accounts.open_platform_accounts(
            connection, platform_id=transfer.platform_id, currencies=[transfer.currency], at=at
        )
    external_id = transfer.external_account_id
    if external_id is None:
        return transfer
    account = tables.external_accounts.c
    rows = await connection.execute(
        select(account.account_type, account.account_info).where(
            account.id == external_id, account.platform_id == transfer.platform_id
        )
    )
    row = rows.one()
    identifier = external_accounts.identifier_in(row.account_type, row.account_info)
    # Of an address like an e-mail's, the part before the @.
    return replace(transfer, account_ending=identifier.partition("@")[0][-_SHOWN_DIGITS:])


async def _announce(connection: AsyncConnection, transfer: Transfer, at: datetime) -> None:
    # The platform does not approve what it pulls: that a pull is PENDING is not announced.
    if transfer.is_incoming:
        return
    await connection.execute(
        outbox.insert(
            type=payment_resources.webhook_type(transfer),
            subject_id=transfer.id,
            customer_id=transfer.customer_id,
            platform_id=transfer.platform_id,
            data=payment_resources.resource(transfer).wire(),
            at=at,
        )
    )


async def _accept(connection: AsyncConnection, message: Message, key: InboxKey) -> Message:
    await inbox.accept_async(await driver_async(connection), [message], key)
    return message
