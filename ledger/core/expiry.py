"""How long an authorization is valid: a table by merchant category (expiry_windows.toml)."""

import tomllib
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class _Window:
    """One line of the table."""

    first: int
    last: int
    up_to: int | None
    duration: timedelta


def window(mcc: str | None, amount: int) -> timedelta:
    """Return how long an authorization of `amount` minor units at a merchant of `mcc` is valid."""
    for up_to, duration in _windows_of(mcc):
        if up_to is None or amount <= up_to:
            return duration
    return _DEFAULT


@lru_cache(maxsize=10_000)
def _windows_of(mcc: str | None) -> list[tuple[int | None, timedelta]]:
    """Return the lines of the table for one category: highest amount (None: any) and duration."""
    category = int(mcc) if mcc else 0
    lines = [line for line in _WINDOWS if line.first <= category <= line.last]
    return [(line.up_to, line.duration) for line in lines]


def _lines(table: dict[str, Any]) -> list[_Window]:
    return [
        _Window(int(first), int(last or first), line.get("up_to"), timedelta(days=line["days"]))
        for line in table["window"]
        for first, _, last in (categories.partition("-") for categories in line["categories"])
    ]


_TABLE: Final = tomllib.loads(
    files("cardledger.ledger.core").joinpath("expiry_windows.toml").read_text("utf-8")
)
_WINDOWS: Final = _lines(_TABLE)
_DEFAULT: Final = timedelta(days=_TABLE["default_days"])
