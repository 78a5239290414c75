"""A profile says how the CSV of a sender differs from a canonical form: its TOML, read and checked.

Sources: docs/network-files.md, docs/bank-statements.md
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

ENCODINGS: Final = ("utf-8", "iso-8859-1", "iso-8859-15", "windows-1252", "ascii")
"""Encodings of files: those in which a line ends with the byte of LF."""

DEBIT: Final = "D"
CREDIT: Final = "C"

_MAX_BYTES: Final = 100_000
_TEXTS: Final = ("name", "delimiter", "quote", "encoding")

Where = str | int
"""Where a field is: the name of its column, or its place in the row from 1 on."""

Tables = Mapping[str, frozenset[str] | None]
"""The names that each table of a profile may have; None: any."""


class ProfileError(Exception):
    """A profile is not valid; the message says which key, and what it must be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProfile:
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
    """`column`, and its values for rows that are no lines."""
    amounts: Mapping[str, str] = field(default_factory=dict)
    """`unit`: minor or major; the signs `decimal` and `grouping` of major units."""
    sides: Mapping[str, Where] = field(default_factory=dict)
    """`column`, with the values `debit` and `credit`."""
    dates: Mapping[str, str] = field(default_factory=dict)
    """The form of dates, as of `strptime`; else YYYY-MM-DD."""


P = TypeVar("P", bound=FileProfile)


def names_in(folder: Path) -> list[str]:
    """Return the names of the profiles in `folder`."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def load(name: str, folder: Path, parse: Callable[[str], P]) -> P:
    """Return the profile in the file `name`, or the one of `folder` that is called so.

    Raises: ProfileError.
    """
    path = Path(name) if name.endswith(".toml") else folder / f"{name}.toml"
    if not name.endswith(".toml") and name not in names_in(folder):
        raise ProfileError(f"there is no profile {name!a}; there are {', '.join(names_in(folder))}")
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


def parse(text: str, kind: type[P], tables: Tables, places: frozenset[str]) -> P:
    """Return the profile of `kind` in `text`, which may have `tables`.

    Items of `places` are text or the place of a column, of other tables text. Raises: ProfileError.
    """
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"not TOML: {error}") from None
    for key, value in found.items():
        _check_key(key, value, tables, places)
    if "name" not in found:
        raise ProfileError("name: is missing")
    profile = kind(**found)
    _check_form(profile)
    _check_amounts(profile.amounts)
    return profile


def _check_key(key: str, value: Any, tables: Tables, places: frozenset[str]) -> None:  # noqa: ANN401 - TOML
    if key in _TEXTS:
        is_right, form = isinstance(value, str), "text"
    elif key == "names_columns":
        is_right, form = isinstance(value, bool), "true or false"
    elif key in tables:
        _check_table(key, value, tables[key], has_places=key in places)
        return
    else:
        raise ProfileError(f"{key}: is not a key of a profile")
    if not is_right:
        raise ProfileError(f"{key}: must be {form}")


def _check_table(
    key: str,
    value: Any,  # noqa: ANN401 - TOML
    names: frozenset[str] | None,
    *,
    has_places: bool,
) -> None:
    if not isinstance(value, dict):
        raise ProfileError(f"{key}: must be a table")
    for name, item in value.items():
        if names is not None and name not in names:
            raise ProfileError(f"{key}.{name}: must be one of {', '.join(sorted(names))}")
        is_place = has_places and isinstance(item, int) and not isinstance(item, bool) and item > 0
        if not isinstance(item, str) and not is_place:
            form = "the name of a column, or its place from 1 on" if has_places else "text"
            raise ProfileError(f"{key}.{name}: must be {form}")


def _check_form(profile: FileProfile) -> None:
    for name in ("delimiter", "quote"):
        if len(getattr(profile, name)) != 1 or getattr(profile, name) in "\r\n":
            raise ProfileError(f"{name}: must be one character")
    if profile.encoding not in ENCODINGS:
        raise ProfileError(f"encoding: must be one of {', '.join(ENCODINGS)}")
    for name, where in profile.columns.items():
        if not profile.names_columns and isinstance(where, str):
            raise ProfileError(f"columns.{name}: must be a place, as names_columns is false")


def _check_amounts(amounts: Mapping[str, str]) -> None:
    if amounts.get("unit", "minor") not in {"minor", "major"}:
        raise ProfileError("amounts.unit: must be minor or major")
    for name in ("decimal", "grouping"):
        if len(amounts.get(name, ".")) != 1 or amounts.get(name, ".").isalnum():
            raise ProfileError(f"amounts.{name}: must be one sign, such as a comma")
    if amounts.get("decimal", ".") == amounts.get("grouping"):
        raise ProfileError("amounts.grouping: must differ from the decimal sign")
