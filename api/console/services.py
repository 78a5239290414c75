"""What the console may do, and the connections that its pages read with."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cardledger.api.console.rates import RateMemory
from cardledger.api.health.examination import Examination, Examine
from cardledger.ledger.storage.snapshot_connections import SnapshotConnections


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleServices:
    """What outlives a page; one per event loop."""

    mode: ConsoleMode
    snapshots: SnapshotConnections
    rates: RateMemory
    examination: Examination


@asynccontextmanager
async def running(
    config: ConsoleConfig, database_url: str, examine: Examine | None = None
) -> AsyncIterator[ConsoleServices]:
    """Yield the services of the console; connections open with the first page."""
    snapshots = SnapshotConnections(config.database_url or database_url)
    examination = Examination(examine)
    try:
        yield ConsoleServices(
            mode=config.mode, snapshots=snapshots, rates=RateMemory(), examination=examination
        )
    finally:
        await examination.close()
        await snapshots.dispose()
