"""What the console may do: its settings, without what its pages need."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class ConsoleMode(StrEnum):
    """What the console may do."""

    OFF = "off"  # It has no path.
    READ = "read"
    ACT = "act"  # It also has buttons and forms, for tokens with the permission.


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConfig:
    """The settings of the console; without a URL of its own it reads the database of the API."""

    mode: ConsoleMode = ConsoleMode.OFF
    database_url: str | None = None


OFF: Final = ConsoleConfig()
"""No console."""
