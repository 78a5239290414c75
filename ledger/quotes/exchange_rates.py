"""Exchange rates as a platform sees them: with spread, fees, rails and limits."""

from collections.abc import Generator, Iterator, Sequence
from typing import Any

from cardledger.ledger.core.payments.conversion import LockedSide, converted
from cardledger.ledger.exchange.rates import Pair, Rates
from cardledger.ledger.platforms.registry import Platform
from cardledger.ledger.quotes import corridors
from cardledger.schema.wire.common import CURRENCIES
from cardledger.schema.wire.exchange.rates import ExchangeRateFees, ExchangeRateResource


def offers(
    platform: Platform, pairs: Sequence[Pair], known: Rates, *, sending_amount: int
) -> Generator[None, None, list[dict[str, Any]]]:
    """Return what sending `sending_amount` gives in each of `pairs`, for each rail, as JSON.

    Pairs without a rate are left out. A step is a pair: hundreds of them take a tenth of a second.
    Raises: ConversionRangeError when an amount would be out of range.
    """
    found: list[dict[str, Any]] = []
    for pair in pairs:
        found += [offer.wire() for offer in _offers(platform, pair, known, sending_amount)]
        yield
    return found


def _offers(
    platform: Platform, pair: Pair, known: Rates, sending_amount: int
) -> Iterator[ExchangeRateResource]:
    rate = known.rate(*pair)
    if rate is None:
        return
    fees = corridors.fees_of(platform, pair.source)
    limits = corridors.limits_of(platform, pair.source, rate, fees)
    if sending_amount < corridors.least_of(rate, fees):
        # Too little to arrive: shown, because `minSendingAmount` says what is enough.
        received, total = 0, fees.fixed
    else:
        made = converted(LockedSide.SENDING, sending_amount, rate, fees)
        received, total = made.received, made.fee
    for rail in corridors.rails_of(pair.destination):
        yield ExchangeRateResource(
            source_currency=CURRENCIES[pair.source],
            destination_currency=CURRENCIES[pair.destination],
            destination_payment_rail=rail,
            min_sending_amount=limits.least,
            max_sending_amount=limits.largest,
            sending_amount=sending_amount,
            receiving_amount=received,
            exchange_rate=rate.price,
            fees=ExchangeRateFees(fixed=fees.fixed, total=total),
            updated_at=known.updated_at(*pair),
        )
