"""Account numbers that tell a slip of the pen: check digits of IBAN, BIC, ABA and CLABE.

Sort codes and IFSC have check rules too, but their tables are not free: their shape is all we see.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from typing import Final

from stdnum import bic, iban

from cardledger.ledger.customers import wallet_addresses
from cardledger.schema.wire.customers.external_accounts import AccountInfo, error
from cardledger.schema.wire.errors import FieldError

_WEIGHTS: Final = (3, 7, 1)


def is_iban(text: str) -> bool:
    """Return whether country, length, structure and check digits (ISO 13616) fit.

    Source: the IBAN registry of SWIFT. Check digits inside the national part are not judged.
    """
    return iban.is_valid(text, check_country=False)


def is_bic(text: str) -> bool:
    """Return whether structure and country (ISO 9362) fit; not whether the bank exists."""
    return bic.is_valid(text)


def is_routing_number(digits: str) -> bool:
    """Return whether nine digits, weighted 3, 7, 1, add up to a multiple of ten (ABA)."""
    return sum(_weighted(digits)) % 10 == 0


def is_clabe(digits: str) -> bool:
    """Return whether the last digit makes the rest, weighted 3, 7, 1 and cut to one digit, round.

    Source: the rule of the Asociación de Bancos de México for 18-digit CLABE numbers.
    """
    total = sum(product % 10 for product in _weighted(digits[:-1]))
    return (total + int(digits[-1])) % 10 == 0


def _weighted(digits: str) -> Iterator[int]:
    return (int(digit) * weight for digit, weight in zip(digits, cycle(_WEIGHTS), strict=False))


_CHECKS: Final[Mapping[str, tuple[Callable[[str], bool], str]]] = {
    "iban": (is_iban, "is no IBAN: its country, length or check digits are wrong"),
    "swift_code": (is_bic, "is no BIC: its country does not exist"),
    "routing_number": (is_routing_number, "is no ABA routing number: its check digit is wrong"),
    "intermediary_routing_number": (
        is_routing_number,
        "is no ABA routing number: its check digit is wrong",
    ),
    "clabe_number": (is_clabe, "is no CLABE: its check digit is wrong"),
}
"""By field, whatever the variant; wallets are told apart by theirs (`wallet_addresses`)."""


def identifier_errors(info: AccountInfo) -> Iterator[FieldError]:
    """Yield the numbers and addresses in `info` that no account can have."""
    for field, (is_right, message) in _CHECKS.items():
        value = getattr(info, field, None)
        if value is not None and not is_right(value):
            yield error(field, message)
    for field, is_right in wallet_addresses.CHECKS.get(info.account_type, {}).items():
        value = getattr(info, field)
        if value is not None and not is_right(value):
            yield error(field, "is no address of this network, or one character of it is wrong")
