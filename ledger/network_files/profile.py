"""A profile: how the file of a processor differs from the canonical form, as TOML says it.

Source: docs/network-files.md
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cardledger.ledger.file_profiles import profile as files
from cardledger.ledger.file_profiles.profile import CREDIT, DEBIT, FileProfile, ProfileError, Where
from cardledger.ledger.network_files.records import COLUMNS, SIGNS
from cardledger.schema.wire.iso4217 import CODES

SHIPPED: Final = Path(__file__).with_name("profiles")
"""The folder of the profiles that are part of the release, each with a sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(FileProfile):
    """How to read a file.

    `records` has the values `header`, `line` and `trailer`. No `header`: the first line has its
    fields. No `line`: all other rows. `sides` may have `sign`, the side of a minus sign, and no
    column.
    """

    header: Mapping[str, Where] = field(default_factory=dict)
    """Where the header record has file_id, network, settlement_date and cycle."""
    totals: Mapping[str, Where] = field(default_factory=dict)
    """`record`: header or trailer; where it has count, amount, interchange, currency and side."""
    types: Mapping[str, str] = field(default_factory=dict)
    """The type of each code of the column `type`, or of code and side: `05/C`."""
    currencies: Mapping[str, str] = field(default_factory=dict)
    """The currency of each code that is not one of ISO 4217."""


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
_PLACES: Final = frozenset({"columns", "records", "header", "totals", "sides"})


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
    _check_codes(profile)
    _check_sides(profile)
    _check_totals(profile)
    return profile


def _check_codes(profile: Profile) -> None:
    for key, kind in profile.types.items():
        if kind not in SIGNS:
            raise ProfileError(f"types.{key}: must be one of {', '.join(SIGNS)}")
    for key, currency in profile.currencies.items():
        if currency not in CODES:
            raise ProfileError(f"currencies.{key}: must be a code of ISO 4217")


def _check_sides(profile: Profile) -> None:
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
