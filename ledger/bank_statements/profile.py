"""A profile of a bank: how its CSV differs from the canonical form, as TOML says it.

Source: docs/bank-statements.md
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cardledger.ledger.file_profiles import profile as files
from cardledger.ledger.file_profiles.profile import FileProfile, ProfileError
from cardledger.schema.wire.iso4217 import CODES

SHIPPED: Final = Path(__file__).with_name("profiles")
"""The folder of the profiles that are part of the release, each with a sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(FileProfile):
    """How to read a statement.

    `columns` may have `balance`, that after the line; `records` has the values `opening` and
    `closing` of rows with a balance as their amount. A debit of `sides` left the account.
    """


_OF_LINES: Final = frozenset(
    {"booking_date", "value_date", "amount", "currency", "bank_reference", "description"}
)
_TABLES: Final[Mapping[str, frozenset[str]]] = {
    "columns": _OF_LINES | {"opening", "closing", "balance", "account", "statement_id"},
    "constants": frozenset({"currency", "account"}),
    "records": frozenset({"column", "opening", "closing"}),
    "amounts": frozenset({"unit", "decimal", "grouping"}),
    "sides": frozenset({"column", "debit", "credit"}),
    "dates": frozenset({"booking_date", "value_date"}),
}
_PLACES: Final = frozenset({"columns", "records", "sides"})


def shipped() -> list[str]:
    """Return the names of the profiles that are part of the release."""
    return files.names_in(SHIPPED)


def load(name: str) -> Profile:
    """Return the profile in the file `name`, or the one of the release that is called so.

    Raises: ProfileError.
    """
    return files.load(name, SHIPPED, parse)


def parse(text: str) -> Profile:
    """Return the profile in `text`. Raises: ProfileError."""
    profile = files.parse(text, Profile, _TABLES, _PLACES)
    _check(profile)
    return profile


def _check(profile: Profile) -> None:
    columns = profile.columns
    for name in ("booking_date", "amount"):
        if name not in columns:
            raise ProfileError(f"columns.{name}: is missing")
    if "currency" not in columns and "currency" not in profile.constants:
        raise ProfileError("columns.currency: is missing, and no constant either")
    if profile.constants.get("currency", "USD") not in CODES:
        raise ProfileError("constants.currency: must be a code of ISO 4217")
    _check_balances(profile)
    if profile.sides and not {"column", "debit", "credit"} <= profile.sides.keys():
        raise ProfileError("sides: must have column, debit and credit")


def _check_balances(profile: Profile) -> None:
    columns = profile.columns
    by_records = {"column", "opening", "closing"} <= profile.records.keys()
    by_columns = {"opening", "closing"} <= columns.keys()
    if by_records + by_columns + ("balance" in columns) != 1:
        raise ProfileError(
            "columns: must have either opening and closing, or balance, the one after each line; or"
            " records must have column, opening and closing"
        )
