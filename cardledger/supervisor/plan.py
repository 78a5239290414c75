"""What to run, and the steps of setting it up."""

from dataclasses import dataclass
from pathlib import Path

from cardledger.config.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Something that has been set up, for display; `cost` is the price of this way to do it."""

    name: str
    detail: str
    seconds: float
    cost: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run."""

    settings: Settings
    workers: int = 1
    any_port: bool = False  # Use the next free port when this one is in use.
    ready_file: Path | None = None
