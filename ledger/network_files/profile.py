"""A profile: how the file of a processor differs from the canonical form, as TOML says it.

Source: docs/network-files.md
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cardledger.ledger.network_files.records import COLUMNS, SIGNS
from cardledger.schema.wire.iso4217 import CODES

SHIPPED: Final = Path(__file__).with_name("profiles")
"""The folder of the profiles that are part of the release, each with a sample."""

ENCODINGS: Final = ("utf-8", "iso-8859-1", "iso-8859-15", "windows-1252", "ascii")
"""Encodings of files: those in which a line ends with the byte of LF."""

DEBIT: Final = "D"
CREDIT: Final = "C"

_MAX_BYTES: Final = 100_000

Where = str | int
"""Where a field is: the name of its column, or its place in the row from 1 on."""


class ProfileError(Exception):
    """A profile is not valid; the message says which key, and what it must be."""


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
    """Where a line has each column of the canonical form."""
    constants: Mapping[str, str] = field(default_factory=dict)
    """Columns of the canonical form with the same value in the whole file."""
    records: Mapping[str, Where] = field(default_factory=dict)
    """`column`, and its values `header`, `line` and `trailer`. No `header`: the first line has its
    fields. No `line`: all other rows."""
    header: Mapping[str, Where] = field(default_factory=dict)
    """Where the header record has file_id, network, settlement_date and cycle."""
    totals: Mapping[str, Where] = field(default_factory=dict)
    """`record`: header or trailer; where it has count, amount, interchange, currency and side."""
    amounts: Mapping[str, str] = field(default_factory=dict)
    """`unit`: minor or major; the signs `decimal` and `grouping` of major units."""
    sides: Mapping[str, Where] = field(default_factory=dict)
    """`column`, with the values `debit` and `credit`; or `sign`: the side of a minus sign."""
    types: Mapping[str, str] = field(default_factory=dict)
    """The type of each code of the column `type`, or of code and side: `05/C`."""
    currencies: Mapping[str, str] = field(default_factory=dict)
    """The currency of each code that is not one of ISO 4217."""
    dates: Mapping[str, str] = field(default_factory=dict)
    """The form of settlement_date and transaction_date, as of `strptime`; else YYYY-MM-DD."""


_TABLES: Final[Mapping[str, frozenset[str] | None]] = {
    "columns": frozenset(COLUMNS) - {"record", "count"},
    "constants": frozenset(COLUMNS) - {"record", "count", "amount"},
    "records": frozenset({"column", "header", "line", "trailer"}),
    "header": frozenset({"file_id", "network", "settlement_date", "cycle"}),
    "totals": frozenset({"record", "count", "amount", "interchange", "currency", "side"}),
    "amounts": frozenset({"unit", "decimal", "grouping"}),
    "sides": frozenset({"column", "debit", "credit", "sign"}),
    "types": None,
    "currencies": None,
    "dates": frozenset({"settlement_date", "transaction_date"}),
}
_TEXTS: Final = ("name", "delimiter", "quote", "encoding")


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
    if key in _TEXTS:
        is_right, form = isinstance(value, str), "text"
    elif key == "names_columns":
        is_right, form = isinstance(value, bool), "true or false"
    elif key in _TABLES:
        _check_table(key, value)
        return
    else:
        raise ProfileError(f"{key}: is not a key of a profile")
    if not is_right:
        raise ProfileError(f"{key}: must be {form}")


def _check_table(key: str, value: Any) -> None:  # noqa: ANN401 - TOML
    if not isinstance(value, dict):
        raise ProfileError(f"{key}: must be a table")
    names = _TABLES[key]
    places = key in {"columns", "records", "header", "totals", "sides"}
    for name, item in value.items():
        if names is not None and name not in names:
            raise ProfileError(f"{key}.{name}: must be one of {', '.join(sorted(names))}")
        is_place = places and isinstance(item, int) and not isinstance(item, bool) and item > 0
        if not isinstance(item, str) and not is_place:
            form = "the name of a column, or its place from 1 on" if places else "text"
            raise ProfileError(f"{key}.{name}: must be {form}")


def _check(profile: Profile) -> None:
    for name in ("delimiter", "quote"):
        if len(getattr(profile, name)) != 1 or getattr(profile, name) in "\r\n":
            raise ProfileError(f"{name}: must be one character")
    if profile.encoding not in ENCODINGS:
        raise ProfileError(f"encoding: must be one of {', '.join(ENCODINGS)}")
    for name, where in profile.columns.items():
        if not profile.names_columns and isinstance(where, str):
            raise ProfileError(f"columns.{name}: must be a place, as names_columns is false")
    _check_codes(profile)
    _check_amounts(profile)
    _check_totals(profile)


def _check_codes(profile: Profile) -> None:
    for key, kind in profile.types.items():
        if kind not in SIGNS:
            raise ProfileError(f"types.{key}: must be one of {', '.join(SIGNS)}")
    for key, currency in profile.currencies.items():
        if currency not in CODES:
            raise ProfileError(f"currencies.{key}: must be a code of ISO 4217")


def _check_amounts(profile: Profile) -> None:
    if profile.amounts.get("unit", "minor") not in {"minor", "major"}:
        raise ProfileError("amounts.unit: must be minor or major")
    for name in ("decimal", "grouping"):
        if len(profile.amounts.get(name, ".")) != 1 or profile.amounts.get(name, ".").isalnum():
            raise ProfileError(f"amounts.{name}: must be one sign, such as a comma")
    if profile.amounts.get("decimal", ".") == profile.amounts.get("grouping"):
        raise ProfileError("amounts.grouping: must differ from the decimal sign")
    sides = profile.sides
    if sides and (("sign" in sides) == ("column" in sides)):
        raise ProfileError("sides: must have either column, debit and credit, or sign")
    if "column" in sides and not {"debit", "credit"} <= sides.keys():
        raise ProfileError("sides: must have debit and credit beside column")
    if sides.get("sign", DEBIT) not in {DEBIT, CREDIT}:
        raise ProfileError("sides.sign: must be D or C, the side of an amount with a minus sign")
    if "amount" not in profile.columns:
        raise ProfileError("columns.amount: is missing")


def _check_totals(profile: Profile) -> None:
    record = profile.totals.get("record")
    if record not in {"header", "trailer"}:
        raise ProfileError("totals.record: must be header or trailer: where control totals are")
    if record not in profile.records:
        raise ProfileError(f"records.{record}: is missing: the totals are there")
    if not {"count", "amount"} <= profile.totals.keys():
        raise ProfileError("totals: must have count and amount")
    if "column" not in profile.records:
        raise ProfileError("records.column: is missing: it tells records apart")
    for name in ("file_id", "network", "settlement_date"):
        tables = (
            profile.constants,
            profile.header if "header" in profile.records else {},
            profile.columns if "header" not in profile.records else {},
        )
        if not any(name in table for table in tables):
            place = "header" if "header" in profile.records else "columns"
            raise ProfileError(f"{place}.{name}: is missing, and no constant either")
