"""The execution of quotes: once, before they expire."""

from dataclasses import dataclass
from datetime import datetime

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.messaging import signed_terms
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.messaging.inbox_key import InboxKey, Signed
from cardledger.ledger.payments import parties, requests
from cardledger.ledger.projections.transfers import Transfer
from cardledger.ledger.quotes import records
from cardledger.ledger.quotes.records import EXECUTED, PENDING, PENDING_AUTHORIZATION, Quote
from cardledger.ledger.quotes.refusals import QuoteRefusedError, Refusal
from cardledger.ledger.storage.engines import driver_async
from cardledger.schema.wire.common import format_amount

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """The payment of an executed quote, and the message that the engine decides."""

    transfer: Transfer
    message: Message


async def execute(
    connection: AsyncConnection,
    quote: Quote,
    *,
    inbox_key: InboxKey,
    reply_to: str | None,
    at: datetime,
) -> Execution:
    """Execute `quote`, which is locked: once the caller commits, its source is debited.

    Raises: QuoteRefusedError; nothing has been written.
    """
    transfer = await payment(connection, quote, inbox_key=inbox_key, at=at)
    message = await requests.submit(
        connection, transfer, inbox_key=inbox_key, reply_to=reply_to, at=at
    )
    await connection.execute(records.set_status(quote, EXECUTED, at=at))
    return Execution(transfer=transfer, message=message)


async def payment(
    connection: AsyncConnection, quote: Quote, *, inbox_key: InboxKey, at: datetime
) -> Transfer:
    """Return the payment of `quote`, which is locked and can be executed, not recorded.

    Raises: QuoteRefusedError.
    """
    _check_state(quote, at=at)
    await _check_mac(connection, quote, inbox_key)
    source = await parties.internal(
        connection, platform_id=quote.platform_id, account_id=quote.source_account_id
    )
    assert source is not None, "accounts are never deleted"
    if not quote.is_funded and quote.agent_id is None and quote.sending_amount > source.spendable:
        available = format_amount(source.spendable, source.currency)
        needed = format_amount(quote.sending_amount, source.currency)
        message = (
            f"The source can spend {available}, and the quote needs {needed}; add funds, or create"
            " another quote."
        )
        raise QuoteRefusedError(Refusal.FUNDS, message, reason="INSUFFICIENT_FUNDS")
    made = records.payment_of(
        quote,
        platform_customer_id=source.platform_customer_id,
        own_uma_address=source.uma_address,
        at=at,
    )
    # A platform deletes the account of a payee because it must not be paid any more.
    if not await parties.is_external_side_active(connection, made):
        message = "The destination was deleted or is not ACTIVE any more; create another quote."
        raise QuoteRefusedError(Refusal.STATE, message, reason="ACCOUNT_NOT_ACTIVE")
    return made


def _check_state(quote: Quote, *, at: datetime) -> None:
    """Raise QuoteRefusedError unless `quote` can be executed."""
    if quote.is_expired(at):
        message = "The quote has expired; create another one."
        raise QuoteRefusedError(Refusal.STATE, message, reason="QUOTE_EXPIRED")
    if quote.status == PENDING_AUTHORIZATION:
        message = "The customer has to authorize the quote first; see its scaChallenge."
        raise QuoteRefusedError(Refusal.STATE, message, reason="PENDING_AUTHORIZATION")
    if quote.status != PENDING:
        message = "The quote is already executed; see its transaction."
        raise QuoteRefusedError(Refusal.STATE, message, reason="QUOTE_ALREADY_EXECUTED")


async def _check_mac(connection: AsyncConnection, quote: Quote, key: InboxKey) -> None:
    """Raise QuoteRefusedError unless a process of this installation has made `quote`."""
    driver = await driver_async(connection)
    if not await signed_terms.is_signed(driver, quote, Signed.QUOTE, key):
        _log.error("forged quote refused", quote_id=str(quote.id))
        message = "The quote was not made by this installation; create another one."
        raise QuoteRefusedError(Refusal.STATE, message, reason="QUOTE_NOT_SIGNED")
