"""The result of one check of an installation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

OK: Final = "ok"
WARN: Final = "warn"
FAIL: Final = "fail"
UNKNOWN: Final = "?"
"""The state of what this login may not look at."""

CONNECTION_NAME: Final = "cardledger doctor"
"""The name of the connection of `cardledger doctor`, which is none of a process of the system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check; `fix` is the command that solves a problem."""

    name: str
    state: str
    detail: str
    fix: str | None = None


NamedCheck = tuple[str, Callable[[], Finding]]
"""A check, with the name of its finding."""
