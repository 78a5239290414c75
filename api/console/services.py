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
    """What outlives a page; one per event loop.

    Pages read from `replica` where there is one, except those that must not lag behind.
    """

    mode: ConsoleMode
    primary: SnapshotConnections
    replica: SnapshotConnections | None
    rates: RateMemory
    looks: SharedResults[Look]
    examination: Examination

    def snapshots(self, *, may_lag: bool) -> SnapshotConnections:
        """Return the connections of a page; `may_lag`: those of the replica, where there is one."""
        return self.replica if may_lag and self.replica is not None else self.primary


@asynccontextmanager
async def running(
    config: ConsoleConfig, database_url: str, examine: Examine | None = None
) -> AsyncIterator[ConsoleServices]:
    """Yield the services of the console; connections open with the first page."""
    primary = SnapshotConnections(database_url)
    replica = None if config.database_url is None else SnapshotConnections(config.database_url)
    looks = SharedResults[Look]()
    examination = Examination(examine)
    try:
        yield ConsoleServices(
            mode=config.mode,
            primary=primary,
            replica=replica,
            rates=RateMemory(),
            looks=looks,
            examination=examination,
        )
    finally:
        await looks.close()
        await examination.close()
        await primary.dispose()
        if replica is not None:
            await replica.dispose()
