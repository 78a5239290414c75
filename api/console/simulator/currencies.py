"""The currency that the simulator offers a platform, and amounts in texts about it."""

import re
from collections.abc import Sequence
from typing import Final

from cardledger.api.console.html import formats
from cardledger.schema.wire.common import CRYPTO, CURRENCIES

_USUAL: Final = "USD"
_BALANCE: Final = 100  # Of a new cardholder, in whole units of its currency.
_AMOUNT: Final = re.compile(r"\{([0-9]+)\}", re.ASCII)


def usual(currencies: Sequence[str]) -> str | None:
    """Return the currency that is offered to a platform that has `currencies`.

    None: it has none that a card can spend.
    """
    spendable = [code for code in currencies if code not in CRYPTO]
    return _USUAL if _USUAL in spendable else next(iter(spendable), None)


def balance(currency: str) -> int:
    """Return the balance of a new cardholder, in minor units."""
    return int(_BALANCE * 10 ** CURRENCIES[currency].decimals)


def with_amounts(text: str, currency: str | None) -> str:
    """Return `text` with its amounts, such as `{1250}` minor units, as they are in `currency`."""
    code = currency or _USUAL
    return _AMOUNT.sub(lambda found: formats.decimal(int(found[1]), code), text)
