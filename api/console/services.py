"""What outlives a page of the console: connections that its pages read with, rates, results."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from cardledger.api.console.look import Look
from cardledger.api.console.mode import ConsoleConfig, ConsoleMode
from cardledger.api.console.rates import RateMemory
from cardledger.api.console.shared_results import SharedResults
from cardledger.api.health.examination import Examination, Examine
from cardledger.ledger.storage.snapshot_connections import SnapshotConnections


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleServices:
    """What outlives a page; one per event loop."""

    mode: ConsoleMode
    snapshots: SnapshotConnections
    rates: RateMemory
    looks: SharedResults[Look]
    examination: Examination


@asynccontextmanager
async def running(
    config: ConsoleConfig, database_url: str, examine: Examine | None = None
) -> AsyncIterator[ConsoleServices]:
    """Yield the services of the console; connections open with the first page."""
    snapshots = SnapshotConnections(config.database_url or database_url)
    looks = SharedResults[Look]()
    examination = Examination(examine)
    try:
        yield ConsoleServices(
            mode=config.mode,
            snapshots=snapshots,
            rates=RateMemory(),
            looks=looks,
            examination=examination,
        )
    finally:
        await looks.close()
        await examination.close()
        await snapshots.dispose()
