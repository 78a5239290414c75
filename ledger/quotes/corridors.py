"""Corridors: from which currency into which one can be converted, by which rail, within what.

Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cardledger.ledger.core.payments.conversion import (
    ConversionRangeError,
    Fees,
    LockedSide,
    Rate,
    converted,
    sent_for,
)
from cardledger.ledger.platforms.registry import Platform
from cardledger.schema.wire.common import CRYPTO, CURRENCIES, MAX_AMOUNT
from cardledger.schema.wire.customers.account_variants import VARIANTS
from cardledger.schema.wire.exchange.rates import MAX_QUOTED

_FEE_TYPE: Final = "CROSS_CURRENCY_TRANSACTION"

_NETWORKS: Final[Mapping[str, Sequence[str]]] = {
    "BTC": ("LIGHTNING", "SPARK"),
    "USDB": ("SPARK",),
    "USDC": ("BASE", "ETHEREUM", "POLYGON", "SOLANA", "TRON", "SPARK"),
}
"""The networks of wallets, which have no payment rail."""

_ANYWHERE: Final = ("SWIFT",)


def _bank_rails(currency: str) -> Sequence[str]:
    """Return the rails of the bank accounts that are named after `currency`, or that hold it."""
    named = VARIANTS.get(f"{currency}_ACCOUNT")
    if named is not None:
        return tuple(named.rails)
    holding = [
        rail
        for variant in VARIANTS.values()
        if tuple(variant.rails) != _ANYWHERE and currency in (variant.currencies or ())
        for rail in variant.rails
    ]
    return tuple(dict.fromkeys(holding)) or _ANYWHERE


def rails_of(currency: str) -> Sequence[str]:
    """Return the rails, or the networks of wallets, by which `currency` is paid out."""
    if currency in CRYPTO:
        return _NETWORKS.get(currency, ())
    return _bank_rails(currency)


def currencies() -> Sequence[str]:
    """Return every currency that can be received, by code."""
    return sorted(code for code in CURRENCIES if rails_of(code))


# --- fees and limits ---------------------------------------------------------------------------


def fees_of(platform: Platform, currency: str) -> Fees:
    """Return what `platform` charges for a conversion from `currency`; nothing by default."""
    for fee in platform.fee_configs:
        if (fee["feeType"], fee["sourceCurrency"]) == (_FEE_TYPE, currency):
            return Fees(platform_fixed=fee["fixedFee"], platform_bps=fee["variableFeeBps"])
    return Fees()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The least and the largest amount that can be sent, in minor units."""

    least: int
    largest: int

    def allow(self, amount: int) -> bool:
        """Return whether `amount` is within the limits."""
        return self.least <= amount <= self.largest


def limits_of(platform: Platform, currency: str, rate: Rate, fees: Fees) -> Limits:
    """Return the limits of a conversion: the platform's for the currency, and what is possible.

    At least one minor unit is received, and what is received fits a quote.
    """
    settings: Mapping[str, Any] = platform.currency_settings.get(currency, {})
    least = max(least_of(rate, fees), int(settings.get("minAmount", 1)))
    possible = sent_for(MAX_QUOTED, rate)
    largest = min(possible, MAX_QUOTED, int(settings.get("maxAmount", MAX_AMOUNT)))
    return Limits(least=least, largest=max(largest, 0))


def least_of(rate: Rate, fees: Fees) -> int:
    """Return the least amount to send for which something is received; above all if none is."""
    try:
        return converted(LockedSide.RECEIVING, 1, rate, fees).sent
    except ConversionRangeError:
        return MAX_QUOTED + 1
