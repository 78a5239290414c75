"""Adds totals of entries behind the engine, one worker of an installation at a time.

Source: docs/decisions/0066-totals.md
"""

from typing import Final

from sqlalchemy import Engine as Database

from cardledger.ledger.books import totals
from cardledger.ledger.storage.engines import driver
from cardledger.workers.signals.periodic_task import PeriodicTask

_EVERY_S: Final = 2.0


class Totals:
    """Adds a page of totals at a time, in a short database transaction each."""

    def __init__(self, database: Database) -> None:
        """Work over connections of `database`; `task` is to be started and stopped."""
        self._database: Final = database
        self.task: Final = PeriodicTask("totals", self.advance, every_s=_EVERY_S)

    def advance(self) -> bool:
        """Do what is next; return whether there may be more."""
        with self._database.begin() as connection:
            has_more = totals.advance(driver(connection))
        if has_more:
            with self._database.begin() as connection:
                totals.summarize(driver(connection))
        return has_more
