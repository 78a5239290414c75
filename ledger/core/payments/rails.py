"""Payment rails: what each can carry, how fast, and what it allows. One table, no I/O.

Limits and times are those of this ledger, not a promise of a rail. Limits are in minor units.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from cardledger.ledger.core.money import MAX_AMOUNT

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR


@dataclass(frozen=True, slots=True)
class Rail:
    """A payment rail; `currencies` None: any. `limits` are the most that it takes at once."""

    seconds: int  # Until it settles, usually.
    currencies: frozenset[str] | None = None
    limits: Mapping[str, int] | None = None
    supports_cancel: bool = True  # Before the payment is handed over.
    checks_names: bool = False
    can_pull: bool = False

    def limit_in(self, currency: str) -> int:
        """Return the most that it takes at once."""
        return (self.limits or {}).get(currency, MAX_AMOUNT)


def _in(*currencies: str) -> frozenset[str]:
    return frozenset(currencies)


RAILS: Final[Mapping[str, Rail]] = MappingProxyType(
    {
        "ACH": Rail(2 * _DAY, _in("USD"), can_pull=True),
        "ACH_COLOMBIA": Rail(_DAY, _in("COP")),
        "BANK_TRANSFER": Rail(_DAY),
        "BRE_B": Rail(_MINUTE, _in("COP")),
        "CIPS": Rail(_DAY, _in("CNY")),
        "FAST": Rail(_MINUTE, _in("SGD"), limits={"SGD": 20_000_000}),
        "FASTER_PAYMENTS": Rail(_MINUTE, _in("GBP"), {"GBP": 100_000_000}, checks_names=True),
        "FEDNOW": Rail(_MINUTE, _in("USD"), {"USD": 1_000_000_000}),
        "INSTAPAY": Rail(_MINUTE, _in("PHP"), {"PHP": 5_000_000}),
        "MOBILE_MONEY": Rail(_MINUTE),
        "NEFT": Rail(2 * _HOUR, _in("INR"), checks_names=True),
        "PAYNOW": Rail(_MINUTE, _in("SGD"), {"SGD": 20_000_000}),
        "PESONET": Rail(_DAY, _in("PHP")),
        "PIX": Rail(_MINUTE, _in("BRL"), checks_names=True),
        "RTGS": Rail(_HOUR),
        "RTP": Rail(_MINUTE, _in("USD"), {"USD": 1_000_000_000}),
        "SEPA": Rail(_DAY, _in("DKK", "EUR"), checks_names=True),
        "SEPA_INSTANT": Rail(_MINUTE, _in("DKK", "EUR"), checks_names=True),
        "SPEI": Rail(_MINUTE, _in("MXN"), checks_names=True),
        "SWIFT": Rail(2 * _DAY),
        "UNIONPAY": Rail(_HOUR, _in("CNY")),
        "UPI": Rail(_MINUTE, _in("INR"), {"INR": 10_000_000}, checks_names=True),
        "WIRE": Rail(_DAY, _in("USD")),
    }
)
"""Every rail, by the name that the API has for it."""


def takes(rail: str, currency: str, amount: int) -> bool:
    """Return whether `rail` carries `amount`, in minor units of `currency`."""
    known = RAILS[rail]
    is_currency = known.currencies is None or currency in known.currencies
    return is_currency and 0 < amount <= known.limit_in(currency)
