"""What a withdrawal to a blockchain costs: a table by currency and network, integers only.

Pure. Amounts are minor units of the currency that is withdrawn.
"""

import re
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

_WHOLE_BPS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fee:
    """The fee of one withdrawal, in minor units of `asset`, the currency that is withdrawn."""

    asset: str
    network_fee: int
    application_fee: int

    @property
    def total(self) -> int:
        """What the withdrawal costs in all."""
        return self.network_fee + self.application_fee


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    currency: str
    network: str
    network_fee: int
    fixed: int
    bps: int


def networks_of(currency: str) -> list[str]:
    """Return the networks to which `currency` can be withdrawn, in alphabetical order."""
    return sorted(network for code, network in _ROWS if code == currency)


def estimate(currency: str, network: str, amount: int) -> Fee | None:
    """Return the fee of withdrawing `amount` of `currency` to `network`; None: it is not possible.

    The application's part is rounded up to a whole minor unit.
    """
    row = _ROWS.get((currency, network))
    if row is None:
        return None
    variable = -(-amount * row.bps // _WHOLE_BPS)
    return Fee(
        asset=currency,
        network_fee=row.network_fee,
        application_fee=row.fixed + variable,
    )


def is_address(network: str, address: str) -> bool:
    """Return whether `address` has the form of an address of `network`."""
    return bool(_ADDRESSES[network].fullmatch(address))


_TABLE: Final = tomllib.loads(
    files("cardledger.ledger.customers").joinpath("withdrawal_fees.toml").read_text("utf-8")
)
_ROWS: Final = {(row["currency"], row["network"]): _Row(**row) for row in _TABLE["fee"]}
_ADDRESSES: Final = {
    network: re.compile(pattern, re.ASCII) for network, pattern in _TABLE["addresses"].items()
}
