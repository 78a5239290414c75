"""Challenges of quotes: whether the customer has to authorize one, and the code that is sent."""

from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.http.request_context import RequestContext
from cardledger.ledger.customers.authentication import payments
from cardledger.ledger.customers.authentication.passkeys import RelyingParty
from cardledger.ledger.customers.authentication.payments import PaymentPurpose
from cardledger.ledger.customers.authentication.refusals import Refused
from cardledger.ledger.ports import CodeSender
from cardledger.ledger.quotes.records import Quote
from cardledger.schema.wire.common import public_id
from cardledger.schema.wire.customers.authentication import ScaChallengeResource


def subject_of(quote: Quote) -> str:
    """Return what a challenge for `quote` is linked to."""
    return public_id("Quote", quote.id)


async def sender_for(
    call: RequestContext, connection: AsyncConnection, quote: Quote
) -> CodeSender | None:
    """Return who sends the code by which the customer authorizes `quote`; None: none is needed.

    A conversion between two accounts of the customer needs none: the money stays its own.
    """
    sender = call.code_sender
    if quote.is_of_platform or quote.is_own:
        return None
    is_required = await payments.is_required(
        connection,
        platform_id=call.platform_id,
        customer_id=quote.customer_id,
        external_account_id=quote.destination_account_id if quote.is_external else None,
        sender=sender,
    )
    return sender if is_required else None


async def send(
    call: RequestContext,
    connection: AsyncConnection,
    quote: Quote,
    sender: CodeSender,
    *,
    party: RelyingParty | None = None,
) -> ScaChallengeResource | Refused:
    """Send the code for `quote`; it replaces an earlier one.

    With `party`, a passkey may answer as well, and earlier options to use it count no more.
    """
    purpose: PaymentPurpose = "PAYOUT" if quote.is_external else "TRANSFER"
    return await payments.challenge(
        connection,
        platform_id=call.platform_id,
        customer_id=quote.customer_id,
        subject=subject_of(quote),
        purpose=purpose,
        keys=call.keys,
        sender=sender,
        party=party,
        at=call.now(),
    )


async def open_for(
    call: RequestContext, connection: AsyncConnection, quote: Quote
) -> ScaChallengeResource | None:
    """Return the open challenge for `quote`; None: there is none."""
    return await payments.open_challenge(
        connection,
        platform_id=call.platform_id,
        customer_id=quote.customer_id,
        subject=subject_of(quote),
        at=call.now(),
    )
