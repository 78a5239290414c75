"""Quotes as resources of the API."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from cardledger.ledger.core.payments.conversion import BASIS_POINTS
from cardledger.ledger.quotes.records import (
    EXECUTED,
    EXPIRED,
    PENDING,
    Quote,
    Shown,
)
from cardledger.schema.wire.common import CURRENCIES, public_id
from cardledger.schema.wire.customers.authentication import ScaChallengeResource
from cardledger.schema.wire.exchange.quotes import (
    QuoteAccountDestinationResource,
    QuoteAccountSourceResource,
    QuoteRealtimeFundingSourceResource,
    QuoteResource,
    QuoteUmaDestinationResource,
)
from cardledger.schema.wire.payments.parts import RateDetails

_OPEN_PAYMENTS: Final = ("PENDING", "PROCESSING")


def render(
    shown: Shown,
    ways: Sequence[Mapping[str, Any]] | None,
    *,
    at: datetime,
    challenge: ScaChallengeResource | None = None,
) -> QuoteResource:
    """Return a quote as a resource, as it is `at` a time, with the challenge that it waits for.

    `ways` are those to pay it from outside, which it has while it can be paid.
    """
    quote = shown.quote
    status = status_of(shown, at=at)
    is_payable = quote.is_funded and status == PENDING
    return QuoteResource(
        id=quote.id,
        status=status,
        created_at=quote.created_at,
        expires_at=quote.expires_at,
        source=_source(quote),
        destination=_destination(quote),
        sending_currency=CURRENCIES[quote.sending_currency],
        receiving_currency=CURRENCIES[quote.receiving_currency],
        total_sending_amount=quote.sending_amount,
        total_receiving_amount=quote.receiving_amount,
        exchange_rate=quote.rate.price,
        fees_included=quote.fee_amount,
        platform_fees_included=quote.fee_amount,
        payment_instructions=[dict(way) for way in ways] if is_payable and ways else None,
        transaction_id=quote.transaction_id,
        rate_details=RateDetails(
            counterparty_multiplier=Decimal(1),
            counterparty_fixed_fee=0,
            grid_api_multiplier=quote.rate.price,
            grid_api_fixed_fee=quote.fee_fixed,
            grid_api_variable_fee_rate=Decimal(quote.fee_bps) / BASIS_POINTS,
            grid_api_variable_fee_amount=quote.fee_amount - quote.fee_fixed,
        ),
        sca_challenge=challenge,
    )


def status_of(shown: Shown, *, at: datetime) -> str:
    """Return the status of a quote: after its execution that of its payment."""
    quote = shown.quote
    if quote.is_expired(at):
        return EXPIRED
    if quote.status != EXECUTED:
        return quote.status
    if shown.awaits_approval:
        return PENDING
    if shown.payment_status in _OPEN_PAYMENTS:
        return "PROCESSING"
    return "COMPLETED" if shown.payment_status == "COMPLETED" else "FAILED"


def _source(quote: Quote) -> QuoteAccountSourceResource | QuoteRealtimeFundingSourceResource:
    customer_id = None if quote.is_of_platform else quote.customer_id
    if quote.is_funded:
        return QuoteRealtimeFundingSourceResource(
            currency=quote.sending_currency,
            customer_id=customer_id,
            crypto_network=quote.crypto_network,
        )
    return QuoteAccountSourceResource(
        account_id=public_id("InternalAccount", quote.source_account_id), customer_id=customer_id
    )


def _destination(quote: Quote) -> QuoteAccountDestinationResource | QuoteUmaDestinationResource:
    if quote.uma_address is not None:
        return QuoteUmaDestinationResource(
            uma_address=quote.uma_address, currency=quote.receiving_currency
        )
    assert quote.destination_account_id is not None, "an account, or an address"
    kind = "ExternalAccount" if quote.is_external else "InternalAccount"
    return QuoteAccountDestinationResource(
        account_id=public_id(kind, quote.destination_account_id), payment_rail=quote.payment_rail
    )
