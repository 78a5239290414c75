"""The console: pages for people, made of what the API answers (docs/console.md).

A page parses its request, calls readers of the ledger and renders; it has no SQL and no rules.
"""

from typing import Final

from cardledger.api import BASE_PATH

ROOT: Final = "/console"
"""The path of the first page; the others are below it."""

_BELOW: Final = f"{ROOT}/"

UNVERSIONED: Final = frozenset({"/network-events"})
"""Paths of the API that are not below its base path."""


def api_path(path: str) -> str:
    """Return the full path of an operation of the API; `path` may have a query."""
    return path if path.partition("?")[0] in UNVERSIONED else f"{BASE_PATH}{path}"


def is_below_root(path: str) -> bool:
    """Return whether `path` is that of the console or below it."""
    return path == ROOT or path.startswith(_BELOW)
