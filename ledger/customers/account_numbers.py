"""Check digits of account numbers, which detect typing errors: IBAN, BIC, ABA and CLABE.

Sort codes and IFSC have check rules too, but their tables are not free: only their form is checked.
Check digits count where a payment rail is real. In a sandbox an identifier may end in anything, so
only its form counts: the pattern of its field (`schema.wire`), and that of a wallet's network.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from typing import Final

from stdnum import bic, iban, numdb
from stdnum.iso7064 import mod_97_10

from cardledger.ledger.customers import wallet_addresses
from cardledger.schema.wire.customers.external_accounts import AccountInfo, error
from cardledger.schema.wire.errors import FieldError

_WEIGHTS: Final = (3, 7, 1)


_UNREGISTERED_IBAN_LENGTHS: Final[Mapping[str, int]] = {
    "AO": 25, "BF": 28, "BJ": 28, "CF": 27, "CG": 27, "CI": 28, "CM": 27, "CV": 25, "DZ": 26,
    "GA": 27, "GQ": 27, "GW": 25, "IR": 26, "KM": 27, "MA": 28, "MG": 27, "ML": 28, "MZ": 25,
    "NE": 28, "SN": 28, "TD": 27, "TG": 28,
}  # fmt: skip
"""Lengths in countries that use IBANs and are not in SWIFT's registry."""


def is_iban(text: str) -> bool:
    """Return whether country, length, structure and check digits (ISO 13616) are valid.

    Source: SWIFT's IBAN registry, and the lengths of countries outside of it; national check digits
    within the account number are not checked.
    """
    if iban.is_valid(text, check_country=False):
        return True
    length = _UNREGISTERED_IBAN_LENGTHS.get(text[:2])
    return len(text) == length and mod_97_10.is_valid(text[4:] + text[:4])


def iban_objection(text: str) -> str | None:
    """Return what is wrong with an IBAN; None: nothing."""
    if is_iban(text):
        return None
    if not mod_97_10.is_valid(text[4:] + text[:4]):
        return "is not a valid IBAN: its check digits are wrong; look for a typing error"
    country = text[:2]
    length = _UNREGISTERED_IBAN_LENGTHS.get(country)
    if length is not None:
        return f"is not a valid IBAN: it must have {length} characters in {country}"
    if not numdb.get("iban").info(text)[0][1]:
        return f"is not a valid IBAN: {country} is not a country that uses IBANs"
    return f"is not a valid IBAN: its length or structure is not that of {country}"


def is_bic(text: str) -> bool:
    """Return whether structure and country (ISO 9362) are valid; not whether the bank exists."""
    return bic.is_valid(text)


def is_routing_number(digits: str) -> bool:
    """Return whether nine digits, weighted 3, 7, 1, add up to a multiple of ten (ABA)."""
    return sum(_weighted(digits)) % 10 == 0


def is_clabe(digits: str) -> bool:
    """Return whether the last digit completes the weighted sum of the others to a multiple of ten.

    The weights are 3, 7, 1, and only the last digit of each product counts.

    Source: the rule of the Asociación de Bancos de México for 18-digit CLABE numbers.
    """
    total = sum(product % 10 for product in _weighted(digits[:-1]))
    return (total + int(digits[-1])) % 10 == 0


def _weighted(digits: str) -> Iterator[int]:
    return (int(digit) * weight for digit, weight in zip(digits, cycle(_WEIGHTS), strict=False))


_NOT_ABA: Final = "is not a valid ABA routing number: its check digit is wrong"

Objection = Callable[[str], str | None]
"""What is wrong with an identifier; None: nothing."""


def _unless(is_right: Callable[[str], bool], message: str) -> Objection:
    return lambda value: None if is_right(value) else message


_OBJECTIONS: Final[Mapping[str, Objection]] = {
    "iban": iban_objection,
    "swift_code": _unless(is_bic, "is not a valid BIC: its country does not exist"),
    "routing_number": _unless(is_routing_number, _NOT_ABA),
    "intermediary_routing_number": _unless(is_routing_number, _NOT_ABA),
    "clabe_number": _unless(is_clabe, "is not a valid CLABE: its check digit is wrong"),
}
"""By field, for every account type but wallets (`wallet_addresses`)."""


def identifier_errors(info: AccountInfo, *, check_digits: bool) -> Iterator[FieldError]:
    """Yield an error for every invalid number or address in `info`.

    Without `check_digits` only forms count.
    """
    if check_digits:
        for field, object_to in _OBJECTIONS.items():
            yield from _objection(info, field, object_to)
    of_wallets = wallet_addresses.OBJECTIONS if check_digits else wallet_addresses.FORMS
    for field, object_to in of_wallets.get(info.account_type, {}).items():
        yield from _objection(info, field, object_to)


def _objection(info: AccountInfo, field: str, object_to: Objection) -> Iterator[FieldError]:
    value = getattr(info, field, None)
    message = None if value is None else object_to(value)
    if message is not None:
        yield error(field, message)
