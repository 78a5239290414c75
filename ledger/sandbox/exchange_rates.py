"""The sandbox's source of exchange rates: a file of round figures (exchange_rates.toml)."""

from fractions import Fraction
from functools import cache
from importlib.resources import files

from typing_extensions import override

from cardledger.ledger.exchange import rate_file
from cardledger.ledger.exchange.rate_file import RateFile
from cardledger.ledger.ports import ReferenceRates


class SandboxExchangeRates(ReferenceRates):
    """Knows a rate for every currency; it never changes."""

    @override
    def per_dollar(self, currency: str) -> Fraction | None:
        file = _file()
        return Fraction(1) if currency == file.base else file.rates.get(currency)


@cache
def _file() -> RateFile:
    content = files("cardledger.ledger.sandbox").joinpath("exchange_rates.toml").read_bytes()
    return rate_file.parse(content)
