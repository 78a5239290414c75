"""A profile of a bank: how its CSV differs from the canonical form, as TOML says it.

Source: docs/bank-statements.md
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cardledger.ledger.network_files.profile import CREDIT, DEBIT, ENCODINGS, ProfileError, Where
from cardledger.schema.wire.iso4217 import CODES

SHIPPED: Final = Path(__file__).with_name("profiles")
"""The folder of the profiles that are part of the release, each with a sample."""

_MAX_BYTES: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How to read a file; the keys of the TOML file have the same names."""

    name: str
    delimiter: str = ","
    quote: str = '"'
    encoding: str = "utf-8"
    names_columns: bool = True
    """Whether the first row names the columns; otherwise columns are places, from 1 on."""
    columns: Mapping[str, Where] = field(default_factory=dict)
    """Where a line has each column of the canonical form, or `balance`: that after the line."""
    constants: Mapping[str, str] = field(default_factory=dict)
    """Columns of the canonical form with the same value in the whole file."""
    records: Mapping[str, Where] = field(default_factory=dict)
    """`column`, and its values `opening` and `closing`: rows with a balance as their amount."""
    amounts: Mapping[str, str] = field(default_factory=dict)
    """`unit`: minor or major; the signs `decimal` and `grouping` of major units."""
    sides: Mapping[str, Where] = field(default_factory=dict)
    """`column`, with the values `debit` (it left the account) and `credit`."""
    dates: Mapping[str, str] = field(default_factory=dict)
    """The form of booking_date and value_date, as of `strptime`; else YYYY-MM-DD."""


_TEXTS: Final = ("name", "delimiter", "quote", "encoding")
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
_PLACES: Final = ("columns", "records", "sides")


def shipped() -> list[str]:
    """Return the names of the profiles that are part of the release."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def load(name: str) -> Profile:
    """Return the profile in the file `name`, or the one of the release that is called so.

    Raises: ProfileError.
    """
    path = Path(name) if name.endswith(".toml") else SHIPPED / f"{name}.toml"
    if not name.endswith(".toml") and name not in shipped():
        raise ProfileError(f"there is no profile {name!a}; there are {', '.join(shipped())}")
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}") from None
    if len(text) > _MAX_BYTES:
        raise ProfileError(f"{path}: must have at most {_MAX_BYTES} bytes")
    try:
        return parse(text.decode())
    except UnicodeDecodeError:
        raise ProfileError(f"{path}: must be UTF-8") from None
    except ProfileError as error:
        raise ProfileError(f"{path}: {error}") from None


def parse(text: str) -> Profile:
    """Return the profile in `text`. Raises: ProfileError."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"not TOML: {error}") from None
    for key, value in found.items():
        _check_key(key, value)
    if "name" not in found:
        raise ProfileError("name: is missing")
    profile = Profile(**found)
    _check(profile)
    return profile


def _check_key(key: str, value: Any) -> None:  # noqa: ANN401 - TOML
    if key in _TABLES:
        _check_table(key, value)
    elif key in _TEXTS:
        if not isinstance(value, str):
            raise ProfileError(f"{key}: must be text")
    elif key != "names_columns":
        raise ProfileError(f"{key}: is not a key of a profile")
    elif not isinstance(value, bool):
        raise ProfileError(f"{key}: must be true or false")


def _check_table(key: str, value: Any) -> None:  # noqa: ANN401 - TOML
    if not isinstance(value, dict):
        raise ProfileError(f"{key}: must be a table")
    for name, item in value.items():
        if name not in _TABLES[key]:
            raise ProfileError(f"{key}.{name}: must be one of {', '.join(sorted(_TABLES[key]))}")
        is_place = isinstance(item, int) and not isinstance(item, bool) and item > 0
        if not isinstance(item, str) and not (is_place and key in _PLACES):
            raise ProfileError(
                f"{key}.{name}: must be "
                + ("the name of a column, or its place from 1 on" if key in _PLACES else "text")
            )


def _check(profile: Profile) -> None:
    _check_form(profile)
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
    _check_amounts(profile.amounts)


def _check_form(profile: Profile) -> None:
    for name in ("delimiter", "quote"):
        if len(getattr(profile, name)) != 1 or getattr(profile, name) in "\r\n":
            raise ProfileError(f"{name}: must be one character")
    if profile.encoding not in ENCODINGS:
        raise ProfileError(f"encoding: must be one of {', '.join(ENCODINGS)}")
    for name, where in profile.columns.items():
        if not profile.names_columns and isinstance(where, str):
            raise ProfileError(f"columns.{name}: must be a place, as names_columns is false")


def _check_balances(profile: Profile) -> None:
    columns = profile.columns
    by_records = {"column", "opening", "closing"} <= profile.records.keys()
    by_columns = {"opening", "closing"} <= columns.keys()
    if by_records + by_columns + ("balance" in columns) != 1:
        raise ProfileError(
            "columns: must have either opening and closing, or balance, the one after each line; or"
            " records must have column, opening and closing"
        )


def _check_amounts(amounts: Mapping[str, str]) -> None:
    if amounts.get("unit", "minor") not in {"minor", "major"}:
        raise ProfileError("amounts.unit: must be minor or major")
    for name in ("decimal", "grouping"):
        if len(amounts.get(name, ".")) != 1 or amounts.get(name, ".").isalnum():
            raise ProfileError(f"amounts.{name}: must be one sign, such as a comma")
    if amounts.get("decimal", ".") == amounts.get("grouping"):
        raise ProfileError("amounts.grouping: must differ from the decimal sign")


__all__ = ["CREDIT", "DEBIT", "Profile", "ProfileError", "Where", "load", "parse", "shipped"]
